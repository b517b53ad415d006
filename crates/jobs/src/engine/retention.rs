//! Removes jobs whose retention is over (J-127, J-131, J-132).
//!
//! Invariants
//!
//! - A job that has not ended is never removed, whatever its age.
//! - The row goes first, then the folder: a crash in between leaves a folder that nobody knows, which a later pruning removes.
//! - A folder that cannot be removed does not keep the others. `quarantine.rs` tells what happens to folders that no row knows.
//! - A folder that is gone already is not an error (J-156).

use std::{fs, io, path::PathBuf, time::Duration};

use super::{
    EngineState,
    quarantine::{self, Quarantined, SortedOrphans},
};
use crate::{
    error::JobError,
    folder::{DataFolder, FileError, LEASE},
    id::JobId,
    store::{JobStore, KeptAsAccepted},
    timestamp::JobTimestamp,
    wait::WaitLimit,
};

/// The number of jobs that are removed with one look at the database.
const AT_ONCE: u32 = 200;

/// The outcome of a pruning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedJobs {
    /// The jobs that had ended long enough ago.
    pub jobs: Vec<JobId>,
    /// The number of removed folders of jobs that were never accepted.
    pub orphans: usize,
    /// The folders that no row knows and nobody understands. They lie in `quarantine/` now, with everything in them.
    pub quarantined: Vec<Quarantined>,
    /// The folders that were left where they are, each with the reason.
    pub left: Vec<(PathBuf, String)>,
}

impl RemovedJobs {
    /// Adds jobs that were removed from the store of many machines. A call of this data folder may be among them.
    pub(super) fn add(&mut self, in_store: Vec<JobId>) {
        let more: Vec<JobId> = in_store.into_iter().filter(|id| !self.jobs.contains(id)).collect();
        self.jobs.extend(more);
    }
}

pub(super) fn remove(inner: &EngineState, id: JobId) -> Result<(), JobError> {
    if inner.data.job(id).has(LEASE) {
        return Err(JobError::OfWorker(id));
    }
    remove_leased(inner, id)
}

/// Removes a job that has ended, also if it had a lease.
pub(super) fn remove_leased(inner: &EngineState, id: JobId) -> Result<(), JobError> {
    let status = inner.status(id)?.record.status;
    if !status.is_final() {
        return Err(JobError::HasNotEnded { id, status });
    }
    if !inner.store().remove(id)? {
        return Err(JobError::NoSuchJob(id));
    }
    inner.memory.clear_ended(id);
    Ok(remove_folder(&inner.data, id)?)
}

/// Removes the jobs that ended longer ago than `age`, because a person said so.
pub(super) fn prune(inner: &EngineState, age: Duration) -> Result<RemovedJobs, JobError> {
    let expired = expire(inner, age, KeptAsAccepted::No, None)?;
    with_folders(inner, expired, age)
}

/// Removes the jobs that ended longer ago than both the retention of the processes here and the job's own.
pub(super) fn prune_expired(inner: &EngineState) -> Result<RemovedJobs, JobError> {
    let age = inner.options.retention.max(inner.retention_of_others());
    let expired = expire(inner, age, KeptAsAccepted::AsAccepted, None)?;
    with_folders(inner, expired, age)
}

/// The jobs that were removed because their retention is over.
#[derive(Debug, Default)]
pub(super) struct Expired {
    pub(super) jobs: Vec<JobId>,
    /// The folders that could not be removed, each with the reason.
    pub(super) left: Vec<(PathBuf, String)>,
    /// Whether there was time for all of them.
    pub(super) is_over: bool,
}

/// Returns the moment before which a job has to have ended to be older than `age`.
pub(super) fn ended_by(age: Duration) -> JobTimestamp {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    JobTimestamp::from_millis(JobTimestamp::now().millis().saturating_sub(age))
}

/// Removes jobs that ended longer ago than `age`, until all are gone or the limit is reached.
pub(super) fn expire(
    inner: &EngineState,
    age: Duration,
    kept: KeptAsAccepted,
    limit: Option<WaitLimit>,
) -> Result<Expired, JobError> {
    let before = ended_by(age);
    let (mut expired, mut left_to_workers) = (Expired::default(), 0);
    loop {
        let mut old = inner.store().ended_before(before, kept, AT_ONCE + left_to_workers)?;
        // A worker removes its copy of a job when it has told the end, and so is a call kept until the store has its end.
        let count = old.len();
        old.retain(|job| {
            let id = job.record.job_id;
            !inner.data.job(id).has(LEASE) && !inner.data.has_untold_call(id)
        });
        left_to_workers = u32::try_from(count - old.len()).unwrap_or(u32::MAX);
        if old.is_empty() {
            expired.is_over = true;
            return Ok(expired);
        }
        for job in old {
            if limit.is_some_and(|limit| limit.is_over()) {
                return Ok(expired);
            }
            let id = job.record.job_id;
            // Another process may be removing the same job.
            if inner.store().remove(id)? {
                inner.memory.clear_ended(id);
                expired.jobs.push(id);
                // No row knows the folder any more, so every later pruning looks at it again.
                if let Err(error) = remove_folder(&inner.data, id) {
                    expired.left.push((inner.data.job(id).path().to_owned(), error.to_string()));
                }
            }
        }
    }
}

/// Sorts the folders that no row knows, too. Jobs that ended longer ago than `age` are removed.
pub(super) fn with_folders(
    inner: &EngineState,
    expired: Expired,
    age: Duration,
) -> Result<RemovedJobs, JobError> {
    let SortedOrphans { removed, quarantined, left } = quarantine::sort(inner, ended_by(age))?;
    let left = expired.left.into_iter().chain(left).collect();
    Ok(RemovedJobs { jobs: expired.jobs, orphans: removed, quarantined, left })
}

/// Removes a job's folder. If a link lies in its place, removes the link, and nothing at its target.
pub(super) fn remove_folder(data: &DataFolder, id: JobId) -> Result<(), FileError> {
    let folder = data.job(id);
    let removed = match folder.is_something_else() {
        true => fs::remove_file(folder.path()),
        false => fs::remove_dir_all(folder.path()),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::system("cannot remove", folder.path(), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{
        engine::tests::TestEngine,
        limits::{ToldLimits, announce},
        record::{JobRecord, JobState},
        testing::{command, ended},
    };

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn x_08_only_jobs_that_ended_long_enough_ago_are_removed_with_their_folders() {
        let mut test = TestEngine::new(|options| options.retention = 5 * DAY);
        let ids = [10 * DAY, 3 * DAY, Duration::ZERO].map(|ago| test.accept(&ended(ago)));
        let mut kept = ended(10 * DAY);
        kept.rules.retention_ms = Some(u64::MAX);
        let kept = test.accept(&kept);
        let open = test.accept(&JobRecord { created_at: JobTimestamp::from_millis(0), ..command() });
        let unknown = test.orphan();
        let is_there = |id: JobId| test.inner.data.job(id).is_there();
        let longer = ToldLimits { max_concurrent: None, retention_ms: Some(u64::MAX) };
        let announced = announce(&test.inner.data, longer).unwrap().unwrap();
        let removed = prune_expired(&test.inner).unwrap();
        assert_eq!((removed.jobs, removed.orphans), (Vec::new(), 1), "another process keeps the jobs");
        assert!(!is_there(unknown));
        drop(announced);
        assert_eq!(prune_expired(&test.inner).unwrap().jobs, [ids[0]]);
        assert_eq!([ids[0], ids[1], kept].map(is_there), [false, true, true]);
        // A person may say otherwise.
        let removed = prune(&test.inner, DAY).unwrap();
        assert_eq!((removed.jobs.len(), removed.orphans, removed.left), (2, 0, Vec::new()));
        assert_eq!([ids[1], kept, ids[2], open].map(is_there), [false, false, true, true]);
        assert!(prune(&test.inner, Duration::MAX).unwrap().jobs.is_empty());
        let none = Some(WaitLimit::after(Duration::ZERO));
        let expired = expire(&test.inner, Duration::from_millis(1), KeptAsAccepted::No, none).unwrap();
        assert!(expired.jobs.is_empty() && !expired.is_over, "there was no time: {expired:?}");
    }

    #[test]
    fn a_job_can_be_removed_once_and_only_after_its_end() {
        let mut test = TestEngine::new(|_| {});
        let (open, id) = (test.accept(&command()), test.accept(&ended(Duration::ZERO)));
        let refused = remove(&test.inner, open);
        assert!(
            matches!(refused, Err(JobError::HasNotEnded { id, status: JobState::Queued }) if id == open),
            "{refused:?}"
        );
        assert!(test.inner.data.job(open).is_there());
        let row = test.inner.store().get(id).unwrap();
        test.inner.memory.update(row);
        remove(&test.inner, id).unwrap();
        assert!(
            !test.has(id) && !test.inner.data.job(id).is_there() && test.inner.memory.status(id).is_none()
        );
        let again = remove(&test.inner, id);
        assert!(matches!(again, Err(JobError::NoSuchJob(gone)) if gone == id), "{again:?}");
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_is_removed_and_its_target_stays() {
        let test = TestEngine::new(|_| {});
        let id = JobId::random().unwrap();
        let (path, target) = (test.inner.data.job(id).path().to_owned(), test.folder.path().join("target"));
        fs::create_dir(&target).unwrap();
        symlink(&target, &path).unwrap();
        remove_folder(&test.inner.data, id).unwrap();
        assert!(path.symlink_metadata().is_err() && target.is_dir());
        remove_folder(&test.inner.data, id).unwrap();
        fs::remove_dir(test.inner.data.jobs()).unwrap();
        fs::write(test.inner.data.jobs(), "").unwrap();
        let error = remove_folder(&test.inner.data, id).unwrap_err().to_string();
        assert!(error.starts_with("cannot remove"), "{error}");
    }
}
