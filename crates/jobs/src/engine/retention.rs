//! Forgets jobs whose time is over (J-127, J-131, J-132).
//!
//! Invariants
//!
//! - A job that has not ended is never removed, whatever its age.
//! - The row goes first, then the folder: a crash in between leaves a folder that nobody knows, which a later sweep removes.
//! - One folder that cannot be removed keeps no other from that. What becomes of folders that no row knows, `quarantine.rs` says.
//! - A folder that is gone already is no error (J-156).

use std::{fs, io, path::PathBuf, time::Duration};

use super::{
    Inner,
    quarantine::{self, Quarantined, Sorted},
};
use crate::{
    error::JobError,
    folder::{DataFolder, FileError},
    id::JobId,
    moment::Moment,
    store,
};

/// Jobs that are removed with one look at the database.
const AT_ONCE: u32 = 200;

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs that had ended long enough ago.
    pub jobs: Vec<JobId>,
    /// Folders of jobs that were never accepted.
    pub orphans: usize,
    /// Folders that no row knows and nobody understands. They lie in `quarantine/` now, with everything in them.
    pub quarantined: Vec<Quarantined>,
    /// Folders that were left where they are, each with the reason.
    pub left: Vec<(PathBuf, String)>,
}

pub(super) fn remove(inner: &Inner, id: JobId) -> Result<(), JobError> {
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
pub(super) fn prune(inner: &Inner, age: Duration) -> Result<Pruned, JobError> {
    remove_old(inner, age, store::Kept::No)
}

/// Removes what ended longer ago than our retention and than the job's own.
pub(super) fn sweep(inner: &Inner) -> Result<Pruned, JobError> {
    remove_old(inner, inner.options.retention, store::Kept::AsAccepted)
}

fn remove_old(inner: &Inner, age: Duration, kept: store::Kept) -> Result<Pruned, JobError> {
    let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let limit = Moment::from_millis(Moment::now().millis().saturating_sub(age));
    let mut pruned = Pruned::default();
    loop {
        let old = inner.store().read(|connection| store::ended_before(connection, limit, kept, AT_ONCE))?;
        if old.is_empty() {
            break;
        }
        for job in old {
            let id = job.record.job_id;
            // Another process may be doing the same.
            if inner.store().write(|transaction| store::remove(transaction, id))? {
                inner.memory.clear_ended(id);
                pruned.jobs.push(id);
                // Nobody knows it any more, so it is looked at again with every sweep.
                if let Err(error) = remove_folder(&inner.data, id) {
                    pruned.left.push((inner.data.job(id).path().to_owned(), error.to_string()));
                }
            }
        }
    }
    let Sorted { removed, quarantined, left } = quarantine::sort(inner, limit)?;
    pruned.orphans = removed;
    pruned.quarantined = quarantined;
    pruned.left.extend(left);
    Ok(pruned)
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
