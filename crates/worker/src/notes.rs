//! The notes of the leases that a worker holds, in its data folder: one file for each job.
//!
//! Theory of operation. A note is written before the engine gets the job, and again when the engine has it. It is removed when the store
//! has the end. So the next worker on the folder knows which jobs of the engine belong to the store, and with which token.
//!
//! Invariant: a note that says that the job has not begun is true, or the engine knows the job.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use unhang_jobs::{
    folder::{Durability, FileError, read_at_most, replace},
    id::JobId,
};

/// The longest note that is read, in bytes.
const LONGEST_NOTE: u64 = 64 << 10;

/// The end of the name of each note.
const EXTENSION: &str = "json";

/// A lease that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseNote {
    /// The job.
    pub(crate) job: JobId,
    /// The token of the lease.
    pub(crate) token: String,
    /// The number of times that the job was claimed, this time included.
    pub(crate) claims: u32,
    /// The time from a heartbeat until the lease is over, in milliseconds.
    pub(crate) length_ms: u64,
    /// Whether the engine has got the job. For a call, which the engine has from the beginning: whether the store has got it.
    pub(crate) has_begun: bool,
    /// The offsets of the two logs in the store at which this attempt begins.
    pub(crate) log_bases: [u64; 2],
}

impl LeaseNote {
    /// Returns the time from a heartbeat until the lease is over.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_millis(self.length_ms)
    }
}

/// The folder of the notes.
#[derive(Clone, Debug)]
pub(crate) struct LeaseNotes(PathBuf);

impl LeaseNotes {
    /// Returns the notes in this folder.
    pub(crate) fn at(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Writes a note, in place of an earlier one about the job.
    pub(crate) fn write(&self, note: &LeaseNote) -> Result<(), FileError> {
        // Every member has a form in JSON.
        let text = serde_json::to_string(note).unwrap_or_default();
        replace(&self.0, &name(note.job), text.as_bytes(), Durability::Memory)
    }

    /// Removes the note about a job, if there is one.
    pub(crate) fn remove(&self, job: JobId) {
        if let Err(error) = fs::remove_file(self.0.join(name(job)))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the worker cannot remove its note about job {job}: {error}");
        }
    }

    /// Reads all notes. One that cannot be read is reported and left out.
    pub(crate) fn all(&self) -> io::Result<Vec<LeaseNote>> {
        let mut notes = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            match read(&path) {
                Ok(note) => notes.extend(note),
                Err(error) => tracing::warn!("the worker cannot read its note {}: {error}", path.display()),
            }
        }
        Ok(notes)
    }
}

fn name(job: JobId) -> String {
    format!("{job}.{EXTENSION}")
}

fn read(path: &Path) -> io::Result<Option<LeaseNote>> {
    let bytes = read_at_most(path, LONGEST_NOTE).map_err(io::Error::other)?;
    Ok(bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_again_and_one_that_is_damaged_affects_no_other() {
        let home = tempfile::tempdir().unwrap();
        let notes = LeaseNotes::at(home.path());
        let note = LeaseNote {
            job: JobId::random().unwrap(),
            token: "token".to_owned(),
            claims: 2,
            length_ms: 30_000,
            has_begun: false,
            log_bases: [7, 9],
        };
        notes.write(&note).unwrap();
        let later = LeaseNote { has_begun: true, ..note.clone() };
        notes.write(&later).unwrap();
        fs::write(home.path().join("damaged.json"), "{").unwrap();
        fs::write(home.path().join("name"), "worker").unwrap();
        assert_eq!(notes.all().unwrap(), [later]);
        notes.remove(note.job);
        notes.remove(note.job);
        assert_eq!(notes.all().unwrap(), []);
    }
}
