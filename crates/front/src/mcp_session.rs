//! The session's state and its life: pure, driven by events, without a clock, a descriptor or a task of its own.
//!
//! Theory of operation. The owner reports each event to the session, with the time since its start, and passes a [`SessionEffects`] through
//! which answers leave at once. After each event the owner carries out the new [`SessionAction`]s. Then it asks [`McpSession::next_tick`]
//! when to call [`McpSession::tick`] at the latest.
//!
//! ```text
//! request ─┬ refused, or answered here
//!          ├ a tool of ours ─ SessionAction::Call(key) ─ … ─ McpSession::ended(key, answer) ─ answer, unless nobody waits any more
//!          ├ what a server has ─ SessionAction::Ask(key) ─ … ─ McpSession::answered(key, answer) ─ the same, in the client's era
//!          └ a list, while servers start ─ McpSession::servers_changed, or two seconds ─ what is known by then
//! Phase: Running ──eof──► Draining ──all answered, or grace──► Stopping ──all calls ended──► Closed
//!        Running ──signal──► Draining, for a moment          Running ──client gone──► Stopping
//! ```
//!
//! The session is a small core. Its state lies in parts, each in the file of its subject: `SessionCalls`, `ClientQuestions`, `ParkedCalls`,
//! `WatchedResources`, `SessionCatalog`, `SessionProfile` and `AnswerWriter`. A part is given the other parts that it needs, and never the
//! session. Work on several of them is here, in `requests.rs` (the client's requests) and in `outcomes.rs` (their outcomes).
//!
//! Invariant: a line that is not a message is answered, for real servers stay silent on garbage (contract 4).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use unhang_wire::{self as wire, Body, Id, Json, Line, Message, MessageShape, Oversized, Piece, read};

use super::{
    answers::AnswerWriter,
    client_request::{ClientRequest, MOST_ECHOED},
    effects::ReplyRoute,
    parked_calls::{ENDING, ParkedCalls},
    questions::{ClientQuestions, replied},
    session_calls::{Awaited, SessionCall, SessionCalls},
    session_catalog::SessionCatalog,
    session_profile::SessionProfile,
    subscriptions::{WatchedResources, end_of_changes},
    tally::FrontTally,
    tasks::JobCapabilities,
    traces::Traces,
};
use unhang_core::{
    config::{LIST_PATIENCE, SIGNAL_GRACE, STOP_LIMIT},
    exit,
    fault::FaultKind,
    limits::Limits,
    refusal::{self, Addressee, ErrorReport, gets_an_answer, unhang_ends},
    revision::Revision,
    telemetry::{Parent, Telemetry},
    units::in_words,
    wording::shortened,
};
use unhang_gateway::{FairnessKey, KnownServers};
use unhang_tools::Definition;
use unhang_upstream::{client::ServerList, http::param_headers::ReceivedParamHeaders};

pub use super::effects::{
    CallKey, ErrorAnswer, LineTarget, ONLY_STREAM, QuestionKey, QuestionSubject, Resource, SessionAction,
    SessionCounters, SessionEffects, StreamKey,
};

/// The notification by which a client tells that its roots have changed.
const ROOTS_CHANGED: &str = "notifications/roots/list_changed";

/// The phases of a session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionPhase {
    Running,
    Draining { until: Duration, code: u8, cause: &'static str },
    Stopping { until: Duration, code: u8 },
    Closed,
}

/// The session; see the module's text.
#[derive(Debug)]
pub struct McpSession {
    pub(super) limits: Limits,
    pub(super) now: Duration,
    /// Whether a client may have to begin with the handshake; false for a request that stands alone.
    pub(super) requires_handshake: bool,
    pub(super) client: SessionProfile,
    /// The identity of the client in fair queues.
    pub(super) fairness_key: FairnessKey,
    pub(super) session_catalog: SessionCatalog,
    /// The abilities of the jobs behind the session.
    pub(super) jobs: JobCapabilities,
    pub(super) answers: AnswerWriter,
    pub(super) calls: SessionCalls,
    /// The questions of servers to the client.
    pub(super) questions: ClientQuestions,
    pub(super) parked_calls: ParkedCalls,
    pub(super) watched: WatchedResources,
    pub(super) actions: VecDeque<SessionAction>,
    pub(super) phase: SessionPhase,
    /// Whether calls stay calls from now on, and no job is made of them.
    pub(super) makes_no_jobs: bool,
}

impl McpSession {
    /// Makes a session at time zero that offers these tools.
    pub fn new(limits: Limits, tools: Arc<[Definition]>, instructions: Option<Arc<str>>) -> McpSession {
        McpSession {
            limits,
            now: Duration::ZERO,
            requires_handshake: true,
            client: SessionProfile::default(),
            fairness_key: FairnessKey::new(""),
            session_catalog: SessionCatalog::new(tools, instructions),
            jobs: JobCapabilities::default(),
            answers: AnswerWriter::default(),
            calls: SessionCalls::default(),
            questions: ClientQuestions::default(),
            parked_calls: ParkedCalls::default(),
            watched: WatchedResources::default(),
            actions: VecDeque::new(),
            phase: SessionPhase::Running,
            makes_no_jobs: false,
        }
    }

    /// Adds servers behind the session.
    #[must_use]
    pub fn with_servers(mut self, known: KnownServers) -> McpSession {
        self.session_catalog.put_servers(known);
        self
    }

    /// Shares the counters of other sessions.
    pub(crate) fn with_metrics(mut self, tally: Arc<FrontTally>) -> McpSession {
        self.answers.count_in(tally);
        self
    }

    /// Exports traces of its requests.
    pub(crate) fn with_tracing(
        mut self,
        telemetry: Option<Telemetry>,
        transport: &'static str,
    ) -> McpSession {
        self.answers.trace_with(Traces::told_to(telemetry, transport));
        self
    }

    /// Sets the trace that the headers of the next message name.
    pub(crate) fn set_trace_parent(&mut self, header: Option<Parent>) {
        self.answers.traces().comes_with(header);
    }

    /// Sets the `Mcp-Param-*` headers of the next message. `None` means that they are not compared with the arguments.
    pub(crate) fn set_param_headers(&mut self, received: Option<ReceivedParamHeaders>) {
        self.client.param_headers = received.map(Arc::new);
    }

    /// Sets the identity of the client in fair queues.
    #[must_use]
    pub fn with_fairness_key(self, fairness_key: FairnessKey) -> McpSession {
        McpSession { fairness_key, ..self }
    }

    /// Returns the name that the client gives itself; empty if it gives none.
    pub(super) fn client_name(&self) -> String {
        self.answers.client_name().unwrap_or_default().to_owned()
    }

    /// Sets the name that the log gives the session.
    pub fn set_session_name(&mut self, name: &str) {
        self.answers.name_session(name);
    }

    /// Returns the next action for the owner. Returns `None` if nothing is left to do.
    pub fn next_action(&mut self) -> Option<SessionAction> {
        self.actions.pop_front()
    }

    /// Makes the session serve a single request, which must name its revision: there is no handshake.
    pub fn for_one_request(self) -> McpSession {
        McpSession { requires_handshake: false, ..self }
    }

    /// Returns the revision of the handshake. Returns `None` before it.
    pub fn revision(&self) -> Option<Revision> {
        self.client.revision()
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> SessionCounters {
        self.answers.counters()
    }

    /// Returns whether the client may be read; false if it does not read either, for its answers would pile up.
    pub fn reads_client(&self, effects: &impl SessionEffects) -> bool {
        effects.client_backlog() + self.answers.held_bytes() <= self.limits.queue_bytes
    }

    /// Returns whether input of this stream has no answer yet.
    pub fn awaits(&self, stream: StreamKey) -> bool {
        self.calls.awaits(stream)
    }

    /// Returns whether the answer to input of this stream may still be an error with a status of its own, so that no answer may begin.
    pub(super) fn may_get_a_status(&self, stream: StreamKey) -> bool {
        self.calls.may_be_refused(stream)
    }

    /// Declares that the own tools may change later, and that clients hear of it.
    pub fn tools_may_change(&mut self) {
        self.session_catalog.tools_may_change();
    }

    /// Allows calls to be parked under names that begin with this secret.
    pub fn set_state_secret(&mut self, secret: String) {
        self.parked_calls.park_under(secret);
    }

    /// Returns whether calls wait for their clients to come back.
    pub fn has_parked(&self) -> bool {
        !self.parked_calls.is_empty()
    }

    /// Returns when [`McpSession::tick`] is due at the latest.
    pub fn next_tick(&self) -> Option<Duration> {
        let end = match self.phase {
            SessionPhase::Draining { until, .. } | SessionPhase::Stopping { until, .. } => Some(until),
            SessionPhase::Running | SessionPhase::Closed => None,
        };
        let calls = self.calls.next_moment();
        end.into_iter().chain(calls).chain(self.parked_calls.next_tick()).min()
    }

    /// Notes the time, and does everything that is due: deadlines, lists, parked calls and the end of the session.
    pub fn tick(&mut self, now: Duration, effects: &mut impl SessionEffects) {
        self.now = now;
        while let Some((id, call)) = self.next_over(effects) {
            let unanswered = self.questions.unanswered(&call);
            self.abandon(call.key, effects);
            // The answer goes out as far as it is known.
            if self.answer_from_lists(&id, &call, effects) {
                continue;
            }
            let (happened, hint) = unanswered.unwrap_or_else(|| call.silence());
            let error_report = ErrorReport { kind: FaultKind::Deadline, summary: happened, hint };
            self.answers.fail(self.now, &id, &call, error_report, effects);
        }
        self.parked_calls.forget(Some(now), &mut self.actions);
        self.stop_if_drained(effects);
        match self.phase {
            SessionPhase::Draining { until, code, cause } if now >= until => {
                self.stop(now, code, &unhang_ends(cause), effects);
            }
            SessionPhase::Stopping { until, code } if now >= until => self.finish(code),
            _ => {}
        }
    }

    /// Returns the next call whose time is over, after the due promotions and heartbeats of the calls before it.
    fn next_over(&mut self, effects: &mut impl SessionEffects) -> Option<(Id, SessionCall)> {
        let now = self.now;
        while let Some(id) = self.calls.due(now) {
            if let Some(call) = self.calls.get_mut(&id) {
                self.actions.extend(call.promote_where_due(now, &self.questions, &self.client));
                call.beat_where_due(now, effects);
            }
            if !self.calls.put_off(&id, now) {
                break;
            }
        }
        self.calls.take_due(now)
    }

    /// Answers a request that waits for the lists of servers, as far as they are known. Returns false for any other request.
    pub(super) fn answer_from_lists(
        &mut self,
        id: &Id,
        call: &SessionCall,
        effects: &mut impl SessionEffects,
    ) -> bool {
        match call.awaited {
            Awaited::List(list) | Awaited::RefreshedList(list) => self.answer_list(id, list, call, effects),
            Awaited::Introduction(_) => self.answer_introduction(id, call, effects),
            _ => return false,
        }
        true
    }

    /// Answers a handshake or a discovery. The answer waits for servers that nobody has listed yet if the client wants to know their
    /// extensions: clients look for them there, and nowhere else.
    pub(super) fn introduce(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        awaits_extensions: bool,
        effects: &mut impl SessionEffects,
    ) {
        let method = if revision.is_stateless() { "server/discover" } else { "initialize" };
        let awaited = (self.calls.new_key(), Awaited::Introduction(method));
        let call = SessionCall::new(awaited, (revision, request.route), self.now, LIST_PATIENCE);
        match awaits_extensions && !self.session_catalog.has_lists() {
            true => self.calls.put_in_flight(request.id.clone(), call),
            false => self.answer_introduction(&request.id, &call, effects),
        }
    }

    /// Answers a handshake, or a discovery.
    pub(super) fn answer_introduction(
        &mut self,
        id: &Id,
        call: &SessionCall,
        effects: &mut impl SessionEffects,
    ) {
        let result = match call.revision.is_stateless() {
            true => self.session_catalog.discovery(call.revision, self.jobs),
            false => self.session_catalog.handshake(call.revision, self.jobs),
        };
        self.answers.answer(id, call.revision, call.route, result, effects);
    }

    /// Sends a list as the answer, as far as it is known. Refuses a list that turns out not to be offered.
    pub(super) fn answer_list(
        &mut self,
        id: &Id,
        list: ServerList,
        call: &SessionCall,
        effects: &mut impl SessionEffects,
    ) {
        if list == ServerList::Skills && !self.session_catalog.has_skills() {
            let error_report = self.session_catalog.no_such_method(list.method(), call.revision);
            let to = Addressee::request(id, list.method(), call.route.batch);
            return self.answers.refuse(call.route, to, error_report, effects);
        }
        let result = self.session_catalog.list(list, call, self.jobs);
        self.answers.answer_raw(id, call.route, &result, effects);
    }

    /// Handles a line that the client has sent on this stream.
    pub fn client_line(
        &mut self,
        now: Duration,
        stream: StreamKey,
        line: Line<'_>,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let route = ReplyRoute { stream, batch: None };
        match line {
            Line::Whole(bytes) => {
                for piece in read(bytes) {
                    self.piece(piece, route, effects);
                }
            }
            Line::Oversized(oversized) => {
                if self.answered_too_long(&oversized) {
                    return;
                }
                let (id, method) = (oversized.id.as_ref(), oversized.method.as_deref());
                let to = match oversized.shape {
                    MessageShape::Request => Addressee { id, method, ..Addressee::nobody() },
                    MessageShape::Response | MessageShape::Unknown => Addressee::nobody(),
                };
                self.answers.refuse(
                    route,
                    to,
                    refusal::oversized(&oversized, self.limits.max_message),
                    effects,
                );
            }
        }
    }

    /// Handles a message that is too long to be read, if it answers a question: its server hears that at once. Returns whether it does.
    pub(super) fn answered_too_long(&mut self, oversized: &Oversized) -> bool {
        let reply = self.questions.answered_too_long(oversized, self.limits.max_message);
        let is_answer = reply.is_some();
        self.actions.extend(reply.map(|(question, replied)| SessionAction::Reply { question, replied }));
        is_answer
    }

    fn piece(&mut self, piece: Piece<'_>, route: ReplyRoute, effects: &mut impl SessionEffects) {
        match piece {
            Piece::Message(Message { body, .. }) => match body {
                Body::Request { id, method, params, .. } => {
                    let method = shortened(&method, MOST_ECHOED);
                    let (waited, server) = (Duration::ZERO, None);
                    let param_headers = self.client.param_headers.clone();
                    let request = ClientRequest {
                        id,
                        method,
                        params,
                        route,
                        waited,
                        server,
                        were_lists_refreshed: false,
                        owner: None,
                        param_headers,
                    };
                    self.request(&request, effects);
                }
                Body::Notification { method, params } => self.notification(&method, params, effects),
                Body::Response { id, outcome, .. } => {
                    if let Some(question) = self.questions.answered(&id) {
                        let replied = replied(outcome);
                        self.actions.push_back(SessionAction::Reply { question, replied });
                    }
                }
            },
            Piece::Batch(pieces) => self.batch(pieces, route, effects),
            Piece::Invalid(invalid) => {
                if let Some((question, replied)) = self.questions.answered_invalidly(&invalid) {
                    return self.actions.push_back(SessionAction::Reply { question, replied });
                }
                let to = Addressee::of_invalid(&invalid, route.batch);
                // An invalid answer is not counted among the answers of a batch.
                let route = ReplyRoute { batch: to.batch, ..route };
                self.answers.refuse(route, to, refusal::invalid(&invalid), effects);
            }
            Piece::Junk(bytes) => {
                self.answers.refuse(route, Addressee::nobody(), refusal::junk(bytes), effects);
            }
        }
    }

    fn batch(&mut self, pieces: Vec<Piece<'_>>, route: ReplyRoute, effects: &mut impl SessionEffects) {
        if !self.client.revision().is_some_and(Revision::has_batches) {
            return self.answers.refuse(route, Addressee::nobody(), refusal::foreign_batch(), effects);
        }
        let answers = pieces.iter().filter(|piece| gets_an_answer(piece)).count();
        let batch = (answers > 0).then(|| self.answers.open_batch(answers));
        for piece in pieces {
            self.piece(piece, ReplyRoute { batch, ..route }, effects);
        }
    }

    fn notification(&mut self, method: &str, params: Option<Json<'_>>, effects: &mut impl SessionEffects) {
        if method == "notifications/cancelled"
            && let Some(id) = params.and_then(wire::cancelled_request)
            && let Some(call) = self.calls.take(&id)
        {
            self.answers.withdrawn(&id);
            self.abandon(call.key, effects);
            self.unwatch_unused(&call);
            self.stop_following(&call, effects);
            self.answers.answer_nothing(call.route, effects);
            self.stop_if_drained(effects);
        } else if method == "notifications/initialized" && self.client.revision().is_some() {
            self.actions.push_back(SessionAction::HandshakeOver);
        } else if method == ROOTS_CHANGED && self.client.can_be_asked(None, ("roots/list", None)).is_ok() {
            self.actions.push_back(SessionAction::RootsChanged);
        }
    }

    /// Notes that the client's stdin ended. Requests in flight may still be answered for a while.
    pub fn client_end(&mut self, now: Duration, effects: &mut impl SessionEffects) {
        self.keep_as_calls();
        self.drain(now, "the client closed its stream", effects);
    }

    /// Prepares to end after a signal: accepts nothing new, and lets requests in flight be answered for a moment.
    pub fn stop_soon(
        &mut self,
        now: Duration,
        code: u8,
        cause: &'static str,
        effects: &mut impl SessionEffects,
    ) {
        self.keep_as_calls();
        let until = match self.phase {
            SessionPhase::Draining { until, .. } => until.min(now + SIGNAL_GRACE),
            _ => now + SIGNAL_GRACE,
        };
        self.begin_drain(now, SessionPhase::Draining { until, code, cause }, effects);
    }

    /// Stops making jobs of calls: the client that would hear of a job has ended, and the job would end with the session. A call that is a
    /// task from the beginning still has to be ordered, and then goes on as a call.
    fn keep_as_calls(&mut self) {
        self.makes_no_jobs = true;
        self.calls.keep_as_calls();
    }

    /// Accepts nothing new from now on, for this reason. Requests in flight may still be answered for a while.
    pub fn drain(&mut self, now: Duration, cause: &'static str, effects: &mut impl SessionEffects) {
        if self.phase == SessionPhase::Running {
            let until = now + self.limits.eof_grace;
            self.begin_drain(now, SessionPhase::Draining { until, code: exit::DONE, cause }, effects);
        }
    }

    fn begin_drain(&mut self, now: Duration, draining: SessionPhase, effects: &mut impl SessionEffects) {
        self.now = now;
        if matches!(self.phase, SessionPhase::Running | SessionPhase::Draining { .. }) {
            self.phase = draining;
            // A window cannot connect any more to reply, and a client may have ended.
            self.questions.decline_windows(ENDING, &mut self.actions, effects);
            self.questions.decline_outside_calls(ENDING, &mut self.actions, effects);
            self.end_all_subscriptions(effects);
            self.stop_if_drained(effects);
        }
    }

    /// Ends the session now, because the client reads no more. Requests in flight are answered first, and then waited for: a stopped
    /// command needs a moment to end. `ending` says what ends and why: "unhang is ending because it was interrupted".
    pub fn stop(&mut self, now: Duration, code: u8, ending: &str, effects: &mut impl SessionEffects) {
        self.now = now;
        if matches!(self.phase, SessionPhase::Stopping { .. } | SessionPhase::Closed) {
            return;
        }
        self.phase = SessionPhase::Stopping { until: now + STOP_LIMIT, code };
        self.parked_calls.forget(None, &mut self.actions);
        self.questions.decline_outside_calls(ENDING, &mut self.actions, effects);
        self.end_all_subscriptions(effects);
        for (id, call) in self.calls.take_all() {
            self.abandon(call.key, effects);
            // The window that asks does not end, and its session goes on.
            let (ends, hint) = match self.jobs.are_of_windows {
                true => (
                    "the window that runs the servers for all windows is ending".to_owned(),
                    "send the request again if it is safe to repeat; another window runs the servers now",
                ),
                false => {
                    (ending.to_owned(), "send the request again in the next session if it is safe to repeat")
                }
            };
            let (name, elapsed) = (call.awaited.name(), in_words(self.now.saturating_sub(call.since)));
            let happened = format!("{ends}; `{name}` had not answered after {elapsed}");
            self.answers.fail(
                self.now,
                &id,
                &call,
                ErrorReport { kind: FaultKind::ShuttingDown, summary: happened, hint },
                effects,
            );
        }
        self.finish_if_stopped();
    }

    /// Ends all subscriptions, which can report nothing any more.
    fn end_all_subscriptions(&mut self, effects: &mut impl SessionEffects) {
        for id in self.calls.ids_of(|awaited| matches!(awaited, Awaited::Changes(_))) {
            if let Some(call) = self.calls.take(&id) {
                self.stop_following(&call, effects);
                self.answers.answer_raw(&id, call.route, &end_of_changes(&id), effects);
            }
        }
    }

    /// Stops watching the resources of an ended subscription that no other part of the session watches.
    fn unwatch_unused(&mut self, ended: &SessionCall) {
        let Awaited::Changes(filter) = &ended.awaited else { return };
        for resource in self.watched.unwatched_after(filter, &self.calls) {
            self.actions.push_back(SessionAction::Unwatch(resource.clone()));
        }
    }

    /// Stops following the tasks of an ended subscription.
    pub(super) fn stop_following(&mut self, ended: &SessionCall, effects: &mut impl SessionEffects) {
        if let Awaited::Changes(filter) = &ended.awaited {
            filter.followed().iter().for_each(|key| self.abandon(*key, effects));
        }
    }

    /// Ends a call whose work has ended. Returns the id of the request that still waits for it, if there is one.
    pub(super) fn end_call(&mut self, key: CallKey, effects: &mut impl SessionEffects) -> Option<Id> {
        self.questions.forget(key, &self.calls, &mut self.actions, effects);
        self.calls.end(key)
    }

    /// Gives up a call whose answer is not needed any more.
    pub(super) fn abandon(&mut self, key: CallKey, effects: &mut impl SessionEffects) {
        self.questions.forget(key, &self.calls, &mut self.actions, effects);
        self.calls.abandon(key, &mut self.actions);
    }

    /// Ends the session if the client has ended and waits for nothing.
    pub(super) fn stop_if_drained(&mut self, effects: &mut impl SessionEffects) {
        if let SessionPhase::Draining { code, cause, .. } = self.phase
            && self.calls.is_empty()
        {
            self.stop(self.now, code, &unhang_ends(cause), effects);
        }
    }

    /// Ends the session if everything has been stopped and has ended.
    pub(super) fn finish_if_stopped(&mut self) {
        if let SessionPhase::Stopping { code, .. } = self.phase
            && self.calls.have_ended()
        {
            self.finish(code);
        }
    }

    fn finish(&mut self, code: u8) {
        self.phase = SessionPhase::Closed;
        self.actions.push_back(SessionAction::Exit(code));
    }
}
