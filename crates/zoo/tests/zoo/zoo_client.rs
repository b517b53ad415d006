//! A client of the zoo: starts one faulty server, talks to it through pipes, and never waits without a limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a test waits for anything; generous, because the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct ZooClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_reader: Option<JoinHandle<()>>,
}

impl ZooClient {
    /// Starts a faulty server; `line` is its name and arguments.
    pub(crate) fn meet(line: &str) -> Self {
        Self::meet_with(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn meet_with(args: &[&str]) -> Self {
        Self::listen_to(start(args))
    }

    /// Starts the program with these words alone.
    pub(crate) fn of_the_program(words: &[&str]) -> Self {
        Self::listen_to(launch(&mut by_words(words)))
    }

    /// Starts a faulty server as a job: with a folder of its own, in a process group of its own.
    pub(crate) fn employ(folder: &Path, args: &[&str]) -> Self {
        Self::listen_to(launch(faulty_server(args).env("UNHANG_JOB_DIR", folder).process_group(0)))
    }

    fn listen_to(mut child: Child) -> Self {
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, lines) = sync_channel(100_000);
        std::thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                match stdout.read_until(b'\n', &mut line) {
                    Ok(1..) if sender.send(line).is_ok() => {}
                    _ => return,
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let (mut source, sink) = (child.stderr.take().expect("stderr is piped"), Arc::clone(&stderr));
        let stderr_reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut piece) {
                sink.lock().expect("nobody panics with the lock").extend_from_slice(&piece[..count]);
            }
        });
        Self { child, stdin, lines, stderr, stderr_reader: Some(stderr_reader) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one message; a server that has gone is noticed elsewhere.
    pub(crate) fn say(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let _ = self.stdin.as_mut().expect("stdin is open").write_all(line.as_bytes());
    }

    pub(crate) fn request(&mut self, id: u64, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: &Value) {
        self.request(
            id,
            "tools/call",
            &json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}}),
        );
    }

    /// Returns the next line with its end; `None` at the end of stdout.
    pub(crate) fn line(&self) -> Option<Vec<u8>> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no line within {PATIENCE:?}"),
        }
    }

    /// Returns whether a line is there already.
    pub(crate) fn has_line(&self) -> bool {
        self.lines.try_recv().is_ok()
    }

    /// Returns the next line as JSON.
    pub(crate) fn json(&self) -> Value {
        let line = self.line().expect("the program answers");
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }

    /// Returns the next response to `id`, passing over everything else.
    pub(crate) fn answer(&self, id: u64) -> Value {
        loop {
            let message = self.json();
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
        }
    }

    /// Does the handshake of 2025-11-25 and returns the answer to `initialize`.
    pub(crate) fn shake_hands(&mut self) -> Value {
        self.request(0, "initialize", &introduction());
        let answer = self.answer(0);
        self.notify("notifications/initialized", &json!({}));
        answer
    }

    /// Calls a tool and returns the text of its answer.
    pub(crate) fn call_text(&mut self, id: u64, tool: &str, arguments: &Value) -> String {
        self.call(id, tool, arguments);
        let answer = self.answer(id);
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Returns whether nobody can read what is written to the faulty server.
    pub(crate) fn writing_fails(&mut self) -> bool {
        self.stdin.as_mut().expect("stdin is open").write_all(b"\n").is_err()
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child can be asked").is_some()
    }

    /// Waits until the faulty server has ended by itself.
    pub(crate) fn end(&mut self) -> ExitStatus {
        wait_until("the program ends", || self.child.try_wait().expect("the child can be asked"))
    }

    /// Returns all of stderr, once the faulty server has ended.
    pub(crate) fn last_words(&mut self) -> String {
        if let Some(reader) = self.stderr_reader.take() {
            reader.join().expect("the reader does not panic");
        }
        String::from_utf8_lossy(&self.stderr.lock().expect("nobody panics with the lock")).into_owned()
    }

    /// Returns how much came on stderr so far.
    pub(crate) fn stderr_size(&self) -> usize {
        self.stderr.lock().expect("nobody panics with the lock").len()
    }
}

impl Drop for ZooClient {
    #[expect(clippy::disallowed_methods, reason = "a killed child ends at once")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "there is no async runtime whose time could be paused")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn introduction() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}})
}

pub(crate) fn start(args: &[&str]) -> Child {
    launch(&mut faulty_server(args))
}

fn faulty_server(args: &[&str]) -> Command {
    by_words(&[&["zoo"], args].concat())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the zoo shares no code with what it tests, so its tests spawn by themselves"
)]
fn by_words(words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(words);
    command
}

#[expect(
    clippy::disallowed_methods,
    reason = "the zoo shares no code with what it tests, so its tests spawn by themselves"
)]
fn launch(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_unhang-zoo")
}

/// Waits until `condition` gives a value.
#[expect(clippy::disallowed_methods, reason = "the one place that looks again and again, with a limit")]
pub(crate) fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a marker that no other process of this machine carries.
pub(crate) fn marker(name: &str) -> String {
    static MARKERS: AtomicUsize = AtomicUsize::new(0);
    // Two tests with one marker would end each other's processes.
    let number = MARKERS.fetch_add(1, Ordering::Relaxed);
    format!("zoo-test-{}-{number}-{name}", std::process::id())
}

/// Returns the processes with `word` and `marker` in their command line.
pub(crate) fn marked(word: &str, marker: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is readable");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let items: Vec<_> = line.split(|byte| *byte == 0).collect();
            items.contains(&word.as_bytes()) && items.contains(&marker.as_bytes())
        })
        .collect()
}

/// Returns a field of `/proc/PID/stat`, counted from the state as 0.
pub(crate) fn stat(pid: u32, field: usize) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().nth(field).unwrap_or_default().to_owned()
}

/// Sends a signal to a process that a test knows.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    // It may have ended meanwhile.
    let _ = rustix::process::kill_process(pid, signal);
}

/// Kills all processes with the marker and waits until they are gone.
pub(crate) fn clear(marker: &str) {
    wait_until("no marked process is left", || {
        let left: Vec<_> = ["lingers", "hops", "detaches", "prints", "chatters"]
            .iter()
            .flat_map(|word| marked(word, marker))
            .collect();
        left.iter().for_each(|pid| signal(*pid, rustix::process::Signal::KILL));
        left.is_empty().then_some(())
    });
}
