//! Folders of jobs that no row knows: which of them belong to nobody, and where unreadable folders go.
//!
//! Invariants
//!
//! - Only a job that was never accepted is removed at once; a job that has ended is removed when its retention is over. A folder that is
//!   damaged or was made by a newer unhang is moved to `quarantine/`, with everything in it, and stays there.
//! - A folder whose lock is held, or that is as young as a job in the making, is not touched.
//! - A folder that cannot be removed or moved is reported, and does not keep the next one from that.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use unhang_proc::{identity::Identity, lock::Lock};

use super::{EngineState, retention::remove_folder};
use crate::{
    error::JobError,
    folder::{DataFolder, FileError, JobFolder, LOCK, RECORD, RUN},
    id::JobId,
    record::{JobRecord, RunRecord},
    store::{JobStore, look_into},
    submitting::is_being_submitted,
    timestamp::JobTimestamp,
};

/// The age from which a folder cannot be that of a job that is being accepted right now.
const ORPHAN_AGE: Duration = Duration::from_secs(60 * 60);

/// A folder that nobody understands, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The path of the folder.
    pub folder: PathBuf,
    /// The reason why it is in quarantine.
    pub reason: String,
}

/// The outcome for folders that no row knows.
#[derive(Debug, Default)]
pub(super) struct SortedOrphans {
    pub(super) removed: usize,
    pub(super) quarantined: Vec<Quarantined>,
    /// The folders that were left where they are, each with the reason.
    pub(super) left: Vec<(PathBuf, String)>,
}

/// The kind of a folder that no row knows.
enum Orphan {
    /// Nobody's: its maker died before the job was accepted, or a remover died before the folder was gone, or its retention is over.
    Nobodys,
    /// Another process is at work on it.
    Anothers,
    /// It is a job that the database should know.
    Job(&'static str),
    /// Its content cannot be understood.
    Damaged(String),
}

/// Sorts the folders that no row knows. Jobs that ended before `limit` are removed.
pub(super) fn sort(inner: &EngineState, limit: JobTimestamp) -> Result<SortedOrphans, JobError> {
    let (jobs, mut sorted) = (inner.data.jobs(), SortedOrphans::default());
    let failed = |error| FileError::system("cannot read", &jobs, error);
    for entry in fs::read_dir(&jobs).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<JobId>().ok()) else {
            continue;
        };
        let is_known = |inner: &EngineState| inner.store().get(id);
        if !is_old(&entry) || is_known(inner)?.is_some() {
            continue;
        }
        if let Err(error) = sort_one(&inner.data, id, limit, &mut sorted) {
            sorted.left.push((entry.path(), error.to_string()));
        }
    }
    Ok(sorted)
}

fn is_old(entry: &fs::DirEntry) -> bool {
    // The age of a link is the link's own.
    let changed = entry.metadata().and_then(|metadata| metadata.modified());
    let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
    age.is_some_and(|age| age > ORPHAN_AGE)
}

fn sort_one(
    data: &DataFolder,
    id: JobId,
    limit: JobTimestamp,
    sorted: &mut SortedOrphans,
) -> Result<(), FileError> {
    let folder = data.job(id);
    match judge(&folder, id, limit)? {
        Orphan::Anothers => {}
        Orphan::Job(reason) => sorted.left.push((folder.path().to_owned(), reason.to_owned())),
        Orphan::Nobodys => {
            // The lock keeps other processes from beginning with the folder.
            if let Some(_lock) = take_lock(&folder)? {
                remove_folder(data, id)?;
                sorted.removed += 1;
            }
        }
        Orphan::Damaged(reason) => {
            let _lock = match folder.is_something_else() {
                true => None,
                false => match take_lock(&folder) {
                    Ok(None) => return Ok(()),
                    Ok(lock) => lock,
                    // The lock is a part of the damage.
                    Err(error) if error.is_of_another_kind() => None,
                    Err(error) => return Err(error),
                },
            };
            let folder = move_away(data, &folder, id)?;
            sorted.quarantined.push(Quarantined { folder, reason });
        }
    }
    Ok(())
}

fn take_lock(folder: &JobFolder) -> Result<Option<Lock>, FileError> {
    let path = folder.file(LOCK);
    Lock::try_take(&path).map_err(|error| FileError::system("cannot lock", &path, error))
}

fn judge(folder: &JobFolder, id: JobId, limit: JobTimestamp) -> Result<Orphan, FileError> {
    if folder.is_something_else() {
        return Ok(Orphan::Damaged("it is not a folder".to_owned()));
    }
    // If the lock itself is damaged, the supervisor's record of itself tells whether it lives.
    let run: Option<RunRecord> = folder.read(RUN).ok().flatten();
    let is_held = folder.is_locked() || is_being_submitted(folder);
    if is_held || run.is_some_and(|run| Identity::from(run.shim).is_alive()) {
        return Ok(Orphan::Anothers);
    }
    match look_into(folder, id) {
        Ok(None) => Ok(Orphan::Nobodys),
        Ok(Some(record)) => Ok(of(folder, &record, limit)),
        Err(error @ FileError::Damaged { .. }) => Ok(Orphan::Damaged(error.to_string())),
        Err(error) if error.is_of_another_kind() => Ok(Orphan::Damaged(error.to_string())),
        Err(error) => Err(error),
    }
}

fn of(folder: &JobFolder, record: &JobRecord, limit: JobTimestamp) -> Orphan {
    match &record.ending {
        Some(ending) if ending.completed_at < limit => Orphan::Nobodys,
        Some(_) => {
            Orphan::Job("it has ended, and the database does not know it; `unhang job rebuild` adds it")
        }
        // The copy of the record is made after the job was accepted.
        None if !folder.has(RECORD) && !folder.has(RUN) => Orphan::Nobodys,
        None => {
            Orphan::Job("it has not ended, and the database does not know it; `unhang job rebuild` adds it")
        }
    }
}

fn move_away(data: &DataFolder, folder: &JobFolder, id: JobId) -> Result<PathBuf, FileError> {
    let quarantine = data.make_quarantine()?;
    let mut target = quarantine.join(id.as_str());
    if fs::symlink_metadata(&target).is_ok() {
        target = quarantine.join(format!("{id}-{}", JobTimestamp::now().millis()));
    }
    fs::rename(folder.path(), &target)
        .map_err(|error| FileError::system("cannot move to quarantine", folder.path(), error))?;
    tracing::warn!("unhang moved {} to {}", folder.path().display(), target.display());
    Ok(target)
}

/// Lists the folders in quarantine, sorted by name.
pub(super) fn list(inner: &EngineState) -> Result<Vec<Quarantined>, JobError> {
    let quarantine = inner.data.quarantine();
    let entries = match fs::read_dir(&quarantine) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FileError::system("cannot read", &quarantine, error).into()),
    };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort_unstable();
    Ok(found.into_iter().map(|folder| Quarantined { reason: reason(&folder), folder }).collect())
}

fn reason(path: &Path) -> String {
    let folder = JobFolder::at(path);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let id = name.split('-').next().unwrap_or_default().parse::<JobId>();
    match id.map(|id| look_into(&folder, id)) {
        _ if folder.is_something_else() => "it is not a folder".to_owned(),
        Ok(Err(error)) => error.to_string(),
        _ => "unhang can read it now: move it back, and `unhang job rebuild` adds it".to_owned(),
    }
}
