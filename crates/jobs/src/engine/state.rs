//! The state that the threads and the callers of one engine share.
//!
//! Invariant: the lock of the store is held for one short transaction at a time, on threads that may wait for the disk.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    calls::Calls,
    disk::DiskThreads,
    memory::{JobStatus, Memory},
    options::EngineOptions,
    presence::FolderPresence,
};
use crate::{
    error::JobError,
    folder::DataFolder,
    id::JobId,
    limits,
    room::{MemoryGauge, RoomShortage},
    settle::JobAdmission,
    shims,
    store::{self, ShimStarter, Store},
};

/// The state of an engine.
#[derive(Debug)]
pub(crate) struct EngineState {
    pub(super) options: EngineOptions,
    pub(super) data: DataFolder,
    pub(super) memory: Memory,
    pub(super) presence: FolderPresence,
    pub(super) starter: ShimStarter,
    pub(super) gauge: MemoryGauge,
    /// The calls that this process holds.
    pub(super) calls: Calls,
    /// The connection for rare questions; held for one short transaction at a time.
    store: Mutex<Store>,
    pub(super) disk: DiskThreads,
}

impl EngineState {
    pub(super) fn new(options: EngineOptions, data: DataFolder, starter: ShimStarter, store: Store) -> Self {
        Self {
            options,
            memory: Memory::new(),
            presence: FolderPresence::default(),
            starter,
            gauge: MemoryGauge::default(),
            calls: Calls::default(),
            store: Mutex::new(store),
            disk: DiskThreads::new(data.path().to_owned()),
            data,
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admission(&self) -> JobAdmission<'_> {
        JobAdmission { starter: &self.starter, limit: self.own_limit(), is_open: self.lack().is_none() }
    }

    /// Returns the resource that is too scarce for another job to start; `None` if there is enough.
    pub(super) fn lack(&self) -> Option<RoomShortage> {
        self.options.rules.lack(&self.data, &self.gauge)
    }

    /// Returns the limit by which queued jobs start, besides each job's own: the least that is set by any process that has the folder open.
    pub(super) fn own_limit(&self) -> Option<u32> {
        let own = (!self.options.keeps_recorded_limits).then_some(self.options.rules.max_concurrent);
        own.into_iter().chain(limits::of_all(&self.data).max_concurrent).min()
    }

    /// Returns the longest retention that the processes which have the folder open have told.
    pub(super) fn retention_of_others(&self) -> Duration {
        limits::of_all(&self.data).retention()
    }

    /// Returns the jobs that have a slot.
    pub(super) fn running(&self) -> Vec<JobId> {
        self.memory.with_slot().iter().map(|job| job.record.job_id).collect()
    }

    pub(super) fn start_shims(&self, admitted: &[JobId]) {
        for &id in admitted {
            if let Err(error) = shims::start(&self.options.shim, &self.data, id) {
                // The maintenance thread sees that no supervisor has the job, and tries again.
                tracing::warn!("the supervisor of job {id} could not be started: {error}");
            }
        }
    }

    /// Notes a trouble with one job's folder with that job alone, so that the others go on. Returns any other error.
    pub(super) fn tell_trouble(&self, id: JobId, looked: Result<(), JobError>) -> Result<(), JobError> {
        let trouble = match looked {
            Err(error) if error.is_of_files() => Some(error.to_string()),
            looked => looked.map(|()| None)?,
        };
        self.note_trouble(id, trouble);
        Ok(())
    }

    /// Notes what is wrong with a job's folder, or that nothing is.
    pub(super) fn note_trouble(&self, id: JobId, trouble: Option<String>) {
        if self.memory.set_trouble(id, trouble.clone())
            && let Some(trouble) = trouble
        {
            tracing::warn!("unhang cannot supervise job {id}: {trouble}");
        }
    }

    /// Returns the status of a job from memory, or else from the database. May wait for the disk.
    pub(super) fn status(&self, id: JobId) -> Result<JobStatus, JobError> {
        if let Some(status) = self.memory.status(id) {
            return Ok(status);
        }
        let job = self.store().read(|connection| store::get(connection, id))?;
        let job = job.ok_or(JobError::NoSuchJob(id))?;
        if !job.record.status.is_final() {
            // Another process accepted the job a moment ago; from now on this process follows it too.
            self.memory.update([job]);
            return self.memory.status(id).ok_or(JobError::NoSuchJob(id));
        }
        Ok(JobStatus { record: job.record, queue_position: None, progress: None, wait_reason: None })
    }
}
