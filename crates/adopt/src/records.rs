//! The records of adopted files in the data folder, each with the bytes that the file had before.
//!
//! ```text
//! adopted/<key>.json   adopted/<key>.original   adopted/<key>-<hash>.kept   adopted/.lock
//! ```
//!
//! The text from before has the ending `original` while its record is there. If it stays for a person afterwards, it gets a name that no later
//! record uses.
//!
//! Invariants
//!
//! - The record and the bytes are on the disk before the client's file changes. So a crash between the two leaves a record that is undone by
//!   doing nothing.
//! - Both are for the owner alone, whatever the mode of the client's file: it may hold secrets.
//! - One process at a time changes records: it holds the lock.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use unhang::{
    jobs::folder::{Durability, FileError, read_at_most, replace},
    process::lock::Lock,
    settings::sha256,
};

use crate::{
    syntax::FileSyntax,
    target::{MAX_FILE, TargetFile},
};

/// The version of the stored form.
const FORMAT: u32 = 1;
/// The size in bytes of the largest record that is read.
const MAX_RECORD: u64 = 16 << 20;

/// The file whose lock a writer holds.
const LOCK: &str = ".lock";

/// A record that cannot be read, so that its file cannot be undone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record {} cannot be read: {why}", path.display())]
pub struct UnreadableRecord {
    /// The path of the record. The text from before lies beside it, with the ending `original`.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

/// A server that was adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptedEntry {
    /// The server's name.
    pub name: String,
    /// The keys of the tables that it stands in, and its own.
    pub place: Vec<String>,
    /// Whether it had a list of arguments before.
    pub had_args: bool,
}

/// The record of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptionRecord {
    format: u32,
    /// The path as it was found or named. It may be a link.
    pub path: PathBuf,
    /// The path without links.
    pub target: PathBuf,
    /// The text that starts unhang in the file.
    pub program: String,
    /// The version of unhang that adopted it.
    pub version: String,
    /// The time.
    pub adopted_at: String,
    /// The SHA-256 of the bytes from before.
    pub original_sha256: String,
    /// The SHA-256 of the bytes afterwards.
    pub adopted_sha256: String,
    /// The servers.
    pub entries: Vec<AdoptedEntry>,
    is_toml: bool,
}

impl AdoptionRecord {
    /// Makes the record for a file that changes from `original` to `adopted`.
    #[must_use]
    pub fn new(
        file: &TargetFile,
        (original, adopted): (&str, &str),
        entries: Vec<AdoptedEntry>,
        (program, version, adopted_at): (&str, &str, String),
    ) -> AdoptionRecord {
        AdoptionRecord {
            format: FORMAT,
            path: file.named().to_owned(),
            target: file.path().to_owned(),
            program: program.to_owned(),
            version: version.to_owned(),
            adopted_at,
            original_sha256: sha256(original.as_bytes()),
            adopted_sha256: sha256(adopted.as_bytes()),
            entries,
            is_toml: file.syntax() == FileSyntax::Toml,
        }
    }

    /// Returns the syntax of the file.
    #[must_use]
    pub fn syntax(&self) -> FileSyntax {
        if self.is_toml { FileSyntax::Toml } else { FileSyntax::Json }
    }

    fn key(&self) -> String {
        key(&self.target)
    }
}

/// The records in the data folder.
#[derive(Clone, Debug)]
pub struct AdoptionRecords {
    folder: PathBuf,
}

impl AdoptionRecords {
    /// Finds the records in this data folder, which only its owner can write to.
    #[must_use]
    pub fn in_data_folder(folder: &Path) -> AdoptionRecords {
        AdoptionRecords { folder: folder.join("adopted") }
    }

    /// Takes the lock, and makes the folder if it is missing. Returns `None` if another process holds it. Files that a killed process was
    /// about to write are removed.
    ///
    /// # Errors
    /// Fails if the folder cannot be used.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let lock = Lock::try_take(&self.folder.join(LOCK))?;
        if lock.is_some() {
            for name in file_names(&self.folder) {
                if name.starts_with('.') && name != LOCK {
                    let _ = fs::remove_file(self.folder.join(name));
                }
            }
        }
        Ok(lock)
    }

    /// Returns the record of the file at this path without links.
    ///
    /// # Errors
    /// Fails if there is a record that cannot be read.
    pub fn of(&self, target: &Path) -> Result<Option<AdoptionRecord>, UnreadableRecord> {
        let record = self.read(&format!("{}.json", key(target)))?;
        Ok(record.filter(|record| record.target == target))
    }

    /// Lists all records in the order of their paths, and those that cannot be read.
    #[must_use]
    pub fn all(&self) -> (Vec<AdoptionRecord>, Vec<UnreadableRecord>) {
        let (mut all, mut unreadable) = (Vec::new(), Vec::new());
        for name in file_names(&self.folder) {
            if !name.ends_with(".json") || name.starts_with('.') {
                continue;
            }
            match self.read(&name) {
                Ok(record) => all.extend(record),
                Err(error) => unreadable.push(error),
            }
        }
        all.sort_by(|one: &AdoptionRecord, other| one.path.cmp(&other.path));
        (all, unreadable)
    }

    fn read(&self, name: &str) -> Result<Option<AdoptionRecord>, UnreadableRecord> {
        let path = self.folder.join(name);
        let fault = |why: String| UnreadableRecord { path: path.clone(), why };
        let Some(bytes) = read_at_most(&path, MAX_RECORD).map_err(|error| fault(error.to_string()))? else {
            return Ok(None);
        };
        let record: AdoptionRecord =
            serde_json::from_slice(&bytes).map_err(|error| fault(error.to_string()))?;
        match record.format {
            FORMAT => Ok(Some(record)),
            format => Err(fault(format!("it has the format {format}, and this unhang reads {FORMAT}"))),
        }
    }

    /// Returns the path of the bytes from before.
    #[must_use]
    pub fn backup_path(&self, record: &AdoptionRecord) -> PathBuf {
        self.folder.join(format!("{}.original", record.key()))
    }

    /// Returns the text from before, if it is still the one that the record is about.
    #[must_use]
    pub fn backup(&self, record: &AdoptionRecord) -> Option<String> {
        let bytes = read_at_most(&self.backup_path(record), MAX_FILE).ok()??;
        String::from_utf8(bytes).ok().filter(|text| sha256(text.as_bytes()) == record.original_sha256)
    }

    /// Keeps a record and the text from before, durably.
    ///
    /// # Errors
    /// Fails if one of both cannot be written.
    pub fn keep(&self, record: &AdoptionRecord, original: &str) -> Result<(), FileError> {
        let key = record.key();
        replace(&self.folder, &format!("{key}.original"), original.as_bytes(), Durability::Disk)?;
        let text = serde_json::to_vec_pretty(record).unwrap_or_default();
        replace(&self.folder, &format!("{key}.json"), &text, Durability::Disk)
    }

    /// Forgets a record, and the text from before.
    ///
    /// # Errors
    /// Fails if the record cannot be removed.
    pub fn forget(&self, record: &AdoptionRecord) -> io::Result<()> {
        fs::remove_file(self.folder.join(format!("{}.json", record.key())))?;
        // Without its record, nobody takes it for a backup.
        let _ = fs::remove_file(self.backup_path(record));
        Ok(())
    }

    /// Forgets a record. The text from before stays for a person, at the path that is returned.
    ///
    /// # Errors
    /// Fails if one of both cannot be renamed or removed.
    pub fn forget_and_keep_text(&self, record: &AdoptionRecord) -> io::Result<PathBuf> {
        let hash = record.original_sha256.get(..16).unwrap_or_default();
        let kept = self.folder.join(format!("{}-{hash}.kept", record.key()));
        match fs::rename(self.backup_path(record), &kept) {
            // It was renamed before, and the record was not removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && kept.exists() => {}
            renamed => renamed?,
        }
        fs::remove_file(self.folder.join(format!("{}.json", record.key())))?;
        Ok(kept)
    }
}

/// Lists the names in a folder that are text.
pub(crate) fn file_names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        names.extend(entry.file_name().into_string().ok());
    }
    names
}

/// Returns the name of a file's record.
fn key(target: &Path) -> String {
    sha256(target.as_os_str().as_bytes())[..32].to_owned()
}
