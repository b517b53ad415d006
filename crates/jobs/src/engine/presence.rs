//! The presence of the data folder, as this engine sees it.
//!
//! Invariants
//!
//! - A running job is not said to run for longer than [`AWAY_LIMIT`] after its folder has gone: this process cannot see how it ends.
//! - A folder that comes back is as good as one that never went.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use unhang_proc::tree::now;

use super::EngineState;
use crate::{
    error::JobError,
    folder::{DataFolder, presence::AWAY_LIMIT},
    id::JobId,
    status::JobStatus,
};

/// The time since which the data folder is not where it was, if it has gone.
#[derive(Debug, Default)]
pub(super) struct FolderPresence {
    away_since: Mutex<Option<Duration>>,
}

impl FolderPresence {
    /// Looks whether the folder is there. Returns true while it has been gone for so long that waiting tasks have to be told.
    pub(super) fn look(&self, data: &DataFolder) -> bool {
        let mut away_since = self.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        *away_since = data.is_away().then(|| away_since.unwrap_or_else(now));
        away_since.is_some_and(|since| now().saturating_sub(since) >= AWAY_LIMIT)
    }

    /// Returns whether the folder has been gone for so long that nobody waits for it any more.
    pub(super) fn is_gone(&self) -> bool {
        self.away_for().is_some_and(|away| away >= AWAY_LIMIT)
    }

    /// Returns how long the folder has been gone; `None` if it is there.
    fn away_for(&self) -> Option<Duration> {
        let away_since = *self.away_since.lock().unwrap_or_else(PoisonError::into_inner);
        away_since.map(|since| now().saturating_sub(since))
    }
}

impl EngineState {
    /// Looks whether the data folder is there. Nothing that concerns this job may be written while it is away: a folder made anew would take
    /// the bytes, and nobody would look for them there.
    ///
    /// # Errors
    /// Fails if the folder is away.
    pub(super) fn check_presence(&self, id: JobId) -> Result<(), JobError> {
        self.presence.look(&self.data);
        self.lost_sight_of(id).map_or(Ok(()), Err)
    }

    /// Refuses the known status of a running job if its folder has been gone for too long. A call that this process holds stays known.
    pub(super) fn while_followed(&self, status: JobStatus) -> Result<JobStatus, JobError> {
        let id = status.record.job_id;
        let is_known = status.record.status.is_final() || self.calls.holds(id);
        match self.presence.away_for().filter(|away| *away >= AWAY_LIMIT && !is_known) {
            Some(away) => Err(self.gone(id, away)),
            None => Ok(status),
        }
    }

    /// Returns the error that this job cannot be followed at the moment, if its folder is not there.
    pub(super) fn lost_sight_of(&self, id: JobId) -> Option<JobError> {
        self.presence.away_for().map(|away| self.gone(id, away))
    }

    fn gone(&self, id: JobId, away: Duration) -> JobError {
        JobError::DataFolderGone { id, path: self.data.path().to_owned(), away }
    }
}
