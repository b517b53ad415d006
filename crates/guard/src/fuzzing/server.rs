//! The requests that the server has, and the answers that it is owed, learnt from the lines alone (promises 2 and 6).
//!
//! Invariants: within one process no two requests in flight have the same id. The server gets no answer to a question that it did not ask,
//! or that an earlier process asked. A request that is not safe to repeat is sent once, ever.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use unhang_wire::{self as wire, Body, Id, Line, MessageShape, Piece, read};

use super::speech::{ScriptedRequest, number};

/// A request that the server may answer.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) id: Id,
    pub(super) number: Option<u64>,
}

#[derive(Debug)]
struct UnansweredQuestion {
    since: Duration,
    /// Whether the question was withdrawn, or could not be passed on.
    optional: bool,
}

/// The model of the server. Most of it ends with the process.
#[derive(Debug, Default)]
pub(super) struct ServerModel {
    /// The open requests, the newest last.
    pub(super) asked: Vec<OpenRequest>,
    owed: HashMap<Id, Vec<UnansweredQuestion>>,
    /// How often each numbered request was sent, to any process.
    sent: HashMap<u64, u32>,
    /// Numbers of answers that were given under an id other than their own.
    pub(super) suspicious: HashSet<u64>,
}

impl ServerModel {
    /// Forgets the requests of the previous process, which a new one does not know.
    pub(super) fn restarted(&mut self) {
        self.asked.clear();
        self.owed.clear();
    }

    /// Enters a line of the server before it is handed to the guard.
    pub(super) fn says(&mut self, line: &Line<'_>, now: Duration) {
        match line {
            Line::Oversized(oversized) => match (&oversized.id, &oversized.method) {
                (Some(id), Some(_)) => self.owe(id, now),
                (Some(id), None) => self.answered(id, None),
                (None, _) => {}
            },
            Line::Whole(bytes) => read(bytes).for_each(|piece| self.says_piece(&piece, now)),
        }
    }

    fn says_piece(&mut self, piece: &Piece<'_>, now: Duration) {
        match piece {
            Piece::Message(message) => match &message.body {
                Body::Request { id, .. } => self.owe(id, now),
                Body::Response { id, outcome, .. } => match outcome {
                    wire::ResponseOutcome::Result(result) => self.answered(id, number(*result)),
                    wire::ResponseOutcome::Error(_) => self.answered(id, None),
                },
                Body::Notification { method, params } => {
                    let withdrawn = params.filter(|_| method == "notifications/cancelled");
                    if let Some(id) = withdrawn.and_then(wire::cancelled_request) {
                        let owed = self.owed.get_mut(&id).into_iter().flatten();
                        owed.for_each(|owed| owed.optional = true);
                    }
                }
            },
            Piece::Batch(pieces) => pieces.iter().for_each(|piece| self.says_piece(piece, now)),
            Piece::Invalid(invalid) => match (&invalid.id, invalid.shape) {
                (Some(id), MessageShape::Request) => self.owe(id, now),
                (Some(id), _) => self.answered(id, None),
                (None, _) => {}
            },
            Piece::Junk(_) => {}
        }
    }

    fn owe(&mut self, id: &Id, now: Duration) {
        self.owed.entry(id.clone()).or_default().push(UnansweredQuestion { since: now, optional: false });
    }

    fn answered(&mut self, id: &Id, number: Option<u64>) {
        let variant = id.variant();
        let exact = self.asked.iter().position(|asked| asked.id == *id);
        let found = exact.or_else(|| self.asked.iter().position(|asked| Some(&asked.id) == variant.as_ref()));
        let asked = found.map(|position| self.asked.remove(position));
        if asked.is_none_or(|asked| asked.number != number) {
            self.suspicious.extend(number);
        }
    }

    /// Checks a line that the guard has sent to the server.
    pub(super) fn hears(&mut self, line: &[u8], requests: &HashMap<u64, ScriptedRequest>) {
        let text = String::from_utf8_lossy(line);
        let pieces: Vec<_> = read(line).collect();
        assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "one message, one line: {text}");
        let [Piece::Message(message)] = &pieces[..] else { panic!("only messages reach the server: {text}") };
        match &message.body {
            Body::Request { id, method, params, .. } => {
                let again = self.asked.iter().find(|asked| asked.id == *id);
                assert!(again.is_none(), "the server cannot tell {text} and {again:?} apart");
                let number = params.and_then(number);
                self.asked.push(OpenRequest { id: id.clone(), number });
                if let Some((number, request)) =
                    number.and_then(|number| Some((number, requests.get(&number)?)))
                {
                    self.hears_request(number, request, method, &text);
                }
            }
            Body::Response { id, .. } => {
                let owed = self.owed.get_mut(id).and_then(Vec::pop);
                assert!(owed.is_some(), "an answer to what the server did not ask: {text}");
            }
            Body::Notification { .. } => {}
        }
    }

    fn hears_request(&mut self, number: u64, request: &ScriptedRequest, method: &str, text: &str) {
        let unchanged = text.starts_with(&request.before) && text.ends_with(&request.after);
        assert!(unchanged, "payload bytes are forwarded as they came: {text}");
        let sent = self.sent.entry(number).or_default();
        *sent += 1;
        let most = match method {
            // These are told again to every process, as parts of the session.
            "initialize" | "logging/setLevel" | "resources/subscribe" | "subscriptions/listen" => u32::MAX,
            "tools/list" | "resources/read" => 2,
            _ => 1,
        };
        assert!(*sent <= most, "sent {sent} times, which is not safe (X-14): {text}");
    }

    /// Notes that the server no longer reads or is no longer heard, so its questions may stay unanswered.
    pub(super) fn forgives(&mut self) {
        self.owed.values_mut().flatten().for_each(|owed| owed.optional = true);
    }

    /// Checks that no question of the server is late, once the clock's ticks up to now have been given.
    pub(super) fn check_deadlines(&self, now: Duration, timeout: Duration) {
        for (id, entries) in &self.owed {
            let late = entries.iter().find(|owed| !owed.optional && owed.since + timeout <= now);
            assert!(late.is_none(), "the server's {id} is unanswered for longer than its limit: {late:?}");
        }
    }
}
