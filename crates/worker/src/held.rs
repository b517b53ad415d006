//! The jobs that a worker holds.
//!
//! Invariant: the lock is held for moments, and never over a wait.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use unhang_jobs::{id::JobId, record::JobRecord};

use crate::{notes::LeaseNote, uploads::UploadState};

/// A job that a worker holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldJob {
    /// The lease.
    pub(crate) note: LeaseNote,
    /// The record as the store has it; `None` after a restart, until the store was asked.
    pub(crate) record: Option<JobRecord>,
    /// The time of this machine's clock at which the work has to be dead.
    pub(crate) until: Duration,
    /// The offsets of this attempt up to which the store has the two logs; `None` if the store has to be asked.
    pub(crate) copied: [Option<u64>; 2],
    /// Whether the engine was told to cancel the job.
    pub(crate) is_cancelled: bool,
    /// Whether the lease is over, so that the work must not go on.
    pub(crate) is_revoked: bool,
    /// Whether a task fetches the inputs of the job.
    pub(crate) is_fetching: bool,
    /// The state of the file that the job has left.
    pub(crate) upload: UploadState,
}

impl HeldJob {
    /// Makes a job with this lease. `until` is the time at which its work has to be dead.
    pub(crate) fn new(note: LeaseNote, record: Option<JobRecord>, until: Duration) -> Self {
        Self {
            note,
            record,
            until,
            copied: [None; 2],
            is_cancelled: false,
            is_revoked: false,
            is_fetching: false,
            upload: UploadState::default(),
        }
    }
}

/// All jobs that a worker holds.
#[derive(Debug, Default)]
pub(crate) struct HeldJobs(Mutex<HashMap<JobId, HeldJob>>);

impl HeldJobs {
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, HeldJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job, or replaces what is known of it.
    pub(crate) fn insert(&self, job: HeldJob) {
        self.lock().insert(job.note.job, job);
    }

    /// Returns a copy of a job; `None` if it is not held.
    pub(crate) fn get(&self, id: JobId) -> Option<HeldJob> {
        self.lock().get(&id).cloned()
    }

    /// Returns copies of all jobs.
    pub(crate) fn all(&self) -> Vec<HeldJob> {
        self.lock().values().cloned().collect()
    }

    /// Returns the number of jobs.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Changes a job with this token, if it is still held.
    pub(crate) fn change<T>(
        &self,
        id: JobId,
        token: &str,
        change: impl FnOnce(&mut HeldJob) -> T,
    ) -> Option<T> {
        self.lock().get_mut(&id).filter(|job| job.note.token == token).map(change)
    }

    /// Removes a job.
    pub(crate) fn remove(&self, id: JobId) {
        self.lock().remove(&id);
    }
}
