//! The turn to write: the order in which processes come to the database.
//!
//! SQLite has no queue. A process that finds the database locked tries again after a while. So one of eight servers that all write may see
//! many others go past. The kernel queues the waiters for a lock of a file (`flock(2)`), so one such lock is taken first.
//!
//! Invariants
//!
//! - The turn is about order alone: the database has its own lock, and a process that gets no turn goes on without one.
//! - The wait has a limit, whichever process holds the turn. The remains of an abandoned wait are limited too: one thread.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use unhang_proc::identity::ask_for_short_turns;

use crate::folder::DataFolder;

/// The lock, in the data folder.
const FILE: &str = "unhang.db-turn";

/// The time for which other processes go first: a process that was stopped may hold the turn.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// The place of a connection where it waits for turns.
#[derive(Debug)]
pub(super) struct WriteQueue {
    path: PathBuf,
    /// Whether a wait still stands in the queue, even one that was given up.
    is_queued: Arc<AtomicBool>,
}

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct WriteTurn {
    /// The lock; `None` if the turn could not be had.
    _lock: Option<File>,
}

impl WriteQueue {
    pub(super) fn of(data: &DataFolder) -> Self {
        Self { path: data.path().join(FILE), is_queued: Arc::default() }
    }

    /// Makes a queue in which no turn can be had.
    #[cfg(test)]
    pub(super) fn nowhere() -> Self {
        Self { path: PathBuf::from("/nowhere/turn"), is_queued: Arc::default() }
    }

    /// Waits for the next turn, but at most for `limit`.
    pub(super) fn wait(&self, limit: Duration) -> WriteTurn {
        WriteTurn { _lock: self.queue(limit) }
    }

    fn queue(&self, limit: Duration) -> Option<File> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        // In a folder that cannot be written, nobody waits for anybody.
        let file = options.write(true).create(true).mode(0o600).custom_flags(flags).open(&self.path).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(file),
            Err(Errno::WOULDBLOCK) if !self.is_queued.load(Ordering::Relaxed) => {}
            Err(_) => return None,
        }
        let (sender, receiver) = sync_channel(1);
        self.is_queued.store(true, Ordering::Relaxed);
        let is_queued = self.is_queued.clone();
        // A place in the queue of the kernel has no limit. A caller that gives up leaves the thread behind, which lets go at once when the
        // turn has come.
        let queue = thread::Builder::new().name("jobs-turn".into()).spawn(move || {
            ask_for_short_turns();
            let is_ours = flock(&file, FlockOperation::LockExclusive).is_ok();
            is_queued.store(false, Ordering::Relaxed);
            let _is_waited_for = sender.send(is_ours.then_some(file));
        });
        if queue.is_err() {
            self.is_queued.store(false, Ordering::Relaxed);
            return None;
        }
        receiver.recv_timeout(limit).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_does_not_come_is_waited_for_no_longer_than_the_limit_and_by_one_thread() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        let (first, second) = (WriteQueue::of(&data), WriteQueue::of(&data));
        let held = first.queue(LIMIT).unwrap();
        assert!(second.queue(Duration::from_millis(50)).is_none());
        assert!(second.is_queued.load(Ordering::Relaxed));
        // Without a wait: its place in the queue is taken.
        assert!(second.queue(Duration::MAX).is_none());
        drop(held);
        // What was given up lets go of it as well.
        assert!(first.queue(LIMIT).is_some());
        assert!(WriteQueue::nowhere().queue(LIMIT).is_none());
    }
}
