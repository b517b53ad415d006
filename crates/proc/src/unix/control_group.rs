//! The interface of control groups, on systems without them.

use std::{
    collections::HashSet,
    convert::Infallible,
    io,
    os::fd::BorrowedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Pid;

use crate::identity::Identity;

/// A group that cannot exist.
#[derive(Debug)]
pub(crate) struct ControlGroup(Infallible);

impl ControlGroup {
    pub(crate) fn create() -> Option<Self> {
        None
    }

    pub(crate) fn path(&self) -> &Path {
        match self.0 {}
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

pub(crate) fn kill(_path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn remove(_path: &Path) -> bool {
    true
}

pub(crate) fn is_made_by(_path: &Path, _maker: Identity) -> bool {
    false
}

pub(crate) fn members(_path: &Path) -> HashSet<Pid> {
    HashSet::new()
}

pub(crate) fn memory_folders() -> Vec<PathBuf> {
    Vec::new()
}

pub(crate) fn cpu_time(_path: &Path) -> Option<Duration> {
    None
}
