//! Forgets jobs whose time is over (J-127, J-131, J-132).
//!
//! Invariants
//!
//! - A job that has not ended is never removed, whatever its age.
//! - The row goes first, then the folder: a crash in between leaves a folder that nobody knows, which a later pruning removes.
//! - One folder that cannot be removed keeps no other from that. What becomes of folders that no row knows, `quarantine.rs` says.
//! - A folder that is gone already is no error (J-156).

use std::{fs, io, path::PathBuf, time::Duration};

use super::{
    EngineState,
    quarantine::{self, Quarantined, SortedOrphans},
};
use crate::{
    error::JobError,
    folder::{DataFolder, FileError},
    id::JobId,
    store,
    timestamp::JobTimestamp,
    wait::WaitLimit,
};

/// Jobs that are removed with one look at the database.
const AT_ONCE: u32 = 200;

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedJobs {
    /// Jobs that had ended long enough ago.
    pub jobs: Vec<JobId>,
    /// Folders of jobs that were never accepted.
    pub orphans: usize,
    /// Folders that no row knows and nobody understands. They lie in `quarantine/` now, with everything in them.
    pub quarantined: Vec<Quarantined>,
    /// Folders that were left where they are, each with the reason.
    pub left: Vec<(PathBuf, String)>,
}

pub(super) fn remove(inner: &EngineState, id: JobId) -> Result<(), JobError> {
    let status = inner.status(id)?.record.status;
    if !status.is_final() {
        return Err(JobError::HasNotEnded { id, status });
    }
    if !inner.store().write(|transaction| store::remove(transaction, id))? {
        return Err(JobError::NoSuchJob(id));
    }
    inner.memory.clear_ended(id);
    Ok(remove_folder(&inner.data, id)?)
}

/// Removes what ended longer ago than `age`, because somebody said so.
pub(super) fn prune(inner: &EngineState, age: Duration) -> Result<RemovedJobs, JobError> {
    let expired = expire(inner, age, store::KeptAsAccepted::No, None)?;
    with_folders(inner, expired, age)
}

/// Removes what ended longer ago than our retention and than the job's own.
pub(super) fn prune_expired(inner: &EngineState) -> Result<RemovedJobs, JobError> {
    let age = inner.options.retention.max(inner.retention_of_others());
    let expired = expire(inner, age, store::KeptAsAccepted::AsAccepted, None)?;
    with_folders(inner, expired, age)
}

/// Jobs that were removed because their time is over.
#[derive(Debug, Default)]
pub(super) struct Expired {
    pub(super) jobs: Vec<JobId>,
    /// Folders that could not be removed, each with the reason.
    pub(super) left: Vec<(PathBuf, String)>,
    /// There was time for all of them.
    pub(super) is_over: bool,
}

/// The moment before which a job has to have ended to be older than `age`.
fn ended_by(age: Duration) -> JobTimestamp {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    JobTimestamp::from_millis(JobTimestamp::now().millis().saturating_sub(age))
}

/// Removes jobs that ended longer ago than `age`, until all are gone or the limit is reached.
pub(super) fn expire(
    inner: &EngineState,
    age: Duration,
    kept: store::KeptAsAccepted,
    limit: Option<WaitLimit>,
) -> Result<Expired, JobError> {
    let before = ended_by(age);
    let mut expired = Expired::default();
    loop {
        let old = inner.store().read(|connection| store::ended_before(connection, before, kept, AT_ONCE))?;
        if old.is_empty() {
            expired.is_over = true;
            return Ok(expired);
        }
        for job in old {
            if limit.is_some_and(|limit| limit.is_over()) {
                return Ok(expired);
            }
            let id = job.record.job_id;
            // Another process may be doing the same.
            if inner.store().write(|transaction| store::remove(transaction, id))? {
                inner.memory.clear_ended(id);
                expired.jobs.push(id);
                // Nobody knows it any more, so it is looked at with every pruning again.
                if let Err(error) = remove_folder(&inner.data, id) {
                    expired.left.push((inner.data.job(id).path().to_owned(), error.to_string()));
                }
            }
        }
    }
}

/// Sorts the folders that no row knows, too. What ended before `age` has had its time.
pub(super) fn with_folders(
    inner: &EngineState,
    expired: Expired,
    age: Duration,
) -> Result<RemovedJobs, JobError> {
    let SortedOrphans { removed, quarantined, left } = quarantine::sort(inner, ended_by(age))?;
    let left = expired.left.into_iter().chain(left).collect();
    Ok(RemovedJobs { jobs: expired.jobs, orphans: removed, quarantined, left })
}

/// Removes a job's folder, and nothing where a link in its place leads.
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
