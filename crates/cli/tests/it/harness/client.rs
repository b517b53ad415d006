//! An MCP client over pipes, strict about what it gets.
//!
//! Invariants: every line on stdout is one whole JSON-RPC message, or the test fails; stdout and stderr are always drained, unless a
//! test wants one of them unread; nothing waits without a limit.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{PATIENCE, signal, wait_until};

/// How long a program that has ended is given for the last of its stderr, on a machine where the reader is late.
const LAST_STDERR: Duration = Duration::from_secs(1);

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

    /// Starts a program that has been given all its streams.
    pub(crate) fn start_alone(mut command: Command) -> Client {
        Client::launch(&mut command)
    }

    /// Writes to it from now on: the client's end of the stdin that the program was given.
    pub(crate) fn writing(mut self, stdin: impl Write + Send + 'static) -> Client {
        self.stdin = Some(Box::new(stdin));
        self
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
        let (_, lines) = channel();
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
        // A bounded one would get the memory for all its lines at once: 40 MB for each client, filled by code that is not optimised.
        let (sender, lines) = channel();
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

    /// The answers with these ids, in whichever order they come.
    #[track_caller]
    pub(crate) fn answers<const COUNT: usize>(&mut self, ids: [i64; COUNT]) -> [Value; COUNT] {
        let mut came = HashMap::new();
        while let Some(missing) = ids.iter().find(|id| !came.contains_key(*id)) {
            let fits = |message: &Value| {
                message.get("method").is_none() && ids.iter().any(|id| message["id"] == *id)
            };
            let answer = self.find(&format!("answer to {missing}"), fits);
            came.insert(answer["id"].as_i64().expect("one of the ids"), answer);
        }
        ids.map(|id| came.remove(&id).expect("all came"))
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
                self.read_last_stderr();
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

    /// Lets the thread that reads stderr finish. A program that has ended has left its last lines in the pipe. Another process may hold
    /// the pipe open, so this does not insist on its end.
    fn read_last_stderr(&self) {
        let start = Instant::now();
        let is_read = || self.stderr_reader.as_ref().is_none_or(JoinHandle::is_finished);
        while !is_read() && start.elapsed() < LAST_STDERR {
            // Between two looks: joining a thread has no limit.
            thread::sleep(Duration::from_millis(1));
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
