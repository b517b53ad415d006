//! The limits that the processes which have the folder open were told, for all processes that share it (F-05).
//!
//! Theory of operation. A process that was told how many jobs may run, or how long ended ones are kept, writes that to a file in `limits/`.
//! It holds the file's lock for as long as it has the folder open. A process that starts or removes jobs looks at all files.
//!
//! Invariants
//!
//! - Of several numbers of jobs the smallest holds, of several retentions the longest.
//! - The limits of a process that has ended hold no more, however it ended.
//! - A file that cannot be read limits nobody, and no file is read without a limit.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use unhang_proc::lock::{Lock, is_held};

use crate::{
    folder::{DataFolder, FileError, make_folder, read_at_most, to_json},
    id::JobId,
};

/// The longest file that is read. Each has two numbers.
const LONGEST: u64 = 4096;

/// The most files that are looked at. More processes than that are not expected to share a folder.
const MOST: usize = 1000;

/// The number of tries to make a file that another process removed before it was locked, which it does within microseconds.
const TRIES: u32 = 100;

/// The limits that a process was told; `None` for a limit that it was not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToldLimits {
    /// The number of jobs that may run.
    pub(crate) max_concurrent: Option<u32>,
    /// The time for which ended jobs are kept, in milliseconds.
    pub(crate) retention_ms: Option<u64>,
}

impl ToldLimits {
    /// Returns the time for which ended jobs are kept at least.
    pub(crate) fn retention(self) -> Duration {
        self.retention_ms.map_or(Duration::ZERO, Duration::from_millis)
    }

    /// Combines the limits of two processes.
    fn with(self, other: ToldLimits) -> ToldLimits {
        let each = |one: Option<u32>, other: Option<u32>| one.into_iter().chain(other).min();
        ToldLimits {
            max_concurrent: each(self.max_concurrent, other.max_concurrent),
            retention_ms: self.retention_ms.max(other.retention_ms),
        }
    }
}

/// The announced limits of this process. They hold for all processes until this is dropped.
#[derive(Debug)]
pub(crate) struct Announced {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for Announced {
    fn drop(&mut self) {
        // While the lock is held, no other process takes the file for left behind.
        let _ = fs::remove_file(&self.path);
    }
}

fn folder(data: &DataFolder) -> PathBuf {
    data.path().join("limits")
}

/// Announces limits to all processes that share the folder; returns `None` if there is no limit to announce.
pub(crate) fn announce(data: &DataFolder, limits: ToldLimits) -> Result<Option<Announced>, FileError> {
    if limits == ToldLimits::default() {
        return Ok(None);
    }
    let folder = folder(data);
    make_folder(&folder, true)?;
    for _ in 0..TRIES {
        let name =
            JobId::random().map_err(|error| FileError::system("cannot name a file in", &folder, error))?;
        let path = folder.join(name.as_str());
        let taken = Lock::try_take(&path).map_err(|error| FileError::system("cannot lock", &path, error))?;
        let Some(lock) = taken else { continue };
        let announced = Announced { path, _lock: lock };
        let path = &announced.path;
        let written = OpenOptions::new().write(true).open(path);
        match written.and_then(|mut file| file.write_all(to_json(&limits).as_bytes())) {
            Ok(()) => return Ok(Some(announced)),
            // Another process looked before the file was locked, and took it for left behind.
            Err(error) if error.kind() == ErrorKind::NotFound && folder.is_dir() => {}
            Err(error) => return Err(FileError::system("cannot write", path, error)),
        }
    }
    Err(FileError::system("cannot keep a file in", &folder, ErrorKind::NotFound.into()))
}

/// Returns the combined limits of all processes that have the folder open.
pub(crate) fn of_all(data: &DataFolder) -> ToldLimits {
    let entries = fs::read_dir(folder(data)).into_iter().flatten().flatten().take(MOST);
    entries.filter_map(|entry| of_one(&entry.path())).fold(ToldLimits::default(), ToldLimits::with)
}

fn of_one(path: &Path) -> Option<ToldLimits> {
    match is_held(path) {
        Ok(true) => serde_json::from_slice(&read_at_most(path, LONGEST).ok()??).ok(),
        Ok(false) => {
            // The process of the file was killed. Another process may have removed the file.
            let _ = fs::remove_file(path);
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_05_the_strictest_of_those_who_are_there_holds_and_what_is_left_behind_goes() {
        let home = tempfile::tempdir().unwrap();
        let data = DataFolder::open(home.path()).unwrap();
        let told = |max_concurrent, retention_ms| ToldLimits { max_concurrent, retention_ms };
        assert_eq!(of_all(&data), ToldLimits::default());
        assert!(announce(&data, ToldLimits::default()).unwrap().is_none());
        assert!(!home.path().join("limits").exists(), "nothing was told");
        let one = announce(&data, told(Some(4), Some(1000))).unwrap();
        let other = announce(&data, told(Some(2), None)).unwrap();
        let left = home.path().join("limits/leftbehinda2");
        fs::write(&left, to_json(&told(Some(1), Some(u64::MAX)))).unwrap();
        assert_eq!(of_all(&data), told(Some(2), Some(1000)));
        assert!(!left.exists(), "its process has gone");
        drop(other);
        assert_eq!(of_all(&data), told(Some(4), Some(1000)));
        drop(one);
        assert_eq!(
            (of_all(&data), fs::read_dir(home.path().join("limits")).unwrap().count()),
            (ToldLimits::default(), 0)
        );
    }
}
