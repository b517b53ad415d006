//! The lifeline: the process between an owner and its server, which ends the server's whole tree when the owner has gone.
//!
//! It is our own binary, run with a hidden first argument ([`ARGUMENT`]); the binary calls [`run`] first thing in `main`,
//! before any runtime or argument parser. No threads, no runtime, about a megabyte. Its parent is not the owner (see `detachment.rs`).
//!
//! Invariants
//! - Its standard streams are the server's pipes until the server runs, and the null device from then on. No copy of a pipe stays here, so
//!   end-of-file works in both directions. The exception is an owner that wants copies kept for a holder, until it releases them.
//! - The server never inherits the link to the owner. The link's end means that the owner has gone, by whatever cause.
//! - The lifeline leaves when it has no descendants any more, or when the sweep's limit is over and it has said how many are left. While it
//!   keeps copies for a holder, it stays until they are released or handed over: the last bytes of the server may be unread.
//! - A holder is started once. Nobody follows a holder that dies.
//!
//! Theory of operation: one `poll` over the link, SIGCHLD and the stop signals. The owner sends single bytes (`T`, `K`). End-of-file on the
//! link, SIGTERM, SIGINT or SIGHUP start the same ladder that the owner would have climbed. The owner's death has closed the server's stdin
//! already. After the server's end the lifeline sweeps everything that is left of its tree (see [`tree`](crate::tree)).
//!
//! If the owner has had copies kept, the end of its link starts the holder in place of the ladder. The holder gets the copies and a new link,
//! and hears again that the server runs and how it has ended. If the holder cannot be started, or ends, the ladder begins.

mod detachment;
mod kept;

use std::{
    ffi::{CString, OsString},
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd, RawFd},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, SendFlags, recvmsg, send},
    process::Signal,
};

use self::{
    detachment::{Commons, Part, detach},
    kept::{Kept, SENT},
};
use crate::{
    file_limit,
    inherited::{ForeignDescriptors, adopt, leave_folder, leave_streams},
    ladder::{Ladder, StopAction, StopTimeouts},
    lifeline_process::DetachedLifeline,
    server::{LifelineReport, command},
    spawn::{Exit, Launch, Stream},
    surroundings::LIFELINE_NAME,
    system,
    tree::{ProcessTree, SWEEP_LIMIT, StopSignals, SweptTree, Tier, never_wait, now},
};

/// The hidden first argument. It does not contain the name of the program, so `pkill -f` with that name spares the lifeline.
pub const ARGUMENT: &str = "mcp-lifeline";

/// The exit code for arguments that make no sense: only unhang itself is meant to start a lifeline.
const USAGE: u8 = 2;

/// Holds one server, and returns when its tree has ended; `arguments` are those after the hidden words.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    file_limit::ignore_signal();
    let Some(plan) = LifelinePlan::parse(arguments) else { return ExitCode::from(USAGE) };
    match Lifeline::start(&plan) {
        Ok(Some(lifeline)) => lifeline.hold(),
        Ok(None) => {}
        Err(_) => return ExitCode::FAILURE,
    }
    ExitCode::SUCCESS
}

/// The owner's wishes, read from the arguments.
struct LifelinePlan {
    link: RawFd,
    stop_timeouts: StopTimeouts,
    best_tier: Tier,
    program: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

impl LifelinePlan {
    /// Parses options in any order, `--`, the file to execute, the server's name for itself, and its arguments. Returns `None` if they make
    /// no sense.
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
                // For whoever reads the process list: our parent does not tell.
                ("--owner", _) => {}
                ("--tier", name) => best_tier = Tier::from_name(name)?,
                _ => return None,
            }
        }
        Some(Self {
            link: link?,
            stop_timeouts: StopTimeouts {
                grace: Duration::from_millis(grace?),
                limit: Duration::from_millis(limit?),
            },
            best_tier,
            program: words.next()?.into(),
            name: words.next()?,
            arguments: words.collect(),
        })
    }
}

struct Lifeline {
    link: OwnedFd,
    /// What the owner has to know about a lifeline that is not its child.
    detached: Option<DetachedLifeline>,
    /// Whether the owner is there.
    is_owned: bool,
    /// Whether the owner wants everything killed at once.
    is_condemned: bool,
    /// How the server has ended.
    exit: Option<Exit>,
    /// What ending its tree came to.
    swept: Option<SweptTree>,
    /// What a holder needs.
    kept: Option<Kept>,
    /// Whether the owner is a holder.
    is_held: bool,
    /// Whether a holder may still need us: it names us to others, until it releases us or ends.
    is_awaited: bool,
    stop_timeouts: StopTimeouts,
    /// The server and its descendants.
    tree: ProcessTree,
    ladder: Ladder,
}

impl Lifeline {
    /// Leaves the owner's chain of parents and starts the server. Returns `None` in the other processes of the [`detachment`], when their
    /// work is done, and if the start failed and the owner was told.
    fn start(plan: &LifelinePlan) -> io::Result<Option<Self>> {
        let link = adopt(plan.link)?;
        let foreign_descriptors = ForeignDescriptors::find(&[link.as_fd()]);
        // The mappings are read before the process is copied: each piece of code that a copy runs by itself stays in its memory.
        let code = system::code_mappings();
        let part = detach()?;
        // In each of the processes, the code of the detachment would count beside that of its work.
        system::give_back_mappings(&code);
        let detached = match part {
            Part::Lifeline(detached) => detached,
            Part::Launcher => return Ok(None),
            Part::Watcher(watcher) => {
                drop(link);
                foreign_descriptors.close();
                watcher.watch(&code)?;
                return Ok(None);
            }
        };
        if let Ok(name) = CString::new(LIFELINE_NAME) {
            system::set_name(&name);
        }
        let (detached, commons) = detached.unzip();
        // This comes before there is a server: its owner knows from then on whom to watch.
        if let Some(detached) = detached {
            say(&link, &LifelineReport::Detached(detached));
        }
        let tree = match start_tree(plan) {
            Ok(tree) => tree,
            Err(error) => {
                say(&link, &LifelineReport::Failed { errno: error.raw_os_error().unwrap_or(0) });
                say(&link, &LifelineReport::Gone(SweptTree::default()));
                return Ok(None);
            }
        };
        // Nothing that comes needs the code that starts a server.
        system::give_back_mappings(&code);
        // This comes before the report: an owner that hears it may count on the ends of the pipes.
        leave_streams()?;
        foreign_descriptors.close();
        leave_folder();
        // The others had time for it while the server was started.
        commons.map_or(Ok(()), Commons::wait)?;
        let lifeline = Self {
            link,
            detached,
            is_owned: true,
            is_condemned: false,
            exit: None,
            swept: None,
            kept: None,
            is_held: false,
            is_awaited: false,
            stop_timeouts: plan.stop_timeouts,
            tree,
            ladder: Ladder::new(plan.stop_timeouts),
        };
        lifeline.tell_all();
        Ok(Some(lifeline))
    }

    fn hold(mut self) {
        loop {
            let next = self.ladder.next();
            let link = [self.link.as_fd()];
            let others = if self.is_owned { link.as_slice() } else { &[] };
            self.tree.wait(others, next.map(|at| at.saturating_sub(now())));
            self.listen_to_owner();
            if self.tree.stop_asked() {
                self.ladder.begin(now());
            }
            self.reap();
            if self.exit.is_some() || self.is_condemned {
                break;
            }
            match self.ladder.step(now()) {
                Some(StopAction::Terminate) => self.tree.terminate(),
                Some(StopAction::Kill | StopAction::Abandon) => break,
                None => {}
            }
        }
        self.sweep();
        self.outlast();
    }

    /// Waits, after everything has ended, until what was kept is released, or the holder that it was handed to has released us or ended.
    fn outlast(mut self) {
        self.listen_to_owner();
        while self.is_owned && (self.kept.is_some() || self.is_awaited) {
            self.tree.wait(&[self.link.as_fd()], None);
            // Nothing is left to stop. Whoever wants this process to end ends its owner.
            let _ = self.tree.stop_asked();
            self.listen_to_owner();
        }
    }

    fn listen_to_owner(&mut self) {
        while self.is_owned {
            let mut bytes = [0; 16];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = never_wait() | system::CLOSE_RECEIVED;
            match recvmsg(&self.link, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
                Ok(message) if message.bytes > 0 => {
                    // Descriptors come with the last byte of what was received at once.
                    let mut descriptors = Vec::new();
                    for part in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(received) = part {
                            descriptors.extend(received);
                        }
                    }
                    for &byte in bytes.get(..message.bytes).unwrap_or_default() {
                        self.obey(byte, &mut descriptors);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => self.owner_gone(),
            }
        }
    }

    /// Starts the holder if there is one to be started, and the ladder otherwise.
    fn owner_gone(&mut self) {
        let started = self.kept.take().map(|kept| kept.start_holder(self.stop_timeouts));
        if let Some(Ok(link)) = started {
            self.link = link;
            (self.is_held, self.is_awaited) = (true, true);
            if let Some(detached) = self.detached {
                say(&self.link, &LifelineReport::Detached(detached));
            }
            self.tell_all();
        } else {
            self.is_owned = false;
            self.ladder.begin(now());
        }
    }

    fn obey(&mut self, byte: u8, descriptors: &mut Vec<OwnedFd>) {
        match byte {
            command::TERMINATE => self.tree.terminate(),
            command::KILL => self.is_condemned = true,
            command::KEEP => self.keep(std::mem::take(descriptors)),
            command::RELEASE => (self.kept, self.is_awaited) = (None, false),
            _ => {}
        }
    }

    /// Keeps what the owner has sent in place of what it had sent before, and says so.
    fn keep(&mut self, descriptors: Vec<OwnedFd>) {
        // Holders that die must not follow each other for ever, and an owner that hears of the end expects that we leave.
        let is_too_late = self.is_held || self.swept.is_some();
        let kept = if is_too_late { Err(Errno::PERM) } else { Kept::new(descriptors) };
        let outcome = kept.map(|kept| self.kept = Some(kept));
        say(&self.link, &LifelineReport::Kept(outcome.map_err(Errno::raw_os_error)));
    }

    /// Tells the owner everything that has happened so far.
    fn tell_all(&self) {
        let group = self.tree.group().map(ToOwned::to_owned);
        say(&self.link, &LifelineReport::Started { pid: self.tree.pid(), tier: self.tree.tier(), group });
        if let Some(exit) = self.exit {
            say(&self.link, &LifelineReport::Exited(exit));
        }
        if let Some(swept) = self.swept {
            say(&self.link, &LifelineReport::Gone(swept));
        }
    }

    /// Reaps ended children, and reports the server's end once.
    fn reap(&mut self) {
        if let Some(exit) = self.tree.reap()
            && self.exit.is_none()
        {
            self.exit = Some(exit);
            say(&self.link, &LifelineReport::Exited(exit));
        }
    }

    /// Ends everything that is left, and reports what that was.
    fn sweep(&mut self) {
        let swept = self.tree.sweep(SWEEP_LIMIT);
        self.reap();
        self.swept = Some(swept);
        say(&self.link, &LifelineReport::Gone(swept));
    }
}

/// Starts the server with our streams, which are its pipes.
fn start_tree(plan: &LifelinePlan) -> io::Result<ProcessTree> {
    let stop_signals: &[Signal] = &[Signal::TERM, Signal::INT, Signal::HUP];
    ProcessTree::start(plan.best_tier, StopSignals::listen(stop_signals)?, || {
        Ok(Launch {
            name: Some(&plan.name),
            input: Stream::Inherit,
            output: Stream::Inherit,
            error: Stream::Inherit,
            ..Launch::new(&plan.program, &plan.arguments)
        })
    })
}

/// Reports to the owner, or does nothing if the owner has gone.
fn say(link: &OwnedFd, report: &LifelineReport) {
    let _ = send(link, &report.to_line(), SendFlags::DONTWAIT | system::NO_SIGNAL);
}
