//! An object store that is a folder, such as one on NFS: `<folder>/<job>/<attempt>/<digest>`.
//!
//! Invariants
//!
//! - The folder itself is never made: if a file system is not mounted, its mount point must not fill with files that no other machine sees.
//! - An object is written under another name, made durable, and put in its place by one rename. Objects have mode 0600, folders 0700.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use unhang_jobs::folder::{Durability, FileError, read_at_most, replace};

use crate::{error::ArtifactError, key::ArtifactKey};

/// A folder that all machines share.
#[derive(Debug)]
pub(crate) struct SharedFolder(PathBuf);

impl SharedFolder {
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn put(&self, key: &ArtifactKey, content: &[u8]) -> Result<(), ArtifactError> {
        const DOING: &str = "the writing of an object";
        self.check(DOING)?;
        let (folder, name) = self.place(key);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| {
            self.failed(DOING, error.kind(), format!("cannot make {}: {error}", folder.display()))
        })?;
        replace(&folder, &name, content, Durability::Disk).map_err(|error| self.of_file(DOING, &error))
    }

    pub(crate) fn get(&self, key: &ArtifactKey, bytes: u64) -> Result<Vec<u8>, ArtifactError> {
        const DOING: &str = "the reading of an object";
        self.check(DOING)?;
        let (folder, name) = self.place(key);
        let (store, object) = (self.shown(), key.to_string());
        match read_at_most(&folder.join(name), bytes) {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(ArtifactError::Missing { store, object }),
            Err(FileError::Damaged { detail, .. }) => Err(ArtifactError::Damaged { store, object, detail }),
            Err(error) => Err(self.of_file(DOING, &error)),
        }
    }

    pub(crate) fn remove(&self, key: &ArtifactKey) -> Result<(), ArtifactError> {
        const DOING: &str = "the removal of an object";
        self.check(DOING)?;
        let (folder, name) = self.place(key);
        let failed = |error: &io::Error| {
            self.failed(DOING, error.kind(), format!("cannot remove {}: {error}", folder.display()))
        };
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| failed(&error))?,
        };
        // A writer that was killed has left a part of the object under a name that begins like this.
        let unfinished = format!(".{name}.");
        for entry in entries {
            let entry = entry.map_err(|error| failed(&error))?;
            let found = entry.file_name();
            let is_ours = found.to_str().is_some_and(|found| found == name || found.starts_with(&unfinished));
            if is_ours {
                fs::remove_file(entry.path()).map_err(|error| failed(&error))?;
            }
        }
        // Only empty folders go; another object may lie in them.
        let _ = fs::remove_dir(&folder).and_then(|()| folder.parent().map_or(Ok(()), fs::remove_dir));
        Ok(())
    }

    fn shown(&self) -> String {
        self.0.display().to_string()
    }

    fn place(&self, key: &ArtifactKey) -> (PathBuf, String) {
        let [job, attempt, digest] = key.parts();
        (self.0.join(job).join(attempt), digest)
    }

    fn check(&self, doing: &'static str) -> Result<(), ArtifactError> {
        match fs::metadata(&self.0) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => {
                Err(ArtifactError::NoStore { store: self.shown(), detail: "it is not a folder".to_owned() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let detail = "there is no such folder on this machine; it may not be mounted".to_owned();
                Err(ArtifactError::NoStore { store: self.shown(), detail })
            }
            Err(error) => Err(self.failed(doing, error.kind(), error.to_string())),
        }
    }

    fn of_file(&self, doing: &'static str, error: &FileError) -> ArtifactError {
        self.failed(doing, error.kind().unwrap_or(io::ErrorKind::Other), error.to_string())
    }

    fn failed(&self, doing: &'static str, kind: io::ErrorKind, detail: String) -> ArtifactError {
        let store = self.shown();
        match kind {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ArtifactError::Refused { store, doing, detail }
            }
            _ => ArtifactError::Failed { store, doing, detail },
        }
    }
}
