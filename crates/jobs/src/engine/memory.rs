//! The engine's memory: every job that has not ended, and those that ended last.
//!
//! Invariants
//!
//! - A read of the memory takes no lock that is held over a read or a write of the disk. So a stuck disk delays no answer.
//! - The size of the memory is bounded by the number of open jobs and a fixed number of ended ones.
//! - An older version of a job never replaces a newer one.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::watch;

use crate::{
    id::JobId,
    progress::JobProgress,
    record::{JobRecord, JobState},
    store::JobRow,
    timestamp::JobTimestamp,
};

/// The most ended jobs in memory. Others are read from the disk.
const ENDED_KEPT: usize = 1000;

/// A job and its current state.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    /// Everything that is recorded about the job; `status` is the live one.
    pub record: JobRecord,
    /// The number of jobs that start before a queued job.
    pub queue_position: Option<u32>,
    /// The progress that the job reports.
    pub progress: Option<JobProgress>,
    /// Why a queued job is not started although a slot is free, or the trouble with its folder because of which nobody can look after the
    /// job.
    pub wait_reason: Option<String>,
}

impl JobStatus {
    /// Returns how long the job has been running, or ran; for a queued job, how long it has waited.
    #[must_use]
    pub fn elapsed(&self) -> std::time::Duration {
        let ending = self.record.ending.as_ref();
        let end = ending.map_or_else(JobTimestamp::now, |ending| ending.completed_at);
        end.since(self.record.started_at.unwrap_or(self.record.created_at))
    }
}

#[derive(Debug)]
struct KnownJob {
    job: JobRow,
    progress: Option<JobProgress>,
}

#[derive(Debug, Default)]
struct KnownJobs {
    /// Boxed: a table has room for up to twice as many entries as there are, and an entry has a kilobyte.
    known: HashMap<JobId, Box<KnownJob>>,
    /// The sequence numbers of queued jobs.
    queued: BTreeSet<i64>,
    /// The ended jobs; the job that has been in memory longest is first.
    ended: VecDeque<JobId>,
    wait_reason: Option<String>,
    /// The troubles with the folders of jobs that have not ended.
    troubles: HashMap<JobId, String>,
}

/// The jobs in memory, and the count of changes.
#[derive(Debug)]
pub(super) struct Memory {
    jobs: RwLock<KnownJobs>,
    changes: watch::Sender<u64>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { jobs: RwLock::default(), changes: watch::Sender::new(0) }
    }

    /// Returns a receiver that wakes up at every change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn status(&self, id: JobId) -> Option<JobStatus> {
        let jobs = self.read();
        let known = jobs.known.get(&id)?;
        let is_queued = known.job.record.status == JobState::Queued;
        let before = || jobs.queued.range(..known.job.sequence).count();
        Some(JobStatus {
            record: known.job.record.clone(),
            queue_position: is_queued.then(|| u32::try_from(before()).unwrap_or(u32::MAX)),
            progress: known.progress.clone(),
            wait_reason: jobs.wait_of(known, id),
        })
    }

    /// Returns the jobs that have a slot: the active commands.
    pub(super) fn with_slot(&self) -> Vec<JobRow> {
        let active = self.active().into_iter();
        active.filter(|job| job.record.call.is_none()).collect()
    }

    /// Returns the active jobs, calls among them.
    pub(super) fn active(&self) -> Vec<JobRow> {
        let jobs = self.read();
        let mut active: Vec<JobRow> =
            jobs.known.values().filter(|known| known.job.is_active).map(|known| known.job.clone()).collect();
        active.sort_unstable_by_key(|job| job.sequence);
        active
    }

    /// Returns the active calls that fit.
    pub(super) fn calls(&self, fits: impl Fn(&JobRecord) -> bool) -> Vec<JobStatus> {
        let jobs = self.read();
        let known = jobs.known.values().filter(|known| known.job.is_active && fits(&known.job.record));
        known
            .map(|known| JobStatus {
                record: known.job.record.clone(),
                queue_position: None,
                progress: known.progress.clone(),
                wait_reason: None,
            })
            .collect()
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.read().queued.is_empty()
    }

    /// Takes in the current rows of the database.
    pub(super) fn update(&self, rows: impl IntoIterator<Item = JobRow>) {
        let mut jobs = self.write();
        let mut has_changed = false;
        for row in rows {
            has_changed |= jobs.update(row);
        }
        drop(jobs);
        if has_changed {
            self.changed();
        }
    }

    /// Notes the observed state of an active job.
    pub(super) fn observe(
        &self,
        id: JobId,
        state: JobState,
        started_at: Option<JobTimestamp>,
        progress: Option<JobProgress>,
    ) {
        let mut jobs = self.write();
        let Some(known) = jobs.known.get_mut(&id).filter(|known| known.job.is_active) else { return };
        let record = &mut known.job.record;
        let is_new = record.status != state || known.progress != progress;
        record.status = state;
        record.started_at = started_at.or(record.started_at);
        known.progress = progress;
        drop(jobs);
        if is_new {
            self.changed();
        }
    }

    pub(super) fn set_wait_reason(&self, reason: Option<String>) {
        self.write().wait_reason = reason;
    }

    /// Notes what is wrong with a job's folder, or that nothing is. Returns true if that is new.
    pub(super) fn set_trouble(&self, id: JobId, trouble: Option<String>) -> bool {
        if trouble.is_none() && !self.read().troubles.contains_key(&id) {
            return false;
        }
        let mut jobs = self.write();
        match trouble {
            Some(trouble) => jobs.troubles.insert(id, trouble.clone()) != Some(trouble),
            None => jobs.troubles.remove(&id).is_some(),
        }
    }

    /// Forgets a job that was removed.
    pub(super) fn clear_ended(&self, id: JobId) {
        self.forget(&HashSet::from([id]));
    }

    /// Returns the jobs that are in memory.
    pub(super) fn known(&self) -> Vec<JobId> {
        self.read().known.keys().copied().collect()
    }

    /// Forgets these jobs, which were removed, and nothing else. Wakes up the tasks that wait for one of them.
    pub(super) fn forget(&self, removed: &HashSet<JobId>) {
        let mut jobs = self.write();
        let mut has_changed = false;
        for id in removed {
            if let Some(known) = jobs.known.remove(id) {
                jobs.queued.remove(&known.job.sequence);
                has_changed = true;
            }
        }
        jobs.ended.retain(|id| !removed.contains(id));
        drop(jobs);
        if has_changed {
            self.changed();
        }
    }

    /// Replaces all open jobs by these, and forgets every other job. The database is another one, so its revisions cannot be compared with
    /// those of the one before. The observed state of an active job stays.
    pub(super) fn begin_anew(&self, open: Vec<JobRow>) {
        let mut jobs = self.write();
        let before = std::mem::take(&mut *jobs);
        jobs.wait_reason = before.wait_reason;
        let mut seen = before.known;
        for job in open {
            let seen = seen.remove(&job.record.job_id).filter(|seen| seen.job.is_active && job.is_active);
            let id = job.record.job_id;
            jobs.update(job);
            if let (Some(known), Some(seen)) = (jobs.known.get_mut(&id), seen) {
                known.job.record.status = seen.job.record.status;
                known.job.record.started_at = seen.job.record.started_at;
                known.progress = seen.progress;
            }
        }
        drop(jobs);
        self.changed();
    }

    /// Wakes up the tasks that wait for a change.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn read(&self) -> RwLockReadGuard<'_, KnownJobs> {
        self.jobs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, KnownJobs> {
        self.jobs.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownJobs {
    fn wait_of(&self, known: &KnownJob, id: JobId) -> Option<String> {
        let status = known.job.record.status;
        let trouble = self.troubles.get(&id).filter(|_| !status.is_final());
        let reason = self.wait_reason.as_ref().filter(|_| status == JobState::Queued);
        trouble.or(reason).cloned()
    }

    fn update(&mut self, mut job: JobRow) -> bool {
        let id = job.record.job_id;
        let earlier = self.known.remove(&id);
        let mut progress = None;
        if let Some(earlier) = earlier {
            if earlier.job.revision >= job.revision {
                self.known.insert(id, earlier);
                return false;
            }
            // The observed state is not in the row.
            if job.is_active && earlier.job.is_active {
                job.record.status = earlier.job.record.status;
                job.record.started_at = earlier.job.record.started_at;
            }
            // The job has another sequence number in tables that were made anew.
            self.queued.remove(&earlier.job.sequence);
            progress = earlier.progress;
            if earlier.job.record.status.is_final() {
                self.ended.retain(|other| *other != id);
            }
        }
        if job.is_active && job.record.status == JobState::Queued {
            job.record.status = JobState::Starting;
        }
        if job.record.status == JobState::Queued {
            self.queued.insert(job.sequence);
        } else {
            self.queued.remove(&job.sequence);
        }
        if job.record.status.is_final() {
            self.troubles.remove(&id);
            self.ended.push_back(id);
        }
        self.known.insert(id, Box::new(KnownJob { job, progress }));
        while self.ended.len() > ENDED_KEPT {
            if let Some(oldest) = self.ended.pop_front() {
                self.known.remove(&oldest);
            }
        }
        true
    }
}
