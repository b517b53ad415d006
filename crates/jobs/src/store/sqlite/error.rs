//! The errors of the database.
//!
//! Invariant: each error names the file, and says what to do if something can be done.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::statvfs;
use unhang_proc::file_limit;

use super::{PATIENCE, VERSION};
use crate::folder::FileError;

/// The reason why the database did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file is no longer a database, or not one of unhang.
    #[error("the database {} is damaged ({detail}); `unhang job rebuild` creates it again from the job \
        folders", path.display())]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// The words of SQLite.
        detail: String,
    },
    /// The database was made by a later version of unhang.
    #[error(
        "the database {} has format {found}, and this unhang knows formats up to {VERSION}: use the newer unhang",
        path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The version of its tables.
        found: i64,
    },
    /// The database has a record of a kind that this unhang does not know.
    #[error(
        "a record in the database {} cannot be read ({detail}); if a newer unhang wrote it, use the \
         newer unhang",
        path.display()
    )]
    UnknownRecord {
        /// The database file.
        path: PathBuf,
        /// The fault of the record.
        detail: String,
    },
    /// The data folder lies on a file system on which it cannot be shared safely.
    #[error(
        "the data folder {} lies on {system}, a network file system: locks and shared memory do not work \
         there, so jobs could be lost or run twice; set UNHANG_HOME to a folder on a local disk",
        path.display()
    )]
    OnNetwork {
        /// The data folder.
        path: PathBuf,
        /// The kind of file system.
        system: &'static str,
    },
    /// Other processes have kept the database busy for too long.
    #[error("the database {} was busy for {} s; another unhang or a slow disk holds it; try again", path.display(), PATIENCE.as_secs())]
    Busy {
        /// The database file.
        path: PathBuf,
    },
    /// The system or SQLite returned an error.
    #[error("the database {}: {detail}", path.display())]
    Failed {
        /// The database file.
        path: PathBuf,
        /// The words of SQLite.
        detail: String,
    },
    /// The disk has no room for the change.
    #[error("the database {}: {detail}", path.display())]
    Full {
        /// The database file.
        path: PathBuf,
        /// The words of SQLite.
        detail: String,
    },
    /// Somebody has put another database in the place of this one.
    #[error(
        "the database {} was replaced during the write: check whether the change was made, and repeat it \
         if it was not",
        path.display()
    )]
    Replaced {
        /// The database file.
        path: PathBuf,
    },
    /// A file beside the database could not be used.
    #[error(transparent)]
    File(#[from] FileError),
}

impl StoreError {
    /// Returns whether the change may succeed later, once somebody has made room.
    pub(crate) fn is_for_lack_of_room(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::File(error) => error.is_for_lack_of_room(),
            _ => false,
        }
    }
}

/// Returns whether the error says that others hold the database.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Turns an error of SQLite into the error for the caller that asked the database at this path.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let (path, detail) = (path.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Damaged { path, detail },
        _ if is_busy(error) => StoreError::Busy { path },
        None if matches!(error, rusqlite::Error::FromSqlConversionFailure(..)) => {
            StoreError::UnknownRecord { path, detail }
        }
        // With a limit of file sizes, that limit may be the cause, and waiting for room would not help.
        Some(ErrorCode::DiskFull) if file_limit::told().is_none() => StoreError::Full { path, detail },
        Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull) => {
            // SQLite does not say which error of the system it was.
            let limit = file_limit::told().map(|limit| format!("; {limit}")).unwrap_or_default();
            let hint = if limit.is_empty() { IO_HINT } else { "" };
            StoreError::Failed { path, detail: detail + &limit + hint }
        }
        Some(ErrorCode::CannotOpen) => {
            let limit = file_limit::open_told_if_reached().map(|limit| format!("; {limit}"));
            let room =
                || has_no_room_for_files(&path).then(|| "; its disk has no room for another file".to_owned());
            let why = limit.or_else(room).unwrap_or_default();
            StoreError::Failed { path, detail: detail + &why }
        }
        _ => StoreError::Failed { path, detail },
    }
}

/// Advice about an error that has to do with the disk, or with files that somebody changes meanwhile.
const IO_HINT: &str = "; try again, and if the error stays, `unhang job rebuild` creates the database again from the job \
    folders";

/// Fails if a thing lies in the place of the database and is not a plain file.
pub(super) fn check_plain(path: &Path) -> Result<(), StoreError> {
    let what = match path.metadata() {
        Ok(found) if found.is_file() => return Ok(()),
        Ok(_) => "it is not a regular file",
        Err(_) if path.symlink_metadata().is_ok() => "it is a link to a file that does not exist",
        Err(_) => return Ok(()),
    };
    let detail = format!(
        "{what}; move it away, and `unhang job rebuild` creates the database again from the job folders"
    );
    Err(StoreError::Failed { path: path.to_owned(), detail })
}

/// Returns whether there is no inode left beside this path. File systems without a number of inodes report none at all.
fn has_no_room_for_files(path: &Path) -> bool {
    let found = path.parent().and_then(|folder| statvfs(folder).ok());
    found.is_some_and(|found| found.f_files > 0 && found.f_favail == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_17_the_refusal_says_why_and_what_to_do() {
        let text =
            StoreError::OnNetwork { path: "/home/me/.local/state/unhang".into(), system: "NFS" }.to_string();
        for words in ["/home/me/.local/state/unhang", "NFS", "network file system", "locks", "UNHANG_HOME"] {
            assert!(text.contains(words), "{text}");
        }
    }
}
