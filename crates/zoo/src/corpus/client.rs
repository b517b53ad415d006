//! An independent MCP client over pipes, with a patience: it waits that long for anything, and not longer.
//!
//! # Theory of operation
//!
//! One thread, one `poll` over what it reads, what it writes and the end of the process. It reads while it writes, so
//! it never is one half of a deadlock itself, unless a case wants just that.
//!
//! # Invariants
//!
//! - Every wait ends after the patience, or soon after an interrupt.
//! - The process has ended and is reaped when the client is dropped, and the kernel kills it if this one dies.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use unhang_demo_servers::{
    bounded_waits,
    processes::{self, WatchedProcess},
};

use super::received::Received;
use super::verdict::{Flaw, Judged, broken, demand};
use crate::child_processes::{self, ChildStreams};
use crate::signals;

/// As much as a pipe that polls as writable takes without waiting.
const PIECE: usize = 4096;
/// Bytes read at once.
const CHUNK: usize = 64 << 10;
/// How often a wait looks whether somebody has interrupted everything.
const GLANCE: Duration = Duration::from_millis(200);
/// How long the process may take to end when the case is over; a whole stop of unhang takes 3 s.
const FAREWELL: Duration = Duration::from_secs(4);
/// The same where it has not done in time what it ought to: the case is lost already.
const SHORT_FAREWELL: Duration = Duration::from_millis(500);
/// How much of the stderr of a process that has ended is shown.
const LAST_WORDS: usize = 4096;

/// What a turn of [`CorpusClient::turn`] is for, besides reading.
#[derive(Clone, Copy)]
enum Aim<'a> {
    Read,
    /// Reading too, unless the client is to be one that does not.
    Write(&'a [u8], Reads),
    Exit,
}

/// Whether the client reads while it writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Always,
    NotNow,
}

/// A connection to a server, over whatever stands between.
pub(crate) struct CorpusClient {
    child: Child,
    process: WatchedProcess,
    stdin: Option<ChildStdin>,
    /// `None` when it has ended.
    stdout: Option<ChildStdout>,
    received: Received,
    last_id: u64,
    timeout: Duration,
    /// Whether it has kept the client waiting for too long.
    has_hung: bool,
}

impl CorpusClient {
    /// Starts a command. Nobody reads its stderr: many a client holds it open and forgets it.
    pub(crate) fn start(
        command: &[String],
        variable: (&str, &str),
        errors: Stdio,
        timeout: Duration,
    ) -> Judged<Self> {
        let (program, arguments) = command.split_first().ok_or(Flaw::Failed("no command".to_owned()))?;
        let streams = ChildStreams { stderr: errors, ..ChildStreams::default() };
        let mut child = child_processes::start_marked(program, arguments, streams, variable)
            .map_err(|error| Flaw::Failed(format!("starting `{program}`: {error}")))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let Some(process) = WatchedProcess::open(child.id(), &[]) else {
            let _ended_already = child.kill();
            child_processes::wait(&mut child)?;
            return Err(Flaw::Failed("the process cannot be watched".to_owned()));
        };
        let received = Received::default();
        Ok(Self { child, process, stdin, stdout, received, last_id: 0, timeout, has_hung: false })
    }

    /// What has come so far.
    pub(crate) fn received(&self) -> &Received {
        &self.received
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the stream of answers has ended, or it has kept the client waiting for too long.
    pub(crate) fn is_lost(&self) -> bool {
        self.has_hung || self.stdout.is_none()
    }

    /// Moves what can be moved, once, and returns how many bytes were written.
    fn turn(&mut self, until: Instant, aim: Aim, overdue: impl FnOnce() -> String) -> Judged<usize> {
        if signals::was_interrupted() {
            return Err(Flaw::Failed("interrupted".to_owned()));
        }
        let Some(left) = until.checked_duration_since(bounded_waits::now()) else {
            self.has_hung = true;
            return broken(overdue());
        };
        let reads = !matches!(aim, Aim::Write(_, Reads::NotNow));
        let mut descriptors = Vec::with_capacity(2);
        if let Some(stdout) = self.stdout.as_ref().filter(|_| reads) {
            descriptors.push(PollFd::new(stdout, PollFlags::IN));
        }
        let readable_at = descriptors.len().checked_sub(1);
        match aim {
            Aim::Write(..) => {
                let Some(stdin) = &self.stdin else { return broken("the connection has ended") };
                descriptors.push(PollFd::new(stdin, PollFlags::OUT));
            }
            Aim::Exit => descriptors.push(PollFd::from_borrowed_fd(self.process.as_fd(), PollFlags::IN)),
            Aim::Read if self.stdout.is_none() => return broken("the connection has ended"),
            Aim::Read => {}
        }
        let limit = Timespec::try_from(left.min(GLANCE)).map_err(|error| Flaw::Failed(error.to_string()))?;
        rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&limit))).map_err(std::io::Error::from)?;
        let is_ready = |index: usize| !descriptors[index].revents().is_empty();
        let (readable, writable) = (
            readable_at.is_some_and(is_ready),
            matches!(aim, Aim::Write(..)) && is_ready(descriptors.len() - 1),
        );
        if readable {
            self.read()?;
        }
        match aim {
            Aim::Write(bytes, _) if writable => self.write_piece(bytes),
            _ => Ok(0),
        }
    }

    /// Reads what is there.
    fn read(&mut self) -> Judged {
        let mut chunk = [0; CHUNK];
        let Some(stdout) = &mut self.stdout else { return Ok(()) };
        match stdout.read(&mut chunk)? {
            0 => self.stdout = None,
            count => self.received.push(&chunk[..count]),
        }
        Ok(())
    }

    fn write_piece(&mut self, bytes: &[u8]) -> Judged<usize> {
        let piece = &bytes[..bytes.len().min(PIECE)];
        match self.stdin.as_mut().map(|stdin| stdin.write(piece)) {
            Some(Ok(count)) => Ok(count),
            Some(Err(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => broken("the connection has ended"),
        }
    }

    /// Sends a line, or whatever else the bytes are.
    pub(crate) fn send(&mut self, bytes: &[u8], reads: Reads) -> Judged {
        let until = bounded_waits::now() + self.timeout;
        let mut rest = bytes;
        while !rest.is_empty() {
            let overdue =
                || format!("a write blocks after {} of {} bytes", bytes.len() - rest.len(), bytes.len());
            let count = self.turn(until, Aim::Write(rest, reads), overdue)?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Sends one message.
    pub(crate) fn say(&mut self, message: &Value) -> Judged {
        self.send(format!("{message}\n").as_bytes(), Reads::Always)
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) -> Judged {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// Builds the next request.
    pub(crate) fn next_request(&mut self, method: &str, params: &Value) -> (u64, Value) {
        self.last_id += 1;
        (self.last_id, json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}))
    }

    /// Sends a request and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Judged<u64> {
        let (id, request) = self.next_request(method, params);
        self.say(&request).map(|()| id)
    }

    /// Calls a tool and returns the id of the call.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Judged<u64> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Reads until there is what is looked for.
    pub(crate) fn wait_for<T>(&mut self, what: &str, find: impl Fn(&Received) -> Option<T>) -> Judged<T> {
        let (until, timeout) = (bounded_waits::now() + self.timeout, self.timeout);
        loop {
            if let Some(found) = find(&self.received) {
                return Ok(found);
            }
            self.turn(until, Aim::Read, || format!("no {what} in {timeout:?}"))?;
        }
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, id: u64) -> Judged<Value> {
        let id = json!(id);
        self.wait_for("answer", |received| received.answer(&id).cloned())
    }

    /// Waits for the answer to a request, which must be no error.
    pub(crate) fn result(&mut self, id: u64) -> Judged<Value> {
        let mut answer = self.answer(id)?;
        match answer["error"]["message"].as_str() {
            None => Ok(answer["result"].take()),
            Some(error) => broken(format!("an error: {error}")),
        }
    }

    /// Calls a tool and returns the text of its result.
    pub(crate) fn text(&mut self, tool: &str, arguments: &Value) -> Judged<String> {
        let id = self.call(tool, arguments)?;
        let result = self.result(id)?;
        match result["content"][0]["text"].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => broken("a result without its text"),
        }
    }

    /// Makes a call whose answer is known and must be right.
    pub(crate) fn echo(&mut self, text: &str) -> Judged {
        let echoed = self.text("echo", &json!({"text": text}))?;
        demand(echoed == text, || "another text came back".to_owned())
    }

    /// Makes a request and waits for its answer, whichever.
    pub(crate) fn is_answered(&mut self, method: &str, params: &Value) -> Judged<Value> {
        let id = self.request(method, params)?;
        self.answer(id)
    }

    /// The handshake.
    pub(crate) fn shake_hands(&mut self) -> Judged {
        let id = self.introduce()?;
        self.result(id).map_err(|flaw| match flaw {
            Flaw::Broken(reason) => Flaw::Broken(format!("handshake: {reason}")),
            failed @ Flaw::Failed(_) => failed,
        })?;
        self.notify("notifications/initialized", &json!({}))
    }

    /// The first half of the handshake; returns its id.
    pub(crate) fn introduce(&mut self) -> Judged<u64> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "corpus", "version": env!("CARGO_PKG_VERSION")}});
        self.request("initialize", &params)
    }

    /// Demands that nothing is wrong with all that came so far.
    pub(crate) fn demand_clean_wire(&self) -> Judged {
        self.received.flaw().map_or(Ok(()), broken)
    }

    /// How many other processes hold this end of a stream open.
    pub(crate) fn holders(&self, stream: ProtocolStream) -> Judged<usize> {
        let status = match stream {
            ProtocolStream::Input => self.stdin.as_ref().map(rustix::fs::fstat),
            ProtocolStream::Output => self.stdout.as_ref().map(rustix::fs::fstat),
        };
        let Some(status) = status else { return broken("the connection has ended") };
        Ok(processes::holders_of_pipe(status.map_err(std::io::Error::from)?.st_ino))
    }

    /// Ends the stream towards the server.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal to what was started.
    pub(crate) fn signal(&self, signal: Signal) {
        let _gone_already = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for the end of what was started, by itself, and reads all the while.
    pub(crate) fn exit(&mut self) -> Judged<ExitStatus> {
        self.exit_within(self.timeout)
    }

    fn exit_within(&mut self, limit: Duration) -> Judged<ExitStatus> {
        let until = bounded_waits::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            self.turn(until, Aim::Exit, || format!("still running after {limit:?}"))?;
        }
    }

    /// What it said on stderr and how it ended, where it has.
    pub(crate) fn last_words(&mut self) -> Option<String> {
        let status = self.exit_within(FAREWELL).ok()?;
        let mut words = Vec::new();
        // The end of its stderr may be held open by others, so only what is there is read.
        if let Some(stderr) = &mut self.child.stderr {
            let mut descriptors = [PollFd::new(stderr, PollFlags::IN)];
            if poll(&mut descriptors, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
                words.resize(LAST_WORDS, 0);
                let count = stderr.read(&mut words).unwrap_or_default();
                words.truncate(count);
            }
        }
        let how = match status.signal() {
            Some(signal) => format!("ended by signal {signal}"),
            None => format!("exited with {}", status.code().unwrap_or_default()),
        };
        Some(format!("{how}: {}", String::from_utf8_lossy(&words).trim()))
    }
}

/// One of the two streams of the protocol.
#[derive(Clone, Copy)]
pub(crate) enum ProtocolStream {
    Input,
    Output,
}

impl Drop for CorpusClient {
    fn drop(&mut self) {
        self.close();
        let farewell = if self.has_hung { SHORT_FAREWELL } else { FAREWELL };
        if self.exit_within(farewell).is_err() {
            let _gone_already = self.child.kill();
            let _reaped_already = child_processes::wait(&mut self.child);
        }
    }
}
