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
    id::JobId, progress::JobProgress, record::JobState, status::JobStatus, store::JobRow,
    timestamp::JobTimestamp,
};

/// The most ended jobs in memory. Others are read from the disk.
const ENDED_KEPT: usize = 1000;

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
            shared: None,
        })
    }

    /// Returns the jobs that have a slot, in the order of their acceptance: the active commands.
    pub(super) fn with_slot(&self) -> Vec<JobId> {
        self.active_where(|job| job.record.call.is_none())
    }

    /// Returns the active jobs in the order of their acceptance, calls among them.
    pub(super) fn active(&self) -> Vec<JobId> {
        self.active_where(|_| true)
    }

    /// Returns only ids: hundreds of records would be a megabyte.
    fn active_where(&self, fits: impl Fn(&JobRow) -> bool) -> Vec<JobId> {
        let jobs = self.read();
        let active = jobs.known.values().map(|known| &known.job).filter(|job| job.is_active && fits(job));
        let mut active: Vec<(i64, JobId)> = active.map(|job| (job.sequence, job.record.job_id)).collect();
        active.sort_unstable();
        active.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the job as it is stored, if it is active.
    pub(super) fn active_row(&self, id: JobId) -> Option<JobRow> {
        let jobs = self.read();
        jobs.known.get(&id).filter(|known| known.job.is_active).map(|known| known.job.clone())
    }

    /// Returns how many active jobs are running.
    pub(super) fn running_count(&self) -> usize {
        let jobs = self.read();
        let active = jobs.known.values().filter(|known| known.job.is_active);
        active.filter(|known| known.job.record.status == JobState::Running).count()
    }

    /// Returns the jobs that fit. They are calls, so none of them has a place in the queue.
    pub(super) fn calls(&self, fits: impl Fn(&JobRow) -> bool) -> Vec<JobStatus> {
        let jobs = self.read();
        let known = jobs.known.values().filter(|known| fits(&known.job));
        known
            .map(|known| JobStatus {
                record: known.job.record.clone(),
                queue_position: None,
                progress: known.progress.clone(),
                wait_reason: None,
                shared: None,
            })
            .collect()
    }

    /// Returns the calls that are in memory.
    pub(super) fn call_ids(&self) -> Vec<JobId> {
        let jobs = self.read();
        let calls = jobs.known.iter().filter(|(_, known)| known.job.record.call.is_some());
        calls.map(|(id, _)| *id).collect()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        record::JobRecord,
        testing::{NOBODY, call, command, ended},
    };

    fn row(sequence: i64, is_active: bool, record: &JobRecord) -> JobRow {
        JobRow { sequence, revision: sequence, is_active, claimant: None, claims: 0, record: record.clone() }
    }

    /// The same job after a later change.
    fn later(job: &JobRow, is_active: bool, status: JobState) -> JobRow {
        let record = JobRecord { status, ..job.record.clone() };
        JobRow { revision: job.revision + 1000, is_active, record, ..job.clone() }
    }

    fn progress(fraction: f64) -> Option<JobProgress> {
        Some(JobProgress { fraction: Some(fraction), message: None })
    }

    fn ids(jobs: &[JobRow]) -> Vec<JobId> {
        jobs.iter().map(|job| job.record.job_id).collect()
    }

    /// Whether a task that waits for a change is woken up by this, and the count grows.
    fn wakes(memory: &Memory, change: impl FnOnce()) -> bool {
        let changes = memory.changes();
        let before = *changes.borrow();
        change();
        let is_counted = *changes.borrow() == before + 1;
        assert_eq!(changes.has_changed().unwrap(), is_counted);
        is_counted
    }

    #[test]
    fn the_queue_is_counted_and_the_active_jobs_are_in_their_order() {
        let memory = Memory::new();
        assert!(!memory.has_queued());
        let commands: Vec<JobRecord> = (0..5).map(|_| command()).collect();
        let mut slow = call("boot", NOBODY, None);
        slow.owner = Some("ann".to_owned());
        let jobs = [
            row(3, true, &commands[1]),
            row(1, true, &slow),
            row(2, true, &commands[0]),
            row(6, false, &commands[4]),
            row(4, false, &commands[2]),
            row(5, false, &commands[3]),
            row(7, false, &ended(Duration::ZERO)),
        ];
        memory.update(jobs.clone());
        assert!(memory.has_queued());
        assert_eq!(memory.with_slot(), [commands[0].job_id, commands[1].job_id]);
        assert_eq!(memory.active(), [slow.job_id, commands[0].job_id, commands[1].job_id]);
        assert_eq!(memory.active_row(slow.job_id), Some(jobs[1].clone()));
        assert_eq!(memory.active_row(commands[2].job_id), None, "it is queued");
        let calls = |owner: &str| {
            memory.calls(|job| {
                job.is_active && job.record.call.is_some() && job.record.owner.as_deref() == Some(owner)
            })
        };
        assert_eq!(calls("ann").iter().map(|status| status.record.job_id).collect::<Vec<_>>(), [slow.job_id]);
        assert!(calls("bob").is_empty());
        for (job, position, state) in [
            (&jobs[0], None, JobState::Starting),
            (&jobs[1], None, JobState::Running),
            (&jobs[4], Some(0), JobState::Queued),
            (&jobs[5], Some(1), JobState::Queued),
            (&jobs[3], Some(2), JobState::Queued),
            (&jobs[6], None, JobState::Completed),
        ] {
            let status = memory.status(job.record.job_id).unwrap();
            assert_eq!((status.queue_position, status.record.status), (position, state), "{job:?}");
        }
        let mut known = memory.known();
        let mut all = ids(&jobs);
        known.sort_unstable();
        all.sort_unstable();
        assert_eq!(known, all);
        // The first of the queue gets a slot, and the last is cancelled.
        memory.update([later(&jobs[4], true, JobState::Queued), later(&jobs[3], false, JobState::Cancelled)]);
        assert_eq!(memory.status(commands[3].job_id).unwrap().queue_position, Some(0));
        memory.update([later(&jobs[5], true, JobState::Queued)]);
        assert!(!memory.has_queued());
    }

    #[test]
    fn an_older_row_changes_nothing_and_wakes_nobody() {
        let memory = Memory::new();
        let job = row(1, true, &command());
        let id = job.record.job_id;
        assert!(wakes(&memory, || memory.update([job.clone()])));
        assert!(!wakes(&memory, || memory.update([job.clone()])), "the same again");
        assert!(!wakes(&memory, || memory.update([])));
        let other = row(2, false, &command());
        assert!(wakes(&memory, || memory.update([other.clone(), job.clone()])), "one of them is new");
        let end = later(&job, false, JobState::Failed);
        assert!(wakes(&memory, || memory.update([end.clone()])));
        assert!(!wakes(&memory, || memory.update([job])));
        assert_eq!(memory.status(id).unwrap().record.status, JobState::Failed);
        // A lost job whose true end is found is still one ended job.
        memory.update([later(&end, false, JobState::Completed)]);
        assert_eq!(memory.read().ended, [id]);
    }

    #[test]
    fn what_was_observed_of_an_active_job_stays_until_its_end() {
        let memory = Memory::new();
        let job = row(1, true, &command());
        let (id, at) = (job.record.job_id, Some(JobTimestamp::from_millis(5)));
        memory.update([job.clone()]);
        let observe = |state, progress| wakes(&memory, || memory.observe(id, state, at, progress));
        assert!(observe(JobState::Running, None), "another state");
        assert!(observe(JobState::Running, progress(0.5)), "another progress");
        assert!(!observe(JobState::Running, progress(0.5)));
        assert!(!wakes(&memory, || memory.observe(id, JobState::Running, None, progress(0.5))));
        memory.update([later(&job, true, JobState::Queued)]);
        let status = memory.status(id).unwrap();
        let seen = (status.record.status, status.record.started_at, status.progress);
        assert_eq!(seen, (JobState::Running, at, progress(0.5)));
        memory.begin_anew(vec![job.clone()]);
        let status = memory.status(id).unwrap();
        let seen = (status.record.status, status.record.started_at, status.progress);
        assert_eq!(seen, (JobState::Running, at, progress(0.5)));
        let end = JobRow { revision: 9000, ..later(&job, false, JobState::Completed) };
        memory.update([end]);
        assert!(!observe(JobState::Running, progress(0.7)), "it has ended");
        assert_eq!(memory.status(id).unwrap().record.status, JobState::Completed);
        let queued = row(2, false, &command());
        memory.update([queued.clone()]);
        memory.observe(queued.record.job_id, JobState::Running, at, None);
        assert_eq!(memory.status(queued.record.job_id).unwrap().record.status, JobState::Queued);
        // A job that has begun takes its slot with a state of its own, and one that has lost its slot with the row's.
        memory.update([later(&queued, true, JobState::Queued)]);
        memory.observe(queued.record.job_id, JobState::Running, at, None);
        memory.begin_anew(vec![queued.clone()]);
        let status = memory.status(queued.record.job_id).unwrap();
        assert_eq!((status.record.status, status.record.started_at), (JobState::Queued, None));
        memory.begin_anew(vec![JobRow { is_active: true, ..queued.clone() }]);
        assert_eq!(memory.status(queued.record.job_id).unwrap().record.status, JobState::Starting);
    }

    #[test]
    fn a_new_database_replaces_all_jobs_and_wakes_who_waits() {
        let memory = Memory::new();
        let (old, new) = (row(1000, false, &command()), row(1, false, &command()));
        memory.update([old.clone(), row(2, false, &ended(Duration::ZERO))]);
        memory.set_wait_reason(Some("no memory".to_owned()));
        assert!(wakes(&memory, || memory.begin_anew(vec![new.clone()])));
        assert_eq!((memory.known(), memory.status(old.record.job_id)), (vec![new.record.job_id], None));
        let status = memory.status(new.record.job_id).unwrap();
        assert_eq!((status.queue_position, status.wait_reason.as_deref()), (Some(0), Some("no memory")));
        assert!(memory.read().ended.is_empty());
    }

    #[test]
    fn a_queued_job_has_the_reason_of_all_and_any_open_job_its_own_trouble() {
        let memory = Memory::new();
        let (queued, active) = (row(1, false, &command()), row(2, true, &command()));
        let end = row(3, false, &ended(Duration::ZERO));
        let jobs = [&queued, &active, &end].map(|job| job.record.job_id);
        memory.update([queued, active.clone(), end]);
        let reasons = || jobs.map(|id| memory.status(id).unwrap().wait_reason.unwrap_or_default());
        assert_eq!(reasons(), ["", "", ""]);
        memory.set_wait_reason(Some("no memory".to_owned()));
        assert_eq!(reasons(), ["no memory", "", ""]);
        let text = |text: &str| Some(text.to_owned());
        for (trouble, is_new) in
            [(None, false), (text("full"), true), (text("full"), false), (text("gone"), true)]
        {
            assert_eq!(jobs.map(|id| memory.set_trouble(id, trouble.clone())), [is_new; 3], "{trouble:?}");
        }
        assert_eq!(reasons(), ["gone", "gone", ""]);
        memory.set_wait_reason(None);
        assert_eq!([0, 1].map(|job| memory.set_trouble(jobs[job], None)), [true, true]);
        assert_eq!(reasons(), ["", "", ""]);
        assert!(!memory.set_trouble(jobs[0], None), "there was none any more");
        // The end of a job is the end of its trouble.
        memory.set_trouble(jobs[1], text("full"));
        memory.update([later(&active, false, JobState::Failed)]);
        assert!(!memory.set_trouble(jobs[1], None));
    }

    #[test]
    fn removed_jobs_are_forgotten_and_a_thousand_ended_ones_are_kept() {
        let memory = Memory::new();
        let open = row(1, false, &command());
        memory.update([open.clone()]);
        let ended: Vec<JobRow> =
            (2..=1002).map(|sequence| row(sequence, false, &ended(Duration::ZERO))).collect();
        memory.update(ended[..1000].iter().cloned());
        let is_known = |job: &JobRow| memory.status(job.record.job_id).is_some();
        assert!(ended[..1000].iter().all(is_known) && is_known(&open));
        memory.update([ended[1000].clone()]);
        assert!(!is_known(&ended[0]) && ended[1..].iter().all(is_known) && is_known(&open));
        assert!(wakes(&memory, || memory.clear_ended(ended[5].record.job_id)));
        assert!(!wakes(&memory, || memory.clear_ended(ended[5].record.job_id)));
        assert!(!is_known(&ended[5]) && is_known(&ended[4]) && is_known(&ended[6]));
        assert_eq!(memory.read().ended.len(), 999);
        memory.forget(&HashSet::from([open.record.job_id, ended[6].record.job_id]));
        assert!(!is_known(&open) && !memory.has_queued() && !is_known(&ended[6]) && is_known(&ended[7]));
    }
}
