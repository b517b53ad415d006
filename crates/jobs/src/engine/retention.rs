//! Forgets jobs whose time is over (J-127, J-131, J-132).
//!
//! Invariants
//!
//! - A job that has not ended is never removed, whatever its age.
//! - The row goes first, then the folder: a crash in between leaves a folder that nobody knows, which a later sweep removes.
//! - A folder that is gone already is no error (J-156).

use std::{
    fs, io,
    time::{Duration, SystemTime},
};

use unhang_switches::stands;

use super::Inner;
use crate::{
    error::JobError,
    folder::{DataFolder, FileError},
    id::JobId,
    moment::Moment,
    store,
};

/// Jobs that are removed with one look at the database.
const AT_ONCE: u32 = 200;

/// How old a folder has to be for it to be no job that is being accepted right now.
const ORPHAN_AGE: Duration = Duration::from_secs(60 * 60);

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs that had ended long enough ago.
    pub jobs: Vec<JobId>,
    /// Folders of jobs that were never accepted.
    pub orphans: usize,
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
                remove_folder(&inner.data, id)?;
                pruned.jobs.push(id);
            }
        }
    }
    pruned.orphans = remove_orphans(inner)?;
    Ok(pruned)
}

/// Removes folders that no row knows and that are no job in the making.
fn remove_orphans(inner: &Inner) -> Result<usize, JobError> {
    let (jobs, mut count) = (inner.data.jobs(), 0);
    let failed = |error| FileError::system("cannot read", &jobs, error);
    for entry in fs::read_dir(&jobs).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<JobId>().ok()) else {
            continue;
        };
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
        let is_old = age.is_some_and(|age| age > ORPHAN_AGE) || !stands("young-folders-kept");
        if is_old && inner.store().read(|connection| store::get(connection, id))?.is_none() {
            remove_folder(&inner.data, id)?;
            count += 1;
        }
    }
    Ok(count)
}

fn remove_folder(data: &DataFolder, id: JobId) -> Result<(), FileError> {
    let folder = data.job(id);
    match fs::remove_dir_all(folder.path()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::system("cannot remove", folder.path(), error))
        }
        _ => Ok(()),
    }
}
