//! Kills a process right before its n-th change of what others see: a file, a folder, a word of output, a new process. Or lets it
//! go on, and tells what it has changed and made durable.
//!
//! The kernel stops the process at each of its system calls (ptrace) and tells which one it is. What a process does between
//! two such changes makes no difference to anybody else, so whoever has killed it at each of them has killed it everywhere.
//!
//! Invariants
//!
//! - What the process itself has started, as the shim of a job or the work, runs on undisturbed.
//! - No process of other tests is waited for.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// How the process ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was killed right before this.
    Killed(String),
    /// By itself, with this exit code: it makes fewer changes.
    Itself(i32),
}

/// Runs a program in a folder and kills it right before its n-th change, counted from 0. Returns what it had said until then.
pub(crate) async fn run(
    program: PathBuf,
    arguments: Vec<OsString>,
    folder: PathBuf,
    nth: usize,
) -> (End, String) {
    let followed = on_a_thread(program, arguments, folder, nth).await;
    (followed.end, followed.said)
}

/// Runs a program in a folder, and returns each of its changes and each file that it made durable (`sync PATH`), in order.
pub(crate) async fn watch(program: PathBuf, arguments: Vec<OsString>, folder: PathBuf) -> Vec<String> {
    let followed = on_a_thread(program, arguments, folder, usize::MAX).await;
    assert_eq!(followed.end, End::Itself(0), "{}", followed.said);
    followed.seen
}

/// Only the thread that has started a process can follow it.
async fn on_a_thread(program: PathBuf, arguments: Vec<OsString>, folder: PathBuf, nth: usize) -> Followed {
    let (sender, outcome) = tokio::sync::oneshot::channel();
    thread::spawn(move || drop(sender.send(follow(&program, &arguments, &folder, nth))));
    outcome.await.unwrap()
}

/// What became of a process.
struct Followed {
    end: End,
    /// On its stdout.
    said: String,
    /// What it did that others see or that a power failure leaves.
    seen: Vec<String>,
}

#[expect(
    clippy::disallowed_methods,
    clippy::zombie_processes,
    reason = "whoever follows a process is the one who waits for it, thread by thread"
)]
fn follow(program: &Path, arguments: &[OsString], folder: &Path, nth: usize) -> Followed {
    // It waits until we are there.
    let mut child = Command::new("sh")
        .args(["-c", "read -r _ && exec \"$0\" \"$@\""])
        .arg(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let leader = Pid::from_raw(child.id().try_into().unwrap());
    let options = Options::PTRACE_O_EXITKILL
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC;
    ptrace::seize(leader, options).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut follower = Follower { leader, inside: HashSet::new(), left: nth, last: None, seen: Vec::new() };
    let end = follower.follow();
    let mut said = String::new();
    // Shims have an output of their own, so that nobody else holds the pipe.
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    Followed { end, said, seen: follower.seen }
}

struct Follower {
    leader: Pid,
    /// Threads whose next stop is the end of a system call.
    inside: HashSet<Pid>,
    /// Changes that are still let through.
    left: usize,
    /// The change that was not.
    last: Option<String>,
    seen: Vec<String>,
}

impl Follower {
    fn follow(&mut self) -> End {
        loop {
            match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Ok(WaitStatus::Exited(thread, code)) if thread == self.leader => return End::Itself(code),
                Ok(WaitStatus::Signaled(thread, Signal::SIGKILL, _)) if thread == self.leader => {
                    return End::Killed(self.last.take().expect("killed by us"));
                }
                Ok(WaitStatus::PtraceSyscall(thread)) => {
                    if !self.inside.remove(&thread) {
                        self.inside.insert(thread);
                        self.enter(thread);
                    }
                    resume(thread, None);
                }
                Ok(WaitStatus::PtraceEvent(thread, _, event)) => {
                    if event == libc::PTRACE_EVENT_EXEC {
                        self.inside.insert(thread);
                    }
                    resume(thread, None);
                }
                Ok(WaitStatus::Stopped(thread, signal)) => resume(thread, Some(signal)),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => panic!("cannot follow: {error}"),
            }
        }
    }

    /// Looks at the system call that a thread is about to make.
    fn enter(&mut self, thread: Pid) {
        let Some(call) = Call::of(self.leader, thread) else { return };
        self.seen.extend(call.sync());
        let Some(change) = call.change() else { return };
        self.seen.push(change.clone());
        if self.left > 0 {
            self.left -= 1;
        } else if self.last.is_none() {
            self.last = Some(change);
            kill(self.leader, Signal::SIGKILL).unwrap();
        }
    }
}

fn resume(thread: Pid, signal: Option<Signal>) {
    match ptrace::syscall(thread, signal) {
        // It has been killed meanwhile.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => panic!("cannot go on: {error}"),
    }
}

/// A system call at which a thread has stopped.
struct Call {
    process: Pid,
    number: libc::c_long,
    arguments: Vec<u64>,
}

impl Call {
    fn of(process: Pid, thread: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).ok()?;
        let mut words = text.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let arguments =
            words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
        Some(Self { process, number, arguments })
    }

    /// The file that its first argument is.
    fn file(&self) -> Option<String> {
        let link = fs::read_link(format!("/proc/{}/fd/{}", self.process, self.arguments.first()?)).ok()?;
        Some(link.to_string_lossy().into_owned())
    }

    /// What it makes durable.
    fn sync(&self) -> Option<String> {
        let is_sync = [libc::SYS_fsync, libc::SYS_fdatasync].contains(&self.number);
        is_sync.then(|| self.file()).flatten().map(|file| format!("sync {file}"))
    }

    /// What others will see of it.
    fn change(&self) -> Option<String> {
        let name = match self.number {
            libc::SYS_openat => {
                let flags = i32::try_from(self.arguments.get(2)? & 0xffff_ffff).ok()?;
                return (flags & (libc::O_CREAT | libc::O_TRUNC) != 0).then(|| "open to write".to_owned());
            }
            libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev => {
                let file = self.file()?;
                // How threads wake each other up is nobody else's business.
                return (!file.starts_with("anon_inode:")).then(|| format!("write to {file}"));
            }
            libc::SYS_clone | libc::SYS_clone3 => "clone",
            libc::SYS_mkdirat => "mkdirat",
            libc::SYS_unlinkat => "unlinkat",
            libc::SYS_renameat | libc::SYS_renameat2 => "renameat",
            libc::SYS_linkat => "linkat",
            libc::SYS_ftruncate => "ftruncate",
            libc::SYS_fallocate => "fallocate",
            number => older(number)?,
        };
        Some(name.to_owned())
    }
}

/// The calls that newer machines no longer have.
#[cfg(target_arch = "x86_64")]
fn older(number: libc::c_long) -> Option<&'static str> {
    match number {
        libc::SYS_vfork | libc::SYS_fork => Some("fork"),
        libc::SYS_mkdir => Some("mkdir"),
        libc::SYS_unlink => Some("unlink"),
        libc::SYS_rmdir => Some("rmdir"),
        libc::SYS_rename => Some("rename"),
        libc::SYS_link => Some("link"),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn older(_number: libc::c_long) -> Option<&'static str> {
    None
}
