//! One machine of a cluster: a network, mounts and processes of its own.
//!
//! # Theory of operation
//!
//! The holder keeps the network and the mounts, also while the machine is dead. A life is the first process of a process namespace: the
//! kernel kills all its processes with it. The machine's folder is a file system in memory that no other machine sees. It
//! outlives a life, as a disk outlives a power failure.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Error, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use unhang_demo_servers::bounded_waits;
use unhang_demo_servers::child_processes::{ChildStreams, start_with};
use unhang_demo_servers::processes::{self, WatchedProcess};

use super::clock::SteppedClock;
use super::observer::namespace;
use super::switch::{Cable, ScaleSwitch};

/// The time that a program of the system may take to start or to end. On a busy machine it takes a second.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// Makes the mounts. Control groups are hidden, because all machines would share them.
const HOLD: &str = r#"set -e
mount -t tmpfs -o mode=0755 unhang-scale "$1"
mount -t tmpfs -o mode=1777 unhang-scale /dev/shm
if [ -d /sys/fs/cgroup ]; then mount -t tmpfs -o ro unhang-scale /sys/fs/cgroup; fi
ip link set lo up
echo ready
exec cat"#;

/// The first process: it reaps what others leave.
const LIVE: &str = "echo ready; while :; do sleep 100 & wait; done";

/// A machine.
pub struct ScaleMachine {
    name: String,
    folder: PathBuf,
    holder: Child,
    /// The holder ends when this is closed.
    _power: ChildStdin,
    cable: Cable,
    clock: Option<SteppedClock>,
    life: Option<MachineLife>,
}

/// The time from the start of a machine to its end.
struct MachineLife {
    /// The parent of the first process, outside of its namespace.
    outside: Child,
    first: WatchedProcess,
}

/// The user who runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineUser {
    /// The owner of the machine.
    Root,
    /// A user without rights, as PostgreSQL demands.
    Nobody,
}

/// A program that runs in a machine.
pub struct MachineProgram {
    /// The process that entered the machine for it.
    entered: Child,
    /// The program itself, as seen from outside.
    process: WatchedProcess,
}

impl ScaleMachine {
    /// Makes a machine and starts it. `folder` exists, is empty, and is the place of the machine's own file system.
    ///
    /// # Errors
    /// Fails if a program of util-linux or iproute2 fails or is missing.
    pub fn start(
        switch: &ScaleSwitch,
        name: &str,
        folder: &Path,
        clock: Option<SteppedClock>,
    ) -> io::Result<Self> {
        let shown = folder.to_string_lossy();
        let words = ["--net", "--mount", "--propagation", "private", "--", "sh", "-c", HOLD, "sh", &*shown];
        let mut holder = begin("unshare", &words, Stdio::piped(), Stdio::inherit())?;
        let told = ready(&mut holder, name);
        let power = holder.stdin.take();
        let connected = told.and_then(|()| switch.connect(holder.id()));
        let (cable, power) = match (connected, power) {
            (Ok(cable), Some(power)) => (cable, power),
            (connected, _) => {
                end(&mut holder);
                return Err(connected.err().unwrap_or_else(|| Error::other("the holder has no stdin")));
            }
        };
        let (name, folder) = (name.to_owned(), folder.to_owned());
        let mut machine = Self { name, folder, holder, _power: power, cable, clock, life: None };
        machine.boot()?;
        Ok(machine)
    }

    /// Starts the machine, which is dead.
    ///
    /// # Errors
    /// Fails if a program of util-linux fails.
    pub fn boot(&mut self) -> io::Result<()> {
        let holder = self.holder.id().to_string();
        let inside = ["--target", &holder, "--net", "--mount", "--"];
        let fork =
            ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--", "sh", "-c", LIVE];
        // At its end, `unshare` complains on its stderr, because the kernel does not know some of its signals.
        let words = [&inside[..], &fork[..]].concat();
        let mut outside = begin("nsenter", &words, Stdio::null(), Stdio::null())?;
        let found = ready(&mut outside, &self.name).and_then(|()| child_of(outside.id(), |_| true));
        match found {
            Ok(first) => {
                self.life = Some(MachineLife { outside, first });
                Ok(())
            }
            Err(error) => {
                end(&mut outside);
                Err(error)
            }
        }
    }

    /// Kills all processes of the machine at one moment, as a power failure does.
    ///
    /// # Errors
    /// Fails if one of them is still there after a while.
    pub fn kill(&mut self) -> io::Result<()> {
        let Some(mut life) = self.life.take() else { return Ok(()) };
        life.first.kill();
        let is_over = life.first.wait(PATIENCE)?;
        end(&mut life.outside);
        if is_over { Ok(()) } else { Err(Error::other(format!("machine {} does not die", self.name))) }
    }

    /// Cuts the machine off, or connects it again.
    ///
    /// # Errors
    /// Fails if `ip` does.
    pub fn set_connected(&self, is_connected: bool) -> io::Result<()> {
        self.cable.set(is_connected)
    }

    /// Starts a program in the machine, with these variables alone. Its output goes to the end of a file.
    ///
    /// # Errors
    /// Fails if the machine is dead, or if the program does not start.
    pub fn run(
        &self,
        user: MachineUser,
        words: &[String],
        variables: &[(String, String)],
        log: &Path,
    ) -> io::Result<MachineProgram> {
        let words = self.entering(user, words, variables)?;
        let output = File::options().create(true).append(true).open(log)?;
        let streams =
            ChildStreams { stdin: Stdio::null(), stdout: output.try_clone()?.into(), stderr: output.into() };
        let mut entered = start_with("nsenter", &words, streams, false)?;
        // Until the last of them is the program: `nsenter` becomes `env`, and that one the program.
        let is_program = |process: &WatchedProcess| {
            let name = process.name().unwrap_or_default();
            !name.is_empty() && !["nsenter", "env", "setpriv"].contains(&name.as_str())
        };
        match child_of(entered.id(), is_program) {
            Ok(process) => Ok(MachineProgram { entered, process }),
            Err(error) => {
                end(&mut entered);
                Err(Error::other(format!("{error}; see {}", log.display())))
            }
        }
    }

    /// Runs a program to its end, and returns whether it ended well and what it wrote on its stdout. Its stderr goes to the end of a file.
    ///
    /// # Errors
    /// Fails if the machine is dead, or if the program does not end in time.
    pub fn ask(
        &self,
        words: &[String],
        variables: &[(String, String)],
        log: &Path,
    ) -> io::Result<(bool, String)> {
        let words = self.entering(MachineUser::Root, words, variables)?;
        let errors = File::options().create(true).append(true).open(log)?;
        let streams = ChildStreams { stdin: Stdio::null(), stdout: Stdio::piped(), stderr: errors.into() };
        let mut child = start_with("nsenter", &words, streams, false)?;
        let status = ended(&mut child)?;
        let mut told = String::new();
        // No more than a pipe holds, and the program has ended.
        child.stdout.take().map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut told))?;
        Ok((status.success(), told))
    }

    /// Returns the arguments of `nsenter` for a program. It loses its rights before it gets the clock, which works with files of its user.
    fn entering(
        &self,
        user: MachineUser,
        words: &[String],
        variables: &[(String, String)],
    ) -> io::Result<Vec<String>> {
        let life =
            self.life.as_ref().ok_or_else(|| Error::other(format!("machine {} is dead", self.name)))?;
        let first = life.first.pid().to_string();
        let clock = self.clock.as_ref().map(SteppedClock::variables).unwrap_or_default();
        let inside = ["--target", &first, "--net", "--mount", "--pid", "--"];
        let rights: &[&str] = match user {
            MachineUser::Root => &[],
            MachineUser::Nobody => &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"],
        };
        Ok(inside
            .iter()
            .chain(rights)
            .chain(&["env", "--ignore-environment"])
            .map(|word| (*word).to_owned())
            .chain(variables.iter().chain(&clock).map(|(name, value)| format!("{name}={value}")))
            .chain(words.iter().cloned())
            .collect())
    }

    /// Returns all processes of the machine, as seen from outside.
    #[must_use]
    pub fn processes(&self) -> Vec<WatchedProcess> {
        self.life.as_ref().map(|life| with_namespace_of(life.first.pid())).unwrap_or_default()
    }

    /// Returns the process namespace of the machine's present life; `None` while it is dead.
    #[must_use]
    pub fn namespace(&self) -> Option<String> {
        namespace(self.life.as_ref()?.first.pid())
    }

    /// Returns the machine's address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.cable.address
    }

    /// Returns the place of the machine's own file system. Only its processes see what is in it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the machine's clock, if it can be set.
    #[must_use]
    pub fn clock(&self) -> Option<&SteppedClock> {
        self.clock.as_ref()
    }
}

impl Drop for ScaleMachine {
    fn drop(&mut self) {
        self.kill().ok();
        end(&mut self.holder);
    }
}

impl MachineProgram {
    /// Stops the program, if it is still there.
    pub fn stop(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets the program go on that was stopped.
    pub fn go_on(&self) {
        self.process.signal(Signal::CONT);
        // Stopped with the program, it would not hear of its end.
        wake(&self.entered);
    }

    /// Kills the program alone, and waits until it has gone.
    ///
    /// # Errors
    /// Fails if it is still there after a while.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill();
        let has_ended = self.process.wait(PATIENCE)?;
        wake(&self.entered);
        end(&mut self.entered);
        if has_ended { Ok(()) } else { Err(Error::other("a program does not die")) }
    }

    /// Returns whether the program has a file with this text in its name in its memory.
    #[must_use]
    pub fn has_mapped(&self, name: &str) -> bool {
        fs::read_to_string(format!("/proc/{}/maps", self.process.pid())).is_ok_and(|maps| maps.contains(name))
    }

    /// Returns whether the program has ended.
    ///
    /// # Errors
    /// Fails if the system does not tell.
    pub fn has_ended(&self) -> io::Result<bool> {
        self.process.wait(Duration::ZERO)
    }
}

impl Drop for MachineProgram {
    fn drop(&mut self) {
        self.kill().ok();
    }
}

/// Starts a program that says when it is ready.
fn begin(program: &str, words: &[&str], stdin: Stdio, stderr: Stdio) -> io::Result<Child> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let streams = ChildStreams { stdin, stdout: Stdio::piped(), stderr };
    let started = start_with(program, &words, streams, false);
    started.map_err(|error| Error::other(format!("{program} of util-linux cannot be started: {error}")))
}

/// Returns all processes in the process namespace of this one.
fn with_namespace_of(pid: u32) -> Vec<WatchedProcess> {
    let Some(wanted) = namespace(pid) else { return Vec::new() };
    let is_inside = |pid: u32| namespace(pid).is_some_and(|found| found == wanted);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = pids.filter(|pid| is_inside(*pid)).filter_map(|pid| WatchedProcess::open(pid, &[]));
    // Looked at again, now that no other process can have the number.
    found.filter(|process| is_inside(process.pid())).collect()
}

/// Lets a child go on that has stopped with its own child.
fn wake(child: &Child) {
    // A child that was not waited for keeps its number.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::CONT).ok();
    }
}

/// Waits until a program says that it is ready.
fn ready(child: &mut Child, name: &str) -> io::Result<()> {
    let mut told = String::new();
    if let Some(pipe) = child.stdout.take() {
        BufReader::new(pipe).read_line(&mut told)?;
    }
    if told == "ready\n" { Ok(()) } else { Err(Error::other(format!("machine {name} does not start"))) }
}

/// Waits for the last child in a chain of them that is as it has to be.
fn child_of(pid: u32, is_wanted: impl Fn(&WatchedProcess) -> bool) -> io::Result<WatchedProcess> {
    let limit = bounded_waits::now() + PATIENCE;
    while bounded_waits::now() < limit {
        if let Some(found) = processes::below(pid).into_iter().next().filter(&is_wanted) {
            return Ok(found);
        }
        // Between two looks: nobody is told when a process gets a child.
        bounded_waits::pause(LOOK);
    }
    Err(Error::other(format!("process {pid} has no child")))
}

/// Waits for the end of a program, and kills it if that takes too long.
pub(super) fn ended(child: &mut Child) -> io::Result<ExitStatus> {
    let limit = bounded_waits::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if bounded_waits::now() > limit {
            end(child);
            return Err(Error::new(io::ErrorKind::TimedOut, "a program does not end"));
        }
        // Between two looks: a child can only be waited for without a limit.
        bounded_waits::pause(LOOK);
    }
}

/// Kills a program, and waits for its end.
fn end(child: &mut Child) {
    child.kill().ok();
    unhang_demo_servers::child_processes::wait(child).ok();
}
