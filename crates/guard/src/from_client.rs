//! The client's lines, and where they go.
//!
//! Invariants: a line that cannot be forwarded is answered here, because real servers stay silent on garbage (contract 4). An id that is in
//! flight is refused, and not forwarded. The server's queue is bounded, and its refusal is an answer.

use std::{ops::Range, time::Duration};

use unhang_jobs::id::JobId;
use unhang_wire::{
    self as wire, Body, Completion, Id, Invalid, Json, Line, Message, MessageShape, Oversized, Piece,
    ResponseOutcome, compose, one_line, read, replace_id,
};

use super::{
    calls::{GuardedCall, Role},
    effects::{WrapAction, WrapEffects},
    local_jobs,
    progress::has_heartbeats,
    promotion::{Join, PromotionRules, unrelated, without_task},
    questions::{self, Asker, ServerQuestion},
    session_phase::WrapPhase,
    supervision::ServerLink,
    wrap_request::WrapRequest,
    wrap_session::WrapSession,
};
use unhang_core::{
    batch::BatchId,
    breaker::BreakerVerdict,
    config::RETRY_BYTES,
    exit,
    fault::FaultKind,
    queue::Class,
    refusal::{self, Addressee, BATCH_REVISION, ErrorReport, gets_an_answer},
    units::in_words,
};

impl WrapSession {
    /// Takes a line of the client.
    pub fn client_line(&mut self, now: Duration, line: Line<'_>, effects: &mut impl WrapEffects) {
        self.now = now;
        match line {
            Line::Oversized(oversized) => self.client_oversized(&oversized, effects),
            Line::Whole(bytes) => {
                for piece in read(bytes) {
                    self.client_piece(piece, None, effects);
                }
            }
        }
    }

    fn client_piece(&mut self, piece: Piece<'_>, batch: Option<BatchId>, effects: &mut impl WrapEffects) {
        match piece {
            Piece::Message(Message { raw, body }) => match body {
                Body::Request { id, id_span, method, params } => {
                    let request = WrapRequest { id, id_span, method, params, raw, batch, since: self.now };
                    self.client_request(&request, effects);
                }
                Body::Notification { method, params } => {
                    self.client_notification(raw, &method, params, effects);
                }
                Body::Response { id, id_span, outcome } => {
                    self.client_response(raw, &id, id_span, &outcome, effects);
                }
            },
            Piece::Batch(pieces) => self.client_batch(pieces, effects),
            Piece::Invalid(invalid) => self.client_invalid(&invalid, batch, effects),
            Piece::Junk(bytes) => {
                self.refuse(Addressee { batch, ..Addressee::nobody() }, refusal::junk(bytes), effects);
            }
        }
    }

    fn client_batch(&mut self, pieces: Vec<Piece<'_>>, effects: &mut impl WrapEffects) {
        if self.client.negotiated() != Some(BATCH_REVISION) {
            return self.refuse(Addressee::nobody(), refusal::foreign_batch(), effects);
        }
        let is_owed = |piece: &&Piece<'_>| gets_an_answer(piece);
        let answers = pieces.iter().filter(is_owed).count();
        let batch = self.answers.open(answers);
        for piece in pieces {
            self.client_piece(piece, batch, effects);
        }
    }

    fn client_request(&mut self, request: &WrapRequest<'_>, effects: &mut impl WrapEffects) {
        self.counters.requests += 1;
        match self.refusal(request) {
            Some(error_report) => self.refuse_request(request, error_report, effects),
            None => self.dispatch(request, effects),
        }
    }

    fn refuse_request(
        &mut self,
        request: &WrapRequest<'_>,
        error_report: ErrorReport<'_>,
        effects: &mut impl WrapEffects,
    ) {
        self.refuse(request.addressee(), error_report, effects);
        if matches!(self.phase, WrapPhase::Unstartable { .. }) {
            self.finish(exit::UNREACHABLE, effects);
        }
    }

    /// Gives a request to the party that answers it: the server, or the local job server.
    fn dispatch(&mut self, request: &WrapRequest<'_>, effects: &mut impl WrapEffects) {
        let names = self.added_capabilities.as_deref();
        let is_about_jobs = |params| names.is_some_and(|names| names.is_about_jobs(&request.method, params));
        let is_for_job_server = request.params.is_some_and(is_about_jobs);
        let error_report = match is_for_job_server {
            true => self.local_jobs.refusal(effects.job_server_backlog(), self.limits.queue_bytes),
            false => self
                .refusal_of_server(effects)
                .or_else(|| self.promotion_rules()?.refusal_of_task(&request.method, request.params)),
        };
        if let Some(error_report) = error_report {
            return self.refuse_request(request, error_report, effects);
        }
        if is_for_job_server {
            return self.ask_job_server(request, effects);
        }
        let verdict = self.breaker.ask(self.now);
        if let BreakerVerdict::Refuse(wait) = verdict {
            let error_report = self.breaker.refusal(&self.name, wait);
            return self.refuse_request(request, error_report, effects);
        }
        self.accept(request, verdict == BreakerVerdict::Trial, effects);
    }

    /// Ends the wait for the server's list of tools, if it is over. Requests go to the party that answers them, and calls become jobs.
    pub(super) fn end_wait_for_tools(&mut self, effects: &mut impl WrapEffects) {
        let Some(names) = &mut self.added_capabilities else { return };
        if names.waits_for_tools(self.now).is_some() {
            return;
        }
        for wire_id in names.tool_list.take_due() {
            if self.calls.get(&wire_id).is_some_and(GuardedCall::is_overdue) {
                self.promote(&wire_id);
            }
        }
        for undecided in self.local_jobs.take_undecided() {
            undecided.requests().for_each(|request| self.dispatch(&request, effects));
        }
    }

    /// Returns why a request is refused, or `None` if it is taken.
    fn refusal(&self, request: &WrapRequest<'_>) -> Option<ErrorReport<'static>> {
        // This also holds for requests behind the last one that was waited for.
        if let Some(fault) = self.server.start_fault() {
            return Some(fault.report());
        }
        if self.phase != WrapPhase::Running {
            return Some(refusal::ending());
        }
        if self.is_in_flight(&request.id) {
            return Some(refusal::repeated_id(&request.id));
        }
        if request.batch.is_some() && request.method == "initialize" {
            return Some(refusal::handshake_in_batch());
        }
        if self.in_flight() >= self.limits.max_in_flight {
            return Some(refusal::overloaded(&self.name, self.in_flight()));
        }
        None
    }

    /// Returns why the server gets no requests, or `None` if it gets them.
    fn refusal_of_server(&self, effects: &impl WrapEffects) -> Option<ErrorReport<'static>> {
        let waiting = self.waiting_for_server(effects);
        (waiting > self.limits.queue_bytes).then(|| {
            let happened = format!("`{}` does not read its input; {waiting} bytes wait for it", self.name);
            ErrorReport {
                kind: FaultKind::Overloaded,
                summary: happened,
                hint: "try again later, or restart the server",
            }
        })
    }

    /// Counts the bytes on their way to the server.
    fn waiting_for_server(&self, effects: &impl WrapEffects) -> usize {
        effects.server_backlog() + self.held_input.bytes()
    }

    fn is_in_flight(&self, client_id: &Id) -> bool {
        self.local_jobs.has(client_id) || self.calls.is_awaited(client_id)
    }

    /// Learns from a request about the client and its session.
    pub(super) fn learn_from(&mut self, request: &WrapRequest<'_>) {
        let Some(introduction) = self.client.learn(request) else { return };
        if introduction.is_new_session {
            self.local_jobs.forget_session();
        }
        if let Some(added_capabilities) = &mut self.added_capabilities {
            added_capabilities.wait_for_use(introduction.follows_lists);
        }
    }

    /// Sends a request to the local job server.
    fn ask_job_server(&mut self, request: &WrapRequest<'_>, effects: &mut impl WrapEffects) {
        self.learn_from(request);
        self.ask_for_tools(effects);
        let limit = self.limit_of(&request.method, local_jobs::role_of(&request.method));
        let names = self.added_capabilities.as_ref();
        if names.is_some_and(|names| names.waits_for_tools(self.now).is_some()) {
            return self.local_jobs.hold(request, limit);
        }
        let introduction = self.local_jobs.take_introduction().then(|| self.own_id());
        let Some(added_capabilities) = &mut self.added_capabilities else { return };
        if let Some(id) = introduction {
            self.local_jobs.introduce(id, &self.client, added_capabilities, effects);
        }
        self.local_jobs.ask(request, limit, added_capabilities, effects);
    }

    /// Takes a line of the local job server.
    pub fn job_server_line(
        &mut self,
        now: Duration,
        class: &Class,
        line: &[u8],
        effects: &mut impl WrapEffects,
    ) {
        self.now = now;
        for piece in read(line) {
            let Piece::Message(Message { body, .. }) = piece else { continue };
            match body {
                Body::Response { id, .. } => {
                    if let Some(batch) = self.local_jobs.answered(&id) {
                        self.answers.send(batch, line, effects);
                        self.after_call(effects);
                    }
                }
                Body::Notification { method, params } if method == "notifications/cancelled" => {
                    // The client knows its questions by other ids.
                    let id = params.and_then(wire::cancelled_request);
                    let id = id.and_then(|id| self.questions.withdraw(Asker::JobServer, &id));
                    if let Some(id) = id {
                        effects.to_client(Class::Kept, &compose::cancelled(&id, "the question is over"));
                    }
                }
                Body::Notification { .. } => self.tell_client(class.clone(), line, effects),
                Body::Request { id, id_span, method, .. } => {
                    self.job_server_request(line, (id, id_span), &method, effects);
                }
            }
        }
    }

    /// Passes on a question about a job that another process holds. It has no deadline here: the local job server withdraws it.
    fn job_server_request(
        &mut self,
        line: &[u8],
        (id, id_span): (Id, Range<usize>),
        method: &str,
        effects: &mut impl WrapEffects,
    ) {
        if self.questions.len(Asker::JobServer) >= self.limits.max_in_flight {
            // The job waits for another client, or for the next request about it.
            tracing::warn!(
                server = self.name,
                "unhang does not pass on `{method}`: too many questions are open"
            );
            return;
        }
        // The client's answer names the task as well, and the asker does not need that.
        let (server_id, is_of_a_task, since) = (id, true, self.now);
        let asker = Asker::JobServer;
        let question = ServerQuestion { asker, server_id, is_of_a_task, method: method.into(), since };
        if let Some(client_side_id) = self.register_question(question, None) {
            effects.to_client(Class::Kept, &replace_id(line, id_span, &client_side_id));
        }
    }

    fn accept(&mut self, request: &WrapRequest<'_>, is_trial: bool, effects: &mut impl WrapEffects) {
        self.learn_from(request);
        if request.method == "tools/call" {
            self.ask_for_tools(effects);
        }
        let role = match &*request.method {
            "initialize" => Role::Initialize,
            "subscriptions/listen" => Role::Listen,
            _ => Role::Other,
        };
        let limit = self.limit_of(&request.method, role);
        tracing::debug!(
            server = self.name,
            "waiting for the answer to `{}` (id {}), at most {}",
            request.method,
            request.id,
            limit.map_or_else(|| "until it ends".to_owned(), in_words)
        );
        let mut call = GuardedCall::new(request.id.clone(), &request.method, role, request.since, limit);
        call.token = request.params.and_then(wire::progress_token);
        call.batch = request.batch;
        let mut joins = None;
        if let Some(rules) = self.promotion_rules() {
            call.copes_with_tasks = rules.is_list_for_tasks(&request.method, request.params);
            call.promotion = rules.plan(&request.method, request.params, (self.now, request.since, limit));
            let may_join = request.params.filter(|_| call.promotion.is_some());
            joins = may_join.and_then(|params| rules.same_call(params, effects));
        }
        let is_of_a_task = call.waits_for_its_task();
        let token = call.token.clone().filter(|_| has_heartbeats(&self.limits, &request.method));
        self.progress_tokens.revive(call.token.as_ref());
        let WrapSession { calls, own_requests, questions, local_jobs, .. } = self;
        let is_free_elsewhere = |id: &Id| questions.is_free(id) && !local_jobs.has(id);
        let wire_id = calls.register(call, own_requests, is_free_elsewhere);
        if let (Some(token), Some(params)) = (token, request.params) {
            let has_messages = self.client.has_progress_messages();
            let called = (&wire_id, token, params);
            self.progress_tokens.begin_heartbeat(called, &mut self.calls, self.now, has_messages);
        }
        if is_trial {
            self.breaker.begin_trial(wire_id.clone());
            // A subscription is answered when it ends. Until then it says nothing about the server.
            if role == Role::Listen {
                self.breaker.end_trial(self.now);
            }
        }
        let renamed =
            (wire_id != request.id).then(|| replace_id(request.raw, request.id_span.clone(), &wire_id));
        let line = renamed.as_deref().map_or_else(|| one_line(request.raw), Into::into);
        let stripped = is_of_a_task.then(|| without_task(&line)).flatten();
        let line = stripped.map_or(line, Into::into);
        if joins.is_none() && !is_of_a_task {
            return self.send(wire_id, &line, effects);
        }
        // The server gets the call once it is the task that its client wants, or if nothing comes of the job that it waits for.
        if let Some(call) = self.calls.get_mut(&wire_id) {
            call.line = Some(line.into_owned());
        }
        if let Some(job) = joins {
            self.join(wire_id, job);
        }
    }

    /// Makes a call wait for a job.
    fn join(&mut self, wire_id: Id, job: JobId) {
        let order = self.promotion_orders.next();
        if let Some(call) = self.calls.get_mut(&wire_id)
            && call.join(job, order)
        {
            let limit = call.limit.unwrap_or(self.limits.call_timeout);
            self.actions.push_back(WrapAction::Join(Join { call: wire_id, order, job, limit }.into()));
        }
    }

    /// Returns the rules that decide whether a request may become a job. Returns `None` if there are no jobs.
    fn promotion_rules(&self) -> Option<PromotionRules<'_>> {
        let added_capabilities = self.added_capabilities.as_deref()?;
        let WrapSession { name: server, limits, client, calls, .. } = self;
        Some(PromotionRules { server, limits, client, calls, added_capabilities })
    }

    /// Sends a call to the server, or holds it until the server is back.
    fn send(&mut self, wire_id: Id, line: &[u8], effects: &mut impl WrapEffects) {
        let live = self.server.is_live();
        if let Some(call) = self.calls.get_mut(&wire_id) {
            call.sent = live;
            if !live || (call.may_be_sent_again() && line.len() <= RETRY_BYTES) {
                call.line = Some(line.to_vec());
            }
        }
        if live {
            effects.to_server(line);
        } else {
            self.held_input.hold_call(wire_id, line.len());
            self.wake();
        }
    }

    /// Sends the server a call that it has not had, or holds it until the server is back.
    pub(super) fn send_or_hold(&mut self, wire_id: &Id, effects: &mut impl WrapEffects) {
        if self.server.is_live() {
            return self.send_held(wire_id, effects);
        }
        let bytes = self.calls.note_held(wire_id, self.now);
        self.held_input.hold_call(wire_id.clone(), bytes);
        self.wake();
    }

    /// Returns whether a call waits for a server that is down or starts.
    pub(super) fn is_held_back(&self, wire_id: &Id) -> bool {
        !self.server.is_live() && self.calls.get(wire_id).is_some_and(|call| !call.sent)
    }

    /// Returns how long a request may take, or `None` if it has no limit.
    fn limit_of(&self, method: &str, role: Role) -> Option<Duration> {
        let limit = role.limit(method, &self.limits, self.client.call_clock())?;
        Some(self.server.with_start(limit, self.now, self.limits.start_timeout))
    }

    fn client_notification(
        &mut self,
        raw: &[u8],
        method: &str,
        params: Option<Json<'_>>,
        effects: &mut impl WrapEffects,
    ) {
        match method {
            "notifications/initialized" => self.client.initialized(raw),
            "notifications/cancelled" => {
                if let Some(id) = params.and_then(wire::cancelled_request) {
                    return self.client_cancels(&id, raw, effects);
                }
            }
            _ => {}
        }
        self.forward(raw, effects);
    }

    /// Sends a line that is not a request, or holds it until the server is back.
    fn forward(&mut self, raw: &[u8], effects: &mut impl WrapEffects) {
        let waiting = self.waiting_for_server(effects);
        if waiting > self.limits.queue_bytes {
            tracing::warn!(
                server = self.name,
                "unhang dropped a notification: {waiting} bytes wait for the server"
            );
            self.counters.dropped_notifications += 1;
            return;
        }
        let line = one_line(raw);
        match self.server.link() {
            ServerLink::Live => effects.to_server(&line),
            // The replay repeats this line in its place. Sending it here too would be once too often.
            _ if self.client.session().says(raw) => {}
            _ => self.held_input.hold_line(line.into_owned()),
        }
    }

    /// Withdraws a request of the client. The client gets nothing more for that id, and its wait ends now (design 5).
    fn client_cancels(&mut self, client_id: &Id, raw: &[u8], effects: &mut impl WrapEffects) {
        let added_capabilities = self.added_capabilities.as_deref_mut();
        if let Some(asked) = self.local_jobs.withdraw(client_id, raw, added_capabilities, effects) {
            self.answers.send_nothing(asked.batch, effects);
            return self.after_call(effects);
        }
        let Some((wire_id, call)) = self.calls.withdraw(client_id) else {
            // The server may know another request by this id: one that was renamed, or one of ours.
            if self.calls.contains(client_id) || self.own_requests.contains(client_id) {
                return;
            }
            return self.forward(raw, effects);
        };
        self.breaker.settle_trial(&wire_id, self.now);
        self.progress_tokens.end(call.token.clone());
        self.answers.send_nothing(call.batch, effects);
        if call.sent {
            if wire_id == *client_id {
                self.forward(raw, effects);
            } else {
                self.cancel_at_server(&wire_id, "the client cancelled the request", effects);
            }
        } else {
            // The call never reached the server, so no late answer will come.
            self.calls.await_nothing(&wire_id);
        }
        self.after_call(effects);
    }

    /// Tells the server, if it is up, that nobody waits for this request any more.
    pub(super) fn cancel_at_server(&mut self, wire_id: &Id, reason: &str, effects: &mut impl WrapEffects) {
        if self.server.is_live() {
            let line = compose::cancelled(wire_id, reason);
            effects.to_server(&line);
        }
    }

    fn client_response(
        &mut self,
        raw: &[u8],
        id: &Id,
        id_span: Range<usize>,
        outcome: &ResponseOutcome<'_>,
        effects: &mut impl WrapEffects,
    ) {
        let (question, repaired) = match self.questions.complete(id) {
            Completion::Matched(question) => (question, false),
            Completion::Repaired { entry, .. } => {
                self.counters.repaired_ids += 1;
                (entry, true)
            }
            Completion::Late => return,
            Completion::Unknown => {
                self.counters.unknown_ids += 1;
                tracing::warn!(
                    server = self.name,
                    "unhang dropped an answer of the client to {id}, which the server did not ask"
                );
                return;
            }
        };
        if let ResponseOutcome::Result(roots) = outcome
            && &*question.method == "roots/list"
        {
            self.client.note_roots(*roots);
        }
        let failed = matches!(outcome, ResponseOutcome::Error(_));
        tracing::debug!(
            server = self.name,
            method = &*question.method,
            failed,
            "the client answered the server"
        );
        let renamed =
            (repaired || question.server_id != *id).then(|| replace_id(raw, id_span, &question.server_id));
        let line = one_line(renamed.as_deref().unwrap_or(raw));
        match unrelated(&line).filter(|_| question.is_of_a_task) {
            Some(unrelated) => self.answer_asker(question.asker, &unrelated, effects),
            None => self.answer_asker(question.asker, &line, effects),
        }
    }

    /// Sends an answer to the party that has asked.
    fn answer_asker(&mut self, asker: Asker, line: &[u8], effects: &mut impl WrapEffects) {
        match (asker, &mut self.added_capabilities) {
            (Asker::Server, _) => effects.to_server(line),
            (Asker::JobServer, Some(added_capabilities)) => {
                effects.to_job_server(line, added_capabilities.names());
            }
            // Without jobs nobody has asked.
            (Asker::JobServer, None) => {}
        }
    }

    fn client_invalid(
        &mut self,
        invalid: &Invalid<'_>,
        batch: Option<BatchId>,
        effects: &mut impl WrapEffects,
    ) {
        let id = invalid.id.as_ref().filter(|_| invalid.shape == MessageShape::Response);
        if let Some(question) = id.and_then(|id| self.questions.complete(id).entry()) {
            let happened = format!(
                "the client answered `{}` with an invalid response: {}",
                question.method, invalid.reason
            );
            let error_report = ErrorReport {
                kind: FaultKind::BadResponse,
                summary: happened,
                hint: "this is a fault of the client",
            };
            self.refuse_question(&question, error_report, effects);
            return;
        }
        self.refuse(Addressee::of_invalid(invalid, batch), refusal::invalid(invalid), effects);
    }

    fn client_oversized(&mut self, oversized: &Oversized, effects: &mut impl WrapEffects) {
        let error_report = refusal::oversized(oversized, self.limits.max_message);
        if oversized.shape == MessageShape::Request {
            let (id, method) = (oversized.id.as_ref(), oversized.method.as_deref());
            self.refuse(Addressee { id, method, ..Addressee::nobody() }, error_report, effects);
            return;
        }
        if let Some(question) = oversized.id.as_ref().and_then(|id| self.questions.complete(id).entry()) {
            return self.refuse_question(&question, error_report, effects);
        }
        self.refuse(Addressee::nobody(), error_report, effects);
    }

    /// Sends the party that has asked an error in the client's place.
    pub(super) fn refuse_question(
        &mut self,
        question: &ServerQuestion,
        error_report: ErrorReport<'_>,
        effects: &mut impl WrapEffects,
    ) {
        let ServerQuestion { asker, server_id, method, .. } = question;
        match asker {
            Asker::Server => self.answer_server(server_id, method, error_report, effects),
            Asker::JobServer => {
                let line = questions::refusal_line(&self.name, server_id, method, error_report);
                self.answer_asker(*asker, &line, effects);
            }
        }
    }

    /// Sends the server an error in the client's place, in answer to its request.
    pub(super) fn answer_server(
        &mut self,
        server_id: &Id,
        method: &str,
        error_report: ErrorReport<'_>,
        effects: &mut impl WrapEffects,
    ) {
        // A server that keeps asking without reading would fill the memory with answers.
        if effects.server_backlog() > self.limits.queue_bytes.saturating_mul(2) {
            tracing::warn!(
                server = self.name,
                "unhang does not answer its request `{method}`: the server does not read"
            );
            return;
        }
        effects.to_server(&questions::refusal_line(&self.name, server_id, method, error_report));
    }
}
