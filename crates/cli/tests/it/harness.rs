//! The hermetic harness: a sandbox, a client that speaks JSON-RPC over pipes, and the demand that nothing is left.
//!
//! Invariants: nothing waits without a limit; limits are generous because machines are shared, and a test that runs into
//! one fails with everything that was said so far; only processes that this test started are ever signalled.

#![expect(clippy::needless_pass_by_value, reason = "what is handed in is nearly always a fresh `json!`")]
#![expect(
    clippy::disallowed_methods,
    reason = "the one place where end-to-end tests spawn, wait and read the clock"
)]

mod client;
pub(crate) mod collector;
mod lab;
mod posts;
mod remote;
mod web;

use std::{
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

pub(crate) use self::{
    client::{Client, Slowly, server_pid},
    lab::lab_program,
    posts::{PostAnswer, PostedRequest, serve_posts},
    remote::Remote,
    web::{Web, WebAnswer},
};

/// How long anything may take on a busy machine before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long the last process of a test may take to disappear.
const CLEANUP: Duration = Duration::from_secs(10);
/// Carries the marker in every process of a test.
const MARKER_VARIABLE: &str = "UNHANG_TEST_MARKER";
/// What the chores hand to every process of a test: the guards that a fault build leaves out, and their own marker.
const HANDED_ON: [&str; 2] = ["UNHANG_GUARDS_OFF", "UNHANG_XTASK_RUN"];

/// Where jobs are kept.
const JOBS: [&str; 5] =
    ["state/unhang.db", "state/unhang.db-wal", "state/unhang.db-shm", "state/unhang.db-turn", "state/jobs"];

/// Shows a measured figure, also of a test that passes: what is written to the stream itself is not captured.
pub(crate) fn figure(text: &str) {
    let _nobody_reads = writeln!(io::stderr(), "{text}");
}

/// Waits for a condition, never for a length of time (R-37).
#[track_caller]
pub(crate) fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        // Between two looks: files and /proc cannot be waited on.
        thread::sleep(Duration::from_millis(10));
    }
}

/// How long something takes, to be shown or to be judged generously.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

/// A home, an environment and a marker of one test.
pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
    marker: String,
    may_keep: Vec<&'static str>,
}

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Its last character keeps it from being the beginning of another one.
        let marker = format!("unhang-test-{}-{}.", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Sandbox {
            folder: tempfile::tempdir().expect("a temporary folder"),
            marker,
            may_keep: vec!["state/logs", "state/trust"],
        }
    }

    /// One in which jobs are kept.
    pub(crate) fn with_jobs() -> Sandbox {
        let mut sandbox = Sandbox::new();
        sandbox.may_keep = [&JOBS[..], &["state/state", "state/logs", "state/lists", "state/trust"]].concat();
        sandbox
    }

    /// One in which a worker keeps its name and jobs.
    pub(crate) fn with_worker() -> Sandbox {
        let mut sandbox = Sandbox::with_shown_calls();
        sandbox.may_keep.push("state/worker");
        sandbox
    }

    /// One in which jobs are kept, and slow calls are shown in a store of many machines.
    pub(crate) fn with_shown_calls() -> Sandbox {
        let mut sandbox = Sandbox::with_jobs();
        sandbox.may_keep.push("state/calls");
        sandbox
    }

    /// One in which jobs and logins are kept.
    pub(crate) fn with_jobs_and_logins() -> Sandbox {
        let mut sandbox = Sandbox::new();
        sandbox.may_keep = [&JOBS[..], &["state/logs", "state/tokens", "state/lists"]].concat();
        sandbox
    }

    /// One in which files of clients are adopted.
    pub(crate) fn with_adoptions() -> Sandbox {
        let mut sandbox = Sandbox::new();
        sandbox.may_keep = vec!["state/adopted", "state/logs"];
        sandbox
    }

    /// One in which logins are kept.
    pub(crate) fn with_logins() -> Sandbox {
        let mut sandbox = Sandbox::new();
        sandbox.may_keep = vec!["state/tokens"];
        sandbox
    }

    /// A folder that is removed with the sandbox.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The text that every process of this test carries in its environment or its arguments.
    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    /// The binary under test with a cleared environment.
    pub(crate) fn unhang(&self) -> Command {
        self.hermetic(Command::new(env!("CARGO_BIN_EXE_unhang")))
    }

    /// `unhang-lab`, which measures the binary under test, with a cleared environment.
    pub(crate) fn lab(&self) -> Command {
        let mut command = self.hermetic(Command::new(lab_program()));
        command.env("UNHANG_LAB_PRODUCT", env!("CARGO_BIN_EXE_unhang"));
        command
    }

    fn hermetic(&self, mut command: Command) -> Command {
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path())
            .env("UNHANG_HOME", self.path().join("state"))
            .env(MARKER_VARIABLE, &self.marker)
            .current_dir(self.path());
        // What `cargo xtask faults` hands to the fault build, and what it finds leftovers by.
        let handed_on = std::env::vars_os().filter(|(name, _)| HANDED_ON.iter().any(|wanted| name == wanted));
        command.envs(handed_on);
        command
    }

    /// A line for a shell that is taken for the supervisor of a job, which ends everything below it: unhang knows it by its name.
    pub(crate) fn below_a_job(&self, line: &str) -> Command {
        self.shell(&format!("cp /bin/sh mcp-job-of-test && ./mcp-job-of-test -c '{line}; exit $?'"))
    }

    /// A line for a shell that finds the binary under test, in the same environment.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let binaries = Path::new(env!("CARGO_BIN_EXE_unhang")).parent().expect("a folder");
        let mut shell = Command::new("sh");
        let ours = self.unhang();
        let variables = ours.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.env_clear().envs(variables).env("PATH", format!("{}:/usr/bin:/bin", binaries.display()));
        shell.args(["-c", line]).current_dir(self.path());
        shell
    }

    /// `unhang wrap FLAGS -- unhang-lab zoo PROGRAM…`, ready to talk to.
    pub(crate) fn wrap(&self, flags: &[&str], faulty_server: &[&str]) -> Client {
        Client::start(self.wrap_command(flags, faulty_server))
    }

    /// The same, not yet started, so that its environment can be added to.
    pub(crate) fn wrap_command(&self, flags: &[&str], faulty_server: &[&str]) -> Command {
        let mut command = self.unhang();
        command.arg("wrap").args(flags).arg("--").arg(lab_program()).arg("zoo").args(faulty_server);
        command
    }

    /// The faulty server without a guard, to show that its vice is real.
    pub(crate) fn bare(&self, faulty_server: &[&str]) -> Client {
        let mut command = self.lab();
        command.arg("zoo").args(faulty_server);
        Client::start(command)
    }

    /// Processes of this test that are alive now, as `pid command line`.
    pub(crate) fn survivors(&self) -> Vec<(i32, String)> {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let pids = fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| *pid != own).filter_map(|pid: i32| Some((pid, self.carries_marker(pid)?))).collect()
    }

    fn carries_marker(&self, pid: i32) -> Option<String> {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let contains =
            |bytes: &[u8]| bytes.windows(self.marker.len()).any(|part| part == self.marker.as_bytes());
        let arguments = read("cmdline");
        // Jobs are handed no environment of ours, but work in the sandbox or in a folder in it.
        let works_here =
            || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder.starts_with(self.path()));
        // A zombie has neither; it is gone but for its parent's wait.
        (contains(&arguments) || contains(&read("environ")) || works_here())
            .then(|| String::from_utf8_lossy(&arguments).replace('\0', " "))
    }

    /// Demands that no process of this test is left.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        self.assert_nothing_left_within(CLEANUP);
    }

    /// Demands it within a given time.
    #[track_caller]
    pub(crate) fn assert_nothing_left_within(&self, limit: Duration) {
        let start = Instant::now();
        loop {
            let survivors = self.survivors();
            if survivors.is_empty() {
                return;
            }
            if start.elapsed() > limit {
                self.kill_survivors();
                panic!("left behind after {limit:?}: {survivors:#?}");
            }
            // Between two looks at /proc.
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens the data folder, as whoever comes next does: what a killed process had begun to write of a job is settled then.
    #[track_caller]
    pub(crate) fn settle_jobs(&self) {
        let mut list = self.unhang();
        list.args(["job", "list"]);
        let (code, _, stderr) = run_to_end(list);
        assert_eq!(code, 0, "{stderr}");
    }

    /// Demands that unhang left no file but those that it keeps, and nothing half-written among them.
    #[track_caller]
    fn assert_only_kept_files(&self) {
        let is_temporary = |file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            !file.starts_with("state/logs") && name.starts_with('.') && name != ".lock"
        };
        let state = self.files().into_iter().filter(|file| file.starts_with("state"));
        let others: Vec<_> = state
            .filter(|file| !self.may_keep.iter().any(|kept| file.starts_with(kept)) || is_temporary(file))
            .collect();
        assert!(others.is_empty(), "files left behind: {others:?}");
    }

    fn kill_survivors(&self) {
        for (pid, _) in self.survivors() {
            signal(pid, rustix::process::Signal::KILL);
        }
    }

    /// All that was logged in this sandbox.
    pub(crate) fn log(&self) -> String {
        let logs = fs::read_dir(self.path().join("state/logs")).into_iter().flatten();
        logs.filter_map(|entry| fs::read(entry.ok()?.path()).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect()
    }

    /// Files in the sandbox, relative to it.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() { walk(&entry.path(), found) } else { found.push(entry.path()) }
            }
        }
        let mut found = Vec::new();
        walk(self.path(), &mut found);
        found.into_iter().filter_map(|path| Some(path.strip_prefix(self.path()).ok()?.to_owned())).collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if thread::panicking() {
            self.kill_survivors();
        } else {
            self.assert_nothing_left();
            self.assert_only_kept_files();
        }
    }
}

/// Runs a program that is told nothing to its end, and returns exit code, stdout and stderr.
#[track_caller]
pub(crate) fn run_to_end(command: Command) -> (i32, String, String) {
    let (mut client, mut stdout) = Client::start_unread(command);
    client.close_stdin();
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("text");
    // It ends with its output, or soon after.
    let code = client.exit_code();
    (code, text, client.stderr_at_the_end())
}

/// Writes a script that can be started. Another process writes it: Linux starts no program that somebody can write to, and a process that
/// another test starts at that moment would have our open file.
#[track_caller]
pub(crate) fn write_program(path: &Path, text: &str) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"printf %s "$2" > "$1" && chmod 755 "$1""#, "sh"]).arg(path).arg(text);
    let (code, _, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
}

/// Sends a signal to a process of this test.
pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _gone_already = rustix::process::kill_process(pid, signal);
    }
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Peak resident memory of a process in bytes.
pub(crate) fn peak_memory(pid: i32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

/// One of the kernel's figures about the memory of a process, in bytes.
pub(crate) fn memory(pid: i32, figure: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(figure))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}
