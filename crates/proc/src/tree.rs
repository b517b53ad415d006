//! One program and everything that comes of it, held by the process that started it until all of it has ended.
//!
//! This is the containment that a lifeline and the shim of a job have in common. Who ends the tree, and when, is their
//! business; that none of it is left is the business here.
//!
//! Invariants
//! - The caller is a program of its own without threads, and holds one tree: being a subreaper, the signals that are listened
//!   to and the death signal belong to a whole process.
//! - The root dies with the caller, also when that is killed (Linux). What it left then is for
//!   [`survivors`](crate::survivors).
//! - The root's group is signalled only while the root has not been reaped, and descendants only by pidfd and start time.
//! - Nothing waits for a pipe, and no wait is without a limit but [`ProcessTree::wait`], which the caller may want so.
//!
//! Theory of operation: orphans of the tree come to the caller, because it is a subreaper, and so every descendant is found in
//! the process table until it has been reaped here. Where the system has control groups, the root is born in one of its own,
//! which is killed at once.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{RecvFlags, recv},
    process::{
        Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process_group, waitid,
    },
    time::{ClockId, clock_gettime},
};
use unhang_switches::stands;

use crate::{
    pipe::wait,
    rescue::of_jobs,
    spawn::{Exit, Launch, Process, SignalGroup, spawn},
    sweep::{self, Sweep},
    system::{
        self,
        control_group::{self, ControlGroup},
    },
    table::descendants,
};

pub use crate::sweep::LIMIT as SWEEP_LIMIT;

/// How a tree is held together, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// By a control group (cgroup v2), which nothing leaves and which is killed at once.
    ControlGroup,
    /// By a subreaper: orphans come to it, and it sweeps.
    Subreaper,
    /// By process group and looks at the process table only: what detaches between two looks gets away.
    ProcessGroup,
}

/// The end of a whole tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweptTree {
    /// Descendants that were alive when the root itself had ended or was killed, and were killed too. Jobs of ours and their shims are
    /// none of them: the root has left them to go on by intent.
    pub leaked: u32,
    /// Processes that could not be killed in time.
    pub unkilled: u32,
}

/// Signals to the caller that [`ProcessTree::stop_asked`] tells of, and that do not end it from the moment on when this was made.
#[derive(Debug)]
pub struct StopSignals(UnixStream);

impl StopSignals {
    /// Begins to listen to these.
    ///
    /// # Errors
    /// What the system said.
    pub fn listen(signals: &[Signal]) -> io::Result<Self> {
        listen(signals).map(Self)
    }
}

/// A tree whose root was started.
#[derive(Debug)]
pub struct ProcessTree {
    children: UnixStream,
    stops: StopSignals,
    root: Pid,
    exit: Option<Exit>,
    /// During a sweep, who was reaped because somebody had killed it.
    killed: Option<Vec<Pid>>,
    is_subreaper: bool,
    group: Option<ControlGroup>,
}

impl ProcessTree {
    /// Starts the root in a process group of its own. `launch` says what to start, and is asked again where a start in a
    /// control group failed; group, signal group and the death with the caller are added here.
    ///
    /// # Errors
    /// What the system said about the start, or what `launch` did.
    pub fn start<'l>(
        best_tier: Tier,
        stops: StopSignals,
        mut launch: impl FnMut() -> io::Result<Launch<'l>>,
    ) -> io::Result<Self> {
        let is_subreaper = stands("subreaper") && system::become_subreaper().is_ok();
        let children = listen(&[Signal::CHILD])?;
        let mut group = (best_tier == Tier::ControlGroup).then(ControlGroup::create).flatten();
        let root = start_root(&mut launch, &mut group)?;
        Ok(Self { children, stops, root, exit: None, killed: None, is_subreaper, group })
    }

    /// The root's number, which belongs to it until [`Self::reap`] has told of its end.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.root.as_raw_nonzero().get().unsigned_abs()
    }

    /// How the tree is held.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match &self.group {
            Some(_) => Tier::ControlGroup,
            None if self.is_subreaper => Tier::Subreaper,
            None => Tier::ProcessGroup,
        }
    }

    /// The folder of the control group, where there is one.
    #[must_use]
    pub fn group(&self) -> Option<&Path> {
        self.group.as_ref().map(ControlGroup::path)
    }

    /// Waits until a child has ended, a stop signal has come or one of `others` is readable, but not longer than `limit`.
    pub fn wait(&self, others: &[BorrowedFd<'_>], limit: Option<Duration>) {
        let own = [self.children.as_fd(), self.stops.0.as_fd()];
        let mut polled: Vec<_> =
            own.iter().chain(others).map(|source| PollFd::new(source, PollFlags::IN)).collect();
        wait(&mut polled, limit);
        drained(&self.children);
    }

    /// Whether one of the stop signals has come since the last question.
    #[must_use]
    pub fn stop_asked(&self) -> bool {
        drained(&self.stops.0)
    }

    /// Takes the exit status of every child that has ended. How the root ended, if it has.
    pub fn reap(&mut self) -> Option<Exit> {
        self.reap_children();
        self.exit
    }

    /// Sends SIGTERM to the root's group, if the root has not been reaped: then there is at worst only a zombie in it, and
    /// the number is its own.
    pub fn terminate(&self) {
        if stands("sigterm-first") && self.exit.is_none() {
            let _ = kill_process_group(self.root, Signal::TERM);
        }
    }

    /// Ends everything that is left, the root included, and takes its exit status. Returns in little more than `limit`,
    /// whatever is left then; [`SWEEP_LIMIT`] is a good one.
    pub fn sweep(&mut self, limit: Duration) -> SweptTree {
        let until = now() + limit;
        let own = getpid();
        let mut sweep = Sweep::default();
        let (mut unkilled, mut uncounted) = (0, vec![self.root]);
        // Without a child there is no descendant either, and nothing to look for.
        if self.reap_children() && stands("sweep-at-the-end") {
            let table = system::table();
            let found = descendants(&table, own);
            uncounted.extend(of_jobs(&table, &found));
            sweep.note(&found);
            self.killed = Some(Vec::new());
            if let Some(group) = &self.group {
                // Where this fails the sweep is what there is.
                let _ = control_group::kill(group.path());
            }
            unkilled = sweep.rounds(
                until,
                |table| descendants(table, own),
                |_| {
                    let is_over = !self.reap_children();
                    if !is_over {
                        self.wait(&[], Some(sweep::PAUSE));
                    }
                    is_over
                },
            );
        }
        self.remove_group(until);
        let killed = self.killed.take().unwrap_or_default();
        SweptTree { leaked: sweep.met(&uncounted, &killed), unkilled }
    }
}

impl ProcessTree {
    /// Returns false when there are no children at all, which means no descendants either.
    fn reap_children(&mut self) -> bool {
        if !self.is_subreaper {
            self.kill_group_of_ended_root();
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

    /// The root's status is kept. An orphan's is of interest only for the count: who was born behind the back of a look may
    /// have died with the control group before the next.
    fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        let exit = Exit::from_status(status);
        if pid == self.root && self.exit.is_none() {
            self.exit = Some(exit);
        } else if let Some(killed) = &mut self.killed
            && exit == Exit::Signal(Signal::KILL.as_raw())
        {
            killed.push(pid);
        }
    }

    /// Where orphans do not come to us, the root's group is all that can be found of them. It is killed before the root is
    /// reaped, while its number is surely its own.
    fn kill_group_of_ended_root(&self) {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if self.exit.is_none() && matches!(waitid(WaitId::Pid(self.root), peek), Ok(Some(_))) {
            let _ = kill_process_group(self.root, Signal::KILL);
        }
    }

    /// The group stays busy for a moment after its last process has gone.
    fn remove_group(&self, until: Duration) {
        while let Some(group) = &self.group
            && !control_group::remove(group.path())
            && now() < until
        {
            self.wait(&[], Some(sweep::PAUSE));
        }
    }
}

/// Starts the root in the group if there is one and that works; otherwise there is no group any more.
fn start_root<'l>(
    launch: &mut impl FnMut() -> io::Result<Launch<'l>>,
    group: &mut Option<ControlGroup>,
) -> io::Result<Pid> {
    let mut held = || {
        let dies_with_parent = stands("server-dies-with-lifeline");
        launch().map(|launch| Launch { signal_group: SignalGroup::OwnGroup, dies_with_parent, ..launch })
    };
    if let Some(control_group) = group.take() {
        let started =
            held().and_then(|launch| spawn(Launch { control_group: Some(control_group.folder()), ..launch }));
        if let Ok(root) = started {
            *group = Some(control_group);
            return Ok(root.release());
        }
        control_group::remove(control_group.path());
    }
    spawn(held()?).map(Process::release)
}

/// A stream that becomes readable at each of the signals.
fn listen(signals: &[Signal]) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal.as_raw(), far.try_clone()?)?;
    }
    Ok(near)
}

/// How everything is read by a process that holds a tree: one that waits for one thing is deaf to all others.
pub(crate) fn never_wait() -> RecvFlags {
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

/// Time since some fixed moment, for a [`Ladder`](crate::ladder::Ladder) in a process without a runtime.
#[must_use]
pub fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
