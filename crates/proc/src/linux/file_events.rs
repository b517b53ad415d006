//! Tells of changes of files and folders (`inotify`), and wakes a thread that waits for them (`eventfd`).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::inotify::{self, CreateFlags, WatchFlags},
};

use crate::awaited_change::AwaitedChange;

/// The watch of one file or folder.
pub type FileWatch = i32;

/// Tells of changes of watched files and folders: its descriptor becomes readable.
#[derive(Debug)]
pub struct FileEvents(OwnedFd);

impl FileEvents {
    /// Makes a source of events that watches nothing yet.
    ///
    /// # Errors
    /// Fails if the system has no such source, or none left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches a file or folder. The watch of one that is watched stays the same; that of another one in its place is another one.
    ///
    /// # Errors
    /// Fails if the file does not exist, or if this user has as many watches as the system allows.
    pub fn watch(&self, path: &Path, change: AwaitedChange) -> io::Result<FileWatch> {
        let flags = match change {
            AwaitedChange::Writes => WatchFlags::MODIFY,
            AwaitedChange::NewFiles => WatchFlags::CREATE,
            AwaitedChange::Files => {
                WatchFlags::CREATE
                    | WatchFlags::CLOSE_WRITE
                    | WatchFlags::DELETE
                    | WatchFlags::MOVED_TO
                    | WatchFlags::DELETE_SELF
                    | WatchFlags::MOVE_SELF
                    | WatchFlags::ONLYDIR
            }
        };
        Ok(inotify::add_watch(&self.0, path, flags)?)
    }

    /// Ends a watch.
    pub fn forget(&self, watch: FileWatch) {
        // The system has removed the watch of a folder that is gone.
        let _gone = inotify::remove_watch(&self.0, watch);
    }

    /// Forgets the events so far. Returns whether there were any.
    pub fn clear(&self) -> bool {
        read_all(&self.0)
    }
}

impl AsFd for FileEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Wakes a thread that polls its descriptor.
#[derive(Debug)]
pub struct WakeEvent(OwnedFd);

impl WakeEvent {
    /// Makes an event that has not happened.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable until the event is cleared.
    pub fn wake(&self) {
        // The write cannot fail: the counter is far from full.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Forgets that the event has happened.
    pub fn clear(&self) {
        read_all(&self.0);
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads a descriptor until it is empty. Returns whether it held anything.
fn read_all(descriptor: &OwnedFd) -> bool {
    let (mut events, mut any) = ([0; 4096], false);
    while matches!(rustix::io::read(descriptor, &mut events), Ok(1..)) {
        any = true;
    }
    any
}
