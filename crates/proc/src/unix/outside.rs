//! The interface for starts outside of a lifeline's tree, on systems where a lifeline has no watcher.

use std::{convert::Infallible, io, os::fd::BorrowedFd, path::Path};

use crate::identity::Identity;

/// Requests that cannot come.
pub(crate) struct StartRequests(Infallible);

impl StartRequests {
    pub(crate) fn listen() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn answer_until(self, _end: BorrowedFd<'_>) {
        match self.0 {}
    }
}

/// Fails: nobody here starts processes for others.
///
/// # Errors
/// Always fails with `NotFound`.
pub fn start_supervisor(_id: &str, _folder: &Path) -> io::Result<()> {
    Err(io::ErrorKind::NotFound.into())
}

pub(crate) fn starter() -> Option<Identity> {
    None
}
