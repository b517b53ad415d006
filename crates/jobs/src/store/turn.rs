//! The turn to write: the order in which processes come to the database.
//!
//! SQLite has no queue. Whoever finds the database locked tries again after a while, so that of eight servers that all write one may
//! see many others go past. The kernel queues those who wait for a lock of a file (`flock(2)`), so one such lock is taken first.
//!
//! Invariants
//!
//! - It is about order alone: the database has its own lock, and whoever gets no turn goes on without one.
//! - The wait has a limit, whoever holds the turn.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use unhang_proc::identity::ask_for_short_turns;
use unhang_switches::stands;

/// The lock, in the data folder.
pub(super) const FILE: &str = "write.lock";

/// How long the others are let go first: a process that was stopped may hold the turn.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    /// None where there is none to be had.
    _lock: Option<File>,
}

impl Turn {
    /// Waits until it is ours.
    pub(super) fn wait(path: &Path, limit: Duration) -> Self {
        Self { _lock: if stands("writers-in-turn") { wait(path, limit) } else { None } }
    }
}

fn wait(path: &Path, limit: Duration) -> Option<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    // In a folder that cannot be written nobody waits for anybody.
    let file = options.write(true).create(true).mode(0o600).custom_flags(flags).open(path).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Some(file),
        Err(Errno::WOULDBLOCK) => {}
        Err(_) => return None,
    }
    let (sender, receiver) = sync_channel(1);
    // A place in the queue of the kernel has no limit. Whoever gives up leaves the thread behind, which lets go at once when the
    // turn has come.
    let queue = thread::Builder::new().name("jobs-turn".into()).spawn(move || {
        ask_for_short_turns();
        let is_ours = flock(&file, FlockOperation::LockExclusive).is_ok();
        let _is_waited_for = sender.send(is_ours.then_some(file));
    });
    queue.ok()?;
    receiver.recv_timeout(limit).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_does_not_come_is_waited_for_no_longer_than_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let first = wait(&path, LIMIT).unwrap();
        assert!(wait(&path, Duration::from_millis(50)).is_none());
        drop(first);
        // Whoever gave up lets go of it as well.
        assert!(wait(&path, LIMIT).is_some());
        assert!(wait(&path.join("missing"), LIMIT).is_none());
    }
}
