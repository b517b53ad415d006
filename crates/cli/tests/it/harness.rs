//! The hermetic harness: a sandbox, a client that speaks JSON-RPC over pipes, and the demand that nothing is left.
//!
//! Invariants: nothing waits without a limit; limits are generous because machines are shared, and a test that runs into
//! one fails with everything that was said so far; only processes that this test started are ever signalled.

#![expect(clippy::needless_pass_by_value, reason = "what is handed in is nearly always a fresh `json!`")]
#![expect(
    clippy::disallowed_methods,
    reason = "the one place where end-to-end tests spawn, wait and read the clock"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long anything may take on a busy machine before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long the last process of a test may take to disappear.
const CLEANUP: Duration = Duration::from_secs(10);
/// Carries the marker in every process of a test.
const MARKER_VARIABLE: &str = "UNHANG_TEST_MARKER";
/// What the chores hand to every process of a test: the guards that a fault build leaves out, and their own marker.
const HANDED_ON: [&str; 2] = ["UNHANG_GUARDS_OFF", "UNHANG_XTASK_RUN"];

/// Prints a measured figure, which cargo shows with `--nocapture`.
#[expect(
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "a test has no other way to report a figure"
)]
pub(crate) fn figure(text: &str) {
    println!("{text}");
}

/// Waits for a condition, never for a length of time.
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
    may_keep: &'static [&'static str],
}

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let marker = format!("unhang-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Sandbox {
            folder: tempfile::tempdir().expect("a temporary folder"),
            marker,
            may_keep: &["state/logs"],
        }
    }

    /// One in which jobs are kept.
    pub(crate) fn with_jobs() -> Sandbox {
        let mut sandbox = Sandbox::new();
        sandbox.may_keep = &[
            "state/unhang.db",
            "state/unhang.db-wal",
            "state/unhang.db-shm",
            "state/jobs",
            "state/state",
            "state/logs",
        ];
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_unhang"));
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

    /// `unhang wrap FLAGS -- unhang zoo ANIMAL…`, ready to talk to.
    pub(crate) fn wrap(&self, flags: &[&str], animal: &[&str]) -> Client {
        Client::start(self.wrap_command(flags, animal))
    }

    /// The same, not yet started, so that its environment can be added to.
    pub(crate) fn wrap_command(&self, flags: &[&str], animal: &[&str]) -> Command {
        let mut command = self.unhang();
        command.arg("wrap").args(flags).arg("--").arg(env!("CARGO_BIN_EXE_unhang")).arg("zoo").args(animal);
        command
    }

    /// The animal without a guard, to show that its vice is real.
    pub(crate) fn bare(&self, animal: &[&str]) -> Client {
        let mut command = self.unhang();
        command.arg("zoo").args(animal);
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

/// Sends a signal to a process of this test.
pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _gone_already = rustix::process::kill_process(pid, signal);
    }
}

/// A reader that takes a moment for each piece, as a busy client does.
pub(crate) struct Slowly<R>(pub(crate) R);

impl<R: Read> Read for Slowly<R> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        // It waits for nobody: being slow is what it is for.
        thread::sleep(Duration::from_millis(40));
        let piece = bytes.len().min(64 << 10);
        self.0.read(&mut bytes[..piece])
    }
}

/// An MCP client over pipes: strict about what it gets, patient only up to a limit.
pub(crate) struct Client {
    child: Child,
    stdin: Option<Box<dyn Write + Send>>,
    lines: Receiver<String>,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_reader: Option<JoinHandle<()>>,
    seen: Vec<Value>,
    next_id: i64,
}

impl Client {
    /// Starts a program with all three streams piped.
    pub(crate) fn start(command: Command) -> Client {
        let (client, stdout) = Client::start_unread(command);
        client.reading(stdout)
    }

    /// Starts a program whose stdout is not read until [`Client::reading`].
    pub(crate) fn start_unread(mut command: Command) -> (Client, ChildStdout) {
        let mut client =
            Client::launch(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let stdout = client.child.stdout.take().expect("piped");
        client.keep_stderr();
        (client, stdout)
    }

    /// Starts a program whose stderr is not read by anybody; the pipe is handed out so that it stays open.
    pub(crate) fn start_unheard(mut command: Command) -> (Client, ChildStderr) {
        let mut client =
            Client::launch(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let stdout = client.child.stdout.take().expect("piped");
        let stderr = client.child.stderr.take().expect("piped");
        (client.reading(stdout), stderr)
    }

    /// Starts a program with other streams than pipes; `writer` is the client's end of `stdin`.
    pub(crate) fn start_on(
        mut command: Command,
        stdin: Stdio,
        stdout: Stdio,
        writer: impl Write + Send + 'static,
    ) -> Client {
        let mut client = Client::launch(command.stdin(stdin).stdout(stdout).stderr(Stdio::piped()));
        client.stdin = Some(Box::new(writer));
        client.keep_stderr();
        client
    }

    fn launch(command: &mut Command) -> Client {
        let mut child = None;
        // A program that was copied a moment ago is busy while another test's fork still has the copy open for writing.
        wait_until("a program that is not busy", PATIENCE, || match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => false,
            started => {
                child = Some(started.expect("the program starts"));
                true
            }
        });
        let mut child = child.expect("it was started");
        let stdin = child.stdin.take().map(|stdin| Box::new(stdin) as Box<dyn Write + Send>);
        let (_, lines) = sync_channel(1);
        Client {
            child,
            stdin,
            lines,
            stderr: Arc::default(),
            stderr_reader: None,
            seen: Vec::new(),
            next_id: 0,
        }
    }

    fn keep_stderr(&mut self) {
        let (mut pipe, kept) = (self.child.stderr.take().expect("piped"), Arc::clone(&self.stderr));
        let reader = thread::spawn(move || {
            let mut chunk = [0; 65536];
            while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                let mut kept = kept.lock().expect("not poisoned");
                // A flood is drained, its beginning kept.
                if kept.len() < 4 << 20 {
                    kept.extend_from_slice(&chunk[..count]);
                }
            }
        });
        self.stderr_reader = Some(reader);
    }

    /// Reads stdout from now on.
    pub(crate) fn reading(mut self, stdout: impl Read + Send + 'static) -> Client {
        let (sender, lines) = sync_channel(1 << 20);
        thread::spawn(move || {
            let mut reader = BufReader::with_capacity(1 << 20, stdout);
            let mut line = Vec::new();
            while let Ok(1..) = reader.read_until(b'\n', &mut line) {
                let text = String::from_utf8_lossy(&line).into_owned();
                if sender.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        self.lines = lines;
        self
    }

    /// The id of the last request by [`Client::request`]; they count from 1.
    pub(crate) fn last_id(&self) -> i64 {
        self.next_id
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// What the program wrote to stderr so far.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().expect("not poisoned")).into_owned()
    }

    /// The same when nobody writes any more, and nothing is missing.
    #[track_caller]
    pub(crate) fn stderr_at_the_end(&self) -> String {
        let ended = || self.stderr_reader.as_ref().is_none_or(JoinHandle::is_finished);
        wait_until("the end of stderr", PATIENCE, ended);
        self.stderr()
    }

    /// Writes bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().expect("stdin is still open");
        stdin.write_all(bytes)?;
        stdin.flush()
    }

    /// Sends one line.
    #[track_caller]
    pub(crate) fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes())
            .unwrap_or_else(|error| panic!("send: {error}; {}", self.stderr()));
    }

    /// Sends a request and returns its id.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    #[track_caller]
    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a tool call and returns its id.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> i64 {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The next line, whatever it is.
    pub(crate) fn next_line(&mut self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// The next message, whatever it is. Every line must be one whole JSON-RPC message (promise 2).
    pub(crate) fn next_message(&mut self, limit: Duration) -> Option<Value> {
        let line = self.next_line(limit)?;
        let message: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("not JSON ({error}) on stdout: {line:.500}"));
        let messages = message.as_array().cloned().unwrap_or_else(|| vec![message.clone()]);
        for message in &messages {
            assert_eq!(message["jsonrpc"], "2.0", "not JSON-RPC on stdout: {line:.500}");
        }
        self.seen.push(message.clone());
        Some(message)
    }

    /// The answer with this id; other messages are kept in [`Client::seen`].
    #[track_caller]
    pub(crate) fn answer(&mut self, id: impl Into<Value>) -> Value {
        self.answer_within(id, PATIENCE)
    }

    /// The same for an answer that may take longer than is usual.
    #[track_caller]
    pub(crate) fn answer_within(&mut self, id: impl Into<Value>, limit: Duration) -> Value {
        let id = id.into();
        let fits = |message: &Value| message["id"] == id && message.get("method").is_none();
        self.find_within(&format!("answer to {id}"), limit, fits)
    }

    /// The first message from now on that fits.
    #[track_caller]
    pub(crate) fn find(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        self.find_within(what, PATIENCE, fits)
    }

    #[track_caller]
    fn find_within(&mut self, what: &str, limit: Duration, fits: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        while let Some(left) = limit.checked_sub(start.elapsed()) {
            match self.next_message(left) {
                Some(message) if fits(&message) => return message,
                Some(_) => {}
                None => break,
            }
        }
        let last: Vec<String> =
            self.seen.iter().rev().take(5).map(|message| format!("{message:.300}")).collect();
        panic!("no {what} within {limit:?}; seen last {last:#?}; stderr: {:.4000}", self.stderr());
    }

    /// Everything received so far.
    pub(crate) fn seen(&self) -> &[Value] {
        &self.seen
    }

    /// How many answers have come for this id.
    pub(crate) fn answers_to(&self, id: impl Into<Value>) -> usize {
        let id = id.into();
        self.seen.iter().filter(|message| message["id"] == id && message.get("method").is_none()).count()
    }

    /// The handshake of a legacy client. Returns the result.
    #[track_caller]
    pub(crate) fn initialize(&mut self) -> Value {
        self.initialize_as("2025-11-25", "unhang-test")
    }

    #[track_caller]
    pub(crate) fn initialize_as(&mut self, version: &str, name: &str) -> Value {
        let params = json!({"protocolVersion": version, "capabilities": {"roots": {}, "sampling": {}, "elicitation": {}},
            "clientInfo": {"name": name, "version": "1"}});
        let id = self.request("initialize", params);
        let answer = self.answer(id);
        self.notify("notifications/initialized", json!({}));
        answer["result"].clone()
    }

    /// Calls a tool and returns the text of its answer.
    #[track_caller]
    pub(crate) fn tool_text(&mut self, tool: &str, arguments: Value) -> String {
        let id = self.call(tool, arguments);
        let answer = self.answer(id);
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text in {answer}"))
            .to_owned()
    }

    /// Ends the client's stream.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Everything that still comes until stdout ends.
    pub(crate) fn drain(&mut self) {
        while self.next_message(PATIENCE).is_some() {}
    }

    /// Waits for the program's end: its exit code, or 128 and the signal.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> i32 {
        self.exit_code_within(PATIENCE)
    }

    #[track_caller]
    pub(crate) fn exit_code_within(&mut self, limit: Duration) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            }
            assert!(
                start.elapsed() < limit,
                "still running after {limit:?}; stderr: {:.4000}",
                self.stderr()
            );
            // Between two looks: a child can only be waited for without a limit.
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }

    /// Sends the program a signal.
    pub(crate) fn signal(&self, which: rustix::process::Signal) {
        signal(self.pid(), which);
    }

    /// Closes stdin, waits for the end and demands exit code 0.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        self.close_stdin();
        let code = self.exit_code();
        // Whatever it said last is there too, for those who look.
        let stderr = self.stderr_at_the_end();
        assert_eq!(code, 0, "stderr: {stderr:.4000}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The server's own pid, by its tool.
#[track_caller]
pub(crate) fn server_pid(client: &mut Client) -> i32 {
    client.tool_text("pid", json!({})).trim().parse().expect("a pid")
}

/// Whether a process is there and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Peak resident memory of a process in bytes.
pub(crate) fn peak_memory(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}
