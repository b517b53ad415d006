//! The only function in the workspace that starts a process.
//!
//! Invariants
//! - A process inherits only the streams and descriptors that the caller asks for. All three standard streams are the null device unless
//!   the caller says otherwise (G-11). Of the other descriptors only those in [`Launch::kept`] lose their close-on-exec flag.
//! - A started process has a session or a process group of its own, default signal dispositions and an empty signal mask.
//! - A started process has the limit of descriptors that we were given, even if we have raised ours ([`crate::descriptors`]).
//! - Every child started here is reaped by us, without ever blocking: by its [`Process`], or, once that was dropped, by
//!   [`reap_departed`], which each further start calls. A sibling is left to our parent.
//! - A process in the registry has not been reaped, so its number cannot belong to another process.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    process::{Pid, Resource, Signal, WaitOptions, WaitStatus, kill_process, setrlimit, setsid, waitpid},
};

use crate::{descriptors, file_limit, system};

/// The environment of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Environment {
    /// The environment of this process, unchanged.
    Inherit,
    /// These variables and no others; of two with the same name the later counts.
    Exactly(Vec<(OsString, OsString)>),
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program was not found.
    #[error("program `{}` not found (searched {})", program.display(), list(searched))]
    ProgramNotFound {
        /// The name as it was given.
        program: OsString,
        /// The folders that were searched.
        searched: Vec<PathBuf>,
    },
    /// The file is there, but it cannot be executed.
    #[error("`{}` cannot be executed: {source}", program.display())]
    NotExecutable {
        /// The file that was found.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The working folder is not there or may not be entered.
    #[error("working folder `{}` cannot be used: {source}", folder.display())]
    WorkingFolder {
        /// The folder as it was given.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No pipe or socket could be made.
    #[error("{action} for the server failed: {source}{}", limit_hint(source))]
    Pipe {
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The lifeline that was to hold the server could not be started, or was lost before the server ran.
    #[error("lifeline process `{}` failed: {source}{}", program.display(), limit_hint(source))]
    Shim {
        /// The program of the lifeline.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused to start the program, though it is there.
    #[error("`{}` could not be started: {source}{}", program.display(), exec_hint(source))]
    Start {
        /// The file that was to be executed.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn list(folders: &[PathBuf]) -> String {
    if folders.is_empty() {
        return "nowhere".to_owned();
    }
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the hint that the limit of files is the cause, or nothing. Too many open files are more often than not due to the limit of a
/// shell.
fn limit_hint(source: &io::Error) -> String {
    file_limit::cause_of(source).map(|told| format!("; {told}")).unwrap_or_default()
}

/// Returns a hint for "no such file", or nothing. The file itself was seen a moment before, so the interpreter in its first line must be
/// missing.
fn exec_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => " (the interpreter named in its first line is missing)",
        _ => "",
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It ended by itself, with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It has ended, but nobody can say how.
    Unknown,
}

impl Exit {
    pub(crate) fn from_status(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }

    /// Returns whether the process ended by itself with code 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit code {code}"),
            Self::Signal(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => write!(formatter, "signal {signal} ({name})"),
                None => write!(formatter, "signal {signal}"),
            },
            Self::Unknown => formatter.write_str("unknown exit status"),
        }
    }
}

/// One standard stream of a new process.
#[derive(Debug, Default)]
pub enum Stream {
    /// The null device.
    #[default]
    Null,
    /// The same as ours.
    Inherit,
    /// This descriptor.
    Descriptor(OwnedFd),
}

impl Stream {
    fn into_stdio(self) -> Stdio {
        match self {
            Self::Null => Stdio::null(),
            Self::Inherit => Stdio::inherit(),
            Self::Descriptor(descriptor) => descriptor.into(),
        }
    }
}

/// The group that shields a new process from signals that are meant for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignalGroup {
    /// A session of its own: no terminal, and no group kill reaches it.
    #[default]
    OwnSession,
    /// A process group of its own in our session.
    OwnGroup,
}

/// The program to start, and how to start it.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The file to execute; it is not searched for.
    pub program: &'a Path,
    /// The name that the process is told is its own; the program if absent.
    pub name: Option<&'a OsStr>,
    /// The arguments after the name.
    pub arguments: &'a [OsString],
    /// Its environment.
    pub environment: &'a Environment,
    /// Its working folder; ours if absent.
    pub folder: Option<&'a Path>,
    /// Its standard input.
    pub input: Stream,
    /// Its standard output.
    pub output: Stream,
    /// Its standard error.
    pub error: Stream,
    /// Its session or group.
    pub signal_group: SignalGroup,
    /// Descriptors that it gets under the same numbers.
    pub kept: &'a [BorrowedFd<'a>],
    /// Whether the kernel kills it when the *thread* that starts it ends (Linux). For single-threaded callers only.
    pub dies_with_parent: bool,
    /// The control group (an open directory) that it is born in (Linux). For single-threaded callers only, because memory is then allocated
    /// between fork and exec.
    pub control_group: Option<BorrowedFd<'a>>,
    /// Whether it becomes a child of our parent in place of ours (Linux). Nobody here reaps or signals it then. For single-threaded callers
    /// only, because memory is allocated between fork and exec.
    pub is_sibling: bool,
}

impl<'a> Launch<'a> {
    /// Makes a launch with the null device for all streams, our environment and folder, in a session of its own.
    #[must_use]
    pub fn new(program: &'a Path, arguments: &'a [OsString]) -> Self {
        Self {
            program,
            name: None,
            arguments,
            environment: &Environment::Inherit,
            folder: None,
            input: Stream::Null,
            output: Stream::Null,
            error: Stream::Null,
            signal_group: SignalGroup::OwnSession,
            kept: &[],
            dies_with_parent: false,
            control_group: None,
            is_sibling: false,
        }
    }
}

/// A process that we started and have not reaped. Dropping it leaves it running and hands it to [`reap_departed`].
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    exit: Option<Exit>,
}

impl Process {
    /// Returns its number, which belongs to it until it is reaped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub(crate) fn id(&self) -> Pid {
        self.pid
    }

    /// Registers a copy of this process, which was forked this moment.
    pub(crate) fn adopt(pid: Pid) -> Self {
        registry().running.push(pid);
        Self { pid, exit: None }
    }

    /// Leaves the reaping to the caller, who reaps every child that there is.
    pub(crate) fn release(mut self) -> Pid {
        registry().running.retain(|other| *other != self.pid);
        self.exit = Some(Exit::Unknown);
        self.pid
    }

    /// Reaps the process and returns how it ended; `None` if it has not. Never waits.
    pub fn try_reap(&mut self) -> Option<Exit> {
        if self.exit.is_none() {
            self.exit = registry().reap(self.pid);
        }
        self.exit
    }

    /// Sends a signal, unless the process has been reaped: then its number may be another's.
    pub fn signal(&self, signal: Signal) {
        if self.exit.is_none() {
            // The process has not been reaped, so it is at most a zombie, and there is no error to report.
            let _ = kill_process(self.pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_none() {
            registry().abandon(self.pid);
        }
    }
}

/// Starts a process. Returns once the program was executed. That takes well under a millisecond and needs nothing from the program.
///
/// # Errors
/// Fails with the system's error about the fork or the execution.
#[expect(clippy::disallowed_methods, reason = "this is the one function that may (R-28)")]
pub fn spawn(launch: Launch<'_>) -> io::Result<Process> {
    reap_departed();
    let mut command = Command::new(launch.program);
    command.args(launch.arguments);
    if let Some(name) = launch.name {
        command.arg0(name);
    }
    if let Environment::Exactly(variables) = launch.environment {
        command.env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
    }
    if let Some(folder) = launch.folder {
        command.current_dir(folder);
    }
    if launch.signal_group == SignalGroup::OwnGroup {
        command.process_group(0);
    }
    command
        .stdin(launch.input.into_stdio())
        .stdout(launch.output.into_stdio())
        .stderr(launch.error.into_stdio());
    let kept = launch.kept.iter().map(AsRawFd::as_raw_fd).collect();
    prepare_child(&mut command, launch.signal_group, launch.dies_with_parent, kept);
    // The lock is held over the fork, so no sweep can meet a child that is not in the registry yet.
    let mut registry = registry();
    if launch.is_sibling {
        // Its end is its parent's business.
        return Ok(Process { pid: system::spawn_beside(command)?, exit: Some(Exit::Unknown) });
    }
    let pid = match launch.control_group {
        Some(group) => system::spawn_into(command, group)?,
        None => {
            let child = command.spawn()?;
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?
        }
    };
    registry.running.push(pid);
    Ok(Process { pid, exit: None })
}

#[expect(unsafe_code, reason = "work between fork and exec has no safe interface")]
fn prepare_child(command: &mut Command, signal_group: SignalGroup, dies_with_parent: bool, kept: Vec<RawFd>) {
    let parent = rustix::process::getpid();
    let descriptors = descriptors::given();
    let prepare = move || {
        if let Some(given) = descriptors {
            setrlimit(Resource::Nofile, given)?;
        }
        if signal_group == SignalGroup::OwnSession {
            setsid()?;
        }
        system::reset_signals();
        for &descriptor in &kept {
            // SAFETY: the caller of `spawn` holds the descriptor open until the fork, and this is the copy of the child.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        if dies_with_parent {
            system::die_with_parent(parent)?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only: it neither allocates nor takes a lock that another thread may hold.
    unsafe { command.pre_exec(prepare) };
}

/// Reaps processes whose [`Process`] was dropped. Never waits. Each start calls it; an owner that starts seldom may call it at SIGCHLD.
pub fn reap_departed() {
    let mut registry = registry();
    for pid in std::mem::take(&mut registry.abandoned) {
        if registry.reap(pid).is_none() {
            registry.abandoned.push(pid);
        }
    }
}

/// Returns whether a process is our child because we started it, and not because it lost its own parent.
pub(crate) fn is_ours(pid: Pid) -> bool {
    registry().running.contains(&pid)
}

/// The processes that were started here and not yet reaped.
struct Registry {
    running: Vec<Pid>,
    /// The processes among them whose [`Process`] was dropped.
    abandoned: Vec<Pid>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { running: Vec::new(), abandoned: Vec::new() });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    fn reap(&mut self, pid: Pid) -> Option<Exit> {
        let exit = match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::INTR) => return None,
            Ok(Some((_, status))) => Exit::from_status(status),
            // Another part of this process reaped it, or SIGCHLD is ignored in this process.
            Err(_) => Exit::Unknown,
        };
        self.running.retain(|other| *other != pid);
        Some(exit)
    }

    fn abandon(&mut self, pid: Pid) {
        if self.reap(pid).is_none() {
            self.abandoned.push(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;
    use crate::testing::{sleeper, wait_until};

    #[test]
    fn a_process_whose_handle_was_dropped_is_reaped_when_it_ends() {
        let process = sleeper();
        let pid = process.id();
        drop(process);
        // It is our child, and only `reap_departed` reaps it.
        kill_process(pid, Signal::KILL).unwrap();
        wait_until("it ends", || system::table().iter().all(|entry| entry.pid != pid || entry.is_zombie));
        reap_departed();
        assert!(!is_ours(pid));
    }

    #[test]
    fn what_was_reaped_is_not_signalled() {
        let reaped = Process { pid: getpid(), exit: Some(Exit::Code(0)) };
        // A signal to ourselves would end the test.
        reaped.signal(Signal::KILL);
    }

    #[test]
    fn where_too_few_files_may_be_open_the_limit_is_named() {
        let errors: [fn(io::Error) -> SpawnError; 2] = [
            |source| SpawnError::Pipe { action: "making pipes", source },
            |source| SpawnError::Shim { program: "/x".into(), source },
        ];
        for error in errors {
            let told = error(Errno::MFILE.into()).to_string();
            assert!(told.contains("`ulimit -n` limits the number of open files to"), "{told}");
            let told = error(Errno::NOENT.into()).to_string();
            assert!(!told.contains("ulimit"), "{told}");
        }
    }

    #[test]
    fn an_exit_reads_as_a_person_would_say_it() {
        assert_eq!(Exit::Code(1).to_string(), "exit code 1");
        assert_eq!(Exit::Signal(9).to_string(), "signal 9 (SIGKILL)");
        assert_eq!(Exit::Unknown.to_string(), "unknown exit status");
    }

    #[test]
    fn a_missing_interpreter_is_guessed_from_the_error() {
        let error = SpawnError::Start { program: "/x/tool".into(), source: Errno::NOENT.into() }.to_string();
        assert!(error.contains("/x/tool") && error.contains("interpreter"), "{error}");
    }
}
