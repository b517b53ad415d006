//! The events that wake an engine which rests ([`EngineOptions::rests`](super::EngineOptions::rests)).
//!
//! Theory of operation. A process that waits for hours for the answers of its calls has little to look after. Others leave a wish or a reply
//! in the folder of a job, and the system tells of new files there. Its own threads tell when a call begins or ends. So the maintenance
//! thread of such an engine waits for these events alone, and looks at everything else only now and then.
//!
//! Invariants
//!
//! - A folder is watched before it is looked at, so a wish that is left at any moment is found at once.
//! - A folder that cannot be watched is looked at as often as by an engine that does not rest.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use tokio::{sync::watch, time::sleep};
use unhang_proc::file_events::{AwaitedChange, FileEvents, FileWatch, WakeEvent};

use super::{EngineState, maintenance::ROUND};
use crate::id::JobId;

/// The events of the calls that a resting engine holds.
#[derive(Debug)]
pub(super) struct CallEvents {
    /// Tells of new files in the watched folders.
    folders: FileEvents,
    /// Tells that the engine holds other calls than before.
    word: WakeEvent,
    /// The number of looks at the folders so far.
    looks: watch::Sender<u64>,
}

impl CallEvents {
    /// Makes the means to wait for events. Fails if the system has none left.
    pub(super) fn new() -> io::Result<Self> {
        let (folders, word) = (FileEvents::new()?, WakeEvent::new()?);
        Ok(Self { folders, word, looks: watch::Sender::new(0) })
    }

    /// Wakes the maintenance thread: the engine holds other calls than before.
    pub(super) fn tell(&self) {
        self.word.wake();
    }

    /// Returns the descriptors that become readable with an event.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.folders.as_fd(), self.word.as_fd()]
    }

    /// Forgets the events so far.
    pub(super) fn clear(&self) {
        self.folders.clear();
        self.word.clear();
    }

    /// Returns a receiver that wakes up after each look at the folders.
    pub(super) fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }
}

/// Wakes up when another process may have left a file in the folder of a call that this process holds.
#[derive(Debug)]
pub struct FolderLooks(pub(super) Option<watch::Receiver<u64>>);

impl FolderLooks {
    /// Notes that the caller looks now.
    pub fn begin(&mut self) {
        if let Some(looks) = &mut self.0 {
            looks.mark_unchanged();
        }
    }

    /// Waits until it is time for the next look. Cancel-safe.
    pub async fn next(&mut self) {
        let is_told = match &mut self.0 {
            Some(looks) => looks.changed().await.is_ok(),
            None => false,
        };
        if !is_told {
            sleep(ROUND).await;
        }
    }
}

/// The folders that the maintenance thread has the system watch.
#[derive(Debug, Default)]
pub(super) struct WatchedFolders(HashMap<JobId, FileWatch>);

impl WatchedFolders {
    /// Watches the folders of the calls that the engine holds, and tells their holders of the wishes there. Returns whether all folders are
    /// watched.
    pub(super) fn look(&mut self, inner: &EngineState, events: &CallEvents) -> bool {
        let (held, mut is_complete) = (inner.calls.ids(), true);
        self.0.retain(|id, watch| {
            let is_held = held.contains(id);
            if !is_held {
                events.folders.forget(*watch);
            }
            is_held
        });
        for id in held {
            match events.folders.watch(inner.data.job(id).path(), AwaitedChange::Files) {
                // Another folder may have come in the place of the one that was watched.
                Ok(watch) => match self.0.insert(id, watch) {
                    Some(earlier) if earlier != watch => events.folders.forget(earlier),
                    _ => {}
                },
                Err(_) => is_complete = false,
            }
            inner.pass_wish_on(id);
        }
        events.looks.send_modify(|looks| *looks += 1);
        is_complete
    }
}
