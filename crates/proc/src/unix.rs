//! The same functions for Unix systems other than Linux: best effort, and weaker.
//!
//! There is no subreaper, no control group, no pidfd and no death signal. A tree is found by its parents at the moment of
//! the look, so that a process which loses its parent between two looks gets away. Not proven by tests.
//!
//! Invariants: a process is signalled only if a look at this moment still shows it with the same parent.

pub(crate) mod control_group;

use std::{
    ffi::{CStr, c_int, c_void},
    io,
    os::fd::BorrowedFd,
    process::Command,
};

use rustix::{
    net::SendFlags,
    process::{Pid, Signal, getpgid, getpid, getsid, kill_process},
};

use crate::table::Entry;

/// A send to nobody is an error because Rust programs ignore SIGPIPE.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Children that are looked at for each process.
const MOST_CHILDREN: usize = 4096;

/// Our own descendants, for this is all that can be asked for without reading the memory of the kernel.
pub(crate) fn table() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut parents = vec![getpid()];
    while let Some(parent) = parents.pop() {
        for pid in children(parent) {
            if entries.iter().all(|entry| entry.pid != pid) {
                entries.push(entry(pid, parent));
                parents.push(pid);
            }
        }
    }
    entries
}

fn entry(pid: Pid, parent: Pid) -> Entry {
    let number = |pid: rustix::io::Result<Pid>| pid.map_or(0, |pid| pid.as_raw_nonzero().get());
    Entry {
        pid,
        parent: parent.as_raw_nonzero().get(),
        session: number(getsid(Some(pid))),
        group: number(getpgid(Some(pid))),
        start: 0,
        is_zombie: false,
        ticks: 0,
        reaped_ticks: 0,
    }
}

#[expect(unsafe_code, reason = "the list of children has no safe interface")]
fn children(parent: Pid) -> Vec<Pid> {
    let mut numbers = [0 as c_int; MOST_CHILDREN];
    let size = c_int::try_from(size_of_val(&numbers)).unwrap_or(c_int::MAX);
    // SAFETY: the buffer has the size that is stated, in bytes.
    let count =
        unsafe { raw::proc_listchildpids(parent.as_raw_nonzero().get(), numbers.as_mut_ptr().cast(), size) };
    let count = usize::try_from(count).unwrap_or(0).min(MOST_CHILDREN);
    numbers.iter().take(count).copied().filter_map(Pid::from_raw).collect()
}

/// Sends a signal, if the process still has the parent of the entry.
pub(crate) fn signal(entry: &Entry, signal: Signal) -> bool {
    let is_same = Pid::from_raw(entry.parent).is_some_and(|parent| children(parent).contains(&entry.pid));
    is_same && kill_process(entry.pid, signal).is_ok()
}

/// There are no subreapers.
pub(crate) fn become_subreaper() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The name of a process cannot be set; `argv[0]` is.
pub(crate) fn set_name(_name: &CStr) {}

/// There is no death signal: the lifeline notices the end of its owner by the link.
pub(crate) fn die_with_parent(_parent: Pid) -> io::Result<()> {
    Ok(())
}

/// Between fork and exec: default dispositions.
#[expect(unsafe_code, reason = "rustix has no interface to dispositions that is not experimental")]
pub(crate) fn reset_signals() {
    const LAST_SIGNAL: c_int = 31;
    for number in 1..=LAST_SIGNAL {
        // SAFETY: zero is SIG_DFL. The call is safe between fork and exec; the numbers that it refuses do no harm.
        unsafe { raw::signal(number, 0) };
    }
}

/// There are no control groups.
pub(crate) fn spawn_into(_command: Command, _group: BorrowedFd<'_>) -> io::Result<Pid> {
    Err(io::ErrorKind::Unsupported.into())
}

#[expect(unsafe_code, reason = "declarations of the C library, which the standard library links anyway")]
mod raw {
    use super::{c_int, c_void};

    unsafe extern "C" {
        pub(super) fn signal(number: c_int, handler: usize) -> usize;
        pub(super) fn proc_listchildpids(parent: c_int, buffer: *mut c_void, size: c_int) -> c_int;
    }
}
