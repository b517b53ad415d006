//! What the server says, and who gets it.
//!
//! Invariants: only whole, valid messages that somebody waits for reach the client (promise 2); an answer goes to the
//! request with its id and to no other; what is filtered is kept, counted and shown.

use std::{ops::Range, time::Duration};

use unhang_switches::stands;
use unhang_wire::{
    self as wire, Body, Completion, Id, Invalid, Json, Line, Message, Oversized, Piece, ResponseOutcome,
    Shape, one_line, read, replace_id,
};

use super::{
    calls::{GuardedCall, Role},
    effects::{JobNews, WrapEffects},
    from_client::cancelled,
    progress::ProgressAddressee,
    promotion::with_params,
    questions::ServerQuestion,
    wrap_session::WrapSession,
};
use unhang_core::{fault::FaultKind, queue::Class, refusal::ErrorReport, units::in_words};

impl WrapSession {
    /// A line came from the server's stdout.
    pub fn server_line(&mut self, now: Duration, line: Line<'_>, effects: &mut impl WrapEffects) {
        self.now = now;
        self.health.life(now);
        match line {
            Line::Oversized(oversized) => self.server_oversized(&oversized, effects),
            Line::Whole(bytes) => {
                for piece in read(bytes) {
                    self.server_piece(piece, effects);
                }
            }
        }
    }

    /// What stood on stdout when it ended. A message without its line ending is a message; half of one is a trace of the
    /// server's end, which is the better explanation for whoever waits.
    pub fn server_last_line(&mut self, now: Duration, line: Line<'_>, effects: &mut impl WrapEffects) {
        let is_whole = matches!(&line, Line::Whole(bytes) if Json::new(bytes).is_some());
        match line {
            Line::Whole(bytes) if !is_whole && stands("half-a-message-is-a-trace") => {
                self.now = now;
                self.quarantine(bytes, "half a message", effects);
            }
            line => self.server_line(now, line, effects),
        }
    }

    fn server_piece(&mut self, piece: Piece<'_>, effects: &mut impl WrapEffects) {
        match piece {
            Piece::Message(Message { raw, body }) => match body {
                Body::Response { id, id_span, outcome } => {
                    self.server_response(raw, &id, id_span, &outcome, effects);
                }
                Body::Request { id, id_span, method, params: _ } => {
                    self.server_request(raw, &id, id_span, &method, effects);
                }
                Body::Notification { method, params } => {
                    self.server_notification(raw, &method, params, effects);
                }
            },
            // Arrays are split whatever was negotiated; no client minds (protocol.md 3.2).
            Piece::Batch(pieces) => pieces.into_iter().for_each(|piece| self.server_piece(piece, effects)),
            Piece::Invalid(invalid) => self.server_invalid(&invalid, effects),
            Piece::Junk(bytes) if stands("junk-filtered") => self.quarantine(bytes, "no message", effects),
            Piece::Junk(bytes) => effects.to_client(Class::Kept, bytes),
        }
    }

    fn server_response(
        &mut self,
        raw: &[u8],
        id: &Id,
        id_span: Range<usize>,
        outcome: &ResponseOutcome<'_>,
        effects: &mut impl WrapEffects,
    ) {
        match self.own_requests.complete(id) {
            Completion::Matched(own) if stands("own-answers-swallowed") => {
                return self.own_answered(own, outcome, effects);
            }
            // A health check that a busy server comes to in the end: it was a sign of life, and nobody waits for more.
            Completion::Late if stands("late-own-answers-swallowed") => return,
            _ => {}
        }
        let (wire_id, call) = match self.calls.complete(id) {
            Completion::Matched(call) => (id.clone(), call),
            Completion::Repaired { id: wire_id, entry } => {
                self.counters.repaired_ids += 1;
                (wire_id, entry)
            }
            Completion::Late | Completion::Unknown if !stands("unasked-answer-dropped") => {
                return effects.to_client(Class::Kept, &one_line(raw));
            }
            Completion::Late => {
                self.counters.late_answers += 1;
                tracing::info!(server = self.name, "a late answer to {id} was dropped");
                return;
            }
            Completion::Unknown => {
                self.counters.unknown_ids += 1;
                return self.quarantine(raw, "an answer that nobody waits for", effects);
            }
        };
        self.settle(&wire_id, &call, outcome);
        if call.is_job {
            self.answer_job(&wire_id, raw, effects);
            return self.after_call(effects);
        }
        self.note_undeclared_task(&call, outcome);
        let renamed = (call.client_id != *id && stands("client-id-restored")).then(|| {
            if stands("answered-id-is-free") {
                self.calls.forget_name(&call.client_id);
            }
            replace_id(raw, id_span, &call.client_id)
        });
        let line = one_line(renamed.as_deref().unwrap_or(raw));
        match self.with_ours(&call, &line, outcome) {
            Some(with_ours) => self.deliver(&call, &with_ours, effects),
            None => self.deliver(&call, &line, effects),
        }
        self.after_call(effects);
    }

    /// What an answer says about the server and the session.
    fn settle(&mut self, wire_id: &Id, call: &GuardedCall, outcome: &ResponseOutcome<'_>) {
        self.counters.answered += 1;
        self.answered_ever = true;
        self.settle_trial(wire_id);
        if call.role == Role::Initialize {
            self.client.learn_negotiated(outcome);
            tracing::info!(
                server = self.name,
                protocol = self.client.negotiated(),
                client = self.client.name(),
                "ready {} after its start",
                in_words(self.now.saturating_sub(self.spawned_at))
            );
        }
        if call.role != Role::Initialize || !stands("handshake-is-no-success") {
            self.breaker.succeeded();
            self.may_restart_unasked = true;
        }
    }

    fn deliver(&mut self, call: &GuardedCall, line: &[u8], effects: &mut impl WrapEffects) {
        let array_is_too_large =
            call.batch.is_some() && self.batches.cost() + line.len() > self.limits.max_message;
        if array_is_too_large && stands("array-bounded") {
            self.tell_too_large(call, line.len() as u64, effects);
        } else {
            self.answer(call.batch, line, effects);
        }
    }

    /// A call has ended, however.
    pub(super) fn after_call(&mut self, effects: &mut impl WrapEffects) {
        if !self.quiet.is_empty() && self.is_idle() {
            self.release_quiet(effects);
        }
        self.check_drained(effects);
    }

    fn server_request(
        &mut self,
        raw: &[u8],
        id: &Id,
        id_span: Range<usize>,
        method: &str,
        effects: &mut impl WrapEffects,
    ) {
        let error_report = |kind, happened: String, hint| ErrorReport { kind, summary: happened, hint };
        if self.client.is_modern() && stands("stateless-never-asked") {
            // A stateless server must not question (protocol.md 1.1); it is told so rather than left waiting.
            self.quarantine(raw, "a request, which revision 2026-07-28 does not allow", effects);
            let happened = format!("`{method}` cannot be asked of a client of revision 2026-07-28");
            let error_report = error_report(
                FaultKind::InvalidRequest,
                happened,
                "answer with resultType input_required instead",
            );
            return self.answer_server(id, method, error_report, effects);
        }
        if self.questions.len() >= self.limits.max_in_flight && stands("questions-bounded") {
            let happened =
                format!("the client has {} requests of `{}` unanswered", self.questions.len(), self.name);
            return self.answer_server(
                id,
                method,
                error_report(FaultKind::Overloaded, happened, "wait for its answers"),
                effects,
            );
        }
        if self.questions.is_open(id) && stands("repeated-question-refused") {
            let happened = format!("a request with the id {id} is still in flight");
            let error_report =
                error_report(FaultKind::InvalidRequest, happened, "give each request an id of its own");
            return self.answer_server(id, method, error_report, effects);
        }
        let related = self.related(raw);
        let is_of_a_task = related.is_some();
        let question =
            ServerQuestion { server_id: id.clone(), is_of_a_task, method: method.into(), since: self.now };
        // A person may have to answer; a call's patience is the longest there is.
        let deadline = self.now + self.limits.call_timeout;
        let renamed = match self.questions.register(id.clone(), deadline, question) {
            Ok(()) => None,
            // The client still owes an answer to an earlier request of this id, of a process that is gone.
            Err(question) => {
                let client_side_id = self.own_id();
                let _registered = self.questions.register(client_side_id.clone(), deadline, question);
                Some(replace_id(raw, id_span, &client_side_id))
            }
        };
        let line = one_line(renamed.as_deref().unwrap_or(raw));
        match related.and_then(|related| with_params(&line, related)) {
            Some(related) => effects.to_client(Class::Kept, &related),
            None => effects.to_client(Class::Kept, &line),
        }
    }

    /// The client did not answer the server in time; both are told.
    pub(super) fn question_expired(
        &mut self,
        client_side_id: &Id,
        question: &ServerQuestion,
        effects: &mut impl WrapEffects,
    ) {
        let waited = in_words(self.now.saturating_sub(question.since));
        let error_report = ErrorReport {
            kind: FaultKind::Deadline,
            summary: format!("the client did not answer `{}` within {waited}", question.method),
            hint: "go on without its answer",
        };
        self.answer_server(&question.server_id, &question.method, error_report, effects);
        effects.to_client(Class::Kept, &cancelled(client_side_id, "unhang: it was not answered in time"));
    }

    fn server_notification(
        &mut self,
        raw: &[u8],
        method: &str,
        params: Option<Json<'_>>,
        effects: &mut impl WrapEffects,
    ) {
        let mut raised = None;
        let class = match method {
            "notifications/message" => {
                self.job_logs(params, effects);
                Class::Log
            }
            "notifications/progress" => match params.and_then(wire::notified_token) {
                Some(token) => match self.tokens.addressee(&token) {
                    ProgressAddressee::Job(wire_id) => {
                        if let Some(params) = params
                            && self.calls.get(wire_id).is_some_and(|call| call.is_job)
                        {
                            effects.to_job(wire_id, JobNews::Progress(params.get().as_bytes()));
                        }
                        return;
                    }
                    ProgressAddressee::Nobody => {
                        self.counters.dropped_notifications += 1;
                        return;
                    }
                    ProgressAddressee::Client => {
                        raised = params.and_then(|params| {
                            self.tokens.raised(&token, &mut self.calls, self.now, (params, raw))
                        });
                        Class::Progress(token)
                    }
                },
                None => Class::Kept,
            },
            "notifications/cancelled" => return self.server_cancels(raw, params, effects),
            _ if method.ends_with("/list_changed") => Class::ListChanged(method.into()),
            _ => Class::Kept,
        };
        self.tell_client(class, raised.as_deref().unwrap_or(raw), effects);
    }

    /// Tells the client something that it has not asked for.
    pub(super) fn tell_client(&mut self, class: Class, raw: &[u8], effects: &mut impl WrapEffects) {
        if self.limits.quiet && !self.is_idle() && stands("quiet-while-calling") {
            let is_kept = self.quiet.keep(class, raw, self.limits.queue_bytes);
            self.counters.dropped_notifications += u64::from(!is_kept);
        } else {
            effects.to_client(class, &one_line(raw));
        }
    }

    /// The server withdraws a request of its own, or ends a `subscriptions/listen`.
    fn server_cancels(&mut self, raw: &[u8], params: Option<Json<'_>>, effects: &mut impl WrapEffects) {
        let Some(server_id) = params.and_then(wire::cancelled_request) else {
            return effects.to_client(Class::Kept, &one_line(raw));
        };
        if self.calls.get(&server_id).is_some_and(|call| call.role == Role::Listen)
            && stands("ended-subscription-is-over")
            && let Some(call) = self.calls.cancel(&server_id)
        {
            self.calls.forget_name(&call.client_id);
            self.pass_on_cancel(raw, &server_id, &call.client_id, effects);
            self.answer_nothing(call.batch, effects);
            return self.after_call(effects);
        }
        if let Some(client_side_id) = self.questions.withdraw(&server_id) {
            self.pass_on_cancel(raw, &server_id, &client_side_id, effects);
        } else if !self.questions.contains(&server_id) {
            // Otherwise the client knows another request of the server by this id.
            effects.to_client(Class::Kept, &one_line(raw));
        }
    }

    /// Tells the client that a request is over which it knows by this id.
    fn pass_on_cancel(&self, raw: &[u8], server_id: &Id, client_id: &Id, effects: &mut impl WrapEffects) {
        if server_id == client_id {
            effects.to_client(Class::Kept, &one_line(raw));
        } else {
            effects.to_client(Class::Kept, &cancelled(client_id, "the server withdrew it"));
        }
    }

    fn server_invalid(&mut self, invalid: &Invalid<'_>, effects: &mut impl WrapEffects) {
        self.quarantine(invalid.raw, &format!("no valid message ({})", invalid.reason), effects);
        if invalid.shape == Shape::Request {
            if let Some(id) = &invalid.id
                && stands("invalid-question-told")
            {
                let error_report = ErrorReport {
                    kind: FaultKind::InvalidRequest,
                    summary: format!(
                        "the server's request is no valid JSON-RPC 2.0 message: {}",
                        invalid.reason
                    ),
                    hint: "this is a fault of the server",
                };
                self.answer_server(id, "", error_report, effects);
            }
            return;
        }
        let reason = invalid.reason.to_string();
        match &invalid.id {
            Some(id) => {
                if stands("invalid-answer-told")
                    && let Completion::Matched(call) | Completion::Repaired { entry: call, .. } =
                        self.calls.complete(id)
                {
                    self.fail_response(&call, &reason, effects);
                }
            }
            // An answer without a usable id can only be meant for the one request that waits.
            None if invalid.shape == Shape::Response && stands("answer-without-id-told") => {
                if let Some(call) = self.calls.cancel_only() {
                    self.fail_response(&call, &reason, effects);
                }
            }
            None => {}
        }
    }

    fn fail_response(&mut self, call: &GuardedCall, reason: &str, effects: &mut impl WrapEffects) {
        self.tell_bad_response(call, reason, effects);
        self.end_trial();
        self.after_call(effects);
    }

    fn server_oversized(&mut self, oversized: &Oversized, effects: &mut impl WrapEffects) {
        let length = oversized.length;
        self.quarantine(oversized.to_string().as_bytes(), "longer than --max-message", effects);
        match (&oversized.id, &oversized.method) {
            (Some(id), Some(method)) if stands("oversized-question-told") => {
                let error_report = ErrorReport {
                    kind: FaultKind::TooLarge,
                    summary: format!("the server's request is {length} bytes long, over the limit"),
                    hint: "send less at once",
                };
                self.answer_server(id, method, error_report, effects);
            }
            (Some(id), None) => {
                if stands("oversized-answer-told")
                    && let Completion::Matched(call) | Completion::Repaired { entry: call, .. } =
                        self.calls.complete(id)
                {
                    self.tell_too_large(&call, length, effects);
                    self.end_trial();
                    self.after_call(effects);
                }
            }
            // Nobody can be told apart, unless only one waits.
            (None, None) if stands("oversized-line-without-id-told") => {
                if let Some(call) = self.calls.cancel_only() {
                    self.tell_too_large(&call, length, effects);
                    self.end_trial();
                    self.after_call(effects);
                }
            }
            _ => {}
        }
    }
}
