//! The paths in the data folder, one folder for each job, and the ways in which their files are written and read.
//!
//! ```text
//! unhang.db   jobs/<id>/   jobs/<id>/work/   quarantine/   limits/   state/<field>.json   state/owners/<digest>/<field>.json   logs/
//! ```
//!
//! A job's folder holds unhang's own files alone: `lock`, `run.json`, `launch.json`, `exit.json`, `job.json` and the two logs, which the
//! work writes through descriptors. The work gets the path of the folder `work` in it ([`WorkFolder`]): a program that empties its own
//! folder takes nothing from unhang.
//!
//! Invariants
//!
//! - Folders are for their owner alone (0700), and so are files (0600), whatever the umask.
//! - A file that others may read at any time is written under another name first, made durable, and put in its place by
//!   one rename, so that no reader and no crash meets half of it.
//! - No name from outside becomes part of a path unless its type has checked it: [`JobId`], [`FileName`],
//!   [`Field`](crate::document::Field).
//! - No file is read without a limit.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use unhang_proc::lock::is_held;

pub(crate) use self::files::{make_folder, open_file, sync, sync_all, to_json};
use self::files::{replace_with, restore, temporary, write_new};
pub use self::{
    files::{Durability, FileError, read_at_most, remove_unfinished, replace},
    name::{FileName, InputName, NotAFileName},
};
use crate::{id::JobId, timestamp::JobTimestamp};

mod files;
mod layout;
mod name;
pub mod presence;

/// The folder with the folders of all jobs, in the data folder.
const JOBS: &str = "jobs";
/// The database, in the data folder.
pub(crate) const DATABASE: &str = "unhang.db";
/// A readable copy of the record.
pub(crate) const RECORD: &str = "job.json";
/// The command and its environment.
pub(crate) const LAUNCH: &str = "launch.json";
/// The lock that the supervisor holds for as long as it lives.
pub(crate) const LOCK: &str = "lock";
/// The supervisor's record of itself and of the work.
pub(crate) const RUN: &str = "run.json";
/// The record of the end.
pub(crate) const EXIT: &str = "exit.json";
/// The wish that the job ends: an empty file.
pub(crate) const CANCEL: &str = "cancel";
/// The mark that a process of another container has seen a call without its holder: an empty file.
pub(crate) const UNHELD: &str = "unheld";
/// The time until which the work may run.
pub(crate) const LEASE: &str = "lease.json";
/// The folder with a note about each call whose end the store of many machines does not have yet, in the data folder.
pub const CALLS: &str = "calls";
/// The mark of a call that the store of many machines has, or has had.
pub const IN_STORE: &str = "in-store";
/// All arguments of the tool call.
pub const ARGUMENTS: &str = "input.json";
/// The log of the work's stdout.
pub const STDOUT: &str = "stdout.log";
/// The log of the work's stderr.
pub const STDERR: &str = "stderr.log";
/// The work's own account of its failure.
pub const ERROR: &str = "error.json";

/// The answer of a call's server.
pub const RESULT: &str = "results.json";

/// The folder of the work, in the job's folder.
const WORK: &str = "work";

/// The first format of records in which the work has a folder of its own.
pub(crate) const OWN_WORK_FOLDER: u32 = 2;

/// The largest of unhang's own files that is read. They have a few kilobytes, but the command may have many arguments.
const MAX_FILE: u64 = 16 << 20;

/// Returns whether this folder is a data folder in which there was a job before.
#[must_use]
pub fn has_database(folder: &Path) -> bool {
    folder.join(DATABASE).exists()
}

/// The folder that holds all jobs and the named state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFolder(PathBuf);

impl DataFolder {
    /// Opens this data folder, and makes the missing parts of it.
    ///
    /// # Errors
    /// Fails if the folder cannot be made; the error names it.
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let root = std::path::absolute(root).map_err(|error| FileError::system("cannot use", root, error))?;
        let folder = Self(root);
        for path in [folder.jobs(), folder.state()] {
            make_folder(&path, true)?;
        }
        // A supervisor finds the data folder from its job's folder, and a link would not lead back.
        if fs::symlink_metadata(folder.jobs()).is_ok_and(|found| found.is_symlink()) {
            let text = "it is a link; make the whole data folder a link instead, or set UNHANG_HOME to the other place";
            return Err(FileError::damaged(&folder.jobs(), text));
        }
        Ok(folder)
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.join(DATABASE)
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.0.join(JOBS)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    /// Returns the path of the quarantine, in which unreadable folders lie. It may not exist.
    pub(crate) fn quarantine(&self) -> PathBuf {
        self.0.join("quarantine")
    }

    /// Makes the quarantine if it is missing, and returns its path.
    pub(crate) fn make_quarantine(&self) -> Result<PathBuf, FileError> {
        let path = self.quarantine();
        make_folder(&path, true)?;
        Ok(path)
    }

    /// Returns whether a store of many machines still has to be told of the end of this call.
    pub(crate) fn has_untold_call(&self, id: JobId) -> bool {
        self.0.join(CALLS).join(format!("{id}.json")).exists()
    }

    /// Returns a job's folder, which may not exist.
    #[must_use]
    pub fn job(&self, id: JobId) -> JobFolder {
        JobFolder(self.jobs().join(id.as_str()))
    }
}

/// The folder of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFolder(PathBuf);

impl JobFolder {
    /// Returns the folder at this path, which is not among the jobs.
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Makes the folder, which must not exist yet (X-10).
    pub(crate) fn create(&self) -> Result<(), FileError> {
        make_folder(&self.0, false)
    }

    /// Makes the folder unless it exists.
    pub(crate) fn create_if_missing(&self) -> Result<(), FileError> {
        make_folder(&self.0, true)
    }

    /// Returns the folder of the work of a job whose record has this format. In records of the first format, which older versions of unhang
    /// wrote, the two folders were one. The work has its own folder once its files were moved (`folder/layout.rs`).
    #[must_use]
    pub fn work(&self, format: u32) -> WorkFolder {
        let lies_beside_ours = format < OWN_WORK_FOLDER && !self.is_moved();
        WorkFolder(if lies_beside_ours { self.0.clone() } else { self.0.join(WORK) })
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        is_there(&self.file(name))
    }

    /// Returns whether the folder exists. A link to a folder does not count.
    pub(crate) fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok_and(|found| found.is_dir())
    }

    /// Returns whether something other than a folder lies in its place.
    pub(crate) fn is_something_else(&self) -> bool {
        fs::symlink_metadata(&self.0).is_ok_and(|found| !found.is_dir())
    }

    /// Returns whether a process holds the job's lock. A file that is not a lock, or a link to the lock of another job, counts as free.
    pub(crate) fn is_locked(&self) -> bool {
        !self.is_something_else() && is_held(&self.file(LOCK)).unwrap_or(false)
    }

    /// Restores the permissions of the folder, as far as it belongs to this user.
    pub(crate) fn reclaim(&self) {
        if self.is_there() {
            // If the permissions cannot be changed, the next user of the folder reports that.
            let _ = fs::set_permissions(&self.0, fs::Permissions::from_mode(0o700));
        }
    }

    /// Fails if something else has come into the place of this folder, so that nothing is done in another folder.
    fn check_not_replaced(&self) -> Result<(), FileError> {
        match self.is_something_else() {
            true => Err(FileError::damaged(&self.0, "something other than the job's folder is at that path")),
            false => Ok(()),
        }
    }

    /// Removes one of unhang's files, if it exists.
    pub(crate) fn remove_file(&self, name: &str) -> Result<(), FileError> {
        self.check_not_replaced()?;
        let path = self.file(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FileError::system("cannot remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// Returns how long ago one of unhang's files was written; `None` if it does not exist. The clock may jump.
    pub(crate) fn age(&self, name: &str) -> Option<Duration> {
        let written = fs::symlink_metadata(self.file(name)).and_then(|found| found.modified()).ok()?;
        Some(JobTimestamp::now().since(written.into()))
    }

    /// Renames a damaged file, so that another can be put in its place.
    pub(crate) fn put_aside(&self, name: &str) -> Result<(), FileError> {
        self.check_not_replaced()?;
        let path = self.file(name);
        let mut aside = self.file(&format!("{name}.damaged"));
        if is_there(&aside) {
            let rest = JobId::random().map_err(|error| FileError::system("cannot name", &aside, error))?;
            aside = self.file(&format!("{name}.damaged-{rest}"));
        }
        fs::rename(&path, &aside).map_err(|error| FileError::system("cannot put aside", &path, error))
    }

    /// Reads one of unhang's files; `None` if it does not exist.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, FileError> {
        self.check_not_replaced()?;
        let path = self.file(name);
        let Some(bytes) = read_at_most(&path, MAX_FILE)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| FileError::damaged(&path, error))
    }

    /// Reads one of unhang's files as text; `None` if it cannot be read, is longer than this, or is not text.
    pub(crate) fn text(&self, name: &str, longest: usize) -> Option<String> {
        String::from_utf8(read_at_most(&self.file(name), longest as u64).ok()??).ok()
    }

    /// Puts one of unhang's files in its place, unless it is there already with the same content.
    pub(crate) fn restore(&self, name: &str, content: &str) -> Result<(), FileError> {
        self.check_not_replaced()?;
        restore(&self.0, name, self.text(name, content.len()).as_deref(), content)
    }

    /// Puts one of unhang's files in its place, durably.
    pub(crate) fn write(&self, name: &str, value: &impl Serialize) -> Result<(), FileError> {
        self.check_not_replaced()?;
        replace(&self.0, name, to_json(value).as_bytes(), Durability::Disk)
    }

    /// Puts one of unhang's files in its place. The file may be gone after a power failure, not after a crash of a program.
    pub(crate) fn write_lightly(&self, name: &str, value: &impl Serialize) -> Result<(), FileError> {
        self.check_not_replaced()?;
        replace(&self.0, name, to_json(value).as_bytes(), Durability::Memory)
    }

    /// Puts one of unhang's files in its place, unless there is one. The file may be gone after a power failure.
    pub(crate) fn write_if_missing(&self, name: &str, value: &impl Serialize) -> Result<(), FileError> {
        self.check_not_replaced()?;
        let (temporary, path) = (temporary(&self.0, name)?, self.file(name));
        // Not every file system has a rename that replaces nothing.
        let written = write_new(&temporary, to_json(value).as_bytes()).and_then(|_| {
            match fs::hard_link(&temporary, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked.map_err(|error| FileError::system("cannot put in its place", &path, error)),
            }
        });
        // The temporary file may not exist; the error before is the one that counts.
        let _ = fs::remove_file(&temporary);
        written
    }

    /// Removes the unfinished own files of a killed process. Only the holder of the job's lock may call this, at the job's end.
    pub(crate) fn remove_unfinished(&self) {
        let is_unfinished = |name: &str| {
            [RECORD, LAUNCH, RUN, EXIT].iter().any(|own| {
                name.strip_prefix('.')
                    .and_then(|rest| rest.strip_prefix(own))
                    .is_some_and(|rest| rest.starts_with('.'))
            })
        };
        if self.is_something_else() {
            return;
        }
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_unfinished) {
                // A file that cannot be removed does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Makes an empty file, durably, unless something of that name exists. It takes a name and nothing else of the disk.
    pub(crate) fn make_if_missing(&self, name: &str) -> Result<(), FileError> {
        self.check_not_replaced()?;
        if self.has(name) {
            return Ok(());
        }
        match write_new(&self.file(name), &[]) {
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => Ok(()),
            made => made.map(drop).and_then(|()| sync(&self.0)),
        }
    }
}

/// The folder whose path a job's work gets, as `UNHANG_JOB_DIR` and `{job_dir}`: inputs, `input.json`, results, `error.json`, and other
/// files of the work. Everything in it belongs to the work, which may empty or replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkFolder(PathBuf);

impl WorkFolder {
    /// Makes the folder unless it exists.
    pub(crate) fn create_if_missing(&self) -> Result<(), FileError> {
        make_folder(&self.0, true)
    }

    /// Returns the folder's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Returns whether something of that name exists.
    pub(crate) fn has(&self, name: &str) -> bool {
        is_there(&self.file(name))
    }

    /// Reads a file up to a limit; `None` if it does not exist. A link in the place of the folder is not followed.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
        let path = self.file(name);
        if fs::symlink_metadata(&self.0).is_ok_and(|found| !found.is_dir()) {
            return Err(FileError::damaged(&self.0, "it is not a folder"));
        }
        read_at_most(&path, limit)
    }

    /// Reads a file as text; `None` if it cannot be read, is longer than this, or is not text.
    pub(crate) fn text(&self, name: &str, longest: usize) -> Option<String> {
        String::from_utf8(self.read(name, longest as u64).ok()??).ok()
    }

    /// Replaces a file by these bytes, unless it has them already. The bytes may be gone after a power failure.
    pub(crate) fn restore(&self, name: &str, content: &str) -> Result<(), FileError> {
        restore(&self.0, name, self.text(name, content.len()).as_deref(), content)
    }

    /// Removes what a writer that was killed had begun to put in its place here.
    pub(crate) fn remove_unfinished(&self) {
        remove_unfinished(&self.0, Duration::ZERO);
    }

    /// Replaces a file by these bytes, durably.
    pub(crate) fn replace(&self, name: &str, content: &[u8]) -> Result<(), FileError> {
        replace(&self.0, name, content, Durability::Disk)
    }

    /// Replaces a file by what `write` writes, durably.
    pub(crate) fn replace_with(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), FileError> {
        replace_with(&self.0, name, Durability::Disk, write)
    }

    /// Writes a file that must not exist yet.
    pub(crate) fn add(&self, name: impl AsRef<Path>, content: &[u8]) -> Result<(), FileError> {
        write_new(&self.file(name), content).map(drop)
    }
}

/// Returns whether something exists at the path, even a link that leads nowhere.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests;
