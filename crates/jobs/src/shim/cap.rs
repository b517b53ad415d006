//! Keeps a log that the work writes within its limit, without the writer noticing.
//!
//! Theory of operation. The work writes straight to the file, so nobody can hold it back or cut its output. When the file has grown over
//! its limit, a hole is punched in its head: the blocks go back to the disk, and every other byte keeps its offset. A fast writer fills
//! hundreds of mebibytes in a second. So the file is looked at right after each write, as the system tells of them, and not by the clock.
//!
//! Invariants
//!
//! - The end of the log is never touched: at least half of the limit is kept.
//! - An idle log costs nothing; a busy one at most one look in [`BREATH`].

use std::{
    fs::{File, OpenOptions},
    io,
    mem::ManuallyDrop,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    time::Duration,
};

use rustix::fs::OFlags;
use unhang_proc::{
    file_events::{AwaitedChange, FileEvents},
    punch_hole,
    tree::ProcessTree,
};

use crate::folder::FileError;

/// The shortest time between two looks. At 2 GB a second, 8 MB are written meanwhile.
const BREATH: Duration = Duration::from_millis(4);

/// The time between two looks if the system does not tell of writes.
const WITHOUT_WATCH: Duration = Duration::from_millis(20);

/// The size of a hole is a multiple of this, whatever the file system's own blocks are.
const BLOCK: u64 = 64 << 10;

/// A log with its limit.
#[derive(Debug)]
pub(super) struct CappedLog {
    file: File,
    limit: u64,
    /// The offset at which the kept part begins.
    kept_from: u64,
    /// Whether the file system cannot punch holes.
    is_stuck: bool,
}

impl CappedLog {
    /// Opens the log for appending, for the owner alone.
    pub(super) fn create(path: &Path, limit: u64) -> Result<Self, FileError> {
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(flags);
        let file = options.open(path).map_err(|error| FileError::system("cannot open", path, error))?;
        Ok(Self { file, limit, kept_from: 0, is_stuck: false })
    }

    /// Returns a descriptor for the work.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Punches a hole if the log is over its limit.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        if length.saturating_sub(self.kept_from) <= self.limit || self.is_stuck {
            return Ok(());
        }
        let end = (length - self.limit / 2) / BLOCK * BLOCK;
        if end <= self.kept_from {
            return Ok(());
        }
        if let Err(error) = punch_hole(&self.file, self.kept_from, end) {
            self.is_stuck = true;
            return Err(error);
        }
        self.kept_from = end;
        Ok(())
    }
}

/// Both logs of a job.
#[derive(Debug)]
pub(super) struct Logs {
    pub(super) stdout: CappedLog,
    pub(super) stderr: CappedLog,
    /// The descriptor is left to the end of the process: closing it waits up to 15 ms for readers of its marks, and the end of the job is
    /// not written down yet.
    watch: Option<ManuallyDrop<FileEvents>>,
}

impl Logs {
    pub(super) fn create(stdout: &Path, stderr: &Path, folder: &Path, limit: u64) -> Result<Self, FileError> {
        let logs = (CappedLog::create(stdout, limit)?, CappedLog::create(stderr, limit)?);
        let watch = watch([stdout, stderr], folder).map(ManuallyDrop::new);
        Ok(Self { stdout: logs.0, stderr: logs.1, watch })
    }

    /// Waits for news of the tree, a new file in the folder or a write to a log, but at most for `limit`. Keeps the logs short.
    pub(super) fn wait(&mut self, tree: &ProcessTree, limit: Option<Duration>) -> io::Result<()> {
        let limit = match &self.watch {
            Some(_) => limit,
            None => Some(limit.unwrap_or(WITHOUT_WATCH).min(WITHOUT_WATCH)),
        };
        let watched: Vec<BorrowedFd<'_>> = self.watch.iter().map(|watch| watch.as_fd()).collect();
        tree.wait(&watched, limit);
        if self.had_writes() {
            self.check()?;
            // Meanwhile the supervisor still notices signals and the end of the work.
            tree.wait(&[], Some(limit.map_or(BREATH, |limit| limit.min(BREATH))));
        }
        Ok(())
    }

    /// Checks both logs.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let checked = self.stdout.check();
        self.stderr.check().and(checked)
    }

    fn had_writes(&self) -> bool {
        self.watch.as_deref().is_none_or(FileEvents::clear)
    }
}

/// Returns a source that tells of writes to these files, and of new files in this folder; `None` if the system cannot.
fn watch(paths: [&Path; 2], folder: &Path) -> Option<FileEvents> {
    let events = FileEvents::new().ok()?;
    for path in paths {
        events.watch(path, AwaitedChange::Writes).ok()?;
    }
    events.watch(folder, AwaitedChange::NewFiles).ok()?;
    Some(events)
}
