//! The functions of `linux.rs` for Unix systems other than Linux: best effort, and weaker.
//!
//! There is no subreaper, no control group, no pidfd and no death signal. A tree is found by its parents at the moment of the look, so a
//! process that loses its parent between two looks gets away. Not proven by tests.
//!
//! Invariants: a process is signalled only if a look at this moment still shows it with the same start time.

pub(crate) mod control_group;
mod file_events;
pub(crate) mod named_socket;

use std::{
    ffi::{CStr, c_int},
    fs::{self, OpenOptions},
    io,
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{Pid, Signal, getsid, kill_process},
};

use crate::table::ProcessEntry;

pub use file_events::{FileEvents, FileWatch, WakeEvent};

/// A send to a closed socket is an error because Rust programs ignore SIGPIPE.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Nobody sends descriptors here.
pub(crate) const CLOSE_RECEIVED: RecvFlags = RecvFlags::empty();

/// The most processes that one look covers.
const MOST_PROCESSES: usize = 16384;

/// Does nothing: code that only the start needed stays mapped here.
pub fn give_back_code() {}

/// Does nothing: the allocators of these systems have no such setting.
pub fn give_back_large_blocks() {}

/// Returns nothing, since [`give_back_code`] does nothing here.
pub(crate) fn code_mappings() -> Vec<Range<usize>> {
    Vec::new()
}

/// Does nothing. See [`give_back_code`].
pub(crate) fn give_back_mappings(_: &[Range<usize>]) {}

/// Fails: there are no handles of processes.
pub(crate) fn process_handle(_process: Pid) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Lists all processes that the system shows us.
#[expect(unsafe_code, reason = "the list of processes has no safe interface")]
pub(crate) fn table() -> Vec<ProcessEntry> {
    let mut numbers = vec![0 as c_int; MOST_PROCESSES];
    let size = c_int::try_from(size_of_val(numbers.as_slice())).unwrap_or(c_int::MAX);
    // SAFETY: the buffer has the size that is stated, in bytes.
    let count = unsafe { raw::proc_listallpids(numbers.as_mut_ptr().cast(), size) };
    let count = usize::try_from(count).unwrap_or(0).min(MOST_PROCESSES);
    numbers.iter().take(count).copied().filter_map(Pid::from_raw).filter_map(look).collect()
}

/// Returns `false`: the system does not tell here what other processes hold.
pub(crate) fn reads_from(_: Pid, _: BorrowedFd<'_>) -> bool {
    false
}

/// Returns zero: the system does not tell here how long a process was kept waiting.
pub(crate) fn processor_wait(_: Pid) -> Duration {
    Duration::ZERO
}

/// Looks at one process; `None` if it is not there.
#[expect(unsafe_code, reason = "what the system knows of a process has no safe interface")]
pub(crate) fn look(pid: Pid) -> Option<ProcessEntry> {
    let number = pid.as_raw_nonzero().get();
    let mut known = raw::BsdProcessInfo::default();
    let size = c_int::try_from(size_of::<raw::BsdProcessInfo>()).ok()?;
    // SAFETY: the structure has the size that is stated, and the answer is used only if it is as long as that.
    let filled = unsafe {
        raw::proc_pidinfo(number, raw::PROC_PIDTBSDINFO, raw::ENDED_TOO, (&raw mut known).cast(), size)
    };
    if filled != size {
        return None;
    }
    Some(ProcessEntry {
        pid,
        parent: c_int::try_from(known.parent).ok()?,
        session: getsid(Some(pid)).map_or(0, |session| session.as_raw_nonzero().get()),
        group: c_int::try_from(known.group).ok()?,
        start: known.start_seconds.wrapping_mul(1_000_000).wrapping_add(known.start_micros),
        is_zombie: known.status == raw::ZOMBIE,
        ticks: 0,
        reaped_ticks: 0,
    })
}

/// Sends a signal, if the process still has the start time of the entry. Returns `false` otherwise.
pub(crate) fn signal(entry: &ProcessEntry, signal: Signal) -> bool {
    look(entry.pid).is_some_and(|now| now.start == entry.start) && kill_process(entry.pid, signal).is_ok()
}

/// Returns `None`: the interface by which the system shows the environment of another process is not stable.
pub(crate) fn environment(_pid: Pid) -> Option<Vec<u8>> {
    None
}

/// Returns `None`: the system has no clock here that goes on in sleep.
pub(crate) fn since_boot() -> Option<Duration> {
    None
}

/// Returns a text that names this start of the system, the same in every container.
#[expect(unsafe_code, reason = "the name of a boot has no safe interface")]
pub(crate) fn boot_id() -> io::Result<String> {
    // A UUID and the byte after it.
    let mut text = [0_u8; 37];
    let mut length = text.len();
    let name = c"kern.bootsessionuuid";
    // SAFETY: the name ends with a zero, the buffer has the length that is stated, and nothing is set.
    let result = unsafe {
        raw::sysctlbyname(name.as_ptr(), text.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let text = text.get(..length).unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(io::Error::other)?;
    Ok(text.trim_end_matches('\0').to_owned())
}

/// Takes the lock of the whole file for this opening of it. Returns `false` if another opening has it.
pub(crate) fn try_lock(file: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Frees the lock that this opening has, also for processes that have a copy of its descriptor.
pub(crate) fn unlock(file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    flock(file, FlockOperation::NonBlockingUnlock)
}

/// Returns whether another opening of the file has its lock. The question is about the locks of processes. The answer covers the locks of
/// openings too, as both are in one list. This takes no lock.
#[expect(
    unsafe_code,
    reason = "a lock cannot be asked for by a safe interface that knows of locks without a process"
)]
pub(crate) fn is_locked(file: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let mut lock = raw::FileLock { kind: raw::F_WRLCK, ..raw::FileLock::default() };
    // SAFETY: the descriptor is open, and this command reads and writes one such structure and nothing else.
    let result = unsafe { raw::fcntl(file.as_raw_fd(), raw::F_GETLK, &raw mut lock) };
    if result < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(lock.kind != raw::F_UNLCK)
}

/// Returns `false`: nobody asks, since nothing is divided here.
pub(crate) fn has_one_thread() -> bool {
    false
}

/// Fails with `Unsupported`: without subreapers a watcher would inherit nothing.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails with `Unsupported`: there are no subreapers.
pub(crate) fn become_subreaper() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: the name of a process cannot be set here; `argv[0]` is.
pub(crate) fn set_name(_name: &CStr) {}

/// Does nothing: there are no such attributes.
pub(crate) fn ask_for_turns(_length: Option<Duration>) {}

/// Does nothing: there is no death signal. The lifeline notices the end of its owner by the link.
pub(crate) fn die_with_parent(_parent: Pid) -> io::Result<()> {
    Ok(())
}

/// Ignores a signal in this process from now on.
#[expect(unsafe_code, reason = "rustix has no interface to dispositions that is not experimental")]
pub(crate) fn ignore_signal(signal: Signal) {
    // SAFETY: one is SIG_IGN. It replaces no handler that could still be wanted, because the default ends the process.
    unsafe { raw::signal(signal.as_raw(), 1) };
}

/// Sets, between fork and exec, the default dispositions.
#[expect(unsafe_code, reason = "rustix has no interface to dispositions that is not experimental")]
pub(crate) fn reset_signals() {
    const LAST_SIGNAL: c_int = 31;
    for number in 1..=LAST_SIGNAL {
        // SAFETY: zero is SIG_DFL. The call is safe between fork and exec; the numbers that it refuses do no harm.
        unsafe { raw::signal(number, 0) };
    }
}

/// Fails with `Unsupported`: there are no files in memory.
pub(crate) fn memory_file(_name: &CStr) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails with `Unsupported`: each file has a name.
pub(crate) fn unnamed_file(_folder: &Path) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails: bytes and a position do not move together here.
pub(crate) fn move_bytes(_from: &OwnedFd, _to: &OwnedFd, _length: usize) -> rustix::io::Result<usize> {
    Err(Errno::OPNOTSUPP)
}

/// Makes a hole in a file: the system frees the blocks of this part. The file keeps its length, and the part reads as zeros.
///
/// # Errors
/// Fails if the file system cannot, and as the system does.
#[expect(unsafe_code, reason = "a hole in a file has no safe interface")]
pub fn punch_hole(file: impl AsFd, from: u64, to: u64) -> io::Result<()> {
    let place = |offset| i64::try_from(offset).map_err(io::Error::other);
    let mut hole = raw::Hole { offset: place(from)?, length: place(to - from)?, ..raw::Hole::default() };
    // SAFETY: the descriptor is open, and this command reads one such structure and nothing else.
    match unsafe { raw::fcntl(file.as_fd().as_raw_fd(), raw::F_PUNCHHOLE, &raw mut hole) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes an empty file for this user alone, if there is none. The file is never opened under this name: closing it would take every lock
/// from it that this process holds. So it gets the name when it is closed already.
///
/// # Errors
/// Fails if the file can neither be made nor be there.
pub fn make_private_file(path: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed)));
    let temporary = Path::new(&name);
    // An earlier process of this number may have been killed here.
    let _there_is_none = fs::remove_file(temporary);
    drop(OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?);
    let linked = fs::hard_link(temporary, path);
    fs::remove_file(temporary)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// Fails with `Unsupported`: a process cannot have our parent.
pub(crate) fn spawn_beside(_command: Command) -> io::Result<Pid> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails with `Unsupported`: there are no control groups.
pub(crate) fn spawn_into(_command: Command, _group: BorrowedFd<'_>) -> io::Result<Pid> {
    Err(io::ErrorKind::Unsupported.into())
}

#[expect(unsafe_code, reason = "declarations of the C library, which the standard library links anyway")]
mod raw {
    use std::ffi::{c_char, c_int, c_short, c_void};

    pub(super) const PROC_PIDTBSDINFO: c_int = 3;
    /// The argument by which processes are found that have ended and were not reaped.
    pub(super) const ENDED_TOO: u64 = 1;
    pub(super) const ZOMBIE: u32 = 5;
    pub(super) const F_GETLK: c_int = 7;
    pub(super) const F_UNLCK: c_short = 2;
    pub(super) const F_WRLCK: c_short = 3;
    pub(super) const F_PUNCHHOLE: c_int = 99;

    /// `struct fpunchhole`.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct Hole {
        pub(super) flags: u32,
        pub(super) reserved: u32,
        pub(super) offset: i64,
        pub(super) length: i64,
    }

    /// `struct proc_bsdinfo`.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct BsdProcessInfo {
        pub(super) flags: u32,
        pub(super) status: u32,
        pub(super) exit_status: u32,
        pub(super) pid: u32,
        pub(super) parent: u32,
        pub(super) owners: [u32; 7],
        pub(super) short_name: [u8; 16],
        pub(super) name: [u8; 32],
        pub(super) files: u32,
        pub(super) group: u32,
        pub(super) job_control: u32,
        pub(super) terminal: u32,
        pub(super) terminal_group: u32,
        pub(super) nice: i32,
        pub(super) start_seconds: u64,
        pub(super) start_micros: u64,
    }

    /// `struct flock`. Start, length and whence 0 stand for the whole file.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct FileLock {
        pub(super) start: i64,
        pub(super) length: i64,
        pub(super) pid: c_int,
        pub(super) kind: c_short,
        pub(super) whence: c_short,
    }

    unsafe extern "C" {
        pub(super) fn signal(number: c_int, handler: usize) -> usize;
        pub(super) fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
        pub(super) fn proc_listallpids(buffer: *mut c_void, size: c_int) -> c_int;
        pub(super) fn proc_pidinfo(
            pid: c_int,
            kind: c_int,
            argument: u64,
            buffer: *mut c_void,
            size: c_int,
        ) -> c_int;
        pub(super) fn sysctlbyname(
            name: *const c_char,
            old: *mut c_void,
            old_length: *mut usize,
            new: *mut c_void,
            new_length: usize,
        ) -> c_int;
    }
}
