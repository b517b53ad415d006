//! The lifeline: the process between an owner and its server, which ends the server's whole tree when the owner has gone.
//!
//! It is our own binary, run with a hidden first argument ([`ARGUMENT`]); the binary calls [`run`] first thing in `main`,
//! before any runtime or argument parser. No threads, no runtime, about a megabyte.
//!
//! Invariants
//! - Its standard streams are the server's pipes until the server runs, and the null device from then on: no copy of a pipe
//!   stays here, so that end-of-file works in both directions.
//! - The link to the owner is never inherited by the server. Its end means that the owner has gone, by whatever cause.
//! - It signals the server's group only while the server has not been reaped, and descendants only by pidfd and start time.
//! - It leaves when it has no descendants any more, or when the sweep's limit is over and it has said how many are left.
//!
//! Theory of operation: one `poll` over the link, SIGCHLD and the stop signals. The owner sends single bytes (`T`, `K`).
//! End-of-file on the link, SIGTERM, SIGINT or SIGHUP start the same ladder that the owner would have climbed; the owner's
//! death has closed the server's stdin already. When the server has ended, everything that is left of its tree is swept:
//! its orphans have come here, because the lifeline is a subreaper.

use std::{
    ffi::{CString, OsString},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags},
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd},
    net::{RecvFlags, SendFlags, recv, send},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process_group, waitid,
    },
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
    time::{ClockId, clock_gettime},
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use unhang_switches::stands;

use crate::{
    ladder::{Action, Ladder, Patience},
    pipe::wait,
    server::{LIFELINE_NAME, Report, Swept, Tier, command},
    spawn::{Exit, Launch, Place, Process, Stream, spawn},
    sweep::{self, Sweep},
    system::{
        self,
        control_group::{self, ControlGroup},
    },
    table::descendants,
};

/// The hidden first argument. It does not contain the name of the program, so that `pkill -f` with that spares the lifeline.
pub const ARGUMENT: &str = "mcp-lifeline";

/// Exit code where the arguments make no sense: nobody but ourselves is meant to call this.
const USAGE: u8 = 2;

/// Holds one server; `arguments` are those after the hidden words. Returns when its tree has ended.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(plan) = Plan::parse(arguments) else { return ExitCode::from(USAGE) };
    match Lifeline::start(&plan) {
        Ok(Some(lifeline)) => lifeline.hold(),
        Ok(None) => {}
        Err(_) => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

/// What the owner asked for.
struct Plan {
    link: RawFd,
    patience: Patience,
    best_tier: Tier,
    program: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

impl Plan {
    /// Options in any order, `--`, the file to execute, the server's name for itself, its arguments.
    fn parse(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let (mut link, mut grace, mut limit, mut best_tier) = (None, None, None, Tier::ControlGroup);
        for word in words.by_ref() {
            let word = word.to_str()?;
            if word == "--" {
                break;
            }
            match word.split_once('=')? {
                ("--link", number) => link = number.parse().ok(),
                ("--grace", millis) => grace = millis.parse().ok(),
                ("--limit", millis) => limit = millis.parse().ok(),
                ("--tier", name) => best_tier = Tier::from_name(name)?,
                _ => return None,
            }
        }
        Some(Self {
            link: link?,
            patience: Patience { grace: Duration::from_millis(grace?), limit: Duration::from_millis(limit?) },
            best_tier,
            program: words.next()?.into(),
            name: words.next()?,
            arguments: words.collect(),
        })
    }
}

struct Lifeline {
    link: OwnedFd,
    /// Whether the owner is there.
    is_owned: bool,
    children: UnixStream,
    stops: UnixStream,
    server: Pid,
    server_ended: bool,
    /// Whether the owner wants everything dead at once.
    is_condemned: bool,
    is_subreaper: bool,
    group: Option<ControlGroup>,
    ladder: Ladder,
}

impl Lifeline {
    /// Starts the server. None when that failed and the owner was told.
    fn start(plan: &Plan) -> io::Result<Option<Self>> {
        let link = adopt_link(plan.link)?;
        let strangers = inherited_descriptors(&link);
        if stands("lifeline-name")
            && let Ok(name) = CString::new(LIFELINE_NAME)
        {
            system::set_name(&name);
        }
        let is_subreaper = stands("subreaper") && system::become_subreaper().is_ok();
        let children = listen(&[SIGCHLD])?;
        let outlived: &[i32] =
            if stands("lifeline-outlives-signals") { &[SIGTERM, SIGINT, SIGHUP] } else { &[] };
        let stops = listen(outlived)?;
        let mut group = (plan.best_tier == Tier::ControlGroup).then(ControlGroup::create).flatten();
        let server = match launch(plan, &mut group) {
            Ok(pid) => pid,
            Err(error) => {
                say(&link, &Report::Failed { errno: error.raw_os_error().unwrap_or(0) });
                say(&link, &Report::Gone(Swept::default()));
                return Ok(None);
            }
        };
        // Before the word: whoever hears it may count on the ends of the pipes.
        let_go(strangers)?;
        let tier = match &group {
            Some(_) => Tier::ControlGroup,
            None if is_subreaper => Tier::Subreaper,
            None => Tier::ProcessGroup,
        };
        let path = group.as_ref().map(|group| group.path().to_owned());
        let pid = server.as_raw_nonzero().get().unsigned_abs();
        say(&link, &Report::Started { pid, tier, group: path });
        let ladder = Ladder::new(plan.patience);
        Ok(Some(Self {
            link,
            is_owned: true,
            children,
            stops,
            server,
            server_ended: false,
            is_condemned: false,
            is_subreaper,
            group,
            ladder,
        }))
    }

    fn hold(mut self) {
        loop {
            let next = self.ladder.next().filter(|_| stands("lifeline-wakes-for-its-ladder"));
            self.wait(next.map(|at| at.saturating_sub(now())));
            self.listen_to_owner();
            if drained(&self.stops) {
                self.ladder.begin(now());
            }
            self.reap();
            if self.server_ended || self.is_condemned {
                return self.sweep();
            }
            match self.ladder.step(now()) {
                Some(Action::Terminate) => self.terminate(),
                Some(Action::Kill | Action::Abandon) => return self.sweep(),
                None => {}
            }
        }
    }

    /// Waits until something has happened, but not longer than `limit`.
    fn wait(&self, limit: Option<Duration>) {
        let mut polled =
            vec![PollFd::new(&self.children, PollFlags::IN), PollFd::new(&self.stops, PollFlags::IN)];
        if self.is_owned {
            polled.push(PollFd::new(&self.link, PollFlags::IN));
        }
        wait(&mut polled, limit);
        drained(&self.children);
    }

    fn listen_to_owner(&mut self) {
        let mut bytes = [0; 16];
        while self.is_owned {
            match recv(&self.link, &mut bytes, never_wait()) {
                Ok((count @ 1.., _)) => {
                    for &byte in bytes.get(..count).unwrap_or_default() {
                        self.obey(byte);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => {
                    self.is_owned = false;
                    if stands("stop-without-owner") {
                        self.ladder.begin(now());
                    }
                }
            }
        }
    }

    fn obey(&mut self, byte: u8) {
        match byte {
            command::TERMINATE => self.terminate(),
            command::KILL => self.is_condemned = stands("kill-at-once"),
            _ => {}
        }
    }

    fn terminate(&self) {
        if stands("sigterm-first") && !self.server_ended {
            // The server has not been reaped, so the group is its own; at worst there is only a zombie in it.
            let _ = kill_process_group(self.server, Signal::TERM);
        }
    }

    /// Takes the exit status of every child that has ended: the server's is reported, an orphan's has nobody else.
    /// Returns false when there are no children at all, which means no descendants either.
    fn reap(&mut self) -> bool {
        if !self.is_subreaper {
            self.kill_group_of_ended_server();
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.reaped(pid, status),
                Ok(None) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        if pid == self.server && !self.server_ended {
            self.server_ended = true;
            say(&self.link, &Report::Exited(Exit::from_status(status)));
        }
    }
}

impl Lifeline {
    /// Where orphans do not come to us, the server's group is all that can be found of them. It is killed before the
    /// server is reaped, while its number is surely its own.
    fn kill_group_of_ended_server(&self) {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if !self.server_ended && matches!(waitid(WaitId::Pid(self.server), peek), Ok(Some(_))) {
            let _ = kill_process_group(self.server, Signal::KILL);
        }
    }

    /// Ends everything that is left, says what that was, and leaves.
    fn sweep(mut self) {
        let until = now() + sweep::LIMIT;
        let own = getpid();
        let mut sweep = Sweep::default();
        let mut unkilled = 0;
        // Without a child there is no descendant either, and nothing to look for.
        if self.reap() && stands("sweep-at-the-end") {
            sweep.note(&descendants(&system::table(), own));
            if let Some(group) = &self.group {
                // Where this fails the sweep is what there is.
                let _ = control_group::kill(group.path());
            }
            loop {
                unkilled = sweep.round(|table| descendants(table, own));
                if !self.reap() {
                    unkilled = 0;
                    break;
                }
                if now() >= until && stands("sweep-has-a-limit") {
                    break;
                }
                self.wait(Some(sweep::PAUSE));
            }
        }
        self.remove_group(until);
        say(&self.link, &Report::Gone(Swept { leaked: sweep.met(Some(self.server)), unkilled }));
    }

    /// The group stays busy for a moment after its last process has gone.
    fn remove_group(&self, until: Duration) {
        while let Some(group) = &self.group
            && !control_group::remove(group.path())
            && now() < until
        {
            self.wait(Some(sweep::PAUSE));
        }
    }
}

/// Takes over the link that was inherited under this number.
#[expect(unsafe_code, reason = "a descriptor that was handed over by number has to be taken by number")]
fn adopt_link(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(Errno::BADF.into());
    }
    {
        // SAFETY: borrowed for this call only; if there is no such descriptor the call says so.
        let link = unsafe { BorrowedFd::borrow_raw(number) };
        if stands("link-not-inherited") {
            fcntl_setfd(link, FdFlags::CLOEXEC)?;
        }
    }
    // SAFETY: the owner passed this number for us to own, it is open, and nothing else in this process uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Descriptors that came from the owner's own parents and are meant, if for anybody, for the server.
fn inherited_descriptors(link: &OwnedFd) -> Vec<RawFd> {
    let Ok(folder) = std::fs::read_dir("/dev/fd") else { return Vec::new() };
    let mut numbers: Vec<RawFd> =
        folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The folder that was being read is closed by now, and its number free for something of ours.
    numbers.retain(|&number| number > 2 && number != link.as_raw_fd() && is_open(number));
    numbers
}

#[expect(unsafe_code, reason = "descriptors that nobody owns can only be looked at by number")]
fn is_open(number: RawFd) -> bool {
    // SAFETY: borrowed for this call only; if there is no such descriptor the call says so.
    fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_ok()
}

/// Lets go of everything that belongs to the server: its streams, what it may have inherited, and its folder.
fn let_go(strangers: Vec<RawFd>) -> io::Result<()> {
    let null = openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    if stands("lifeline-holds-no-pipe") {
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
    }
    if stands("lifeline-holds-no-stranger") {
        close(strangers);
    }
    // A folder that somebody stands in cannot be unmounted.
    if stands("lifeline-leaves-folder") {
        let _ = rustix::process::chdir("/");
    }
    Ok(())
}

#[expect(unsafe_code, reason = "descriptors that nobody owns can only be closed by number")]
fn close(strangers: Vec<RawFd>) {
    for number in strangers {
        // SAFETY: these were open before anything in this process was opened, so that nothing here owns them.
        unsafe { rustix::io::close(number) };
    }
}

/// A stream that becomes readable at each of the signals.
fn listen(signals: &[i32]) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal, far.try_clone()?)?;
    }
    Ok(near)
}

/// How everything is read here: a lifeline that waits for one thing is deaf to all others.
fn never_wait() -> RecvFlags {
    if stands("lifeline-waits-for-all-at-once") { RecvFlags::DONTWAIT } else { RecvFlags::empty() }
}

/// Empties a stream of signals. Returns whether there were any.
fn drained(stream: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while matches!(recv(stream, &mut bytes, never_wait()), Ok((1.., _))) {
        any = true;
    }
    any
}

/// Starts the server in the group if there is one and that works; otherwise there is no group any more.
fn launch(plan: &Plan, group: &mut Option<ControlGroup>) -> io::Result<Pid> {
    let base = || Launch {
        name: Some(&plan.name),
        input: Stream::Inherit,
        output: Stream::Inherit,
        error: Stream::Inherit,
        place: Place::OwnGroup,
        dies_with_parent: stands("server-dies-with-lifeline"),
        ..Launch::new(&plan.program, &plan.arguments)
    };
    if let Some(made) = group.take() {
        if let Ok(server) = spawn(Launch { control_group: Some(made.folder()), ..base() }) {
            *group = Some(made);
            return Ok(server.release());
        }
        control_group::remove(made.path());
    }
    spawn(base()).map(Process::release)
}

/// Tells the owner. When it has gone there is nobody to tell.
fn say(link: &OwnedFd, report: &Report) {
    let _ = send(link, &report.to_line(), SendFlags::DONTWAIT | system::NO_SIGNAL);
}

/// Time since some fixed moment.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
