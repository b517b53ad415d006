//! A process that stays behind to see how a copy of itself ends. If the copy is killed, it inherits the processes that the copy leaves.
//!
//! Theory of operation: [`divide`] forks without executing anything, first thing in a small program of ours. The copy does the work, in a
//! session of its own. The original is a subreaper and only waits for the copy. So the kernel makes it the parent of all that a killed copy
//! had below it. The cost is a fork, and the pages that the two do not share.
//!
//! Invariants
//! - The two share nothing that matters: a process that divides itself holds no lock and no descriptor but the null device.
//! - A stop signal ends no watcher: it is meant for the copy, which knows what is to be done.
//! - Without a subreaper nothing is divided, because the original would inherit nothing (Linux only).

use std::{ffi::CStr, io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    process::{Signal, WaitId, WaitIdOptions, setsid, waitid},
};

use crate::{
    rescue::adopt_orphans,
    spawn::{Exit, Process},
    system,
};

/// The part that this process plays after it was divided.
#[derive(Debug)]
pub enum ForkSide {
    /// The copy, which goes on with the work.
    Copy,
    /// The original, which waits for the copy.
    Watcher(WatchedCopy),
}

/// The copy, as the original sees it.
#[derive(Debug)]
pub struct WatchedCopy(Process);

/// Divides this process, and gives the original this name in the process list. The copy has the name too until it takes one of its own.
///
/// # Errors
/// Fails if there is another thread, no subreaper, or no process to be had. Then this process is whole, and nobody watches it.
pub fn divide(name: &CStr) -> io::Result<ForkSide> {
    if !system::has_one_thread() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // This comes before there is a copy that could be killed.
    system::become_subreaper()?;
    system::set_name(name);
    let Some(copy) = system::fork()? else {
        // A process that was just forked leads no group, and only the leader of a group could be refused.
        let _ = setsid();
        return Ok(ForkSide::Copy);
    };
    let copy = Process::adopt(copy);
    // The watcher executes no other program, which would inherit that.
    [Signal::TERM, Signal::INT, Signal::HUP].into_iter().for_each(system::ignore_signal);
    // This process is a subreaper already, so the call cannot be refused.
    let _ = adopt_orphans();
    Ok(ForkSide::Watcher(WatchedCopy(copy)))
}

impl WatchedCopy {
    /// Returns a descriptor that can be read when the copy has ended.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        system::process_handle(self.0.id())
    }

    /// Waits until the copy has ended, however long that takes. Processes that it had below it are orphans of ours from then on.
    #[must_use]
    pub fn wait(mut self) -> Exit {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.0.id()), peek), Err(Errno::INTR)) {}
        self.0.try_reap().unwrap_or(Exit::Unknown)
    }
}
