//! The plain client: starts a command, shakes hands, asks, and reports. Every hostile client is this with one vice.
//!
//! # Invariants
//!
//! - Nothing waits beyond [`PATIENCE`] for an answer or [`FAREWELL`] for the command's end, both together within
//!   [`crate::BOUND`]; whoever has not ended by then is killed and said to have been.
//! - The verdict counts only what this client could see: one that does not read blames nobody for silence.

mod tally;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments, bounded_waits, pipe, plain_server::HANDSHAKE_REVISIONS,
    processes::WatchedProcess,
};

use crate::child_processes::{self, ChildStreams};

use tally::GuestTally;

/// How long the answers to everything may take together.
const PATIENCE: Duration = Duration::from_secs(85);
/// How long the command may take to end; longer than a whole shutdown of unhang takes (design 3).
const FAREWELL: Duration = Duration::from_secs(15);
/// How many bytes a client reads at once that has no reason to read fewer.
const PIECE: usize = 64 << 10;
/// How many ids the report names at most.
const NAMED: usize = 10;

/// How many answers a request may get.
#[derive(Clone, Copy, Default)]
struct Debt {
    least: usize,
    most: usize,
}

/// A client and the command that it has started.
pub(crate) struct Guest {
    name: &'static str,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    listening: Option<tally::StreamTally>,
    debts: BTreeMap<String, Debt>,
    last_id: u64,
    since: Instant,
    /// More that the client saw, for its report.
    notes: BTreeMap<&'static str, Value>,
    /// What the command did wrong besides owing answers.
    complaints: Vec<String>,
}

impl Guest {
    /// Starts the command after `--` with pipes, and with this program's stderr.
    pub(crate) fn arrive(name: &'static str, arguments: &ProgramArguments) -> io::Result<Self> {
        Self::arrive_with(name, arguments, ChildStreams::default(), false)
    }

    /// The same, reading what comes, and having shaken hands.
    pub(crate) fn introduced(name: &'static str, arguments: &ProgramArguments) -> io::Result<Self> {
        let mut guest = Self::arrive(name, arguments)?;
        guest.listen();
        guest.shake_hands()?;
        Ok(guest)
    }

    /// Starts it with other streams; it dies with this program unless it is to live on.
    pub(crate) fn arrive_with(
        name: &'static str,
        arguments: &ProgramArguments,
        streams: ChildStreams,
        lives_on: bool,
    ) -> io::Result<Self> {
        let (program, rest) = arguments.command()?;
        let mut child = child_processes::start_with(program, rest, streams, lives_on)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let mut guest = Self {
            name,
            stdin: None,
            stdout,
            child,
            listening: None,
            debts: BTreeMap::new(),
            last_id: 0,
            since: bounded_waits::now(),
            notes: BTreeMap::new(),
            complaints: Vec::new(),
        };
        stdin.map_or(Ok(()), |stdin| guest.speak_through(stdin))?;
        Ok(guest)
    }

    /// Writes from now on to the other end of this pipe.
    pub(crate) fn speak_through(&mut self, stdin: impl Into<ChildStdin>) -> io::Result<()> {
        let stdin = stdin.into();
        // Of our end alone, so that a write that the command does not take can be given up.
        make_nonblocking(&stdin)?;
        self.stdin = Some(stdin);
        Ok(())
    }

    /// Reads from now on, as fast as it comes.
    pub(crate) fn listen(&mut self) {
        self.listen_in_pieces(PIECE);
    }

    /// Reads from now on, so many bytes at once.
    pub(crate) fn listen_in_pieces(&mut self, size: usize) {
        self.listening = self.stdout.take().map(|stdout| tally::listen(stdout, size));
    }

    /// Reads from now on from this pipe, as fast as it comes.
    pub(crate) fn listen_through(&mut self, stdout: impl Into<ChildStdout>) {
        self.stdout = Some(stdout.into());
        self.listen();
    }

    /// Stops reading for ever, so that whoever writes finds nobody.
    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Ends its stream, and looks what the command has needed up to here.
    pub(crate) fn close_stdin(&mut self) {
        // First, for the command may end at once.
        let peak = WatchedProcess::open(self.pid(), &[]).and_then(|process| process.peak_memory());
        self.note("peakBytes", peak);
        self.stdin = None;
    }

    /// Keeps something for the report.
    pub(crate) fn note(&mut self, what: &'static str, value: impl Into<Value>) {
        self.notes.insert(what, value.into());
    }

    /// Says that the command did something wrong.
    pub(crate) fn complain(&mut self, text: &str) {
        self.complaints.push(text.to_owned());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Initializes and waits for the answer, where somebody reads it.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        self.shake_hands_as(HANDSHAKE_REVISIONS[0])
    }

    pub(crate) fn shake_hands_as(&mut self, revision: &str) -> io::Result<()> {
        let introduction = json!({
            "protocolVersion": revision,
            "capabilities": {"sampling": {}, "elicitation": {}, "roots": {}},
            "clientInfo": {"name": self.name, "version": env!("CARGO_PKG_VERSION")},
        });
        self.request("initialize", &introduction)?;
        self.await_answers();
        self.send(&pipe::notification("notifications/initialized", &json!({})))
    }

    /// Sends a request that is owed one answer, and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        self.owe(&json!(id), 1);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<u64> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Calls `echo` with a text of so many bytes.
    pub(crate) fn echo(&mut self, bytes: usize) -> io::Result<u64> {
        self.call("echo", &json!({"text": "x".repeat(bytes)}))
    }

    /// Enters that so many more answers are owed under this id.
    pub(crate) fn owe(&mut self, id: &Value, answers: usize) {
        let debt = self.debts.entry(id.to_string()).or_default();
        debt.least += answers;
        debt.most += answers;
    }

    /// Enters that an answer under this id may come, and need not.
    pub(crate) fn forgive(&mut self, id: u64) {
        if let Some(debt) = self.debts.get_mut(&id.to_string()) {
            debt.least = 0;
        }
    }

    /// Withdraws a request; its answer may be on its way already.
    pub(crate) fn cancel(&mut self, id: u64) -> io::Result<()> {
        self.forgive(id);
        let params = json!({"requestId": id, "reason": "a change of mind"});
        self.send(&pipe::notification("notifications/cancelled", &params))
    }

    pub(crate) fn send(&mut self, message: &Value) -> io::Result<()> {
        self.send_bytes(format!("{message}\n").as_bytes())
    }

    /// Writes bytes as they are; a command that does not take them in time is an error, one that has gone is not.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.send_within(bytes, self.time_left())? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("the command has read nothing for {PATIENCE:?}")))
    }

    /// Writes bytes as they are; false when the command does not take all of them while this long passes without a byte.
    pub(crate) fn send_within(&mut self, mut bytes: &[u8], limit: Duration) -> io::Result<bool> {
        let Some(stdin) = &mut self.stdin else { return Ok(true) };
        while !bytes.is_empty() {
            match stdin.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !is_ready(stdin, PollFlags::OUT, limit)? {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It shows in what stays unanswered.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.stdin = None;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Waits until every answer that is owed has come, or none can come any more.
    pub(crate) fn await_answers(&mut self) {
        let Some(listening) = &self.listening else { return };
        let debts = &self.debts;
        listening.wait(self.time_left(), |tally| {
            debts.iter().all(|(id, debt)| tally.outcomes(id).len() >= debt.least)
        });
    }

    /// Waits until something shows in what has come; false when it does not.
    pub(crate) fn await_sight(&self, condition: impl Fn(&GuestTally) -> bool) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.wait(self.time_left(), condition))
    }

    fn time_left(&self) -> Duration {
        (self.since + PATIENCE).saturating_duration_since(bounded_waits::now())
    }

    /// Asks for a sign of life and waits for it: what was sent before has arrived where it was going.
    pub(crate) fn round_trip(&mut self) -> io::Result<()> {
        let id = self.request("ping", &json!({}))?.to_string();
        self.await_sight(|tally| !tally.outcomes(&id).is_empty());
        Ok(())
    }

    /// Waits for the answers, closes what is open, waits for the command's end and reports.
    pub(crate) fn leave(mut self) -> io::Result<ExitCode> {
        self.await_answers();
        self.close_stdin();
        self.see_off()
    }

    /// Waits for the command's end without a word, and reports.
    pub(crate) fn see_off(mut self) -> io::Result<ExitCode> {
        let end = self.await_end()?;
        if let Some(listening) = &self.listening {
            // What the command wrote last may still be on its way through the pipe.
            listening.wait(FAREWELL, |tally| tally.has_ended);
        }
        self.report(&end)?;
        Ok(if self.complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Waits until the command has ended; says how.
    pub(crate) fn await_end(&mut self) -> io::Result<String> {
        let limit = bounded_waits::now() + FAREWELL;
        loop {
            if let Some(status) = self.child.try_wait()? {
                let signal = status.signal().map(|signal| format!("signal {signal}"));
                return Ok(signal.unwrap_or_else(|| format!("exit {}", status.code().unwrap_or_default())));
            }
            if bounded_waits::now() >= limit {
                self.child.kill()?;
                child_processes::wait(&mut self.child)?;
                self.complain(&format!("it was still there after {FAREWELL:?}"));
                return Ok("killed".to_owned());
            }
            bounded_waits::pause(Duration::from_millis(2));
        }
    }

    /// Writes the line that says what came of it.
    pub(crate) fn report(&mut self, end: &str) -> io::Result<()> {
        let mut report = json!({"client": self.name, "end": end, "asked": self.asked()});
        if let Some(listening) = self.listening.take() {
            let tally = listening.tally();
            self.judge(&tally);
            tally.tell(&mut report);
        }
        for (what, value) in std::mem::take(&mut self.notes) {
            report[what] = value;
        }
        report["complaints"] = json!(self.complaints);
        pipe::send(&report)
    }

    fn asked(&self) -> usize {
        self.debts.values().map(|debt| debt.most).sum()
    }

    /// Compares what came with what was owed.
    fn judge(&mut self, tally: &GuestTally) {
        let mut complain = |what: &str, ids: Vec<&String>| {
            if !ids.is_empty() {
                let mut text = format!("{what}: {}", ids.len());
                for id in ids.iter().take(NAMED) {
                    // Writing to a string cannot fail.
                    let _ = write!(text, " {id}");
                }
                self.complaints.push(text);
            }
        };
        let count = |id: &String| tally.outcomes(id).len();
        let debts = || self.debts.iter();
        complain(
            "unanswered",
            debts().filter(|(id, debt)| count(id) < debt.least).map(|(id, _)| id).collect(),
        );
        complain(
            "answered too often",
            debts().filter(|(id, debt)| count(id) > debt.most).map(|(id, _)| id).collect(),
        );
        complain(
            "answered, but never asked",
            tally.ids().filter(|id| !self.debts.contains_key(*id)).collect(),
        );
        if tally.strange > 0 {
            self.complaints.push(format!("lines that are no message: {}", tally.strange));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped_already = child_processes::wait(&mut self.child);
    }
}

/// Makes whoever shares this end of a pipe get an error where it would have to wait.
pub(crate) fn make_nonblocking(descriptor: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?)
}

/// Waits until a descriptor is ready.
fn is_ready(descriptor: &impl AsFd, for_what: PollFlags, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut descriptors = [PollFd::new(descriptor, for_what)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&limit)))? > 0)
}
