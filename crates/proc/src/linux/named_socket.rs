//! Sockets with a name that ends with the process: the abstract namespace of Linux, one message at a time.
//!
//! Invariants: nothing of a name is in a file system. The kernel says who the other end is: the process that called `listen` or `connect`.

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::retry_on_intr,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, socket_with,
        sockopt::{self, Timeout},
    },
};

/// The clients that may wait to be accepted.
const BACKLOG: i32 = 16;

/// Makes a socket with this name. Its calls never wait.
pub(crate) fn listen(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Accepts a client, whose socket never waits either.
pub(crate) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// Connects to the socket with this name. Each of the calls waits for `limit` at most.
pub(crate) fn connect(name: &str, limit: Duration) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, direction, Some(limit))?;
    }
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    // A signal interrupts each call on a socket with a limit.
    retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(socket)
}

/// Returns the number of the process at the other end, as the kernel has noted it.
pub(crate) fn peer_process(socket: &OwnedFd) -> io::Result<u32> {
    Ok(sockopt::socket_peercred(socket)?.pid.as_raw_nonzero().get().unsigned_abs())
}

/// Returns the number of the user at the other end, as the kernel has noted it.
pub(crate) fn peer_user(socket: &OwnedFd) -> io::Result<u32> {
    Ok(sockopt::socket_peercred(socket)?.uid.as_raw())
}
