//! One program and all its descendants, held by the process that started it until all of them have ended.
//!
//! The lifeline and the supervisor of a job share this containment. They decide when the tree ends, and by whom. This module makes sure
//! that none of it is left.
//!
//! Invariants
//! - The caller is a program of its own without threads, and holds one tree. The role of subreaper, the signals that are listened to and
//!   the death signal belong to a whole process.
//! - The root dies with the caller, also if the caller is killed (Linux). The processes that the root leaves then are for
//!   [`survivors`](crate::survivors).
//! - The root's group is signalled only while the root has not been reaped, and descendants only by pidfd and start time.
//! - Nothing waits for a pipe, and no wait is without a limit except [`ProcessTree::wait`], if the caller wants it so.
//!
//! Theory of operation: orphans of the tree come to the caller, because it is a subreaper. So every descendant is found in the process
//! table until it has been reaped here. If the system has control groups, the root is born in one of its own, which is killed at once.

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

/// The means by which a tree is held together, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// A control group (cgroup v2), which nothing leaves and which is killed at once.
    ControlGroup,
    /// A subreaper: orphans come to it, and it sweeps.
    Subreaper,
    /// The process group and looks at the process table only: a process that detaches between two looks gets away.
    ProcessGroup,
}

/// The result of ending a whole tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweptTree {
    /// Descendants that were alive when the root itself had ended or was killed, and that were killed too. Jobs of ours and their
    /// supervisors do not count: the root has left them to go on by intent.
    pub leaked: u32,
    /// Processes that could not be killed in time.
    pub unkilled: u32,
}

/// Signals to the caller that [`ProcessTree::stop_asked`] reports. From the moment that this value was made, they do not end the caller.
#[derive(Debug)]
pub struct StopSignals(UnixStream);

impl StopSignals {
    /// Begins to listen to these signals.
    ///
    /// # Errors
    /// Fails with the system's error.
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
    /// The processes that were reaped during a sweep because they had been killed by SIGKILL.
    killed: Option<Vec<Pid>>,
    is_subreaper: bool,
    group: Option<ControlGroup>,
}

impl ProcessTree {
    /// Starts the root in a process group of its own. `launch` says how to start it, and is called again if a start in a control group
    /// failed. Group, signal group and the death with the caller are added here.
    ///
    /// # Errors
    /// Fails with the system's error about the start, or with the error of `launch`.
    pub fn start<'l>(
        best_tier: Tier,
        stops: StopSignals,
        mut launch: impl FnMut() -> io::Result<Launch<'l>>,
    ) -> io::Result<Self> {
        let is_subreaper = system::become_subreaper().is_ok();
        let children = listen(&[Signal::CHILD])?;
        let mut group = (best_tier == Tier::ControlGroup).then(ControlGroup::create).flatten();
        let root = start_root(&mut launch, &mut group)?;
        Ok(Self { children, stops, root, exit: None, killed: None, is_subreaper, group })
    }

    /// Returns the root's number, which belongs to it until [`Self::reap`] has reported its end.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.root.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns the means by which the tree is held together.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match &self.group {
            Some(_) => Tier::ControlGroup,
            None if self.is_subreaper => Tier::Subreaper,
            None => Tier::ProcessGroup,
        }
    }

    /// Returns the folder of the control group; `None` if there is no group.
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

    /// Returns whether one of the stop signals has come since the last call.
    #[must_use]
    pub fn stop_asked(&self) -> bool {
        drained(&self.stops.0)
    }

    /// Reaps every child that has ended. Returns how the root ended; `None` if it has not.
    pub fn reap(&mut self) -> Option<Exit> {
        self.reap_children();
        self.exit
    }

    /// Sends SIGTERM to the root's group, unless the root has been reaped. Until then there is at worst only a zombie in the group, and the
    /// number is its own.
    pub fn terminate(&self) {
        if self.exit.is_none() {
            let _ = kill_process_group(self.root, Signal::TERM);
        }
    }

    /// Ends everything that is left, the root included, and reaps it. Returns in little more than `limit`, whatever is left then;
    /// [`SWEEP_LIMIT`] is a good one.
    pub fn sweep(&mut self, limit: Duration) -> SweptTree {
        let until = now() + limit;
        let own = getpid();
        let mut sweep = Sweep::default();
        let (mut unkilled, mut uncounted) = (0, vec![self.root]);
        // Without a child there is no descendant either, and nothing to look for.
        if self.reap_children() {
            let table = system::table();
            let found = descendants(&table, own);
            uncounted.extend(of_jobs(&table, &found));
            sweep.note(&found);
            self.killed = Some(Vec::new());
            if let Some(group) = &self.group {
                // If this fails, the sweep still ends the processes one by one.
                let _ = control_group::kill(group.path());
            }
            unkilled = sweep.rounds(until, &|table| descendants(table, own), &mut |_| {
                let is_over = !self.reap_children();
                if !is_over {
                    self.wait(&[], Some(sweep::PAUSE));
                }
                is_over
            });
        }
        self.remove_group(until);
        let killed = self.killed.take().unwrap_or_default();
        SweptTree { leaked: sweep.met(&uncounted, &killed), unkilled }
    }
}

impl ProcessTree {
    /// Reaps every child that has ended. Returns `false` if there are no children at all, which means no descendants either.
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

    /// Keeps the status of the root. The status of an orphan matters only for the count: a process that was born between two looks may have
    /// died with the control group before the next.
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

    /// Kills the root's group if the root has ended but was not reaped, so that its number is surely its own. If orphans do not come to us,
    /// the group is all that can be found of them.
    fn kill_group_of_ended_root(&self) {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if self.exit.is_none() && matches!(waitid(WaitId::Pid(self.root), peek), Ok(Some(_))) {
            let _ = kill_process_group(self.root, Signal::KILL);
        }
    }

    /// Removes the group, and tries again until `until`: it stays busy for a moment after its last process has gone.
    fn remove_group(&self, until: Duration) {
        while let Some(group) = &self.group
            && !control_group::remove(group.path())
            && now() < until
        {
            self.wait(&[], Some(sweep::PAUSE));
        }
    }
}

/// Starts the root in the group, if there is one and that works; otherwise there is no group any more.
fn start_root<'l>(
    launch: &mut impl FnMut() -> io::Result<Launch<'l>>,
    group: &mut Option<ControlGroup>,
) -> io::Result<Pid> {
    let mut held = || {
        launch().map(|launch| Launch {
            signal_group: SignalGroup::OwnGroup,
            dies_with_parent: true,
            ..launch
        })
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

/// Makes a stream that becomes readable at each of the signals.
fn listen(signals: &[Signal]) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    for &signal in signals {
        signal_hook::low_level::pipe::register(signal.as_raw(), far.try_clone()?)?;
    }
    Ok(near)
}

/// Returns the flags with which a process that holds a tree reads: if it waited for one thing, it would be deaf to all others.
pub(crate) fn never_wait() -> RecvFlags {
    RecvFlags::DONTWAIT
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

/// Returns the time since some fixed moment, for a [`Ladder`](crate::ladder::Ladder) in a process without a runtime.
#[must_use]
pub fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
