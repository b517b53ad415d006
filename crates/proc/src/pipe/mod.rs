//! Ends of pipes for an async owner: each try is one system call and never waits.
//!
//! Invariants
//! - `O_NONBLOCK` is set only on descriptions that nobody else has: pipe ends that we made or opened ourselves.
//! - Readiness is forgotten when a call says that it would block, and after a short read of a pipe, which has emptied it. A socket may
//!   return less than it holds, so a short read says nothing there.
//! - A pipe grows the first time that it is found full. No other property of a pipe that we inherited changes.
//! - Waiting and trying are apart, so every wait can be cancelled without losing a byte.

mod adopt;

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

use crate::system::NO_SIGNAL;

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
}

impl PipeReader {
    fn new(descriptor: OwnedFd, kind: PipeKind) -> io::Result<Self> {
        Ok(Self { descriptor: register(descriptor, Interest::READABLE)?, kind, grown: false })
    }

    /// Waits until a try is worth while. May resolve although there is nothing to read. Cancel-safe.
    ///
    /// # Errors
    /// Fails if the runtime is going down.
    pub async fn readable(&self) -> io::Result<()> {
        self.descriptor.readable().await.map(drop)
    }

    /// Reads the bytes that are there; 0 is the end.
    ///
    /// # Errors
    /// Fails with `WouldBlock` if the runtime knows of nothing to read at the moment. Any other error means that no more will come.
    pub fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
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
        read(self.descriptor.get_ref(), self.kind, buffer)
    }
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
}

impl PipeWriter {
    fn new(descriptor: OwnedFd, kind: PipeKind) -> io::Result<Self> {
        let interest = Interest::WRITABLE | Interest::ERROR;
        Ok(Self { descriptor: register(descriptor, interest)?, kind, grown: false })
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
    /// # Errors
    /// Fails with `WouldBlock` if there is no room at the moment. Any other error means that the reader has gone.
    pub fn try_write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
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

    /// Returns how many bytes were written that nobody has read yet; 0 if the system does not tell.
    #[must_use]
    pub fn unread(&self) -> u64 {
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
