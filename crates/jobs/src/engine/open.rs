//! The opening of a data folder: every job is brought to its true state before anything else is done.
//!
//! Invariant: nothing is made in the folder if the limit of file sizes would break it off.

use std::path::{Path, PathBuf};

use unhang_proc::file_limit;

use crate::{
    document::Documents,
    error::JobError,
    folder::{DATABASE, DataFolder, FileError},
    shims,
    store::{Rebuilt, ShimStarter, SqliteStore, restore_files},
};

/// The least size to which files must be able to grow. SQLite empties its log once that has four mebibytes, and not before.
const SMALLEST_FILE_LIMIT: u64 = 8 << 20;

/// The findings while a data folder was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The rebuild, if the database was missing and was made anew from the folders.
    pub rebuilt: Option<Rebuilt>,
    /// The number of results that had not reached the named state when their writer died, and now have (J-46).
    pub replayed: usize,
}

/// A data folder in its proper state, and the first connection to its database.
pub(super) struct OpenedFolder {
    pub(super) data: DataFolder,
    pub(super) starter: ShimStarter,
    pub(super) store: SqliteStore,
    pub(super) opened: Opened,
}

impl OpenedFolder {
    /// Opens the data folder, and makes it if it is missing.
    pub(super) fn open(folder: &Path) -> Result<Self, JobError> {
        check_file_limit(folder)?;
        let data = DataFolder::open(folder)?;
        let starter = shims::this_process()
            .map_err(|error| FileError::system("cannot name this process in", data.path(), error))?;
        let (mut store, rebuilt) = SqliteStore::open(&data)?;
        let mut opened = Opened { rebuilt, replayed: 0 };
        Documents::of(&data).remove_unfinished();
        match finish_begun_patches(&data, &mut store) {
            Ok(replayed) => opened.replayed = replayed,
            Err(error) if error.is_of_files() => {
                // The next process that writes to the state tries again.
                tracing::warn!("unhang cannot write results to the state yet: {error}");
            }
            Err(error) => return Err(error),
        }
        if let Err(error) = restore_files(&mut store, &starter.boot_id) {
            // The maintenance thread tries again, and says so of every job that waits.
            tracing::warn!("unhang cannot write the files of queued jobs again after the boot: {error}");
        }
        Ok(Self { data, starter, store, opened })
    }
}

/// Refuses to begin work that the limit of file sizes would break off, before anything is made.
fn check_file_limit(folder: &Path) -> Result<(), JobError> {
    match (file_limit::file_limit(), file_limit::told()) {
        (Some(bytes), Some(limit)) if bytes < SMALLEST_FILE_LIMIT => {
            let database = folder.join(DATABASE);
            Err(JobError::FileLimit { limit, database, needed: SMALLEST_FILE_LIMIT })
        }
        _ => Ok(()),
    }
}

/// Applies the results whose writers died on the way to the state. Returns how many there were.
fn finish_begun_patches(data: &DataFolder, store: &mut SqliteStore) -> Result<usize, JobError> {
    if store.patching()?.is_empty() {
        return Ok(0);
    }
    let turn = Documents::of(data).turn()?;
    Ok(crate::settle::finish_patches(data, store, &turn)?)
}

/// Makes a new database from the job folders if the old one is damaged. Returns where the old one lies now.
///
/// # Errors
/// Fails if files cannot be moved or made.
pub fn replace_damaged_database(folder: &Path) -> Result<(PathBuf, Rebuilt), JobError> {
    check_file_limit(folder)?;
    Ok(SqliteStore::replace_damaged(&DataFolder::open(folder)?)?)
}
