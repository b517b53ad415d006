//! A PostgreSQL server for one test: in a folder of its own, on a free port of loopback, as an unprivileged user.
//!
//! # Invariants
//!
//! - The server ends with the value that stands for it, and with this process, however that ends.
//! - Folder and password are the server's own; nothing outside the folder changes.

use std::fs::{self, File, Permissions};
use std::io::{self, Error};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use unhang_demo_servers::bounded_waits;
use unhang_demo_servers::child_processes::{ChildStreams, start_with, wait};

/// The name of the server's owner, who may do everything there.
pub const OWNER: &str = "owner";
/// The password of the server's owner.
pub const PASSWORD: &str = "correct horse";

/// The user and group `nobody` of most systems: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
/// The time that the server may take to start. It takes less than a second on an idle machine.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);
/// The time that a program may take to end. A test that waits for longer has found a fault.
const END_LIMIT: Duration = Duration::from_secs(60);
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// A running server.
#[derive(Debug)]
pub struct PrivatePostgres {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    running: Option<RunningServer>,
}

/// The process of a server. The kernel kills it when the thread that started it ends, so this thread only waits.
#[derive(Debug)]
pub(crate) struct RunningServer {
    pid: Pid,
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

/// How a server is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// All transactions that run are broken off, and the server ends in order.
    InOrder,
    /// The server is killed, as by a power failure.
    Killed,
}

impl PrivatePostgres {
    /// Makes a server with the programs in this folder, and waits until it answers. `settings` are lines for its configuration file.
    ///
    /// # Errors
    /// Fails if the programs cannot be started, or if the server does not answer in time.
    pub fn start(programs: &Path, name: &str, settings: &str) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("unhang-postgres-{}-{name}", std::process::id()));
        fs::create_dir(&folder)?;
        let mut server = Self { programs: programs.to_owned(), folder, port: free_port()?, running: None };
        server.create(settings)?;
        server.resume()?;
        Ok(server)
    }

    /// Returns the address of a database of this server, for a user with this name and password.
    #[must_use]
    pub fn url(&self, user: &str, password: &str, database: &str) -> String {
        let password = password.replace(' ', "%20");
        format!("postgres://{user}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder of the server's data.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Ends the server. Its data stay.
    pub fn stop(&mut self, end: ServerEnd) {
        let Some(running) = self.running.take() else { return };
        // Killed, its helpers end when they see that, and what they share goes with the next start.
        let signal = if end == ServerEnd::Killed { Signal::KILL } else { Signal::INT };
        running.stop(signal);
    }

    /// Starts the server again, and waits until it answers.
    ///
    /// # Errors
    /// Fails if it does not answer in time.
    pub fn resume(&mut self) -> io::Result<()> {
        let end = bounded_waits::now() + START_LIMIT;
        loop {
            // Helpers of a killed server may hold its shared memory for a moment, and then it does not start.
            let running = self.spawn()?;
            let is_ready = self.wait_until_ready(running.pid, end);
            self.running = Some(running);
            match is_ready {
                Err(error) if error.kind() != io::ErrorKind::TimedOut && bounded_waits::now() < end => {
                    self.stop(ServerEnd::Killed);
                    // Between two tries: nobody tells when the shared memory is free.
                    bounded_waits::pause(LOOK);
                }
                ready => return ready,
            }
        }
    }

    fn create(&self, settings: &str) -> io::Result<()> {
        let password = self.folder.join("password");
        fs::write(&password, PASSWORD)?;
        for path in [&self.folder, &password] {
            give_away(path)?;
        }
        fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        let initdb =
            ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--username", OWNER];
        let files = ["--pwfile", &text(&password), "--pgdata", &text(&self.data())];
        let log = self.folder.join("initdb.log");
        let mut child = self.start_program("initdb", initdb.iter().chain(&files), &log)?;
        end(&mut child)?;
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\n\
             shared_buffers = 16MB\n{settings}\n",
            self.port
        );
        let path = self.data().join("postgresql.auto.conf");
        fs::write(&path, settings).map_err(|error| {
            Error::other(format!("initdb failed ({error}): {}", fs::read_to_string(&log).unwrap_or_default()))
        })
    }

    fn spawn(&self) -> io::Result<RunningServer> {
        let data = ["-D".to_owned(), text(&self.data())];
        let command = self.command("postgres", data.iter().map(String::as_str));
        RunningServer::spawn(command, &self.folder.join("server.log"))
    }

    /// Waits until the server has written that it accepts connections.
    fn wait_until_ready(&self, pid: Pid, end: std::time::Instant) -> io::Result<()> {
        loop {
            let told = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
            let is_own =
                told.lines().next().is_some_and(|line| line.trim() == pid.as_raw_nonzero().to_string());
            if is_own && told.lines().nth(7).is_some_and(|state| state.trim() == "ready") {
                return Ok(());
            }
            let log = || fs::read_to_string(self.folder.join("server.log")).unwrap_or_default();
            if has_ended(pid) {
                return Err(Error::other(log()));
            }
            if bounded_waits::now() > end {
                return Err(Error::new(io::ErrorKind::TimedOut, log()));
            }
            // Between two looks: a file cannot be waited on.
            bounded_waits::pause(LOOK);
        }
    }

    fn start_program<'a>(
        &self,
        program: &str,
        arguments: impl Iterator<Item = &'a &'a str>,
        log: &Path,
    ) -> io::Result<Child> {
        start(&self.command(program, arguments.copied()), &File::create(log)?)
    }

    fn command<'a>(&self, program: &str, arguments: impl Iterator<Item = &'a str>) -> Vec<String> {
        without_rights(&self.programs.join(program), arguments)
    }
}

impl RunningServer {
    /// Starts a server by a command of [`without_rights`]. Its output goes to the end of this file.
    pub(crate) fn spawn(command: Vec<String>, log: &Path) -> io::Result<Self> {
        let (stop, is_stopped): (SyncSender<()>, Receiver<()>) = sync_channel(1);
        let (started, is_started) = sync_channel(1);
        let output = File::options().create(true).append(true).open(log)?;
        let thread = thread::spawn(move || {
            let child = start(&command, &output);
            let is_running = child.is_ok();
            started.send(child.as_ref().map(Child::id).map_err(Error::kind)).ok();
            if let (true, Ok(mut child)) = (is_running, child) {
                is_stopped.recv().ok();
                end(&mut child).ok();
            }
        });
        let id = is_started.recv().map_err(Error::other)?.map_err(Error::from)?;
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::other("the server has no process id"))?;
        Ok(Self { pid, stop, thread })
    }

    /// Returns whether the server has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        has_ended(self.pid)
    }

    /// Ends the server by this signal.
    pub(crate) fn stop(self, signal: Signal) {
        kill_process(self.pid, signal).ok();
        self.stop.send(()).ok();
        self.thread.join().ok();
    }
}

/// Returns the words of a command that runs without rights, and that the kernel kills with the thread that starts it.
pub(crate) fn without_rights<'a>(program: &Path, arguments: impl Iterator<Item = &'a str>) -> Vec<String> {
    let rights = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let rights = if geteuid().is_root() { &rights[..] } else { &[] };
    let words = ["--pdeathsig", "QUIT"].iter().chain(rights).map(|word| (*word).to_owned());
    words.chain([text(program)]).chain(arguments.map(str::to_owned)).collect()
}

/// Gives a file or folder to the user of [`without_rights`].
pub(crate) fn give_away(path: &Path) -> io::Result<()> {
    if geteuid().is_root() { chown(path, Some(NOBODY), Some(NOBODY)) } else { Ok(()) }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        self.stop(ServerEnd::InOrder);
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn start(command: &[String], output: &File) -> io::Result<Child> {
    let streams = ChildStreams {
        stdin: Stdio::null(),
        stdout: output.try_clone()?.into(),
        stderr: output.try_clone()?.into(),
    };
    start_with("setpriv", command, streams, true)
}

/// Waits for the end of a program, and kills it if that takes too long.
fn end(child: &mut Child) -> io::Result<()> {
    let limit = bounded_waits::now() + END_LIMIT;
    while child.try_wait()?.is_none() {
        if bounded_waits::now() > limit {
            child.kill()?;
            return wait(child);
        }
        // Between two looks: a child can only be waited for without a limit.
        bounded_waits::pause(LOOK);
    }
    Ok(())
}

/// Returns whether the process is a zombie, or gone.
fn has_ended(pid: Pid) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    state.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z'))
}

pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
