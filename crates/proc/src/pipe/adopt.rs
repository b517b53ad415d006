//! Makes descriptors that we inherited fit for an async owner, without touching the state that others share.
//!
//! `O_NONBLOCK` belongs to the open file description, and the client holds the same one. If we set it, the client's own writes begin to
//! fail. So a pipe is opened a second time through /proc, and a socket is asked not to wait call by call. Everything else (terminal, file,
//! null device) gets a thread that waits in our place.
//!
//! Invariants: flags of an inherited description never change. A pump thread holds one buffer and ends when either of its sides does. A
//! pump that is stuck in a write to nobody holds up nothing but itself.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags},
    fs::{CWD, FileType, Mode, OFlags, fstat, openat},
    io::{Errno, fcntl_dupfd_cloexec},
    stdio::{dup2_stdin, dup2_stdout},
};
use tokio::sync::oneshot;

use super::{PipeKind, PipeReader, PipeWriter, is_broken, pair, set_nonblocking, wait};
use crate::deadline::Deadline;

/// Bytes that a pump moves at once: the capacity of an ordinary pipe.
const PUMP_BUFFER: usize = 64 * 1024;
/// A pump's stack; it calls nothing deep.
const PUMP_STACK: usize = 128 * 1024;

/// Waits until the bytes that were written to an adopted output have left this process.
#[derive(Debug)]
pub struct Flush(Option<oneshot::Receiver<()>>);

impl Flush {
    #[cfg(test)]
    pub(super) fn waiting_for(done: oneshot::Receiver<()>) -> Self {
        Self(Some(done))
    }

    /// Waits until a pump thread has written out everything. The caller has to drop the [`PipeWriter`] before. Without a thread there is
    /// nothing to wait for: the bytes are with the reader or in the kernel.
    ///
    /// Returns `false` if the deadline came first, or the output broke.
    pub async fn finish(self, deadline: Deadline) -> bool {
        match self.0 {
            Some(done) => {
                matches!(deadline.timeout(done).await, Ok(Ok(())))
            }
            _ => true,
        }
    }
}

/// Makes an inherited descriptor readable for an async owner. Must be called in a runtime.
///
/// # Errors
/// Fails if a pipe, thread or registration cannot be made.
pub fn adopt_input(descriptor: OwnedFd) -> io::Result<PipeReader> {
    match direct(&descriptor, OFlags::RDONLY)? {
        Direct::Reopened(reopened) => return PipeReader::new(reopened, PipeKind::Pipe),
        Direct::Socket => return PipeReader::new(descriptor, PipeKind::Socket),
        Direct::No => {}
    }
    let (reader, writer) = pair()?;
    set_nonblocking(&reader)?;
    start_pump("input", move || {
        // The end of either side is the end of the pump; the owner sees it as the end of the input.
        let _ = pump(&descriptor, &writer);
    })?;
    PipeReader::new(reader, PipeKind::Pipe)
}

/// Makes an inherited descriptor writable for an async owner. Must be called in a runtime.
///
/// # Errors
/// Fails if a pipe, thread or registration cannot be made.
pub fn adopt_output(descriptor: OwnedFd) -> io::Result<(PipeWriter, Flush)> {
    match direct(&descriptor, OFlags::WRONLY)? {
        Direct::Reopened(reopened) => return Ok((PipeWriter::new(reopened, PipeKind::Pipe)?, Flush(None))),
        Direct::Socket => return Ok((PipeWriter::new(descriptor, PipeKind::Socket)?, Flush(None))),
        Direct::No => {}
    }
    let (reader, writer) = pair()?;
    set_nonblocking(&writer)?;
    let (done, flushed) = oneshot::channel();
    start_pump("output", move || {
        if pump(&reader, &descriptor).is_ok() {
            // The receiver may have been dropped.
            let _ = done.send(());
        }
    })?;
    Ok((PipeWriter::new(writer, PipeKind::Pipe)?, Flush(Some(flushed))))
}

/// Takes standard input and output away from everybody else in this process. Returns duplicates that no child inherits, and puts the null
/// device in their place. So neither a stray print nor a child can touch the protocol (promises 2 and 4, G-07, G-22).
///
/// # Errors
/// Fails if they are not open or the null device cannot be opened.
pub fn take_standard_streams() -> io::Result<(OwnedFd, OwnedFd)> {
    // With a number below 3, a later child would take the duplicate for a standard stream.
    let input = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let output = fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    let null = openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok((input, output))
}

enum Direct {
    Reopened(OwnedFd),
    Socket,
    No,
}

/// Decides whether and how a descriptor can be used without a thread.
fn direct(descriptor: &OwnedFd, access: OFlags) -> io::Result<Direct> {
    Ok(match FileType::from_raw_mode(fstat(descriptor)?.st_mode) {
        FileType::Socket => Direct::Socket,
        FileType::Fifo => {
            let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
            let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
            openat(CWD, path, flags, Mode::empty()).map_or(Direct::No, Direct::Reopened)
        }
        _ => Direct::No,
    })
}

fn start_pump(name: &str, pump: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(format!("pump-{name}")).stack_size(PUMP_STACK).spawn(pump).map(drop)
}

/// Moves bytes until the source ends. Fails if the reader has gone, and notices that also while there is nothing to move.
pub(super) fn pump(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; PUMP_BUFFER];
    loop {
        let mut polled = [
            PollFd::new(from, PollFlags::IN),
            // No event is asked for: the error condition says that its reader has gone.
            PollFd::new(to, PollFlags::empty()),
        ];
        wait(&mut polled, None);
        if is_broken(to.as_fd()) {
            return Err(Errno::PIPE.into());
        }
        match rustix::io::read(from, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => write_all(to, buffer.get(..count).unwrap_or_default())?,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes everything, also if another process has made the description non-blocking.
fn write_all(to: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::AGAIN) => {
                wait(&mut [PollFd::new(to, PollFlags::OUT)], None);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
