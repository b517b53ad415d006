//! The operations that the engine, the supervisors and the watchers call. Each method is one transaction.
//!
//! Invariant: this module and its neighbours alone speak SQL.

use std::collections::HashSet;

use super::{
    JobAdmission, SqliteStore, StoreError, changes, count,
    figures::{self, StoreFigures},
    queries,
    row::{JobRow, ShimStarter},
};
use crate::{
    folder::Durability,
    id::JobId,
    launch::LaunchFiles,
    record::{JobRecord, JobState},
    room::Rules,
    store::{JobEntry, JobOwnerFilter, JobStore, KeptAsAccepted},
    timestamp::JobTimestamp,
};

/// The rows of accepted jobs.
pub(crate) struct AcceptedRows {
    /// Whether the row of each job is its own, and not that of another job with its id.
    pub(crate) is_ours: Vec<bool>,
    /// The rows of the accepted and of the admitted jobs.
    pub(crate) rows: Vec<JobRow>,
    /// The jobs that have a slot now.
    pub(crate) admitted: Vec<JobId>,
}

impl JobStore for SqliteStore {
    type Claimant = ShimStarter;
    type Orders = LaunchFiles;
    type Error = StoreError;

    fn accept(&mut self, jobs: &[JobEntry<'_, LaunchFiles>]) -> Result<Vec<bool>, StoreError> {
        Ok(self.accept_and_admit(jobs, None)?.is_ours)
    }

    /// Does so in a boot in which the files of the queued jobs are known to exist.
    fn claim(&mut self, claimant: &ShimStarter, limit: Option<u32>) -> Result<Option<JobId>, StoreError> {
        self.write(|transaction| changes::admit(transaction, limit, claimant))
    }

    /// The claimant is not looked at: the lock of the job's folder decides who may write about its end.
    fn finish(&mut self, record: &JobRecord, _: Option<&ShimStarter>) -> Result<bool, StoreError> {
        self.write(|transaction| changes::finish(transaction, record))
    }

    fn get(&mut self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        self.read(|connection| queries::get(connection, id))
    }

    fn newest(
        &mut self,
        state: Option<JobState>,
        whose: &JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<JobRow>, StoreError> {
        self.read(|connection| queries::newest(connection, state, whose, limit))
    }

    fn ended_before(
        &mut self,
        moment: JobTimestamp,
        kept: KeptAsAccepted,
        limit: u32,
    ) -> Result<Vec<JobRow>, StoreError> {
        self.read(|connection| queries::ended_before(connection, moment, kept, limit))
    }

    fn counts(&mut self) -> Result<Vec<(JobState, u64)>, StoreError> {
        self.read(count::by_state)
    }

    fn remove(&mut self, id: JobId) -> Result<bool, StoreError> {
        self.write(|transaction| changes::remove(transaction, id))
    }
}

impl SqliteStore {
    /// Accepts jobs, and fills the free slots in the same transaction if `admission` says so.
    pub(crate) fn accept_and_admit(
        &mut self,
        jobs: &[JobEntry<'_, LaunchFiles>],
        admission: Option<&JobAdmission<'_>>,
    ) -> Result<AcceptedRows, StoreError> {
        self.write(|transaction| {
            let mut is_ours = Vec::with_capacity(jobs.len());
            for job in jobs {
                let is_new = changes::insert(transaction, job.record, job.orders)?;
                // A process that made the table anew may have found the folder.
                let is_known = || -> rusqlite::Result<bool> {
                    let row = queries::get(transaction, job.record.job_id)?;
                    Ok(row.is_some_and(|row| row.record.is_same_submission(job.record)))
                };
                is_ours.push(is_new || is_known()?);
            }
            let admitted =
                admission.map_or_else(|| Ok(Vec::new()), |admission| admission.admit(transaction))?;
            let mut rows = Vec::with_capacity(jobs.len());
            let ids = jobs.iter().map(|job| job.record.job_id).chain(admitted.iter().copied());
            for id in ids {
                rows.extend(queries::get(transaction, id)?);
            }
            Ok(AcceptedRows { is_ours, rows, admitted })
        })
    }

    /// Fills the free slots. Returns the jobs that got one, whose supervisors the caller has to start.
    pub(crate) fn admit(&mut self, admission: &JobAdmission<'_>) -> Result<Vec<JobId>, StoreError> {
        self.write(|transaction| admission.admit(transaction))
    }

    /// Brings a job to its final state, unless it has one, and fills the free slots as [`Self::admit`] does.
    pub(crate) fn finish_and_admit(
        &mut self,
        record: &JobRecord,
        admission: &JobAdmission<'_>,
    ) -> Result<Vec<JobId>, StoreError> {
        self.write(|transaction| {
            changes::finish(transaction, record)?;
            admission.admit(transaction)
        })
    }

    /// Makes `starter` the starter of the supervisor of a job with a slot. Returns false if another process did so meanwhile.
    pub(crate) fn take_over(
        &mut self,
        id: JobId,
        seen: Option<&ShimStarter>,
        starter: &ShimStarter,
    ) -> Result<bool, StoreError> {
        self.write(|transaction| changes::take_over(transaction, id, seen, starter))
    }

    /// Notes that the result of this job is about to reach the named state, or that it has (or could not), as the record says.
    pub(crate) fn note_patch(&mut self, record: &JobRecord, is_patching: bool) -> Result<(), StoreError> {
        self.write(|transaction| changes::note_patch(transaction, record, is_patching))
    }

    /// Changes the record of a call that has not ended, if `change` returns true. Returns the changed row.
    pub(crate) fn change_call(
        &mut self,
        id: JobId,
        durability: Durability,
        change: impl FnOnce(&mut JobRecord) -> bool,
    ) -> Result<Option<JobRow>, StoreError> {
        self.write_surviving(durability, |transaction| {
            let Some(JobRow { mut record, .. }) = queries::get(transaction, id)? else { return Ok(None) };
            let is_changed = change(&mut record) && changes::note_call(transaction, &record)?;
            if is_changed { queries::get(transaction, id) } else { Ok(None) }
        })
    }

    /// Changes the record of a job that has ended, if `change` returns true. Returns the changed row.
    pub(crate) fn change_ended(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut JobRecord) -> bool,
    ) -> Result<Option<JobRow>, StoreError> {
        self.write(|transaction| {
            let ended = queries::get(transaction, id)?.filter(|job| job.record.status.is_final());
            let Some(JobRow { mut record, .. }) = ended else { return Ok(None) };
            if !change(&mut record) {
                return Ok(None);
            }
            changes::note_patch(transaction, &record, false)?;
            queries::get(transaction, id)
        })
    }

    /// Returns every job that has not ended, in the order of acceptance.
    pub(crate) fn open_jobs(&mut self) -> Result<Vec<JobRow>, StoreError> {
        self.read(queries::open_jobs)
    }

    /// Returns the jobs that have changed since this revision, oldest change first.
    pub(crate) fn changed_since(&mut self, revision: i64) -> Result<Vec<JobRow>, StoreError> {
        self.read(|connection| queries::changed_since(connection, revision))
    }

    /// Returns those of these jobs that do not exist.
    pub(crate) fn missing(&mut self, ids: &[JobId]) -> Result<HashSet<JobId>, StoreError> {
        self.read(|connection| queries::missing(connection, ids))
    }

    /// Returns the last revision, and how many jobs were ever removed.
    pub(crate) fn counters(&mut self) -> Result<(i64, i64), StoreError> {
        self.read(queries::counters)
    }

    /// Returns the rules of the first job of the queue whose files exist; `None` if there is none.
    pub(crate) fn next_rules(&mut self) -> Result<Option<Rules>, StoreError> {
        self.read(queries::next_rules)
    }

    /// Returns the jobs whose results were about to reach the named state when their writer died.
    pub(crate) fn patching(&mut self) -> Result<Vec<JobRow>, StoreError> {
        self.read(queries::patching)
    }

    /// Returns how many jobs there are.
    pub(crate) fn how_many(&mut self) -> Result<u32, StoreError> {
        self.read(queries::how_many)
    }

    /// Returns the jobs whose records have an older format, and whether each has ended.
    pub(crate) fn of_older_format(&mut self, format: u32) -> Result<Vec<(JobId, bool)>, StoreError> {
        self.read(|connection| queries::of_older_format(connection, format))
    }

    /// Returns the figures of the clocks; `None` if there are none yet.
    pub(crate) fn clock(&mut self) -> Result<Option<StoreFigures>, StoreError> {
        self.read(figures::clock)
    }

    /// Stores the figures of the clocks.
    pub(crate) fn keep_clock(&mut self, kept: StoreFigures) -> Result<(), StoreError> {
        self.write(|transaction| figures::keep_clock(transaction, kept))
    }

    /// Returns the retention in milliseconds that a process was told last; `None` if none was told one.
    pub(crate) fn retention(&mut self) -> Result<Option<i64>, StoreError> {
        self.read(figures::retention)
    }

    /// Stores the retention.
    pub(crate) fn keep_retention(&mut self, millis: i64) -> Result<(), StoreError> {
        self.write(|transaction| figures::keep_retention(transaction, millis))
    }

    /// Returns the format that the folders of all jobs have; `None` as long as it is not known.
    pub(crate) fn layout(&mut self) -> Result<Option<i64>, StoreError> {
        self.read(figures::layout)
    }

    /// Stores the format of the folders.
    pub(crate) fn keep_layout(&mut self, format: i64) -> Result<(), StoreError> {
        self.write(|transaction| figures::keep_layout(transaction, format))
    }
}
