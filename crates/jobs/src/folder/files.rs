//! Files of unhang: how they are put in their place, made durable and read.
//!
//! Invariants
//!
//! - A file that others may read at any time is written under another name first, and put in its place by one rename.
//! - No file is read without a limit, and no link is followed.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    panic::resume_unwind,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use rustix::{fs::OFlags, io::Errno};
use serde::Serialize;
use unhang_proc::{file_limit, identity::ask_for_short_turns};

use crate::id::JobId;

/// The reason why one of unhang's files could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system returned an error.
    #[error("{action} {}: {source}{}", path.display(), limited(source))]
    System {
        /// The action, as the beginning of a sentence: "cannot write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file exists, and its content is not what it should be.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        detail: String,
    },
}

impl FileError {
    pub(crate) fn system(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::System { action, path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, detail: impl fmt::Display) -> Self {
        Self::Damaged { path: path.to_owned(), detail: detail.to_string() }
    }

    /// Returns whether the action may succeed later, once somebody has made room.
    pub(crate) fn is_for_lack_of_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        matches!(self.kind(), Some(StorageFull | QuotaExceeded | ReadOnlyFilesystem))
    }

    /// Returns whether the file would exceed the limit of the process for files (`ulimit -f`). Waiting does not help.
    pub(crate) fn is_over_file_limit(&self) -> bool {
        self.kind() == Some(io::ErrorKind::FileTooLarge)
    }

    /// Returns whether the error is about the thing at the path, and not about the disk: it is not a file, or not a folder, as it should
    /// be.
    pub(crate) fn is_of_another_kind(&self) -> bool {
        match self {
            Self::System { source, .. } => is_of_another_kind(source),
            Self::Damaged { .. } => true,
        }
    }

    /// Returns the kind of the system's error; `None` if the file is damaged.
    #[must_use]
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::System { source, .. } => Some(source.kind()),
            Self::Damaged { .. } => None,
        }
    }
}

/// Returns whether the error says that a thing of another kind lies in the place of a file or folder of unhang: a folder, a link, a socket.
pub(crate) fn is_of_another_kind(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, IsADirectory, NotADirectory};
    const NONE_OF_OURS: [Errno; 3] = [Errno::LOOP, Errno::NXIO, Errno::NODEV];
    matches!(error.kind(), DirectoryNotEmpty | IsADirectory | NotADirectory)
        || NONE_OF_OURS.into_iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn limited(source: &io::Error) -> String {
    file_limit::cause_of(source).map_or_else(String::new, |cause| format!("; {cause}"))
}

pub(super) fn restore(
    folder: &Path,
    name: &str,
    found: Option<&str>,
    content: &str,
) -> Result<(), FileError> {
    if found == Some(content) {
        return Ok(());
    }
    replace(folder, name, content.as_bytes(), Durability::Memory)
}

/// Formats a value as the content of one of unhang's files. It ends with a line feed, so that it looks well in a terminal.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    // The values have no maps whose keys are not text, and no types that refuse.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// The event that a file survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of its writer.
    Memory,
    /// A power failure.
    Disk,
}

/// Puts a file in its place in one step, for its owner alone.
///
/// # Errors
/// Fails if the system does.
pub fn replace(folder: &Path, name: &str, content: &[u8], durability: Durability) -> Result<(), FileError> {
    replace_with(folder, name, durability, |file| file.write_all(content))
}

/// Does the same with what `write` writes.
pub(super) fn replace_with(
    folder: &Path,
    name: &str,
    durability: Durability,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), FileError> {
    let (temporary, path) = (temporary(folder, name)?, folder.join(name));
    // An error names the file that people know. The temporary name is random, so each error would be news.
    let written = written_new(&temporary, write);
    let written = written.map_err(|error| FileError::system("cannot write", &path, error)).and_then(|file| {
        if durability == Durability::Disk {
            make_durable(&file).map_err(|error| unsynced(&path, error))?;
        }
        fs::rename(&temporary, &path)
            .map_err(|error| FileError::system("cannot put in its place", &path, error))
    });
    if written.is_err() {
        // The temporary file may not exist; the error before is the one that counts.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    if durability == Durability::Disk { sync(folder) } else { Ok(()) }
}

/// Returns a random name for a temporary file, so that two writers of one name do not meet each other's half.
pub(super) fn temporary(folder: &Path, name: &str) -> Result<PathBuf, FileError> {
    let rest = JobId::random().map_err(|error| FileError::system("cannot name", folder, error))?;
    Ok(folder.join(format!(".{name}.{rest}")))
}

/// Makes a file, or the names in a folder, survive a power failure.
pub(crate) fn sync(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|file| make_durable(&file)).map_err(|error| unsynced(path, error))
}

/// Does the same as [`sync`] for several paths, on two threads: a disk has a queue, and the submitter waits for the last of them.
pub(crate) fn sync_all(paths: &[PathBuf]) -> Result<(), FileError> {
    if let [] | [_] = paths {
        return paths.iter().try_for_each(|path| sync(path));
    }
    let row = |first: usize| paths.iter().skip(first).step_by(2).try_for_each(|path| sync(path));
    thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, || {
            ask_for_short_turns();
            row(1)
        });
        row(0).and(match other {
            Ok(other) => other.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system has no more threads.
            Err(_) => row(1),
        })
    })
}

/// Returns whether this is a temporary name of [`replace`].
fn is_unfinished(name: &str) -> bool {
    let rest = name.strip_prefix('.').and_then(|name| name.rsplit_once('.'));
    rest.is_some_and(|(own, drawn)| own.contains('.') && drawn.parse::<JobId>().is_ok())
}

/// Removes files that [`replace`] had begun in this folder when its caller was killed, if they were last written longer ago than this. A
/// file that cannot be removed does no harm.
pub fn remove_unfinished(folder: &Path, age: Duration) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = || {
            let written = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            written.is_some_and(|written| {
                SystemTime::now().duration_since(written).is_ok_and(|for_| for_ >= age)
            })
        };
        if entry.file_name().to_str().is_some_and(is_unfinished) && (age.is_zero() || is_old()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn make_durable(file: &File) -> io::Result<()> {
    file.sync_all()
}

fn unsynced(path: &Path, error: io::Error) -> FileError {
    FileError::system("cannot make durable", path, error)
}

pub(super) fn write_new(path: &Path, content: &[u8]) -> Result<File, FileError> {
    let written = written_new(path, |file| file.write_all(content));
    written.map_err(|error| FileError::system("cannot write", path, error))
}

/// Makes a file that must not exist yet, and has `write` fill it.
fn written_new(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    write(&mut file)?;
    Ok(file)
}

/// Reads a file up to a limit. Returns `None` if the file does not exist. It follows no link, because unhang makes these files as plain ones.
///
/// # Errors
/// Fails if the file cannot be read, is not a plain file, or is longer.
pub fn read_at_most(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    let failed = |error| FileError::system("cannot read", path, error);
    let Some(file) = open_file(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
        return Err(FileError::damaged(path, format!("it has more than {limit} bytes")));
    }
    Ok(Some(bytes))
}

/// Opens a file for reading; `None` if it does not exist. Fails if it is not a plain file, as a job could leave in its folder: opening a
/// pipe would wait for a writer.
pub(crate) fn open_file(path: &Path) -> Result<Option<File>, FileError> {
    let failed = |error| FileError::system("cannot read", path, error);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(FileError::damaged(path, "it is a link"));
        }
        Err(error) => return Err(failed(error)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(FileError::damaged(path, "it is not a regular file"));
    }
    Ok(Some(file))
}

pub(crate) fn make_folder(path: &Path, may_exist: bool) -> Result<(), FileError> {
    DirBuilder::new()
        .recursive(may_exist)
        .mode(0o700)
        .create(path)
        .map_err(|error| FileError::system("cannot make", path, error))
}
