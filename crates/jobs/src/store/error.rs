//! Why the database did not do what it was asked for.
//!
//! Invariant: each error names the file, and says what to do where something can be done.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::statvfs;
use unhang_proc::file_limit;

use super::{PATIENCE, VERSION};
use crate::folder::FileError;

/// Why the database did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It is no database any more, or not one of ours.
    #[error("the database {} is damaged ({detail}); `unhang job rebuild` makes it anew from the job folders", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        detail: String,
    },
    /// It was made by a later version of unhang.
    #[error(
        "the database {} has format {found}, and this unhang knows formats up to {VERSION}: use the newer unhang",
        path.display()
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// A record in it is not one that this unhang knows.
    #[error(
        "a record in the database {} cannot be read ({detail}); where a newer unhang wrote it, use that one to see it",
        path.display()
    )]
    UnknownRecord {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// It lies where it cannot be shared safely.
    #[error(
        "the data folder {} lies on {system}, a network file system: locks and shared memory, which keep jobs from being lost or run \
         twice, do not hold there; set UNHANG_HOME to a folder on a local disk",
        path.display()
    )]
    OnNetwork {
        /// Which folder.
        path: PathBuf,
        /// The kind of file system.
        system: &'static str,
    },
    /// Others have kept it busy for too long.
    #[error("the database {} was busy for {} s; another unhang or a slow disk holds it, try again", path.display(), PATIENCE.as_secs())]
    Busy {
        /// Which file.
        path: PathBuf,
    },
    /// The system or SQLite said no.
    #[error("the database {}: {detail}", path.display())]
    Failed {
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        detail: String,
    },
    /// Somebody has put another database in its place.
    #[error(
        "the database {} was replaced while this was written: look whether it was done, and do it again if it was not",
        path.display()
    )]
    Replaced {
        /// Which file.
        path: PathBuf,
    },
    /// A file beside it.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Whether others hold it.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// What an error of SQLite means for whoever asked the database at this path.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let (path, detail) = (path.to_owned(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Damaged { path, detail },
        _ if is_busy(error) => StoreError::Busy { path },
        None if matches!(error, rusqlite::Error::FromSqlConversionFailure(..)) => {
            StoreError::UnknownRecord { path, detail }
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull) => {
            // SQLite does not say which error of the system it was.
            let limit = file_limit::told().map(|limit| format!("; {limit}")).unwrap_or_default();
            let hint = match error.sqlite_error_code() {
                Some(ErrorCode::SystemIoFailure) if limit.is_empty() => IO_HINT,
                _ => "",
            };
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

/// What to do about an error that a disk can have, and files that somebody changes meanwhile.
const IO_HINT: &str = "; try again, and if it stays so, `unhang job rebuild` makes the database anew from the folders of the jobs";

/// Says what is wrong with something that lies in the place of the database and is no file.
pub(super) fn check_plain(path: &Path) -> Result<(), StoreError> {
    let what = match path.metadata() {
        Ok(found) if found.is_file() => return Ok(()),
        Ok(_) => "what lies there is no plain file",
        Err(_) if path.symlink_metadata().is_ok() => "what lies there is a link that leads nowhere",
        Err(_) => return Ok(()),
    };
    let detail = format!(
        "{what}; move it away, and `unhang job rebuild` makes the database anew from the folders of the jobs"
    );
    Err(StoreError::Failed { path: path.to_owned(), detail })
}

/// Whether there is no inode left beside this path. File systems without a number of inodes tell of none at all.
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
