//! The name of a worker, which lies in its data folder.
//!
//! Invariants
//!
//! - One worker at a time has a data folder.
//! - A name belongs to one data folder. A copy of a data folder must not run beside the original: both would go on with the same jobs.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use unhang_jobs::{
    folder::{CALLS, Durability, read_at_most, replace},
    id::JobId,
    wait::{WaitLimit, look_until},
};
use unhang_proc::lock::Lock;

use crate::error::WorkerError;

/// The folder of a worker, in its data folder.
const FOLDER: &str = "worker";

/// The file with the name.
const NAME: &str = "name";

/// The time for which the lock is tried, and the pause between two tries.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
const LOCK_LOOK: Duration = Duration::from_millis(20);

/// The longest name, in bytes.
const LONGEST_NAME: usize = 300;

/// A worker on its data folder.
#[derive(Debug)]
pub struct WorkerIdentity {
    name: String,
    host: String,
    folder: PathBuf,
    _lock: Lock,
}

impl WorkerIdentity {
    /// Takes the data folder for this process. The first worker on a folder draws a name.
    ///
    /// # Errors
    /// Fails if another worker has the folder, or if the name can be neither read nor written.
    pub fn take(data_folder: &Path) -> Result<Self, WorkerError> {
        // A killed worker may hold the lock until the system has taken it apart.
        let taken = Self::in_folder(data_folder.join(FOLDER), WaitLimit::after(LOCK_LIMIT))?;
        taken.ok_or_else(|| WorkerError::FolderTaken(data_folder.to_owned()))
    }

    /// Takes the data folder for this process, which then tells the store of its calls. Returns `None` if another process does that. The
    /// name is not that of a worker on the folder: a worker looks for jobs under its own name.
    pub(crate) fn take_for_calls(data_folder: &Path) -> Result<Option<Self>, WorkerError> {
        Self::in_folder(data_folder.join(CALLS), WaitLimit::after(Duration::ZERO))
    }

    /// Takes the lock of a folder, and reads or draws its name. Returns `None` if another process has the lock.
    fn in_folder(folder: PathBuf, limit: WaitLimit) -> Result<Option<Self>, WorkerError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| WorkerError::File { path, error }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed(&folder))?;
        let lock_file = folder.join("lock");
        let lock = look_until(limit, LOCK_LOOK, || Lock::try_take(&lock_file));
        let Some(lock) = lock.map_err(failed(&lock_file))? else { return Ok(None) };
        let (host, name_file) = (host(), folder.join(NAME));
        let known = read_at_most(&name_file, LONGEST_NAME as u64)
            .map_err(|error| failed(&name_file)(io::Error::other(error)))?;
        let known = known.and_then(|bytes| String::from_utf8(bytes).ok()).map(|name| name.trim().to_owned());
        let name = match known.filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => {
                let drawn = JobId::random().map_err(failed(&name_file))?;
                let name = format!("{host}-{drawn}");
                replace(&folder, NAME, format!("{name}\n").as_bytes(), Durability::Disk)
                    .map_err(|error| failed(&name_file)(io::Error::other(error)))?;
                name
            }
        };
        Ok(Some(Self { name, host, folder, _lock: lock }))
    }

    /// Returns the name, which no other worker has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the folder of the worker's own files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Reads the name of the worker on this data folder; `None` if there was none.
#[must_use]
pub fn known_name(data_folder: &Path) -> Option<String> {
    let bytes = read_at_most(&data_folder.join(FOLDER).join(NAME), LONGEST_NAME as u64).ok()??;
    Some(String::from_utf8(bytes).ok()?.trim().to_owned()).filter(|name| !name.is_empty())
}

fn host() -> String {
    let system = rustix::system::uname();
    let host: String = system.nodename().to_string_lossy().chars().take(64).collect();
    if host.is_empty() { "localhost".to_owned() } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_folder_has_one_worker_at_a_time_and_one_name() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(known_name(home.path()), None);
        let first = WorkerIdentity::take(home.path()).unwrap();
        let name = first.name().to_owned();
        assert!(name.starts_with(first.host()) && name.len() > 12, "{name}");
        let error = WorkerIdentity::take(home.path()).unwrap_err();
        assert!(matches!(error, WorkerError::FolderTaken(_)), "{error}");
        drop(first);
        assert_eq!(WorkerIdentity::take(home.path()).unwrap().name(), name);
        assert_eq!(known_name(home.path()), Some(name));
    }
}
