//! Ends of pipes for an async owner: each try is one system call and never waits.
//!
//! Invariants
//! - `O_NONBLOCK` is set only on descriptions that nobody else has: pipe ends that we made or opened ourselves.
//! - Readiness is forgotten when a call says that it would block, and after a short read of a pipe, which has emptied it. A socket may
//!   return less than it holds, so a short read says nothing there.
//! - A pipe grows the first time that it is found full. No other property of a pipe that we inherited changes.
//! - Waiting and trying are apart, so every wait can be cancelled without losing a byte.
//! - The ends of a pipe that have a journal (`journal.rs`) go on in another process when this one is killed, without losing or doubling a byte.

mod adopt;
mod journal;

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, ioctl_fionread},
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg},
};
use tokio::io::{Interest, unix::AsyncFd};

use self::journal::{ReadJournal, WriteJournal};
use crate::system::NO_SIGNAL;

pub use journal::{LONGEST_BACKLOG, LONGEST_UNPROCESSED};

pub use adopt::{Flush, adopt_input, adopt_output, take_standard_streams};

/// The capacity of a pipe that nobody has enlarged.
const ORDINARY: usize = 64 << 10;

/// The capacity that a pipe gets once it was found full, if the system lets us have it. With 64 KiB a 10 MB message costs 160 switches
/// between the two processes, with this 40 (design 8). More gained nothing. An ordinary user may have 64 MiB of pipes in all, so a pipe
/// that never carries a large message stays as it is.
const LARGE: usize = 256 << 10;

/// How a call on the descriptor is kept from waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipeKind {
    /// Its description is ours and has `O_NONBLOCK`.
    Pipe,
    /// Each call asks not to wait.
    Socket,
}

/// The reading end of a pipe or socket.
#[derive(Debug)]
pub struct PipeReader {
    descriptor: AsyncFd<OwnedFd>,
    kind: PipeKind,
    grown: bool,
    journal: Option<ReadJournal>,
}

impl PipeReader {
    fn new(descriptor: OwnedFd, kind: PipeKind) -> io::Result<Self> {
        Ok(Self { descriptor: register(descriptor, Interest::READABLE)?, kind, grown: false, journal: None })
    }

    /// Waits until a try is worth while. May resolve although there is nothing to read. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the runtime is going down.
    pub async fn readable(&self) -> io::Result<()> {
        if let Some(journal) = &self.journal {
            if journal.unread() > 0 {
                return Ok(());
            }
            if journal.is_full() {
                // Nothing changes until the owner says what it has processed, and it then asks anew.
                return std::future::pending().await;
            }
        }
        self.descriptor.readable().await.map(drop)
    }

    /// Reads the bytes that are there; 0 is the end.
    ///
    /// # Errors
    /// Fails with `WouldBlock` if the runtime knows of nothing to read at the moment, or if the journal is full. Any other error means that no
    /// more will come.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(journal) = &mut self.journal {
            let pipe = &self.descriptor;
            let count =
                read_journal(journal, buffer, |move_bytes| pipe.try_io(Interest::READABLE, move_bytes))?;
            if count >= ORDINARY {
                grow(pipe.get_ref(), self.kind, &mut self.grown);
            }
            return Ok(count);
        }
        let kind = self.kind;
        let mut short = None;
        let result = self.descriptor.try_io(Interest::READABLE, |descriptor| {
            let count = read(descriptor, kind, buffer)?;
            if kind == PipeKind::Pipe && 0 < count && count < buffer.len() {
                // This error tells the runtime that the readiness is used up.
                short = Some(count);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(count)
        });
        let result = short.map_or(result, Ok);
        if result.as_ref().is_ok_and(|count| *count >= ORDINARY) {
            grow(self.descriptor.get_ref(), kind, &mut self.grown);
        }
        result
    }

    /// Reads the bytes that are there, whether or not the runtime has heard of them. News of a process's end can overtake the readiness of
    /// the pipe with its last words.
    ///
    /// # Errors
    /// Fails with `WouldBlock` if there is nothing. Any other error means that no more will come.
    pub fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(journal) = &mut self.journal {
            let pipe = self.descriptor.get_ref();
            return read_journal(journal, buffer, |move_bytes| move_bytes(pipe));
        }
        read(self.descriptor.get_ref(), self.kind, buffer)
    }
}

impl PipeReader {
    /// Keeps all bytes from here on in a journal until they are [processed](Self::processed), so that another process can go on with them.
    /// `unprocessed` are the last bytes that were read before and are not processed: the start of a line, usually.
    ///
    /// # Errors
    /// Fails with `Unsupported` for anything but a pipe, and on systems other than Linux. Fails with `AlreadyExists` if there is a journal.
    /// Fails with the system's error if no file in memory can be made.
    pub fn begin_journal(&mut self, unprocessed: &[u8]) -> io::Result<()> {
        check_journal(self.kind, self.journal.is_some())?;
        self.journal = Some(ReadJournal::create(unprocessed)?);
        Ok(())
    }

    /// Notes, for this process and its successor, that everything is done that the next `count` bytes ask for. They are the oldest of those
    /// that were read and not processed. Without a journal there is nothing to note.
    ///
    /// # Errors
    /// Fails with `InvalidInput` if fewer bytes were read. Any other error is the system's about the journal.
    pub fn processed(&mut self, count: u64) -> io::Result<()> {
        self.journal.as_mut().map_or(Ok(()), |journal| journal.processed(count))
    }

    /// Reads without a journal again. A process that may be our successor must not have the old journal any more.
    ///
    /// # Errors
    /// Fails with `ResourceBusy` if there are bytes in the journal that were not read.
    pub fn end_journal(&mut self) -> io::Result<()> {
        let unread = self.journal.as_ref().map_or(0, ReadJournal::unread);
        journal_ends(unread, "not read")?;
        self.journal = None;
        Ok(())
    }

    /// Goes on where a process has stopped that had the pipe and this journal.
    pub(crate) fn resume(pipe: OwnedFd, journal: OwnedFd) -> io::Result<Self> {
        let journal = Some(ReadJournal::resume(journal)?);
        Ok(Self { journal, ..Self::new(pipe, PipeKind::Pipe)? })
    }

    /// Returns the pipe and its journal, if there is one.
    pub(crate) fn with_journal(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        Some((self.descriptor.get_ref().as_fd(), self.journal.as_ref()?.as_fd()))
    }
}

/// Reads from the journal, and moves bytes from the pipe into it if there is nothing. `attempt` makes the move, and may refuse to.
fn read_journal(
    journal: &mut ReadJournal,
    buffer: &mut [u8],
    attempt: impl FnOnce(&mut dyn FnMut(&OwnedFd) -> io::Result<usize>) -> io::Result<usize>,
) -> io::Result<usize> {
    if journal.unread() == 0 {
        if journal.is_full() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = buffer.len();
        if attempt(&mut |pipe| journal.receive(pipe, length))? == 0 {
            return Ok(0);
        }
    }
    journal.read(buffer)
}

/// Refuses a journal for anything but a pipe, and a second one.
fn check_journal(kind: PipeKind, has_journal: bool) -> io::Result<()> {
    if kind == PipeKind::Socket {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a socket cannot have a journal"));
    }
    if has_journal { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
}

/// Refuses the end of a journal that has bytes left.
fn journal_ends(left: u64, what: &str) -> io::Result<()> {
    if left == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{left} bytes of the journal were {what}")))
}

fn read(descriptor: &OwnedFd, kind: PipeKind, buffer: &mut [u8]) -> io::Result<usize> {
    retry(|| match kind {
        PipeKind::Pipe => rustix::io::read(descriptor, &mut *buffer),
        PipeKind::Socket => recv(descriptor, &mut *buffer, RecvFlags::DONTWAIT).map(|(count, _)| count),
    })
}

/// The writing end of a pipe or socket.
#[derive(Debug)]
pub struct PipeWriter {
    descriptor: AsyncFd<OwnedFd>,
    kind: PipeKind,
    grown: bool,
    journal: Option<WriteJournal>,
}

impl PipeWriter {
    fn new(descriptor: OwnedFd, kind: PipeKind) -> io::Result<Self> {
        let interest = Interest::WRITABLE | Interest::ERROR;
        Ok(Self { descriptor: register(descriptor, interest)?, kind, grown: false, journal: None })
    }

    /// Waits until a try is worth while. May resolve although there is no room. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the runtime is going down.
    pub async fn writable(&self) -> io::Result<()> {
        self.descriptor.writable().await.map(drop)
    }

    /// Writes as much as there is room for, from the parts in order, and returns how many bytes that was.
    ///
    /// With a journal, all the parts are accepted or none, so a call with whole lines never leaves half a line. What does not fit into the
    /// pipe is the [backlog](Self::backlog).
    ///
    /// # Errors
    /// Fails with `WouldBlock` if there is no room at the moment. Any other error means that the reader has gone, or that the journal cannot
    /// grow.
    pub fn try_write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.journal.is_some() {
            return self.accept(parts);
        }
        let kind = self.kind;
        let result = self.descriptor.try_io(Interest::WRITABLE, |descriptor| {
            retry(|| match kind {
                PipeKind::Pipe => rustix::io::writev(descriptor, parts),
                PipeKind::Socket => {
                    let mut nothing = SendAncillaryBuffer::default();
                    sendmsg(descriptor, parts, &mut nothing, SendFlags::DONTWAIT | NO_SIGNAL)
                }
            })
        });
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if result.as_ref().is_ok_and(|count| *count < total) {
            grow(self.descriptor.get_ref(), kind, &mut self.grown);
        }
        result
    }

    /// Returns whether the reader has gone, so that nobody can read what is written. Does not wait.
    #[must_use]
    pub fn reader_gone(&self) -> bool {
        is_broken(self.descriptor.get_ref().as_fd())
    }

    /// Returns how many bytes were written that nobody has read yet, the backlog included; 0 if the system does not tell.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.backlog() + self.in_pipe()
    }

    fn in_pipe(&self) -> u64 {
        ioctl_fionread(&self.descriptor).unwrap_or(0)
    }

    /// Waits until the reader has gone. Cancel-safe.
    pub async fn closed(&self) {
        // At the end of its reader, a pipe has an error condition. At the end of its peer, a socket can be read to its end.
        let interest = match self.kind {
            PipeKind::Pipe => Interest::ERROR,
            PipeKind::Socket => Interest::READABLE,
        };
        loop {
            let Ok(mut guard) = self.descriptor.ready(interest).await else {
                return std::future::pending().await;
            };
            if self.reader_gone() {
                return;
            }
            if guard.ready().is_read_closed() {
                // The peer writes no more but still reads, and that state is never forgotten. The next write will show whether it reads.
                return std::future::pending().await;
            }
            guard.clear_ready();
        }
    }
}

impl PipeWriter {
    /// Keeps all bytes from here on in a journal until they are in the pipe, so that another process can go on with them. If the last call
    /// wrote half a line, the next one has to write the rest.
    ///
    /// # Errors
    /// As [`PipeReader::begin_journal`].
    pub fn begin_journal(&mut self) -> io::Result<()> {
        check_journal(self.kind, self.journal.is_some())?;
        self.journal = Some(WriteJournal::create()?);
        Ok(())
    }

    /// Returns how many bytes the journal has accepted that are not in the pipe yet. While there are some, the owner waits until the pipe is
    /// [writable](Self::writable) and calls [`Self::flush_journal`].
    #[must_use]
    pub fn backlog(&self) -> u64 {
        self.journal.as_ref().map_or(0, WriteJournal::backlog)
    }

    /// Returns how many bytes were accepted since the journal began, by this process and those before it; 0 without a journal.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.journal.as_ref().map_or(0, WriteJournal::accepted)
    }

    /// Moves the backlog into the pipe.
    ///
    /// # Errors
    /// Fails with `WouldBlock` if some of it is left because the pipe is full. Any other error means that the reader has gone.
    pub fn flush_journal(&mut self) -> io::Result<()> {
        while let Some(journal) = &mut self.journal
            && journal.backlog() > 0
        {
            let moved = self.descriptor.try_io(Interest::WRITABLE, |pipe| journal.flush(pipe));
            let is_short = moved.is_ok() && journal.backlog() > 0;
            if is_short {
                grow(self.descriptor.get_ref(), self.kind, &mut self.grown);
            }
            moved?;
        }
        Ok(())
    }

    /// Writes without a journal again. A process that may be our successor must not have the old journal any more.
    ///
    /// # Errors
    /// Fails with `ResourceBusy` if there is a backlog.
    pub fn end_journal(&mut self) -> io::Result<()> {
        journal_ends(self.backlog(), "not written")?;
        self.journal = None;
        Ok(())
    }

    fn accept(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let full = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        };
        full(self.flush_journal())?;
        let in_pipe = self.in_pipe();
        let Some(journal) = &mut self.journal else { return Ok(0) };
        let count = journal.accept(parts, in_pipe)?;
        full(self.flush_journal())?;
        Ok(count)
    }

    /// Goes on where a process has stopped that had the pipe and this journal.
    pub(crate) fn resume(pipe: OwnedFd, journal: OwnedFd) -> io::Result<Self> {
        let journal = Some(WriteJournal::resume(journal)?);
        Ok(Self { journal, ..Self::new(pipe, PipeKind::Pipe)? })
    }

    /// Returns the pipe and its journal, if there is one.
    pub(crate) fn with_journal(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        Some((self.as_fd(), self.journal.as_ref()?.as_fd()))
    }
}

impl AsFd for PipeWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.get_ref().as_fd()
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Returns whether the other end of a descriptor that we write to is closed.
fn is_broken(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::empty())];
    wait(&mut polled, Some(Duration::ZERO)) && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Polls, and returns whether anything is ready. An interruption counts as nothing.
pub(crate) fn wait(polled: &mut [PollFd<'_>], limit: Option<Duration>) -> bool {
    let limit =
        limit.map(|limit| Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
    poll(polled, limit.as_ref()).is_ok_and(|count| count > 0)
}

/// Makes a plain pipe that no child inherits: its reading and its writing end.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

/// Makes a pipe that we write to and a server reads from. Calls on the server's end wait, as programs expect.
pub(crate) fn to_server() -> io::Result<(OwnedFd, PipeWriter)> {
    let (reader, writer) = pair()?;
    set_nonblocking(&writer)?;
    Ok((reader, PipeWriter::new(writer, PipeKind::Pipe)?))
}

/// Makes a pipe that a server writes to and we read from.
pub(crate) fn from_server() -> io::Result<(PipeReader, OwnedFd)> {
    let (reader, writer) = pair()?;
    set_nonblocking(&reader)?;
    Ok((PipeReader::new(reader, PipeKind::Pipe)?, writer))
}

/// Makes a descriptor awaitable.
#[expect(unsafe_code, reason = "the safe way accepts descriptors that may be closed under the runtime")]
pub(crate) fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always names the same descriptor, and keeps it open until it is dropped with the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(io::Error::from)
}

fn set_nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?)
}

/// Enlarges a pipe, once. Best effort: a small pipe is slower, nothing else.
fn grow(descriptor: &OwnedFd, kind: PipeKind, grown: &mut bool) {
    if kind == PipeKind::Socket || std::mem::replace(grown, true) {
        return;
    }
    // The maker of the pipe may have enlarged it already.
    #[cfg(target_os = "linux")]
    if rustix::pipe::fcntl_getpipe_size(descriptor).is_ok_and(|size| size < LARGE) {
        let _ = rustix::pipe::fcntl_setpipe_size(descriptor, LARGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (descriptor, LARGE);
}

#[cfg(test)]
mod tests;
