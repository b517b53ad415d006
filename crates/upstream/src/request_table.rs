//! The requests to a server and their answers: ids, deadlines, and the meaning of each line. Pure.
//!
//! Invariants
//!
//! - Every request that was begun comes out exactly once: answered, failed, withdrawn or lost.
//! - An answer is matched by its id alone. An answer that nobody waits for is kept as junk and handed to nobody.
//! - Ids count up from 1 and are never used again (L-28). After requests of another process were taken over, they count up from the
//!   greatest id and token of these.
//! - Time is handed in; nothing here has a clock, a descriptor or a task.

use std::{collections::HashMap, time::Duration};

use serde_json::value::RawValue;
use unhang_proc::drain::Tail;
use unhang_wire::{
    self as wire, Body, Completion, Id, InFlight, Invalid, Json, Line, Message, MessageShape, Oversized,
    Piece, ResponseOutcome, compose, read,
};

use unhang_core::{
    config::{LATE_IDS, TAIL_LINES},
    error::{Error, Failure, ServerError},
    fault::{BAD_RESPONSE_HINT, Evidence, FaultKind, after_request},
    junk::Junk,
    units::in_words,
};

/// The distance of our ids to those of requests that were taken over. The other process has sent later requests, which we do not know, and
/// the server may still answer them.
const OTHERS_LATER_IDS: i64 = 1 << 20;

/// The flag that sets the limit of a call.
const CALL_TIMEOUT: &str = "--call-timeout";

/// The flag that sets the limit of a call that is a job.
const JOB_TIMEOUT: &str = "--job-timeout";

/// A request that waits for its answer. `R` is its origin.
#[derive(Debug)]
pub(crate) struct PendingRequest<R> {
    pub(crate) id: Id,
    pub(crate) method: Box<str>,
    pub(crate) since: Duration,
    /// The time for which it had waited by then.
    pub(crate) before: Duration,
    pub(crate) limit: Duration,
    pub(crate) whose: R,
}

impl<R> PendingRequest<R> {
    /// Returns how long the request has waited for its answer.
    fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since).saturating_add(self.before)
    }
}

/// An event that comes of a line, or of time passing.
#[derive(Debug)]
pub(crate) enum TableEvent<R> {
    /// A request has its outcome.
    Done(PendingRequest<R>, Result<Box<RawValue>, Error>),
    /// Progress of the request with this id.
    Progress(Id, Box<RawValue>),
    /// A notification of another kind.
    Notification(Box<str>, Option<Box<RawValue>>),
    /// The server asks something.
    Question(Id, Box<str>, Option<Box<RawValue>>),
    /// The server withdraws its question.
    QuestionWithdrawn(Id),
    /// The server has answered this request, for whose answer nobody waits any more.
    Late(Id),
    /// Nobody waits for this request any more, for this reason; it is over already.
    Withdrawn(Id, &'static str),
    /// A line to the server: the refusal of its question.
    Say(Vec<u8>),
}

/// The conversation with one server.
#[derive(Debug)]
pub(crate) struct RequestTable<R> {
    server: Box<str>,
    max_message: usize,
    calls: InFlight<PendingRequest<R>>,
    last_id: i64,
    /// The progress tokens of requests that were taken over, and the ids of these. Our own tokens are ids.
    resumed_tokens: HashMap<Id, Id>,
    /// The flag that sets the limit of calls, for hints.
    call_limit_flag: &'static str,
    junk: Junk,
    junk_lines: u64,
}

impl<R> RequestTable<R> {
    pub(crate) fn new(server: &str, max_message: usize) -> Self {
        Self {
            server: server.into(),
            max_message,
            calls: InFlight::new(LATE_IDS),
            last_id: 0,
            resumed_tokens: HashMap::new(),
            call_limit_flag: CALL_TIMEOUT,
            junk: Junk::default(),
            junk_lines: 0,
        }
    }

    /// Returns how many lines came that were not messages, or that nobody could use.
    pub(crate) fn junk_lines(&self) -> u64 {
        self.junk_lines
    }

    /// Returns how many requests wait for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Returns when [`RequestTable::expire`] is due; `None` if no request has a deadline.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.calls.next_deadline()
    }

    /// Returns the origin of the request with this id; `None` if it is not in flight.
    pub(crate) fn whose(&self, id: &Id) -> Option<&R> {
        self.calls.get(id).map(|call| &call.whose)
    }

    /// Returns the requests that wait for an answer.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &PendingRequest<R>> {
        self.calls.iter().map(|(_, call)| call)
    }

    /// Returns the ids of the requests whose origin `these` accepts.
    pub(crate) fn ids(&self, these: impl Fn(&R) -> bool) -> Vec<Id> {
        self.calls.iter().filter(|(_, call)| these(&call.whose)).map(|(id, _)| id.clone()).collect()
    }

    /// Begins a request whose limit counts from `since`, and returns its id.
    pub(crate) fn begin(&mut self, since: Duration, method: &str, limit: Duration, whose: R) -> Id {
        self.begin_late((since, Duration::ZERO), method, limit, whose)
    }

    /// Begins a request that had waited for `before` already, which is part of its limit. Returns its id.
    pub(crate) fn begin_late(
        &mut self,
        (since, before): (Duration, Duration),
        method: &str,
        limit: Duration,
        whose: R,
    ) -> Id {
        self.last_id += 1;
        let id = Id::Integer(self.last_id);
        let call = PendingRequest { id: id.clone(), method: method.into(), since, before, limit, whose };
        let deadline = since.checked_add(limit.saturating_sub(before));
        // The id is new, so no other entry has it.
        let _registered = self.calls.register(id.clone(), deadline, call);
        id
    }

    /// Takes over a request that another process has sent under this id, and that has waited for `before` already. `token` is its progress
    /// token, if it has one. Returns false, and takes nothing, if the id is in flight already.
    pub(crate) fn resume(
        &mut self,
        (id, token): (Id, Option<Id>),
        (since, before): (Duration, Duration),
        method: &str,
        limit: Duration,
        whose: R,
    ) -> bool {
        for used in [Some(&id), token.as_ref()].into_iter().flatten() {
            if let Id::Integer(used) = used {
                self.last_id = self.last_id.max(used.saturating_add(OTHERS_LATER_IDS));
            }
        }
        let call = PendingRequest { id: id.clone(), method: method.into(), since, before, limit, whose };
        let deadline = since.checked_add(limit.saturating_sub(before));
        // All calls that are taken over are jobs.
        self.call_limit_flag = JOB_TIMEOUT;
        let is_taken = self.calls.register(id.clone(), deadline, call).is_ok();
        if is_taken && let Some(token) = token {
            self.resumed_tokens.insert(token, id);
        }
        is_taken
    }

    /// Forgets a request whose answer nobody waits for any more. Returns it if it was still in flight.
    pub(crate) fn withdraw(&mut self, id: &Id) -> Option<PendingRequest<R>> {
        self.calls.cancel(id)
    }

    /// Makes a failure of this request.
    pub(crate) fn failure(
        &self,
        now: Duration,
        call: &PendingRequest<R>,
        kind: FaultKind,
        happened: String,
        hint: &str,
    ) -> Failure {
        Failure {
            kind,
            server: self.server.to_string(),
            method: Some(call.method.to_string()),
            happened,
            hint: hint.to_owned(),
            elapsed: call.elapsed(now),
            limit: (kind == FaultKind::Deadline).then_some(call.limit),
            retry_after: None,
            exit: None,
            evidence: Evidence { junk: self.junk.lines(), ..Evidence::default() },
            unquoted: None,
        }
    }

    /// Collects the output of the server that may explain a failure.
    pub(crate) fn evidence(&self, stderr: &Tail) -> Evidence {
        Evidence {
            stderr_tail: stderr.last_lines(TAIL_LINES),
            stderr_age: stderr.age(),
            junk: self.junk.lines(),
        }
    }

    /// Ends the requests that are overdue. The server is told, except for the handshake, which cannot be cancelled.
    pub(crate) fn expire(&mut self, now: Duration, mut events: impl FnMut(TableEvent<R>)) {
        while let Some((id, call)) = self.calls.expire(now) {
            let happened =
                format!("`{}` did not answer `{}` within {}", self.server, call.method, in_words(call.limit));
            let (flag, cancels) = match &*call.method {
                "initialize" | "server/discover" => ("--start-timeout", false),
                "tools/call" => (self.call_limit_flag, true),
                _ => ("--request-timeout", true),
            };
            let raise = format!("raise {flag} if it needs longer");
            let hint = match (cancels, flag) {
                (false, _) => raise,
                (true, flag) if flag == self.call_limit_flag => format!("unhang cancelled the call; {raise}"),
                (true, _) => format!("unhang cancelled the request; {raise}"),
            };
            let failure = self.failure(now, &call, FaultKind::Deadline, happened, &hint);
            if cancels {
                events(TableEvent::Withdrawn(id, "no answer in time"));
            }
            events(TableEvent::Done(call, Err(failure.into())));
        }
    }

    /// Ends a request with an error that is known from elsewhere than a line. Returns `None` if it is not in flight.
    pub(crate) fn complete(
        &mut self,
        id: &Id,
        outcome: impl FnOnce(&Self, &PendingRequest<R>) -> Error,
    ) -> Option<TableEvent<R>> {
        let Completion::Matched(call) = self.calls.complete(id) else { return None };
        let error = outcome(self, &call);
        Some(TableEvent::Done(call, Err(error)))
    }

    /// Ends every request with this verdict, because the server can answer nothing any more.
    pub(crate) fn lose_all(
        &mut self,
        now: Duration,
        verdict: &Failure,
        mut events: impl FnMut(TableEvent<R>),
    ) {
        for (_, call) in self.calls.take_all() {
            let elapsed = call.elapsed(now);
            let happened = match (&verdict.exit, verdict.kind) {
                (Some(_), FaultKind::ServerExited) => after_request(&verdict.happened, elapsed, &call.method),
                _ => verdict.happened.clone(),
            };
            let method = Some(call.method.to_string());
            let failure = Failure { method, elapsed, happened, ..verdict.clone() };
            events(TableEvent::Done(call, Err(failure.into())));
        }
    }

    /// Takes a line of the server, and gives the events that come of it.
    pub(crate) fn line(&mut self, now: Duration, line: Line<'_>, events: &mut impl FnMut(TableEvent<R>)) {
        match line {
            Line::Whole(bytes) => read(bytes).for_each(|piece| self.piece(now, piece, events)),
            Line::Oversized(oversized) => self.oversized(now, &oversized, events),
        }
    }

    fn piece(&mut self, now: Duration, piece: Piece<'_>, events: &mut impl FnMut(TableEvent<R>)) {
        match piece {
            Piece::Message(message) => self.message(&message, events),
            Piece::Batch(pieces) => pieces.into_iter().for_each(|piece| self.piece(now, piece, events)),
            Piece::Invalid(invalid) => self.invalid(now, &invalid, events),
            Piece::Junk(bytes) => self.keep(bytes, "not a message"),
        }
    }

    fn message(&mut self, message: &Message<'_>, events: &mut impl FnMut(TableEvent<R>)) {
        match &message.body {
            Body::Response { id, outcome, .. } => match self.calls.complete(id) {
                Completion::Matched(call) | Completion::Repaired { entry: call, .. } => {
                    let outcome = match outcome {
                        ResponseOutcome::Result(result) => Ok(owned(*result)),
                        ResponseOutcome::Error(error) => {
                            let error = ServerError::read(&self.server, &call.method, error.get());
                            Err(Error::Server(Box::new(error)))
                        }
                    };
                    events(TableEvent::Done(call, outcome));
                }
                Completion::Late => {
                    tracing::debug!("unhang dropped a late answer of `{}` to {id}", self.server);
                    events(TableEvent::Late(id.clone()));
                }
                Completion::Unknown => self.keep(message.raw, "an answer without a request"),
            },
            Body::Request { id, method, params, .. } => {
                events(TableEvent::Question(id.clone(), method.as_ref().into(), params.map(owned)));
            }
            Body::Notification { method, params } => self.notification(method, *params, events),
        }
    }

    fn notification(
        &mut self,
        method: &str,
        params: Option<Json<'_>>,
        events: &mut impl FnMut(TableEvent<R>),
    ) {
        match (method, params) {
            // Progress means nothing for a request that has ended.
            ("notifications/progress", Some(params)) => {
                let waits = |id: &Id| self.calls.contains(id);
                let of_token = |token: Id| self.resumed_tokens.get(&token).cloned().unwrap_or(token);
                if let Some(id) = wire::notified_token(params).map(of_token).filter(waits) {
                    events(TableEvent::Progress(id, owned(params)));
                }
            }
            ("notifications/cancelled", Some(params)) => {
                if let Some(id) = wire::cancelled_request(params) {
                    events(TableEvent::QuestionWithdrawn(id));
                }
            }
            _ => events(TableEvent::Notification(method.into(), params.map(owned))),
        }
    }

    fn invalid(&mut self, now: Duration, invalid: &Invalid<'_>, events: &mut impl FnMut(TableEvent<R>)) {
        self.keep(invalid.raw, &format!("not a valid message ({})", invalid.reason));
        if invalid.shape == MessageShape::Request {
            if let Some(id) = &invalid.id {
                let text = format!("the message {}", invalid.reason);
                events(TableEvent::Say(compose::refusal(id, FaultKind::InvalidRequest.code(), &text)));
            }
            return;
        }
        // An answer without a usable id can only be meant for the one request that waits.
        let id = match &invalid.id {
            Some(id) => Some(id.clone()),
            None if invalid.shape == MessageShape::Response => self.calls.only().map(|(id, _)| id.clone()),
            None => None,
        };
        let why = format!("an invalid response: the message {}", invalid.reason);
        self.fail(now, id, FaultKind::BadResponse, &why, BAD_RESPONSE_HINT, events);
    }

    fn oversized(&mut self, now: Duration, oversized: &Oversized, events: &mut impl FnMut(TableEvent<R>)) {
        let Oversized { id, method, length, .. } = oversized;
        self.keep(oversized.to_string().as_bytes(), "longer than --max-message");
        if method.is_some() {
            if let Some(id) = id {
                let text =
                    format!("the request is {length} bytes long, over the limit of {}", self.max_message);
                events(TableEvent::Say(compose::refusal(id, FaultKind::TooLarge.code(), &text)));
            }
            return;
        }
        let id = id.clone().or_else(|| self.calls.only().map(|(id, _)| id.clone()));
        let why = format!("{length} bytes, over the limit of {}", self.max_message);
        self.fail(now, id, FaultKind::TooLarge, &why, "ask for less, or raise --max-message", events);
    }

    /// Fails a request whose answer came and cannot be used.
    fn fail(
        &mut self,
        now: Duration,
        id: Option<Id>,
        kind: FaultKind,
        with: &str,
        hint: &str,
        events: &mut impl FnMut(TableEvent<R>),
    ) {
        let Some(id) = id else { return };
        let call = match self.calls.complete(&id) {
            Completion::Matched(call) | Completion::Repaired { entry: call, .. } => call,
            Completion::Late => return events(TableEvent::Late(id)),
            Completion::Unknown => return,
        };
        let happened = format!("`{}` answered `{}` with {with}", self.server, call.method);
        let failure = self.failure(now, &call, kind, happened, hint);
        events(TableEvent::Done(call, Err(failure.into())));
    }

    fn keep(&mut self, line: &[u8], why: &str) {
        self.junk_lines += 1;
        let text = self.junk.keep(line);
        tracing::warn!(target: "unhang::junk", "MCP server '{}' stdout ({why}): {text}", self.server);
    }
}

fn owned(json: Json<'_>) -> Box<RawValue> {
    // Another reader has read it as one whole value; should the two ever differ, `null` is better than a panic.
    RawValue::from_string(json.get().to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests;
