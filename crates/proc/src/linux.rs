//! Interfaces that only Linux has: the process table in /proc, pidfds, subreapers, the death signal, birth in a control group, locks of an
//! opening.
//!
//! Invariants: [`signal`] reaches the process of the entry or nobody. A pidfd is opened first; it holds on to one process. If the start
//! time read after that is the one of the entry, then that process is the entry's. The reason is that a number is never given out twice
//! with the same start time.

mod code;
pub(crate) mod control_group;
mod file_events;
mod heap;
pub(crate) mod named_socket;

use std::{
    ffi::{CStr, c_int, c_long, c_short},
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::Command,
    time::Duration,
};

use rustix::{
    fs::{
        CWD, Dir, FallocateFlags, FileType, MemfdFlags, Mode, OFlags, fallocate, fstat, memfd_create,
        mknodat, openat,
    },
    io::Errno,
    net::{RecvFlags, SendFlags},
    pipe::{PipeFlags, SpliceFlags, pipe_with, splice},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, geteuid, getpid, getppid, getpriority_process, kill_process,
        pidfd_open, pidfd_send_signal, set_child_subreaper, set_parent_process_death_signal, waitpid,
    },
    time::{ClockId, clock_gettime},
};

use crate::table::ProcessEntry;

pub use code::give_back_code;
pub(crate) use code::{code_mappings, give_back_mappings};
pub use file_events::{FileEvents, FileWatch, WakeEvent};
pub use heap::give_back_large_blocks;

/// A send to a closed socket is an error, not a signal.
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;

/// A program that we start does not inherit the descriptors that come over a socket.
pub(crate) const CLOSE_RECEIVED: RecvFlags = RecvFlags::CMSG_CLOEXEC;

/// The most bytes that are read of an environment; the kernel lets arguments and environment have 6 MiB together.
const LONGEST_ENVIRONMENT: u64 = 8 << 20;

/// Lists all processes of this PID namespace; none if /proc cannot be read.
pub(crate) fn table() -> Vec<ProcessEntry> {
    let mut entries = Vec::with_capacity(256);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = openat(CWD, c"/proc", flags, Mode::empty()) else { return entries };
    let Ok(listing) = Dir::read_from(&folder) else { return entries };
    let mut path = String::new();
    for item in listing.flatten() {
        let name = item.file_name().to_bytes();
        if !name.first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let Ok(name) = std::str::from_utf8(name) else { continue };
        path.clear();
        path.push_str(name);
        path.push_str("/stat");
        let Ok(file) = openat(&folder, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        entries.extend(read_stat(file));
    }
    entries
}

/// Returns whether the process's stdin is the other end of a pipe that we hold. Both ends of a pipe are one file.
pub(crate) fn reads_from(pid: Pid, pipe: BorrowedFd<'_>) -> bool {
    let theirs = rustix::fs::stat(format!("/proc/{}/fd/0", pid.as_raw_nonzero()));
    let same = |(theirs, ours): (rustix::fs::Stat, rustix::fs::Stat)| {
        (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
    };
    theirs.ok().zip(fstat(pipe).ok()).is_some_and(same)
}

/// Returns how long the process's first thread was ready to run and had no processor: the second number of /proc/PID/schedstat. Returns
/// zero if the number cannot be read.
pub(crate) fn processor_wait(pid: Pid) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", pid.as_raw_nonzero()));
    let nanoseconds = text.ok().and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Looks at one process; `None` if it is not there.
pub(crate) fn look(pid: Pid) -> Option<ProcessEntry> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    read_stat(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?)
}

fn read_stat(file: OwnedFd) -> Option<ProcessEntry> {
    // A line has at most 52 numbers of 20 digits and a name of 64 bytes.
    let mut buffer = [0; 1536];
    let count = rustix::io::read(file, &mut buffer).ok()?;
    parse_stat(buffer.get(..count)?)
}

/// Parses a line of /proc/PID/stat. The name stands in brackets and may itself hold brackets and spaces, so the fields are counted from the
/// last closing one.
fn parse_stat(line: &[u8]) -> Option<ProcessEntry> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let pid = line.get(..line.iter().position(|&byte| byte == b' ')?)?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let signed = |index: usize| fields.get(index)?.parse::<i32>().ok();
    let reaped_ticks = number(13)? + number(14)?;
    Some(ProcessEntry {
        pid: Pid::from_raw(std::str::from_utf8(pid).ok()?.parse().ok()?)?,
        is_zombie: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: signed(1)?,
        group: signed(2)?,
        session: signed(3)?,
        ticks: number(11)? + number(12)? + reaped_ticks,
        reaped_ticks,
        start: number(19)?,
    })
}

/// Returns a descriptor that can be read when the process has ended. It is our child, so the number is its own.
pub(crate) fn process_handle(process: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

/// Sends a signal to the process of the entry, and never to another one that has its number by now. Returns `false` if it has gone.
pub(crate) fn signal(entry: &ProcessEntry, signal: Signal) -> bool {
    let handle = pidfd_open(entry.pid, PidfdFlags::empty());
    if look(entry.pid).is_none_or(|now| now.start != entry.start) {
        return false;
    }
    match handle {
        Ok(handle) => pidfd_send_signal(handle, signal).is_ok(),
        Err(Errno::SRCH) => false,
        // This happens before Linux 5.3, and in some sandboxes. The start time was compared a few microseconds ago.
        Err(_) => kill_process(entry.pid, signal).is_ok(),
    }
}

/// Reads the environment that a process was started with: entries, each followed by a zero. Returns `None` if the process is not our user's
/// or cannot be read.
pub(crate) fn environment(pid: Pid) -> Option<Vec<u8>> {
    let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if fstat(&file).ok()?.st_uid != geteuid().as_raw() {
        return None;
    }
    let mut entries = Vec::new();
    std::fs::File::from(file).take(LONGEST_ENVIRONMENT).read_to_end(&mut entries).ok()?;
    Some(entries)
}

/// Returns the time since the system was started, by a clock that nobody sets and that goes on while the system sleeps.
pub(crate) fn since_boot() -> Option<Duration> {
    Duration::try_from(clock_gettime(ClockId::Boottime)).ok()
}

/// Returns a text that names this start of the system, the same in every container.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
}

/// Takes the lock of the whole file for this opening of it. Returns `false` if another opening has it.
pub(crate) fn try_lock(file: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    match lock_call(file, raw::F_OFD_SETLK, raw::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Frees the lock that this opening has, also for processes that have a copy of its descriptor.
pub(crate) fn unlock(file: BorrowedFd<'_>) -> rustix::io::Result<()> {
    lock_call(file, raw::F_OFD_SETLK, raw::F_UNLCK).map(drop)
}

/// Returns whether another opening of the file has its lock. This takes no lock.
pub(crate) fn is_locked(file: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    Ok(lock_call(file, raw::F_OFD_GETLK, raw::F_WRLCK)?.kind != raw::F_UNLCK)
}

/// Makes one system call about a lock of this kind, of the whole file. Returns the structure as the system has filled it in.
#[expect(unsafe_code, reason = "locks of an opening have no safe interface")]
fn lock_call(file: BorrowedFd<'_>, command: c_int, kind: c_short) -> rustix::io::Result<raw::FileLock> {
    let mut lock = raw::FileLock { kind, ..raw::FileLock::default() };
    // SAFETY: the descriptor is open, and these commands read and write one such structure and nothing else.
    let result = unsafe { raw::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if result < 0 {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(lock)
    }
}

/// Makes an empty file in memory, which ends with its last descriptor.
pub(crate) fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?)
}

/// Makes an empty file without a name on the file system of this folder. It ends with its last descriptor.
pub(crate) fn unnamed_file(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Moves bytes between a pipe and the place in a file where its position is. Bytes and position move together, whenever we are killed. Never
/// waits for the pipe; 0 is the end of the pipe, or of the file.
pub(crate) fn move_bytes(from: &OwnedFd, to: &OwnedFd, length: usize) -> rustix::io::Result<usize> {
    splice(from, None, to, None, length, SpliceFlags::NONBLOCK)
}

/// Makes a hole in a file: the system frees the blocks, or the memory, of this part. The file keeps its length, and the part reads as zeros.
///
/// # Errors
/// Fails if the file system cannot, and as the system does.
pub fn punch_hole(file: impl AsFd, from: u64, to: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, from, to - from)?)
}

/// Makes an empty file for this user alone, if there is none. The file is never opened: closing it would take every lock from it that
/// this process holds (`fcntl_locking(2)`).
///
/// # Errors
/// Fails if the file can neither be made nor be there.
pub fn make_private_file(path: &Path) -> io::Result<()> {
    match mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether this process has a single thread.
pub(crate) fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Makes a copy of this process, which goes on from here as this one does. Returns the copy's number, and `None` in the copy.
///
/// The caller has to be single-threaded: a lock that another thread holds would be held for ever in the copy.
#[expect(unsafe_code, reason = "fork has no safe interface")]
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: there is no other thread, so the copy is as whole as the original.
    match unsafe { raw::fork() } {
        0 => Ok(None),
        number @ 1.. => Ok(Pid::from_raw(number)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes this process the parent of its orphaned descendants.
pub(crate) fn become_subreaper() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Sets the name that `ps` and `pkill` see.
pub(crate) fn set_name(name: &CStr) {
    // The name is a convenience; nothing depends on it.
    let _ = rustix::thread::set_name(name);
}

/// Asks the scheduler for turns of this length; `None` asks for the system's own length. Short turns come sooner. The call has no effect
/// before Linux 6.12.
#[expect(unsafe_code, reason = "rustix has no interface to scheduling attributes")]
pub(crate) fn ask_for_turns(length: Option<Duration>) {
    let attributes = raw::SchedulingAttributes {
        size: u32::try_from(size_of::<raw::SchedulingAttributes>()).unwrap_or_default(),
        nice: getpriority_process(None).unwrap_or_default(),
        runtime: length.map_or(0, |length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)),
        // A process or thread that starts from here has turns as usual.
        flags: raw::RESET_ON_FORK,
        ..raw::SchedulingAttributes::default()
    };
    // SAFETY: the kernel reads as many bytes as `size` says. If it refuses, everything stays as it was.
    unsafe { raw::syscall(raw::SCHED_SETATTR, 0_u32, &raw const attributes, 0_u32) };
}

/// Asks the kernel, between fork and exec, to kill this process when its parent ends. Fails with `ESRCH` if the parent has ended already.
pub(crate) fn die_with_parent(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
}

/// Ignores a signal in this process from now on.
#[expect(unsafe_code, reason = "rustix has no interface to dispositions that is not experimental")]
pub(crate) fn ignore_signal(signal: Signal) {
    // SAFETY: one is SIG_IGN. It replaces no handler that could still be wanted, because the default ends the process.
    unsafe { raw::signal(signal.as_raw(), 1) };
}

/// Sets, between fork and exec, the dispositions that a program expects. Only "ignored" survives an exec, as `nohup` wants it. A server
/// must end at SIGTERM nevertheless.
#[expect(unsafe_code, reason = "rustix has no interface to dispositions that is not experimental")]
pub(crate) fn reset_signals() {
    const LAST_SIGNAL: i32 = 64;
    for number in 1..=LAST_SIGNAL {
        // SAFETY: zero is SIG_DFL. The call is safe between fork and exec; the numbers that it refuses do no harm.
        unsafe { raw::signal(number, 0) };
    }
}

/// Starts a command inside a control group, into which it is born.
///
/// To *move* a process into a group waits for a grace period of the kernel. The first move after a pause took 20 ms when measured, and a
/// birth (`clone3` with `CLONE_INTO_CGROUP`) took 0.1 ms. That rules the standard library out.
///
/// The caller has to be single-threaded: memory is allocated between fork and exec.
#[expect(unsafe_code, reason = "clone3 has no safe interface")]
pub(crate) fn spawn_into(command: Command, group: BorrowedFd<'_>) -> io::Result<Pid> {
    let arguments = raw::CloneArguments {
        flags: raw::CLONE_INTO_CGROUP,
        exit_signal: u64::from(Signal::CHILD.as_raw().unsigned_abs()),
        cgroup: u64::from(group.as_raw_fd().unsigned_abs()),
        ..raw::CloneArguments::default()
    };
    execute(command, || {
        // SAFETY: without CLONE_VM the child is a copy, as after fork. The arguments have the size that is stated.
        unsafe { raw::syscall(raw::CLONE3, &raw const arguments, size_of::<raw::CloneArguments>()) }
    })
}

/// Starts a command as a child of our parent. Container engines may refuse `clone3`, so this is the older call.
///
/// The caller has to be single-threaded: memory is allocated between fork and exec.
#[expect(unsafe_code, reason = "clone has no safe interface")]
pub(crate) fn spawn_beside(command: Command) -> io::Result<Pid> {
    execute(command, || {
        // SAFETY: without CLONE_VM the child is a copy, as after fork, and without a stack it goes on with its copy of ours.
        unsafe { raw::syscall(raw::CLONE, raw::CLONE_PARENT, 0_usize, 0_usize, 0_usize, 0_usize) }
    })
}

/// Executes a command in the copy of this process that `clone` makes.
fn execute(mut command: Command, clone: impl FnOnce() -> c_long) -> io::Result<Pid> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = clone();
    match child {
        0 => {
            let error = command.exec().raw_os_error().unwrap_or(0);
            // If the report of the error fails too, only the exit code tells of it.
            let _ = rustix::io::write(writer, &error.to_ne_bytes());
            signal_hook::low_level::exit(127)
        }
        1.. => {
            drop(writer);
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
            executed(reader, pid)?;
            Ok(pid)
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until the child has executed its program. Fails with the child's error if it could not.
fn executed(reader: OwnedFd, pid: Pid) -> io::Result<()> {
    let mut number = [0; 4];
    match std::fs::File::from(reader).read_exact(&mut number) {
        Ok(()) => {
            // The process is about to exit by itself. A sibling is not ours to wait for, and the system says so at once.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
        }
        Err(_) => Ok(()),
    }
}

#[expect(unsafe_code, reason = "declarations of the C library, which the standard library links anyway")]
mod raw {
    use std::ffi::{c_int, c_long, c_short};

    /// The call's number on every architecture that Rust supports; new calls have the same number everywhere.
    pub(super) const CLONE3: c_long = 435;
    pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

    #[cfg(target_arch = "x86_64")]
    pub(super) const CLONE: c_long = 56;
    /// The number in the table that all newer architectures share.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const CLONE: c_long = 220;
    pub(super) const CLONE_PARENT: usize = 0x8000;

    #[cfg(target_arch = "x86_64")]
    pub(super) const SCHED_SETATTR: c_long = 314;
    /// The number in the table that all newer architectures share.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const SCHED_SETATTR: c_long = 274;

    /// `SCHED_FLAG_RESET_ON_FORK`.
    pub(super) const RESET_ON_FORK: u64 = 1;

    /// `struct sched_attr` of Linux 3.14. All zero is the ordinary policy without niceness.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct SchedulingAttributes {
        pub(super) size: u32,
        pub(super) policy: u32,
        pub(super) flags: u64,
        pub(super) nice: i32,
        pub(super) priority: u32,
        pub(super) runtime: u64,
        pub(super) deadline: u64,
        pub(super) period: u64,
    }

    /// `struct clone_args` of Linux 5.7.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct CloneArguments {
        pub(super) flags: u64,
        pub(super) pidfd: u64,
        pub(super) child_tid: u64,
        pub(super) parent_tid: u64,
        pub(super) exit_signal: u64,
        pub(super) stack: u64,
        pub(super) stack_size: u64,
        pub(super) tls: u64,
        pub(super) set_tid: u64,
        pub(super) set_tid_size: u64,
        pub(super) cgroup: u64,
    }

    pub(super) const F_WRLCK: c_short = 1;
    pub(super) const F_UNLCK: c_short = 2;
    pub(super) const F_OFD_GETLK: c_int = 36;
    pub(super) const F_OFD_SETLK: c_int = 37;

    /// `struct flock`. Start, length and whence 0 stand for the whole file; locks of an opening demand process number 0.
    #[repr(C)]
    #[derive(Default)]
    pub(super) struct FileLock {
        pub(super) kind: c_short,
        pub(super) whence: c_short,
        /// `off_t`, which is a long unless the C library is told otherwise.
        pub(super) start: c_long,
        pub(super) length: c_long,
        pub(super) pid: c_int,
    }

    unsafe extern "C" {
        pub(super) fn fork() -> c_int;
        pub(super) fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
        pub(super) fn signal(number: c_int, handler: usize) -> usize;
        pub(super) fn syscall(number: c_long, ...) -> c_long;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let line = b"42 (a) b (c) S 7 42 40 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 98765 1 2 3";
        let entry = parse_stat(line).unwrap();
        assert_eq!(
            (entry.pid.as_raw_nonzero().get(), entry.parent, entry.group, entry.session),
            (42, 7, 42, 40)
        );
        assert_eq!((entry.start, entry.ticks, entry.reaped_ticks, entry.is_zombie), (98765, 100, 70, false));
        assert!(parse_stat(b"42 (x) Z 7").is_none());
        assert!(parse_stat(b"").is_none());
    }

    /// Ourselves stand for a parent that has gone: nobody is the child of itself.
    #[test]
    fn a_process_whose_parent_has_gone_before_does_not_start() {
        let outcome = die_with_parent(getpid());
        set_parent_process_death_signal(None).unwrap();
        assert!(outcome.is_err());
    }

    #[test]
    fn we_are_in_the_table_ourselves() {
        let own = look(getpid()).unwrap();
        assert!(table().iter().any(|entry| entry.pid == own.pid && entry.start == own.start));
    }

    #[test]
    fn j_pid_reuse_a_process_with_another_start_time_is_left_alone() {
        let mut own = look(getpid()).unwrap();
        own.start += 1;
        // A signal to ourselves would end the test.
        assert!(!signal(&own, Signal::KILL));
    }
}
