//! An MCP client of the soak: a guard to talk to, the ledger of what was asked, and the demands on both.
//!
//! # Invariants
//!
//! - Whatever the guard says is judged before anything else happens.
//! - The clock of the ledger stands still while the client does not read: what waits in the pipe then is not late.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clock;
use crate::run::ProgramRun;

use super::envelope::{AnswerOutcome, Said};
use super::guard::SoakGuard;
use super::ledger::{Ledger, LedgerRequest};
use super::plan::MODERN_REVISION;

/// How late an answer may be on a machine with other work.
const SLACK: Duration = Duration::from_secs(20);
/// The longest wait of one turn.
const TURN: Duration = Duration::from_millis(100);
/// How long the guard may take to exit once it is told to: the documented limit and half of it for a busy machine.
const EXIT_LIMIT: Duration = Duration::from_secs(15);
/// How long the guard's stdout may stay open after its exit; nobody else may hold it.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// How long the guard may take for what, as its flags say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoakTimeouts {
    pub(crate) start: Duration,
    pub(crate) request: Duration,
    pub(crate) call: Duration,
}

impl SoakTimeouts {
    /// The flags of `unhang wrap` that mean this.
    pub(crate) fn flags(&self) -> Vec<String> {
        let flag = |name: &str, time: Duration| [name.to_owned(), format!("{}ms", time.as_millis())];
        [
            flag("--start-timeout", self.start),
            flag("--request-timeout", self.request),
            flag("--call-timeout", self.call),
        ]
        .concat()
    }

    /// Until the first answer the start's patience counts too, whatever is asked.
    fn of(&self, method: &str) -> Option<Duration> {
        match method {
            "subscriptions/listen" => None,
            "tools/call" => Some(self.start.max(self.call)),
            _ => Some(self.start.max(self.request)),
        }
    }
}

/// A client in the middle of its session.
#[derive(Debug)]
pub(crate) struct SoakClient {
    pub(crate) guard: SoakGuard,
    pub(crate) ledger: Ledger,
    revision: &'static str,
    timeouts: SoakTimeouts,
    /// Whether requests of the server are answered.
    pub(crate) answers_asks: bool,
    /// Answers that wait until a line that was begun is whole.
    held: Option<Vec<String>>,
    born: Instant,
    deaf: Duration,
    next: u64,
    first: Option<String>,
    /// What the server settled on.
    pub(crate) negotiated: Option<String>,
    /// Requests that may be withdrawn, in their order.
    pub(crate) open: Vec<String>,
}

impl SoakClient {
    pub(crate) fn start(
        task: &ProgramRun,
        reads_stderr: bool,
        revision: &'static str,
        timeouts: SoakTimeouts,
    ) -> Result<Self, String> {
        let guard = SoakGuard::start(task, reads_stderr).map_err(|failure| failure.to_string())?;
        Ok(Self {
            guard,
            ledger: Ledger::default(),
            revision,
            timeouts,
            answers_asks: true,
            held: None,
            born: clock::now(),
            deaf: Duration::ZERO,
            next: 0,
            first: None,
            negotiated: None,
            open: Vec::new(),
        })
    }

    fn now(&self) -> Duration {
        self.born.elapsed().saturating_sub(self.deaf)
    }

    /// A fresh id in its JSON form; numbers and texts take turns.
    pub(crate) fn fresh_id(&mut self) -> String {
        self.next += 1;
        if self.next.is_multiple_of(4) { format!("\"r-{}\"", self.next) } else { self.next.to_string() }
    }

    /// Begins the session; a stateless one has nothing to begin with.
    pub(crate) fn shake_hands(&mut self) {
        if self.revision == MODERN_REVISION {
            return;
        }
        let client = json!({"name": "soak", "version": "1"});
        let params =
            json!({"protocolVersion": self.revision, "capabilities": {"sampling": {}}, "clientInfo": client});
        self.request("initialize", params);
        // It must not be withdrawn.
        self.open.clear();
    }

    pub(crate) fn say_initialized(&mut self) {
        if self.revision != MODERN_REVISION {
            self.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        self.guard.send(format!("{line}\n").as_bytes());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.guard.send(bytes);
    }

    /// Sends a line in two pieces with a pause between them.
    pub(crate) fn send_in_two(&mut self, line: &str, pause: Duration) -> Result<(), String> {
        let (first, second) = line.split_at(line.len() / 2);
        self.held = Some(Vec::new());
        self.send_bytes(first.as_bytes());
        let outcome = self.pause(pause);
        self.send_line(second);
        for answer in self.held.take().unwrap_or_default() {
            self.send_line(&answer);
        }
        outcome
    }

    /// Sends a request; returns its id.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> String {
        let id = self.fresh_id();
        self.send_request(id, method, params, None)
    }

    /// Calls a tool; a `proof` must be part of the result.
    pub(crate) fn call(
        &mut self,
        tool: &str,
        arguments: &Value,
        progress: bool,
        proof: Option<String>,
    ) -> String {
        let id = self.fresh_id();
        let mut params = json!({"name": tool, "arguments": arguments});
        if progress {
            params["_meta"] = json!({"progressToken": parsed(&id)});
        }
        self.send_request(id, "tools/call", params, proof)
    }

    fn send_request(&mut self, id: String, method: &str, params: Value, proof: Option<String>) -> String {
        let line = self.compose(&id, method, params, proof);
        self.open.push(id.clone());
        self.send_line(&line);
        id
    }

    /// Enters a request in the ledger and returns its line, to be sent at once.
    pub(crate) fn compose(
        &mut self,
        id: &str,
        method: &str,
        mut params: Value,
        proof: Option<String>,
    ) -> String {
        self.expect(id, method, proof);
        if self.revision == MODERN_REVISION {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN_REVISION);
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "soak", "version": "1"});
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    }

    /// Enters what is asked in some other form.
    pub(crate) fn expect(&mut self, id: &str, method: &str, proof: Option<String>) {
        let (now, limit) = (self.now(), self.timeouts.of(method));
        self.first.get_or_insert_with(|| id.to_owned());
        self.ledger.request(now, LedgerRequest { id, method, limit, proof });
    }

    pub(crate) fn cancel(&mut self, id: &str) {
        self.ledger.cancel(id);
        self.send_line(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        ));
    }

    /// Reads and writes what is there, judges it, and demands that nothing is late.
    pub(crate) fn turn(&mut self, timeout: Duration) -> Result<(), String> {
        let moved = self.guard.turn(timeout).map_err(|error| format!("the pipes to the guard: {error}"))?;
        while let Some(line) = self.guard.next_line() {
            self.hear(&line)?;
            // To judge takes time, and a client that does not read meanwhile is another client.
            self.guard.read_on().map_err(|error| format!("the guard's stdout: {error}"))?;
        }
        if moved || !self.guard.reads || self.has_gone() {
            return Ok(());
        }
        self.ledger.demand_in_time(self.now(), SLACK)
    }

    fn hear(&mut self, line: &[u8]) -> Result<(), String> {
        for said in self.ledger.hear(line)? {
            match said {
                Said::Ask { id, .. } if self.answers_asks => {
                    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
                    match &mut self.held {
                        Some(held) => held.push(answer),
                        None => self.send_line(&answer),
                    }
                }
                Said::Answer { id, outcome: AnswerOutcome::Result }
                    if self.negotiated.is_none() && self.is_first(&id) =>
                {
                    let version = parsed(&String::from_utf8_lossy(line))["result"]["protocolVersion"].take();
                    self.negotiated = version.as_str().map(str::to_owned);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_first(&self, id: &str) -> bool {
        self.first.as_deref() == Some(id)
    }

    /// Whether the first request has its answer.
    pub(crate) fn is_greeted(&self) -> bool {
        self.first.as_ref().is_some_and(|first| self.ledger.is_answered(first))
    }

    /// Turns for so long, or until the guard has gone.
    pub(crate) fn pause(&mut self, length: Duration) -> Result<(), String> {
        let end = clock::now() + length;
        while clock::now() < end && !self.has_gone() {
            self.turn(end.saturating_duration_since(clock::now()).min(TURN))?;
        }
        Ok(())
    }

    /// The same without reading.
    pub(crate) fn be_deaf(&mut self, length: Duration) -> Result<(), String> {
        let begin = clock::now();
        self.guard.reads = false;
        let outcome = self.pause(length);
        self.guard.reads = true;
        self.deaf += begin.elapsed();
        outcome
    }

    /// Turns until `condition` holds or the guard has gone; `what` is not there in time otherwise.
    pub(crate) fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<(), String> {
        let end = clock::now() + limit;
        while !condition(self) && !self.has_gone() {
            if clock::now() > end {
                return Err(format!("{what}: not within {} s", limit.as_secs()));
            }
            self.turn(TURN)?;
        }
        Ok(())
    }

    /// Turns until everything is answered; the ledger knows by when.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        while self.ledger.waiting() > 0 && !self.has_gone() {
            self.turn(TURN)?;
        }
        Ok(())
    }

    /// Whether the guard has ended or does not listen any more, though it was not told to end.
    pub(crate) fn has_gone(&self) -> bool {
        self.guard.status().is_some() || self.guard.is_deaf() || self.guard.is_silent()
    }

    /// Gives the guard time to take everything that was sent.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        self.until("the guard takes its input", EXIT_LIMIT, |client| client.guard.has_read_all())
    }

    /// Waits for the guard's exit and hears its last words.
    pub(crate) fn await_exit(&mut self) -> Result<std::process::ExitStatus, String> {
        let end = clock::now() + EXIT_LIMIT;
        let status = loop {
            if let Some(status) = self.guard.status() {
                break status;
            }
            if clock::now() > end {
                return Err(format!("the guard was still there after {} s", EXIT_LIMIT.as_secs()));
            }
            self.turn(TURN)?;
        };
        let end = clock::now() + SILENCE_LIMIT;
        while !self.guard.is_silent() {
            if clock::now() > end {
                return Err("the guard's stdout stayed open after its exit".to_owned());
            }
            self.turn(TURN)?;
        }
        Ok(status)
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}
