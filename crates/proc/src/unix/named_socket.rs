//! The interface of sockets with a name that ends with the process, on systems without them.

use std::{io, os::fd::OwnedFd, time::Duration};

pub(crate) fn listen(_name: &str) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn accept(_listener: &OwnedFd) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn connect(_name: &str, _limit: Duration) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn peer_process(_socket: &OwnedFd) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn peer_user(_socket: &OwnedFd) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}
