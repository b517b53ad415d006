//! A client's file on the disk: read once, and written in one step or not at all.
//!
//! # Theory of operation
//!
//! A link is followed, and the file behind it is written: the link stays. The new bytes go into a file beside the target, which gets the mode
//! and the owner of the target. After that the target is read again. If it is still the same file with the same bytes, mode and owner, the
//! new file is renamed over it.
//!
//! Invariants
//!
//! - Whatever happens, the target has either the bytes from before or the new ones.
//! - A file that its owner has made read-only is not replaced, although a rename could do that.
//! - A file with a second name (a hard link) is not replaced, because the two names would lead to different files afterwards.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, OFlags, accessat},
    io::Errno,
    process::geteuid,
};

use crate::{records::file_names, syntax::FileSyntax};

/// The size in bytes of the largest file that is read. Claude Code keeps its history in its own file, which can have many megabytes.
pub(crate) const MAX_FILE: u64 = 64 << 20;

/// The reason why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The path names no file.
    #[error("there is no such file")]
    Absent,
    /// The link leads nowhere.
    #[error("it is a link to a file that does not exist")]
    Dangling,
    /// It is a folder, a pipe or a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// It is too large.
    #[error("it has more than {MAX_FILE} bytes")]
    TooLarge,
    /// It is not text.
    #[error("it is not UTF-8 text: the first wrong byte is number {0}")]
    NotText(usize),
    /// The mode of the file allows no writing.
    #[error("it is read-only (its mode is {0:04o}); `chmod u+w` makes it writable")]
    ReadOnly(u32),
    /// The mode of the folder allows no new file.
    #[error("its folder {} is read-only (its mode is {mode:04o}), and unhang writes a new file beside the old one", folder.display())]
    ReadOnlyFolder {
        /// The folder.
        folder: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It has several names.
    #[error("it has {0} names (hard links), and unhang would part them; edit it by hand")]
    SeveralNames(u64),
    /// It belongs to somebody else, and so would the new file not.
    #[error(
        "it belongs to the user with the number {0}, and unhang cannot keep that; run unhang as that user"
    )]
    OfAnother(u32),
    /// It belongs to a group that the new file cannot get.
    #[error(
        "it belongs to the group with the number {0}, of which you are no member, and unhang cannot keep that"
    )]
    OfAnotherGroup(u32),
    /// Somebody has changed its text, its mode, its owner or its names meanwhile.
    #[error("it has changed since unhang read it, so nothing was written; run the command again")]
    Changed,
    /// The system refused something.
    #[error("{action}: {source}")]
    System {
        /// The action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// A file as it was read.
#[derive(Debug)]
pub struct TargetFile {
    named: PathBuf,
    path: PathBuf,
    text: String,
    found: Metadata,
}

impl TargetFile {
    /// Reads the file at this absolute path.
    ///
    /// # Errors
    /// Fails if it cannot be read as text.
    pub fn read(named: &Path) -> Result<TargetFile, TargetError> {
        let path = named.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if fs::symlink_metadata(named).is_ok() => TargetError::Dangling,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => TargetError::Absent,
            _ => TargetError::System { action: "it cannot be read", source: error },
        })?;
        let (text, found) = read_text(&path)?;
        Ok(TargetFile { named: named.to_owned(), path, text, found })
    }

    /// Returns the path as it was given.
    #[must_use]
    pub fn named(&self) -> &Path {
        &self.named
    }

    /// Returns the path without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the syntax, by the name of the file.
    #[must_use]
    pub fn syntax(&self) -> FileSyntax {
        let is_toml = |path: &Path| path.extension().is_some_and(|end| end == "toml");
        if is_toml(&self.named) || is_toml(&self.path) { FileSyntax::Toml } else { FileSyntax::Json }
    }

    /// Checks that the file may be replaced. That changes nothing, so it is known before a person is asked.
    ///
    /// # Errors
    /// Fails with the reason why not.
    pub fn check_writable(&self) -> Result<(), TargetError> {
        let folder = self.folder();
        let of_folder = fs::metadata(folder).map_err(|error| system("its folder cannot be read", error))?;
        let mode = self.found.mode() & 0o7777;
        let is_own = self.found.uid() == geteuid().as_raw();
        if !is_own && !geteuid().is_root() {
            return Err(TargetError::OfAnother(self.found.uid()));
        }
        // The mode counts for root as well: it says what its owner wants.
        if mode & 0o222 == 0 || !may_write(&self.path) {
            return Err(TargetError::ReadOnly(mode));
        }
        if of_folder.mode() & 0o222 == 0 || !may_write(folder) {
            let mode = of_folder.mode() & 0o7777;
            return Err(TargetError::ReadOnlyFolder { folder: folder.to_owned(), mode });
        }
        if self.found.nlink() > 1 {
            return Err(TargetError::SeveralNames(self.found.nlink()));
        }
        Ok(())
    }

    /// Puts this text in place of the file's.
    ///
    /// # Errors
    /// Fails if the file has changed since it was read, or if the system refuses something. The file has the old bytes then.
    pub fn replace(&self, text: &str) -> Result<(), TargetError> {
        self.check_writable()?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let beginning = format!(".{name}.unhang-");
        self.remove_abandoned(&beginning);
        let temporary = self.folder().join(format!("{beginning}{}", std::process::id()));
        let written = self.write_beside(&temporary, text).and_then(|()| {
            if !self.is_unchanged()? {
                return Err(TargetError::Changed);
            }
            fs::rename(&temporary, &self.path).map_err(|error| system("it cannot be replaced", error))
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            return written;
        }
        // The name is in its place. If the folder cannot be made durable, a power failure gives back the old file.
        let _ = File::open(self.folder()).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Returns whether the path still leads to the same file, with the same text, mode, owner and number of names.
    fn is_unchanged(&self) -> Result<bool, TargetError> {
        let now = TargetFile::read(&self.named)?;
        let facts = |found: &Metadata| (found.mode(), found.uid(), found.gid(), found.nlink());
        Ok(now.path == self.path && now.text == self.text && facts(&now.found) == facts(&self.found))
    }

    /// Removes the new files of processes that were killed. The caller holds the lock of the records, so none of these processes lives.
    fn remove_abandoned(&self, beginning: &str) {
        for name in file_names(self.folder()) {
            let number = name.strip_prefix(beginning);
            if number.is_some_and(|number| number.parse::<u32>().is_ok()) {
                let _ = fs::remove_file(self.folder().join(name));
            }
        }
    }

    fn write_beside(&self, temporary: &Path, text: &str) -> Result<(), TargetError> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary);
        let mut file = made.map_err(|error| system("a new file beside it cannot be made", error))?;
        let (user, group) = (self.found.uid(), self.found.gid());
        let new = file.metadata().map_err(|error| system("a new file beside it cannot be made", error))?;
        if (new.uid(), new.gid()) != (user, group) {
            fchown(&file, Some(user), Some(group)).map_err(|_| TargetError::OfAnotherGroup(group))?;
        }
        let written = file.write_all(text.as_bytes()).and_then(|()| {
            // The owner comes first, because a change of the owner takes bits of the mode away.
            file.set_permissions(fs::Permissions::from_mode(self.found.mode() & 0o7777))?;
            file.sync_all()
        });
        written.map_err(|error| system("the new text cannot be written", error))
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

fn system(action: &'static str, source: io::Error) -> TargetError {
    TargetError::System { action, source }
}

/// Returns whether the system lets this process write there. A path that is gone is not the matter here.
fn may_write(path: &Path) -> bool {
    let refused = accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).err();
    !matches!(refused, Some(Errno::ACCESS | Errno::PERM | Errno::ROFS))
}

/// Reads a regular file as text. To open a pipe does not wait for its writer.
fn read_text(path: &Path) -> Result<(String, Metadata), TargetError> {
    let cannot = |error| system("it cannot be read", error);
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => TargetError::Absent,
            _ => cannot(error),
        })?;
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(TargetError::NotAFile);
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(TargetError::TooLarge);
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| TargetError::NotText(error.utf8_error().valid_up_to() + 1))?;
    Ok((text, found))
}
