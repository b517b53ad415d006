//! Descriptors and streams that a process inherited and must not keep: for the first lines of a small program of our own.
//!
//! Invariants: every descriptor that is closed here was open before this program opened anything, so nothing in the program owns it. That
//! is why [`ForeignDescriptors::find`] comes first, before any thread or runtime.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

/// Takes over a descriptor that was handed over under this number, and keeps it from every program that is started. A program calls it once
/// for each number.
///
/// # Errors
/// Fails with `EBADF` if the number is one of the standard streams, and with the system's error if there is no such descriptor.
#[expect(unsafe_code, reason = "a descriptor that was handed over by number has to be taken by number")]
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(Errno::BADF.into());
    }
    {
        // SAFETY: the descriptor is borrowed for this call only; if there is no such descriptor, the call says so.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    // SAFETY: the descriptor was passed for us to own, it is open, and nothing else in this process uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Descriptors that this process inherited unasked, from its parent or from an earlier ancestor; no program of ours needs them.
#[derive(Debug)]
pub struct ForeignDescriptors(Vec<RawFd>);

impl ForeignDescriptors {
    /// Finds all open descriptors except the standard streams and `known`. It must run before anything else is opened.
    #[must_use]
    pub fn find(known: &[BorrowedFd<'_>]) -> Self {
        let Ok(folder) = std::fs::read_dir("/dev/fd") else { return Self(Vec::new()) };
        let mut numbers: Vec<RawFd> =
            folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let is_known = |number| known.iter().any(|known| known.as_raw_fd() == number);
        // The folder that was being read is closed by now, and its number is free for a descriptor of ours.
        numbers.retain(|&number| number > 2 && !is_known(number) && is_open(number));
        Self(numbers)
    }

    /// Closes them, so that only the processes that need them hold them.
    #[expect(unsafe_code, reason = "descriptors that nobody owns can only be closed by number")]
    pub fn close(self) {
        for number in self.0 {
            // SAFETY: these were open before anything in this process was opened, so nothing here owns them.
            unsafe { rustix::io::close(number) };
        }
    }
}

#[expect(unsafe_code, reason = "descriptors that nobody owns can only be looked at by number")]
fn is_open(number: RawFd) -> bool {
    // SAFETY: the descriptor is borrowed for this call only; if there is no such descriptor, the call says so.
    fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_ok()
}

/// Replaces all standard streams with the null device.
///
/// # Errors
/// Fails with the system's error if the null device cannot be opened or put in place.
pub fn leave_streams() -> io::Result<()> {
    let null = openat(CWD, c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

/// Goes to the root of the file system: a folder cannot be unmounted while it is the working folder of a process. For programs without
/// threads.
pub fn leave_folder() {
    let _ = rustix::process::chdir("/");
}
