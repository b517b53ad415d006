//! Tells of changes of files and folders (`kqueue`), and wakes a thread that waits for them (a pipe). Not proven by tests.
//!
//! A watch holds a descriptor of its file, so the file's number is not given to another file meanwhile.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, PipeReader, PipeWriter},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
    ptr::null_mut,
    sync::{Mutex, PoisonError},
};

use rustix::{
    event::{
        Timespec,
        kqueue::{Event, EventFilter, EventFlags, VnodeEvents, kevent_timespec, kqueue},
    },
    fs::{CWD, Mode, OFlags, openat},
    io::ioctl_fionbio,
};

use crate::awaited_change::AwaitedChange;

/// `O_EVTONLY`: a descriptor for events alone, which keeps no disk from being removed.
const EVENTS_ONLY: OFlags = OFlags::from_bits_retain(0x8000);

/// The watch of one file or folder: its device and number.
pub type FileWatch = (u64, u64);

/// Tells of changes of watched files and folders: its descriptor becomes readable.
#[derive(Debug)]
pub struct FileEvents {
    queue: OwnedFd,
    watched: Mutex<HashMap<FileWatch, File>>,
}

impl FileEvents {
    /// Makes a source of events that watches nothing yet.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { queue: kqueue()?, watched: Mutex::default() })
    }

    /// Watches a file or folder. The watch of one that is watched stays the same; that of another one in its place is another one.
    ///
    /// # Errors
    /// Fails if the file does not exist, or if this process has as many open files as the system allows.
    #[expect(unsafe_code, reason = "a descriptor in a list of changes has to be open, which no type says")]
    pub fn watch(&self, path: &Path, change: AwaitedChange) -> io::Result<FileWatch> {
        let file = File::from(openat(CWD, path, EVENTS_ONLY | OFlags::CLOEXEC, Mode::empty())?);
        let known = file.metadata()?;
        if change == AwaitedChange::Files && !known.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let watch = (known.dev(), known.ino());
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.contains_key(&watch) {
            return Ok(watch);
        }
        let flags = VnodeEvents::WRITE | VnodeEvents::EXTEND | VnodeEvents::DELETE | VnodeEvents::RENAME;
        let filter = EventFilter::Vnode { vnode: file.as_raw_fd(), flags };
        let added = Event::new(filter, EventFlags::ADD | EventFlags::CLEAR, null_mut());
        // SAFETY: the descriptor is open, and closing it removes the watch.
        unsafe { kevent_timespec(&self.queue, &[added], &mut [] as &mut [Event; 0], None)? };
        watched.insert(watch, file);
        Ok(watch)
    }

    /// Ends a watch.
    pub fn forget(&self, watch: FileWatch) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&watch);
    }

    /// Forgets the events so far. Returns whether there were any.
    #[expect(
        unsafe_code,
        reason = "a list of changes could name a descriptor that is not open; this one is empty"
    )]
    pub fn clear(&self) -> bool {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (mut events, mut any) = (Vec::with_capacity(64), false);
        loop {
            events.clear();
            // SAFETY: nothing is changed.
            let taken = unsafe {
                kevent_timespec(&self.queue, &[], rustix::buffer::spare_capacity(&mut events), Some(&AT_ONCE))
            };
            if !matches!(taken, Ok(1..)) {
                return any;
            }
            any = true;
        }
    }
}

impl AsFd for FileEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Wakes a thread that polls its descriptor.
#[derive(Debug)]
pub struct WakeEvent {
    reader: PipeReader,
    writer: PipeWriter,
}

impl WakeEvent {
    /// Makes an event that has not happened.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        ioctl_fionbio(&reader, true)?;
        ioctl_fionbio(&writer, true)?;
        Ok(Self { reader, writer })
    }

    /// Makes the descriptor readable until the event is cleared.
    pub fn wake(&self) {
        // If the pipe is full, it is readable.
        let _ = rustix::io::write(&self.writer, &[1]);
    }

    /// Forgets that the event has happened.
    pub fn clear(&self) {
        let mut bytes = [0; 4096];
        while matches!(rustix::io::read(&self.reader, &mut bytes), Ok(1..)) {}
    }
}

impl AsFd for WakeEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
