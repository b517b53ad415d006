//! A lock file as proof of life: it is held for exactly as long as the process that took it lives.
//!
//! The lock belongs to one *opening* of the file and not to a process (`F_OFD_SETLK` on Linux). So two openings in one process exclude each
//! other too, and closing another opening of the same file frees nothing.
//!
//! Invariants
//! - Nothing here waits, whatever lies under the path: neither for another holder nor for the other end of a named pipe.
//! - [`is_held`] only asks. It never holds the lock itself, so a look at a process that is just starting cannot make its [`Lock::try_take`]
//!   fail.
//! - No program that the holder starts gets the descriptor, so no grandchild keeps a dead process "alive". A child that was forked and has
//!   not executed its program yet holds the lock for that moment if the holder is killed. A lock that is dropped is free at once.
//! - The file itself means nothing and is not removed: its removal while it is held would make room for a second holder.
//!
//! A lock file belongs on a local file system. Over a network the end of a machine is not noticed.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

use crate::system;

/// A lock that is held. Dropping it frees the lock, and so does the kernel when the process ends, by whatever cause.
#[derive(Debug)]
pub struct Lock {
    file: OwnedFd,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the descriptor alone would free it only when a child that was just forked executes its program.
        let _closing_frees_it_too = system::unlock(self.file.as_fd());
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Lock {
    /// Takes the lock, and makes the file (for the owner alone) if it is missing. Returns `None` if another opening holds the lock, in this
    /// process or in another.
    ///
    /// # Errors
    /// Fails with the system's error about the file, for instance if a link is in its place.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        Self::try_take_open(open(path, OFlags::RDWR | OFlags::CREATE)?)
    }

    /// Takes the lock on a file that the caller has opened for writing. Returns `None` if another opening holds it.
    ///
    /// # Errors
    /// Fails with the system's error about the file.
    pub fn try_take_open(file: OwnedFd) -> io::Result<Option<Self>> {
        let is_ours = system::try_lock(file.as_fd())?;
        Ok(is_ours.then_some(Self { file }))
    }
}

/// Returns whether any process holds the lock, this one included. Nobody holds a file that does not exist.
///
/// # Errors
/// Fails with the system's error about the file.
pub fn is_held(path: &Path) -> io::Result<bool> {
    match open(path, OFlags::RDONLY) {
        Ok(file) => Ok(system::is_locked(file.as_fd())?),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::PathBuf,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use rustix::{
        fs::{FileType, mknodat},
        process::Signal,
    };

    use super::*;
    use crate::testing::{sleeper, without_hanging};

    fn lock_path() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        (folder, path)
    }

    #[test]
    fn a_second_opening_is_refused_until_the_first_is_closed() {
        let (_folder, path) = lock_path();
        assert!(!is_held(&path).unwrap());
        assert!(!path.exists());
        let lock = Lock::try_take(&path).unwrap().unwrap();
        assert!(is_held(&path).unwrap());
        assert!(Lock::try_take(&path).unwrap().is_none());
        assert!(is_held(&path).unwrap(), "the refused opening was closed");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A process that another test is starting at this moment has such a copy until it executes its program.
        let copy = lock.as_fd().try_clone_to_owned().unwrap();
        drop(lock);
        assert!(!is_held(&path).unwrap());
        assert!(Lock::try_take(&path).unwrap().is_some());
        drop(copy);
    }

    #[test]
    fn a_child_of_the_holder_does_not_hold_it() {
        let (_folder, path) = lock_path();
        let lock = Lock::try_take(&path).unwrap().unwrap();
        let mut child = sleeper();
        drop(lock);
        assert!(!is_held(&path).unwrap());
        assert!(child.try_reap().is_none(), "the child lives");
        child.signal(Signal::KILL);
    }

    /// Those who look and one who starts, all the time.
    #[test]
    fn a_look_never_makes_a_start_fail() {
        let (_folder, path) = lock_path();
        let done = AtomicBool::new(false);
        let refused = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    is_held(&path).unwrap();
                }
            });
            let refused = (0..2000).filter(|_| {
                let lock = Lock::try_take(&path).unwrap();
                let is_refused = lock.is_none();
                drop(lock);
                is_refused
            });
            let refused = refused.count();
            done.store(true, Ordering::Relaxed);
            refused
        });
        assert_eq!(refused, 0);
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let (folder, path) = lock_path();
        symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(Lock::try_take(&path).is_err());
        assert!(!folder.path().join("elsewhere").exists());
        symlink(folder.path(), folder.path().join("other")).unwrap();
        assert!(is_held(&folder.path().join("other")).is_err());
    }

    /// The work can put one there, and whoever opens it the ordinary way waits for ever.
    #[test]
    fn a_named_pipe_in_the_place_of_the_lock_is_not_waited_for() {
        let (_folder, path) = lock_path();
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(!without_hanging(move || is_held(&path).unwrap()));
    }
}
