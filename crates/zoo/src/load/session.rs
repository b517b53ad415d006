//! One session with the server, over one way.
//!
//! # Invariants
//!
//! - Dropping a session ends and reaps its processes, and ends those that they have left.

use std::io::{self, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use unhang_demo_servers::{
    bounded_waits,
    processes::{self, WatchedProcess},
};

use super::LoadRoute;
use super::answers::{AnswerLine, Answers, ENDS, PATIENCE, WHOLE};
use crate::child_processes;
use crate::child_processes::ChildStreams;

/// How long the processes may take to end by themselves; longer than a whole shutdown of unhang (design 3).
const FAREWELL: Duration = Duration::from_secs(11);
/// How long what stood below a killed process may take to be cleared up by its own kind.
const CLEARING: Duration = Duration::from_secs(3);

/// How long a command that has closed its streams may take to end, so that its exit code can be told.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What the client says about itself.
const INTRODUCTION: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"unhang-bench","version":"1"}}"#;

/// Processes in a row, each reading from the one before; killed and reaped when dropped.
struct Chain(Vec<Child>);

impl Drop for Chain {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Chain {
    /// Kills and reaps what has not been reaped yet.
    fn kill(&mut self) {
        for child in &mut self.0 {
            let _gone_already = child.kill();
        }
        for child in &mut self.0 {
            let _reaped_already = child_processes::wait(child);
        }
    }

    /// Starts a command at the end of the row.
    fn add(&mut self, command: &[String]) -> io::Result<()> {
        let stdin =
            self.0.last_mut().and_then(|last| last.stdout.take()).map_or_else(Stdio::piped, Stdio::from);
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        self.0.push(child_processes::start_link(program, arguments, stdin)?);
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }

    /// Waits until all have ended by themselves.
    fn wait(&mut self) -> io::Result<()> {
        for process in self.pids().into_iter().filter_map(|pid| WatchedProcess::open(pid, &[])) {
            if !process.wait(FAREWELL)? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("running after {FAREWELL:?}")));
            }
        }
        self.0.iter_mut().try_for_each(child_processes::wait)
    }
}

/// An initialized session.
pub(super) struct LoadSession {
    /// All processes of the way that were there when [`LoadSession::look_around`] looked.
    processes: Vec<WatchedProcess>,
    stdin: Option<ChildStdin>,
    answers: Answers,
    chain: Chain,
    /// For each call since the session began, by id, whether its answer has come.
    answered: Vec<bool>,
    /// Whether the processes have ended by themselves.
    ended: bool,
}

impl LoadSession {
    /// Starts the server in this way and shakes hands; returns when `initialize` is answered.
    pub(super) fn open(way: &LoadRoute, server: &[String]) -> io::Result<Self> {
        let mut chain = Chain(Vec::new());
        let cat = ["cat".to_owned()];
        match way {
            LoadRoute::Direct => chain.add(server)?,
            LoadRoute::Cats => [&cat, server, &cat].into_iter().try_for_each(|command| chain.add(command))?,
            LoadRoute::Through(command) => chain.add(&[command, server].concat())?,
        }
        Self::begin(chain, ENDS, PATIENCE)
    }

    /// The same for a server that stands alone, with a variable in its environment; its answers are kept whole.
    pub(super) fn open_alone(
        command: &[String],
        variable: (&str, &str),
        timeout: Duration,
    ) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let streams = ChildStreams { stderr: Stdio::null(), ..ChildStreams::default() };
        let chain = Chain(vec![child_processes::start_marked(program, arguments, streams, variable)?]);
        Self::begin(chain, WHOLE, timeout)
    }

    fn begin(mut chain: Chain, kept: usize, timeout: Duration) -> io::Result<Self> {
        let stdin = chain.0.first_mut().and_then(|first| first.stdin.take());
        let stdout = chain.0.last_mut().and_then(|last| last.stdout.take());
        let answers = Answers::new(stdout.ok_or(io::ErrorKind::BrokenPipe)?, kept, timeout);
        let mut session =
            Self { processes: Vec::new(), stdin, answers, chain, answered: Vec::new(), ended: false };
        session.shake_hands().map_err(|error| session.explained(error))?;
        Ok(session)
    }

    fn shake_hands(&mut self) -> io::Result<()> {
        self.request("initialize", INTRODUCTION)?;
        self.answer()?;
        self.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
    }

    /// Adds how the command has ended to an error, for that mostly is the reason.
    fn explained(&mut self, error: io::Error) -> io::Error {
        let Some(last) = self.chain.0.last_mut() else { return error };
        let ended = WatchedProcess::open(last.id(), &[]).map(|process| process.wait(LAST_WORDS));
        match last.try_wait() {
            Ok(Some(status)) if matches!(ended, Some(Ok(true))) => {
                io::Error::new(error.kind(), format!("{error} ({status})"))
            }
            _ => error,
        }
    }

    fn send(&mut self, line: &str) -> io::Result<()> {
        self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(line.as_bytes())
    }

    pub(super) fn request(&mut self, method: &str, params: &str) -> io::Result<()> {
        let id = self.answered.len();
        self.answered.push(false);
        self.send(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n"
        ))
    }

    /// Asks for a text of this many bytes.
    pub(super) fn call(&mut self, bytes: usize) -> io::Result<()> {
        self.request("tools/call", &format!("{{\"name\":\"echo\",\"arguments\":{{\"bytes\":{bytes}}}}}"))
    }

    /// Waits for the answer to any request and returns its length.
    pub(super) fn answer(&mut self) -> io::Result<usize> {
        self.answer_line().map(|line| line.length)
    }

    /// Waits for the answer to any request; whatever is not right about it is an error.
    pub(super) fn answer_line(&mut self) -> io::Result<AnswerLine> {
        loop {
            let line = self.answers.next()?;
            if self.is_answer(&line)? {
                return Ok(line);
            }
        }
    }

    /// The same; nothing where that much time has passed without a byte, or after a notification.
    pub(super) fn answer_line_within(&mut self, limit: Duration) -> io::Result<Option<AnswerLine>> {
        let Some(line) = self.answers.next_within(limit)? else { return Ok(None) };
        Ok(self.is_answer(&line)?.then_some(line))
    }

    /// Whether this is the answer to a request. Notifications are allowed, and everything else is an error.
    fn is_answer(&mut self, line: &AnswerLine) -> io::Result<bool> {
        let Some(id) = line.id() else { return Ok(false) };
        let answered = usize::try_from(id).ok().and_then(|id| self.answered.get_mut(id));
        match answered {
            Some(answered) if !*answered && line.is_result() => {
                *answered = true;
                Ok(true)
            }
            _ => Err(wrong(line)),
        }
    }

    /// The id that the next request will have.
    pub(super) fn next_id(&self) -> u64 {
        self.answered.len() as u64
    }

    /// Makes one call and waits for its answer; returns the answer's length.
    pub(super) fn round_trip(&mut self, bytes: usize) -> io::Result<usize> {
        self.call(bytes)?;
        let length = self.answer()?;
        if length < bytes {
            Err(io::Error::other(format!("{length} bytes came instead of {bytes}")))
        } else {
            Ok(length)
        }
    }

    /// Looks which processes there are by now; before this the way adds none.
    pub(super) fn look_around(&mut self, server: &[String]) {
        self.processes = processes::tree(&self.chain.pids(), server);
    }

    /// Resident memory, in bytes, of the command itself.
    pub(super) fn resident_memory(&self) -> io::Result<u64> {
        let first = self.chain.0.first().ok_or(io::ErrorKind::NotFound)?;
        processes::resident_memory(first.id())
    }

    fn added(&self) -> impl Iterator<Item = &WatchedProcess> {
        self.processes.iter().filter(|process| !process.is_server)
    }

    /// Peak memory of the added processes in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        self.added().filter_map(WatchedProcess::peak_memory).sum()
    }

    /// Processor time of the added processes so far.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        self.added().map(WatchedProcess::processor_time).sum()
    }

    /// Kills the command, and leaves alone what goes on without it.
    pub(super) fn kill(mut self) {
        self.ended = true;
        self.chain.kill();
    }

    /// Closes stdin and waits for the end; returns how long it took.
    pub(super) fn close(mut self) -> io::Result<Duration> {
        let begin = bounded_waits::now();
        self.stdin = None;
        self.chain.wait()?;
        self.ended = true;
        Ok(begin.elapsed())
    }
}

impl Drop for LoadSession {
    fn drop(&mut self) {
        if !self.ended {
            self.look_around(&[]);
            self.stdin = None;
            self.chain.kill();
        }
        // A wrapper's own way of clearing up comes first; what that leaves is ended here.
        for process in &self.processes {
            if !process.wait(CLEARING).unwrap_or_default() {
                process.kill();
                let _bounded = process.wait(CLEARING);
            }
        }
    }
}

fn wrong(line: &AnswerLine) -> io::Error {
    let text = format!("an answer that nobody waits for, or an error: {}", line.beginning());
    io::Error::new(io::ErrorKind::InvalidData, text)
}
