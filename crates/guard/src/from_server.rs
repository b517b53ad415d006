//! The server's lines, and who gets them.
//!
//! The module also handles the events of its process: started, told the session again, lost, given up.
//!
//! Invariants: only whole, valid messages that somebody waits for reach the client (promise 2). An answer goes to the request with its id
//! and to no other. Filtered lines are kept, counted and shown. Calls that were in flight when a process died are answered at once.
//! Only lists and reads are sent again, once.

use std::{ops::Range, time::Duration};

use unhang_proc::server::{Exit, SweptTree};
use unhang_wire::{
    self as wire, Body, Completion, Id, Invalid, Json, Line, Message, MessageShape, Oversized, Piece,
    ResponseOutcome, compose, one_line, read, replace_id,
};

use super::{
    added_capabilities::{AddedCapabilities, TOOLS_CHANGED, warn_of_undeclared_task},
    calls::{GuardedCall, Role},
    effects::{JobNews, WrapEffects},
    held_input::WaitingForServer,
    own_requests::OwnRequest,
    progress::ProgressAddressee,
    promotion::{related, with_params},
    questions::{self, Asker, ServerQuestion},
    session_phase::WrapPhase,
    stray_answers::may_be_an_answer,
    supervision::{ServerLink, StartFault},
    wrap_session::WrapSession,
};
use unhang_core::{exit, fault::end_of_server, queue::Class, refusal::ErrorReport, units::in_words};

impl WrapSession {
    /// Takes a line of the server's stdout.
    pub fn server_line(&mut self, now: Duration, line: Line<'_>, effects: &mut impl WrapEffects) {
        self.now = now;
        self.server.life(now);
        match line {
            Line::Oversized(oversized) => self.server_oversized(&oversized, effects),
            Line::Whole(bytes) => {
                for piece in read(bytes) {
                    self.server_piece(piece, effects);
                }
            }
        }
    }

    /// Takes the last text of the server's stdout. A message without its line ending is a message. Half a message is a trace of the
    /// server's end, and that end is the better explanation for callers that wait.
    pub fn server_last_line(&mut self, now: Duration, line: Line<'_>, effects: &mut impl WrapEffects) {
        let is_whole = matches!(&line, Line::Whole(bytes) if Json::new(bytes).is_some());
        match line {
            Line::Whole(bytes) if !is_whole => {
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
            // Arrays are split whatever was negotiated. No client minds (protocol.md 3.2).
            Piece::Batch(pieces) => pieces.into_iter().for_each(|piece| self.server_piece(piece, effects)),
            Piece::Invalid(invalid) => self.server_invalid(&invalid, effects),
            Piece::Junk(bytes) => self.quarantine(bytes, "not a message", effects),
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
            Completion::Matched(own_request) => {
                return self.own_request_answered(own_request, outcome, effects);
            }
            // A busy server has answered a health check at last. The answer was a sign of life, and nobody waits for more.
            Completion::Late => return,
            _ => {}
        }
        let (wire_id, call) = match self.calls.complete(id) {
            Completion::Matched(call) => (id.clone(), call),
            Completion::Repaired { id: wire_id, entry } => {
                self.counters.repaired_ids += 1;
                (wire_id, entry)
            }
            Completion::Late => {
                self.counters.late_answers += 1;
                tracing::info!(server = self.name, "unhang dropped a late answer to {id}");
                return;
            }
            Completion::Unknown => {
                self.counters.unknown_ids += 1;
                return self.quarantine(raw, "an answer without a request", effects);
            }
        };
        self.learn_from_answer(&wire_id, &call, outcome);
        if call.is_job {
            effects.to_job(&wire_id, JobNews::Answer(self.client.bridge_era(), raw));
            return self.after_call(effects);
        }
        warn_of_undeclared_task(&call, outcome, &self.client, &self.name);
        let renamed = (call.client_id != *id).then(|| {
            self.calls.forget_name(&call.client_id);
            replace_id(raw, id_span, &call.client_id)
        });
        let line = one_line(renamed.as_deref().unwrap_or(raw));
        let client = &self.client;
        let with_offers = |added_capabilities: &mut Box<AddedCapabilities>| {
            added_capabilities.with_offers(&call, &line, outcome, || client.revision())
        };
        match self.added_capabilities.as_mut().and_then(with_offers) {
            Some(with_offers) => self.deliver(&call, &with_offers, effects),
            None => self.deliver(&call, &line, effects),
        }
        self.after_call(effects);
    }

    /// Learns from an answer about the server and the session.
    fn learn_from_answer(&mut self, wire_id: &Id, call: &GuardedCall, outcome: &ResponseOutcome<'_>) {
        self.counters.answered += 1;
        self.server.answered();
        self.added_capabilities.iter_mut().for_each(|names| names.tool_list.server_answers(self.now));
        self.breaker.settle_trial(wire_id, self.now);
        if call.role == Role::Initialize {
            self.client.learn_negotiated(outcome);
            tracing::info!(
                server = self.name,
                protocol = self.client.negotiated(),
                client = self.client.name(),
                "ready {} after its start",
                in_words(self.server.age(self.now))
            );
        } else {
            self.breaker.succeeded();
            self.server.earn_restart();
        }
    }

    fn deliver(&mut self, call: &GuardedCall, line: &[u8], effects: &mut impl WrapEffects) {
        let limit = self.limits.max_message;
        if self.answers.has_room(call.batch, line.len(), limit) {
            self.answers.send(call.batch, line, effects);
        } else {
            self.fail_call(call, self.report(call).too_large(line.len() as u64, limit), None, effects);
        }
    }

    /// Takes the steps that the end of a call makes possible, however it ended.
    pub(super) fn after_call(&mut self, effects: &mut impl WrapEffects) {
        if !self.deferred_notifications.is_empty() && self.is_idle() {
            self.flush_deferred(effects);
        }
        self.stop_if_drained(effects);
    }

    fn server_request(
        &mut self,
        raw: &[u8],
        id: &Id,
        id_span: Range<usize>,
        method: &str,
        effects: &mut impl WrapEffects,
    ) {
        if self.client.is_modern() {
            // A stateless server must not ask (protocol.md 1.1). It gets an error instead of waiting.
            self.quarantine(raw, "a request, and revision 2026-07-28 allows none", effects);
            return self.answer_server(id, method, questions::refusal_by_stateless(method), effects);
        }
        let max_in_flight = self.limits.max_in_flight;
        if let Some(error_report) = self.questions.refusal(&self.name, id, max_in_flight) {
            return self.answer_server(id, method, error_report, effects);
        }
        let related = related(&self.calls, raw);
        let is_of_a_task = related.is_some();
        let question = ServerQuestion {
            asker: Asker::Server,
            server_id: id.clone(),
            is_of_a_task,
            method: method.into(),
            since: self.now,
        };
        // A person may have to answer, so the question gets the longest limit, that of a call.
        let deadline = self.now + self.limits.call_timeout;
        let client_side_id = self.register_question(question, Some(deadline));
        let renamed = client_side_id.map(|client_side_id| replace_id(raw, id_span, &client_side_id));
        let line = one_line(renamed.as_deref().unwrap_or(raw));
        match related.and_then(|related| with_params(&line, related)) {
            Some(related) => effects.to_client(Class::Kept, &related),
            None => effects.to_client(Class::Kept, &line),
        }
    }

    /// Enters a question. Returns the id by which the client knows it, unless that is the asker's own.
    pub(super) fn register_question(
        &mut self,
        question: ServerQuestion,
        deadline: Option<Duration>,
    ) -> Option<Id> {
        let WrapSession { questions, own_requests, calls, local_jobs, .. } = self;
        questions.register(question, deadline, own_requests, |id| calls.is_free(id) && !local_jobs.has(id))
    }

    /// Ends a question that the client did not answer in time. Both sides are told.
    pub(super) fn question_expired(
        &mut self,
        client_side_id: &Id,
        question: &ServerQuestion,
        effects: &mut impl WrapEffects,
    ) {
        self.refuse_question(question, question.deadline(self.now), effects);
        effects.to_client(
            Class::Kept,
            &compose::cancelled(client_side_id, "unhang: the client did not answer in time"),
        );
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
                // The message can only be about the call that the server works on.
                if let (Some((wire_id, call)), Some(params)) = (self.calls.only(), params)
                    && call.is_job
                {
                    effects.to_job(wire_id, JobNews::Log(params.get().as_bytes()));
                }
                Class::Log
            }
            "notifications/progress" => match params.and_then(wire::notified_token) {
                Some(token) => {
                    let addressee = self.progress_tokens.pass_to_job(&token, params, &self.calls, effects);
                    self.counters.dropped_notifications += u64::from(addressee == ProgressAddressee::Nobody);
                    if addressee != ProgressAddressee::Client {
                        return;
                    }
                    raised = params.and_then(|params| {
                        self.progress_tokens.raised(&token, &mut self.calls, self.now, (params, raw))
                    });
                    Class::Progress(token)
                }
                None => Class::Kept,
            },
            "notifications/cancelled" => return self.server_cancels(raw, params, effects),
            _ if method.ends_with("/list_changed") => Class::ListChanged(method.into()),
            _ => Class::Kept,
        };
        self.tell_client(class, raised.as_deref().unwrap_or(raw), effects);
    }

    /// Sends the client a notification, or keeps it while a call runs and the client wants quiet.
    pub(super) fn tell_client(&mut self, class: Class, raw: &[u8], effects: &mut impl WrapEffects) {
        if self.limits.quiet && !self.is_idle() {
            let is_kept = self.deferred_notifications.keep(class, raw, self.limits.queue_bytes);
            self.counters.dropped_notifications += u64::from(!is_kept);
        } else {
            effects.to_client(class, &one_line(raw));
        }
    }

    /// Lists our tools, because the client needs them to ask about a job.
    pub(super) fn list_job_tools(&mut self, effects: &mut impl WrapEffects) {
        if self.added_capabilities.as_mut().is_some_and(|added_capabilities| added_capabilities.note_use()) {
            // This notification is never shed, as those of servers may be. Without it the client could not ask about the job.
            self.tell_client(Class::Kept, TOOLS_CHANGED, effects);
        }
    }

    /// Takes a `notifications/cancelled`: the server withdraws a question, or ends a `subscriptions/listen`.
    fn server_cancels(&mut self, raw: &[u8], params: Option<Json<'_>>, effects: &mut impl WrapEffects) {
        let Some(server_id) = params.and_then(wire::cancelled_request) else {
            return effects.to_client(Class::Kept, &one_line(raw));
        };
        if self.calls.get(&server_id).is_some_and(|call| call.role == Role::Listen)
            && let Some(call) = self.calls.cancel(&server_id)
        {
            self.calls.forget_name(&call.client_id);
            self.pass_on_cancel(raw, &server_id, &call.client_id, effects);
            self.answers.send_nothing(call.batch, effects);
            return self.after_call(effects);
        }
        if let Some(client_side_id) = self.questions.withdraw(Asker::Server, &server_id) {
            self.pass_on_cancel(raw, &server_id, &client_side_id, effects);
        } else if !self.questions.contains(&server_id) {
            // Otherwise the client knows another request of the server by this id.
            effects.to_client(Class::Kept, &one_line(raw));
        }
    }

    /// Tells the client that the request with this id is over.
    fn pass_on_cancel(&self, raw: &[u8], server_id: &Id, client_id: &Id, effects: &mut impl WrapEffects) {
        if server_id == client_id {
            effects.to_client(Class::Kept, &one_line(raw));
        } else {
            effects.to_client(Class::Kept, &compose::cancelled(client_id, "the server withdrew it"));
        }
    }

    fn server_invalid(&mut self, invalid: &Invalid<'_>, effects: &mut impl WrapEffects) {
        self.quarantine(invalid.raw, &format!("not a valid message ({})", invalid.reason), effects);
        if invalid.shape == MessageShape::Request {
            if let Some(id) = &invalid.id {
                let error_report = questions::refusal_of_invalid(invalid.reason);
                self.answer_server(id, "", error_report, effects);
            }
            return;
        }
        let call = match &invalid.id {
            id if self.own_answer_unusable(id.as_ref(), effects) => None,
            Some(id) => self.calls.end(id),
            None => self.calls.end_by_stray(invalid, self.now),
        };
        if let Some(call) = call {
            self.fail_broken(&call, self.report(&call).bad_response(&invalid.reason.to_string()), effects);
        }
    }

    fn server_oversized(&mut self, oversized: &Oversized, effects: &mut impl WrapEffects) {
        let length = oversized.length;
        self.quarantine(oversized.to_string().as_bytes(), "longer than --max-message", effects);
        let call = match (&oversized.id, &oversized.method) {
            (Some(id), Some(method)) => {
                let error_report = questions::refusal_of_oversized(length);
                return self.answer_server(id, method, error_report, effects);
            }
            (id, None) if self.own_answer_unusable(id.as_ref(), effects) => None,
            (Some(id), None) => self.calls.end(id),
            // Without an id the answer cannot be assigned, unless only one call waits.
            _ if may_be_an_answer(oversized) => self.calls.end_only(),
            _ => None,
        };
        if let Some(call) = call {
            let error_report = self.report(&call).too_large(length, self.limits.max_message);
            self.fail_broken(&call, error_report, effects);
        }
    }

    /// Ends a call whose answer is unusable. This says nothing about the server either.
    pub(super) fn fail_broken(
        &mut self,
        call: &GuardedCall,
        error_report: ErrorReport<'_>,
        effects: &mut impl WrapEffects,
    ) {
        self.fail_call(call, error_report, None, effects);
        self.breaker.end_trial(self.now);
        self.after_call(effects);
    }

    /// Notes that a process was spawned. If there is a session, the process is told that first.
    pub fn server_spawned(&mut self, now: Duration, effects: &mut impl WrapEffects) {
        self.now = now;
        self.server.spawned(now, &self.limits);
        if matches!(self.phase, WrapPhase::Stopping { .. } | WrapPhase::Closed) {
            return self.ask_to_stop();
        }
        let id = self.own_id();
        let client_shakes_hands =
            self.calls.iter().any(|(_, call)| call.role == Role::Initialize && !call.sent);
        match self.client.session().opening(&id) {
            Some(line) if self.server.link() == ServerLink::Down && !client_shakes_hands => {
                self.server.set_link(ServerLink::Replaying);
                self.own_requests.register(OwnRequest::Handshake, id, now + self.limits.start_timeout);
                effects.to_server(&line);
            }
            _ => self.go_live(effects),
        }
    }

    /// Returns whether the client needs the server, and no process of it has answered anything.
    pub(super) fn awaits_start(&self) -> bool {
        self.phase.serves() && !self.server.has_answered()
    }

    /// Notes that the program could not be run at all.
    pub fn start_failed(&mut self, now: Duration, error: &str, effects: &mut impl WrapEffects) {
        self.now = now;
        self.server.gone();
        let happened = format!("`{}` could not be started: {error}", self.name);
        tracing::error!(server = self.name, "{happened}");
        if matches!(self.phase, WrapPhase::Stopping { .. }) {
            self.finish(exit::UNREACHABLE, effects);
        } else if self.server.has_answered() {
            self.lose_server(&happened, None, effects);
        } else {
            self.give_up_start(StartFault { happened, exit: None }, effects);
        }
    }

    /// Notes that the process has ended and that its last output has been read. `ServerEvent::Gone` comes later.
    pub fn server_exited(&mut self, now: Duration, exit: &Exit, effects: &mut impl WrapEffects) {
        self.now = now;
        let text = exit.to_string();
        tracing::info!(server = self.name, "ended ({text})");
        let is_needed = self.phase.serves();
        let our_reason = self.server.reason_of_end(now, self.limits.stop_grace);
        let happened = end_of_server(&self.name, &text, our_reason);
        if !is_needed {
            self.server.set_link(ServerLink::Down);
        } else if !self.server.has_answered() {
            let mut happened = format!("{happened} before it answered anything");
            if let Some(jobs) = effects.earlier_jobs() {
                happened = format!("{happened}; {jobs}");
            }
            self.give_up_start(StartFault { happened, exit: Some(text) }, effects);
        } else {
            match our_reason {
                Some(_) => effects.show(&happened),
                None => effects.show(&format!("`{}` ended unexpectedly ({text})", self.name)),
            }
            self.lose_server(&happened, Some(exit), effects);
        }
    }

    /// Notes that the process and everything that it left behind are gone. Another may be started.
    pub fn server_gone(&mut self, now: Duration, swept: SweptTree, effects: &mut impl WrapEffects) {
        self.now = now;
        self.server.gone();
        let SweptTree { leaked, unkilled } = swept;
        if leaked > 0 {
            tracing::warn!(server = self.name, leaked, unkilled, "left processes behind");
        }
        if let WrapPhase::Stopping { code, .. } = self.phase {
            self.finish(code, effects);
        }
    }

    /// Notes that the server can no longer read or write, although it still runs. It is useless now.
    pub fn server_deaf(&mut self, now: Duration, why: &'static str) {
        self.now = now;
        if self.server.is_of_use() {
            tracing::warn!(server = self.name, "it {why}; unhang stops it");
            self.server.note_useless(now, why);
            self.replace_server();
        }
    }

    /// Gives up a server that never came up. Waiting calls are answered, and a client that has not asked yet gets time to ask.
    fn give_up_start(&mut self, fault: StartFault, effects: &mut impl WrapEffects) {
        effects.show(&format!("{}; {}", fault.happened, fault.report().hint));
        let waiting = self.calls.take_all();
        for (_, call) in &waiting {
            self.fail_call(call, fault.report(), fault.exit.clone(), effects);
        }
        self.server.give_up_start(fault);
        if waiting.is_empty() && self.phase == WrapPhase::Running {
            self.phase = WrapPhase::Unstartable { until: self.now + self.limits.eof_grace };
        } else {
            self.finish(exit::UNREACHABLE, effects);
        }
    }

    /// Handles the loss of a server that had worked: answers calls, keeps those that are safe to repeat, and plans the restart.
    fn lose_server(&mut self, happened: &str, exit: Option<&Exit>, effects: &mut impl WrapEffects) {
        let opened = self.breaker.failed(self.now);
        self.own_requests.forget_all();
        self.added_capabilities.iter_mut().for_each(|names| names.tool_list.lost());
        self.questions.withdraw_all(effects);
        let may_restart = self.phase == WrapPhase::Running && !opened;
        self.server.lost(self.now, self.breaker.delay(), may_restart);
        if opened {
            tracing::error!(
                server = self.name,
                failures = self.breaker.failures(),
                "unhang does not use it for a while: {happened}"
            );
            effects.show(&self.breaker.opened(&self.name, self.limits.breaker_cooldown));
        }
        let lost = self.calls.sort_out_lost(self.now, may_restart);
        self.counters.retried += lost.again.len() as u64;
        self.held_input.hold_first(lost.again, lost.again_bytes);
        if !may_restart {
            let _given_up = self.held_input.take();
        }
        for call in lost.unanswered {
            if let (Some(exit), true) = (exit, call.sent) {
                let error_report = self.report(&call).exited(happened, self.phase == WrapPhase::Running);
                self.fail_call(&call, error_report, Some(exit.to_string()), effects);
            } else {
                self.fail_call(&call, self.breaker.loss(happened), None, effects);
            }
        }
        if may_restart && self.server.take_restart(!self.calls.is_empty()) {
            self.wake();
        }
        self.end_wait_for_tools(effects);
        self.after_call(effects);
    }

    fn go_live(&mut self, effects: &mut impl WrapEffects) {
        self.server.set_link(ServerLink::Live);
        if self.calls.iter().any(|(_, call)| call.promotion.is_some()) {
            self.ask_for_tools(effects);
        }
        for held in self.held_input.take() {
            match held {
                WaitingForServer::Line(line) => effects.to_server(&line),
                WaitingForServer::Call(wire_id) => {
                    self.calls.note_released(&wire_id, self.now);
                    self.send_held(&wire_id, effects);
                }
            }
        }
    }

    /// Sends the server a call that was held.
    pub(super) fn send_held(&mut self, wire_id: &Id, effects: &mut impl WrapEffects) {
        if let Some(line) = self.calls.send_held(wire_id) {
            effects.to_server(&line);
        }
    }

    /// Requests the server's tools if the guard is to name its own and nobody has listed the server's.
    pub(super) fn ask_for_tools(&mut self, effects: &mut impl WrapEffects) {
        if let Some(names) = &mut self.added_capabilities
            && names.needs_tool_list()
            && self.server.is_live()
            && self.client.allows_probes()
        {
            let start = self.server.with_start(Duration::ZERO, self.now, self.limits.start_timeout);
            names.tool_list.asked(self.now, self.now + start);
            self.ask_for_page(None, effects);
        }
    }

    fn ask_for_page(&mut self, cursor: Option<&str>, effects: &mut impl WrapEffects) {
        let id = self.own_id();
        effects.to_server(&self.client.list_tools(&id, cursor));
        self.own_requests.register(OwnRequest::ToolList, id, self.now + self.limits.call_timeout);
    }

    /// Takes a page of the server's tools; `None` if there is none, or the guard cannot read it.
    fn tools_listed(&mut self, outcome: Option<&ResponseOutcome<'_>>, effects: &mut impl WrapEffects) {
        let Some(added_capabilities) = &mut self.added_capabilities else { return };
        match added_capabilities.learn_page(outcome) {
            Some(cursor) => self.ask_for_page(Some(&cursor), effects),
            None => self.end_wait_for_tools(effects),
        }
    }

    /// Takes an answer to a request of the guard that cannot be used. Returns false if the answer is for no such request.
    fn own_answer_unusable(&mut self, id: Option<&Id>, effects: &mut impl WrapEffects) -> bool {
        let Some(ended) = self.own_requests.end_by_unusable(id) else { return false };
        match ended {
            OwnRequest::Handshake => self.ask_to_stop(),
            OwnRequest::ToolList => self.tools_listed(None, effects),
            OwnRequest::AnyAnswer => {}
        }
        true
    }

    /// Takes an answer to a request of the guard.
    pub(super) fn own_request_answered(
        &mut self,
        own_request: OwnRequest,
        outcome: &ResponseOutcome<'_>,
        effects: &mut impl WrapEffects,
    ) {
        match own_request {
            OwnRequest::Handshake => {}
            OwnRequest::ToolList => return self.tools_listed(Some(outcome), effects),
            OwnRequest::AnyAnswer => return,
        }
        if let ResponseOutcome::Error(error) = outcome {
            tracing::warn!(server = self.name, "refused the replayed `initialize`: {}", error.get());
            return self.ask_to_stop();
        }
        let deadline = self.now + self.limits.request_timeout;
        let WrapSession { client, own_requests, calls, questions, local_jobs, .. } = self;
        let is_free = |id: &Id| calls.is_free(id) && questions.is_free(id) && !local_jobs.has(id);
        let lines = own_requests.replay(client.session(), deadline, is_free);
        lines.iter().for_each(|line| effects.to_server(line));
        tracing::info!(server = self.name, "is back, and unhang has restored its session");
        effects.show(&format!("`{}` is back", self.name));
        self.go_live(effects);
    }
}
