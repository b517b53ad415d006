//! The place where windows find the gateway that leads: a lock that one process holds, and a socket beside it.
//!
//! # Theory of operation
//!
//! The kernel decides. The process that holds the lock leads. The kernel releases the lock when the leader ends, however it ends, and gives
//! it to one of the processes that wait. The socket is the leader's. A new leader removes the socket that the previous one has left.
//!
//! A leader that ends removes the file of its lock as well, so that old configurations leave nothing behind. A process that gets a lock
//! therefore checks whether its file is still the one at that path. If not, it tries again.
//!
//! Invariants: only this user can reach the socket. It is in a folder that nobody else can enter, and it asks the kernel who connects
//! (`unhang_net::serve`). Only our own files are removed.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::process::geteuid;
use tokio::net::UnixListener;

/// The folder of locks and sockets, in the data folder.
const FOLDER: &str = "gateway";

/// The longest path of a socket, in bytes.
const LONGEST: usize = 107;

/// The meeting point of all windows that share a gateway. Clones are the same meeting point.
#[derive(Clone, Debug)]
pub struct MeetingPoint {
    folder: Arc<File>,
    lock: PathBuf,
    socket: PathBuf,
}

/// The right to lead, for as long as this value lives.
#[derive(Debug)]
pub struct Leadership {
    _lock: File,
    meeting_point: MeetingPoint,
    is_listening: bool,
}

impl MeetingPoint {
    /// Makes the meeting point of all windows that share the configuration with this name. It has a folder of its own in `folder`, which is
    /// created if it is missing, and which this user alone can enter.
    ///
    /// # Errors
    /// Fails if the folder cannot be made, cannot be read, or is another user's.
    pub fn new(folder: &Path, name: &str) -> io::Result<MeetingPoint> {
        let folder = folder.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let opened = File::open(&folder)?;
        let found = opened.metadata()?;
        if found.uid() != geteuid().as_raw() {
            return Err(io::Error::other(format!("{} belongs to another user", folder.display())));
        }
        if found.mode() & 0o077 != 0 {
            opened.set_permissions(Permissions::from_mode(0o700))?;
        }
        let file = |ending: &str| folder.join(format!("gateway-{name}.{ending}"));
        Ok(MeetingPoint { lock: file("lock"), socket: file("sock"), folder: Arc::new(opened) })
    }

    /// Takes the right to lead. Returns `None` if another process has it.
    ///
    /// # Errors
    /// Fails if the folder cannot be written to.
    pub fn take(&self) -> io::Result<Option<Leadership>> {
        loop {
            let lock = self.open()?;
            match lock.try_lock() {
                Ok(()) if self.is_current(&lock) => return Ok(Some(self.lead(lock))),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Waits until no other process has the right to lead, and takes it. It blocks the thread.
    ///
    /// # Errors
    /// Fails as [`MeetingPoint::take`] does.
    pub fn wait(&self) -> io::Result<Leadership> {
        loop {
            let lock = self.open()?;
            lock.lock()?;
            if self.is_current(&lock) {
                return Ok(self.lead(lock));
            }
        }
    }

    /// Returns the path of the leader's socket. If the whole path is too long for the system, it leads through the open folder. Systems
    /// other than Linux have no such way, and refuse the path.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        match (self.socket.as_os_str().len(), self.socket.file_name()) {
            (LONGEST.., Some(name)) if cfg!(target_os = "linux") => {
                Path::new("/proc/self/fd").join(self.folder.as_raw_fd().to_string()).join(name)
            }
            _ => self.socket.clone(),
        }
    }

    fn open(&self) -> io::Result<File> {
        // The contents have no meaning.
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.lock)
    }

    /// Returns whether the file at the path of the lock is still this one.
    fn is_current(&self, lock: &File) -> bool {
        let inode = |data: fs::Metadata| (data.dev(), data.ino());
        let (own, found) = (lock.metadata().map(inode), fs::metadata(&self.lock).map(inode));
        matches!((own, found), (Ok(own), Ok(found)) if own == found)
    }

    fn lead(&self, lock: File) -> Leadership {
        Leadership { _lock: lock, meeting_point: self.clone(), is_listening: false }
    }
}

impl Leadership {
    /// Starts listening for the windows that follow.
    ///
    /// # Errors
    /// Fails if the socket cannot be made.
    pub fn listen(&mut self) -> io::Result<UnixListener> {
        let socket = self.meeting_point.socket();
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&socket)?;
        self.is_listening = true;
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        Ok(listener)
    }
}

/// The leader stops listening, and another process may lead.
impl Drop for Leadership {
    fn drop(&mut self) {
        // The lock is still held, so both files are ours. The next leader removes a file that cannot be removed now.
        if self.is_listening {
            let _stays = fs::remove_file(self.meeting_point.socket());
        }
        let _stays = fs::remove_file(&self.meeting_point.lock);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::net::UnixStream;

    use super::*;

    #[test]
    fn one_leads_and_the_next_when_it_has_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let meeting_point = MeetingPoint::new(folder.path(), "x").expect("a meeting point");
        let first = meeting_point.take().expect("it can be written").expect("nobody leads");
        assert!(meeting_point.take().expect("it can be written").is_none());
        let other = MeetingPoint::new(folder.path(), "y").expect("a meeting point");
        assert!(other.take().expect("it can be written").is_some(), "another configuration is of others");
        let waiting = (0..2).map(|_| {
            let meeting_point = meeting_point.clone();
            thread::spawn(move || {
                let lead = meeting_point.wait().expect("it can be written");
                // It is that of the file, so that nobody else can have it.
                assert!(meeting_point.take().expect("it can be written").is_none());
                drop(lead);
            })
        });
        let waiting: Vec<_> = waiting.collect();
        let opened = meeting_point.open().expect("it can be opened");
        assert!(meeting_point.is_current(&opened));
        drop(first);
        // Whoever has waited for this one has to look for the next.
        assert!(!meeting_point.is_current(&opened));
        waiting.into_iter().for_each(|one| one.join().expect("it has led"));
        let left: Vec<_> = fs::read_dir(folder.path().join(FOLDER)).expect("a folder").collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[tokio::test]
    async fn a_folder_with_a_long_path_has_a_socket_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("d".repeat(60)).join("e".repeat(60));
        let meeting_point = MeetingPoint::new(&deep, "x").expect("a meeting point");
        let mut lead = meeting_point.take().expect("it can be written").expect("nobody leads");
        let listener = lead.listen().expect("it can be bound");
        let mode = |path: PathBuf| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!(mode(deep.join(FOLDER).join("gateway-x.sock")), 0o600);
        assert_eq!(mode(deep.join(FOLDER)), 0o700);
        UnixStream::connect(meeting_point.socket()).await.expect("it listens");
        drop(listener);
        drop(lead);
        assert!(!deep.join(FOLDER).join("gateway-x.sock").exists());
    }

    #[test]
    fn f_23_nobody_else_can_enter_the_folder_of_the_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join(FOLDER);
        fs::create_dir(&own).expect("a folder");
        fs::set_permissions(&own, Permissions::from_mode(0o755)).expect("it is ours");
        let _meeting_point = MeetingPoint::new(folder.path(), "x").expect("a meeting point");
        assert_eq!(fs::metadata(&own).expect("it is there").mode() & 0o777, 0o700);
    }

    #[tokio::test]
    async fn what_a_killed_leader_has_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let meeting_point = MeetingPoint::new(folder.path(), "x").expect("a meeting point");
        let mut killed = meeting_point.take().expect("it can be written").expect("nobody leads");
        drop(killed.listen().expect("it can be bound"));
        // As the kernel does it: the lock is let go, and nothing is removed.
        killed._lock.unlock().expect("it is held");
        std::mem::forget(killed);
        let mut lead = meeting_point.take().expect("it can be written").expect("nobody leads");
        let _listener = lead.listen().expect("it can be bound");
        UnixStream::connect(meeting_point.socket()).await.expect("it listens");
    }
}
