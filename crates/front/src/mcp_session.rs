//! The front's state and its life: pure, driven by events, without a clock, a descriptor or a task of its own.
//!
//! Theory of operation. The owner tells the session what happened, with the time since its start, and hands in an
//! [`SessionEffects`] through which answers leave at once. After each event the owner carries out the [`SessionAction`]s that have come
//! up and asks [`McpSession::next_tick`] when to call [`McpSession::tick`] at the latest.
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
//! `WatchedResources`, `SessionCatalog`, `SessionProfile` and `AnswerWriter`. A part is given the other parts that it needs, and never
//! the session. What concerns several of them is here, in `requests.rs` (what the client asks for) and in `outcomes.rs` (what comes of it).
//!
//! Invariant: a line that is no message is answered, for real servers stay silent on garbage (contract 4).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use unhang_switches::stands;
use unhang_wire::{self as wire, Body, Id, Json, Line, Message, MessageShape, Piece, read};

use super::{
    answers::AnswerWriter,
    client_request::{ClientRequest, MOST_ECHOED},
    effects::ReplyRoute,
    parked_calls::ParkedCalls,
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
    config::{SIGNAL_GRACE, STOP_LIMIT},
    exit,
    fault::FaultKind,
    limits::Limits,
    refusal::{self, Addressee, ErrorReport, gets_an_answer},
    revision::Revision,
    telemetry::{Parent, Telemetry},
    units::in_words,
    wording::shortened,
};
use unhang_gateway::{FairnessKey, KnownServers};
use unhang_tools::Definition;
use unhang_upstream::client::ServerList;

pub use super::effects::{
    CallKey, ErrorAnswer, LineTarget, ONLY_STREAM, QuestionKey, QuestionSubject, Resource, SessionAction,
    SessionCounters, SessionEffects, StreamKey,
};

/// The way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionPhase {
    Running,
    Draining { until: Duration, code: u8, cause: &'static str },
    Stopping { until: Duration, code: u8 },
    Closed,
}

/// The session. See the module's text.
#[derive(Debug)]
pub struct McpSession {
    pub(super) limits: Limits,
    pub(super) now: Duration,
    /// Sessions may begin with one.
    pub(super) requires_handshake: bool,
    pub(super) client: SessionProfile,
    /// Who asks, where clients wait for one another.
    pub(super) fairness_key: FairnessKey,
    pub(super) session_catalog: SessionCatalog,
    /// What there is of jobs behind the session.
    pub(super) jobs: JobCapabilities,
    pub(super) answers: AnswerWriter,
    pub(super) calls: SessionCalls,
    /// What the client is asked on behalf of servers.
    pub(super) questions: ClientQuestions,
    pub(super) parked_calls: ParkedCalls,
    pub(super) watched: WatchedResources,
    pub(super) actions: VecDeque<SessionAction>,
    pub(super) phase: SessionPhase,
    /// No call becomes a job any more.
    pub(super) makes_no_jobs: bool,
}

impl McpSession {
    /// A front at time zero that offers these tools.
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

    /// The same with servers behind it.
    #[must_use]
    pub fn with_servers(mut self, known: KnownServers) -> McpSession {
        self.session_catalog.put_servers(known);
        self
    }

    /// The same, counted with others.
    pub(crate) fn with_metrics(mut self, tally: Arc<FrontTally>) -> McpSession {
        self.answers.count_in(tally);
        self
    }

    /// The same, and its requests are told there.
    pub(crate) fn with_tracing(
        mut self,
        telemetry: Option<Telemetry>,
        transport: &'static str,
    ) -> McpSession {
        self.answers.trace_with(Traces::told_to(telemetry, transport));
        self
    }

    /// The next message comes with this trace in its headers.
    pub(crate) fn set_trace_parent(&mut self, header: Option<Parent>) {
        self.answers.traces().comes_with(header);
    }

    /// The same for this one of those who ask.
    #[must_use]
    pub fn with_fairness_key(self, fairness_key: FairnessKey) -> McpSession {
        McpSession { fairness_key, ..self }
    }

    /// What the client calls itself.
    pub(super) fn client_name(&self) -> String {
        self.answers.client_name().unwrap_or_default().to_owned()
    }

    /// What the log calls the session.
    pub fn set_session_name(&mut self, name: &str) {
        self.answers.name_session(name);
    }

    /// What is to be done next, until there is nothing.
    pub fn next_action(&mut self) -> Option<SessionAction> {
        self.actions.pop_front()
    }

    /// For one request alone, which has to name its revision: there is no handshake.
    pub fn for_one_request(self) -> McpSession {
        McpSession { requires_handshake: false, ..self }
    }

    /// The revision that the handshake came to.
    pub fn revision(&self) -> Option<Revision> {
        self.client.revision()
    }

    /// What was counted so far.
    pub fn counters(&self) -> SessionCounters {
        self.answers.counters()
    }

    /// False while the client must not be read: it does not read either, and what it is owed would pile up.
    pub fn reads_client(&self, effects: &impl SessionEffects) -> bool {
        effects.client_backlog() + self.answers.held_bytes() <= self.limits.queue_bytes
            || !stands("front-holds-a-deaf-client-back")
    }

    /// Something that came on this stream has no answer yet.
    pub fn awaits(&self, stream: StreamKey) -> bool {
        self.calls.awaits(stream)
    }

    /// There may be other tools of ours later, of which clients are to hear.
    pub fn tools_may_change(&mut self) {
        self.session_catalog.tools_may_change();
    }

    /// Calls may be parked under names that begin with this, which nobody guesses.
    pub fn set_state_secret(&mut self, secret: String) {
        self.parked_calls.park_under(secret);
    }

    /// Calls wait for their clients to come back.
    pub fn has_parked(&self) -> bool {
        !self.parked_calls.is_empty()
    }

    /// When [`McpSession::tick`] is due at the latest.
    pub fn next_tick(&self) -> Option<Duration> {
        let end = match self.phase {
            SessionPhase::Draining { until, .. } | SessionPhase::Stopping { until, .. } => Some(until),
            SessionPhase::Running | SessionPhase::Closed => None,
        };
        let calls = self.calls.next_moment().filter(|_| stands("tool-deadline"));
        end.into_iter().chain(calls).chain(self.parked_calls.next_tick()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration, effects: &mut impl SessionEffects) {
        self.now = now;
        while let Some((id, call)) = self.next_over(effects) {
            if let Awaited::List(list) = call.awaited {
                // What is known by now has to do.
                self.answer_list(&id, list, &call, effects);
                continue;
            }
            let unanswered = self.questions.unanswered(&call);
            self.abandon(call.key, effects);
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

    /// The next call that is over, once whatever is due about others has been done.
    fn next_over(&mut self, effects: &mut impl SessionEffects) -> Option<(Id, SessionCall)> {
        let now = self.now;
        while let Some(id) = self.calls.due(now) {
            if let Some(call) = self.calls.get_mut(&id) {
                self.actions.extend(call.promote_where_due(now, &self.questions));
                call.beat_where_due(now, effects);
            }
            if !self.calls.put_off(&id, now) {
                break;
            }
        }
        self.calls.take_due(now)
    }

    /// Answers with a list, as far as it is known.
    pub(super) fn answer_list(
        &mut self,
        id: &Id,
        list: ServerList,
        call: &SessionCall,
        effects: &mut impl SessionEffects,
    ) {
        let result = self.session_catalog.list(list, call, self.jobs);
        self.answers.answer_raw(id, call.route, &result, effects);
    }

    /// A line came from the client, on this stream.
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

    fn piece(&mut self, piece: Piece<'_>, route: ReplyRoute, effects: &mut impl SessionEffects) {
        match piece {
            Piece::Message(Message { body, .. }) => match body {
                Body::Request { id, method, params, .. } => {
                    let method = shortened(&method, MOST_ECHOED);
                    let (waited, server) = (Duration::ZERO, None);
                    self.request(&ClientRequest { id, method, params, route, waited, server }, effects);
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
            Piece::Invalid(_) | Piece::Junk(_) if !stands("front-answers-garbage") => {}
            Piece::Invalid(invalid) => {
                let to = Addressee::of_invalid(&invalid, route.batch);
                // An answer that is none is not counted among those of a batch.
                let route = ReplyRoute { batch: to.batch, ..route };
                self.answers.refuse(route, to, refusal::invalid(&invalid), effects);
            }
            Piece::Junk(bytes) => {
                self.answers.refuse(route, Addressee::nobody(), refusal::junk(bytes), effects);
            }
        }
    }

    fn batch(&mut self, pieces: Vec<Piece<'_>>, route: ReplyRoute, effects: &mut impl SessionEffects) {
        if !self.client.revision().is_some_and(Revision::has_batches) && stands("front-batch-by-revision") {
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
        }
    }

    /// The client's stdin ended: what is in flight may still be answered for a while.
    pub fn client_end(&mut self, now: Duration, effects: &mut impl SessionEffects) {
        self.keep_as_calls();
        self.drain(now, "the client closed its stream", effects);
    }

    /// A signal: nothing new is taken, and what is in flight may still be answered for a moment.
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

    /// No call becomes a job any more: the client that would hear of it has ended, and the job would end with the session. A call that is
    /// a task from the first on has to be ordered, and then goes on as what it was.
    fn keep_as_calls(&mut self) {
        self.makes_no_jobs = true;
        self.calls.keep_as_calls();
    }

    /// Takes nothing new from now on, for this reason; what is in flight may still be answered for a while.
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
            self.end_all_subscriptions(effects);
            self.stop_if_drained(effects);
        }
    }

    /// Ends now: the client reads no more. What is in flight is answered first, and then waited for: a command
    /// that is stopped needs a moment to be gone. `ending` says what ends and why: "unhang is ending because it was interrupted".
    pub fn stop(&mut self, now: Duration, code: u8, ending: &str, effects: &mut impl SessionEffects) {
        self.now = now;
        if matches!(self.phase, SessionPhase::Stopping { .. } | SessionPhase::Closed) {
            return;
        }
        self.phase = SessionPhase::Stopping { until: now + STOP_LIMIT, code };
        self.parked_calls.forget(None, &mut self.actions);
        self.end_all_subscriptions(effects);
        for (id, call) in self.calls.take_all() {
            self.abandon(call.key, effects);
            // The window that asks does not end itself, and its session goes on.
            let (ends, hint) = match self.jobs.are_of_windows {
                true => (
                    "the window that has the servers for all windows is ending".to_owned(),
                    "call it again if it is safe to repeat; another window has the servers now",
                ),
                false => (ending.to_owned(), "call it again in the next session if it is safe to repeat"),
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

    /// Ends all subscriptions: nobody hears them any more.
    fn end_all_subscriptions(&mut self, effects: &mut impl SessionEffects) {
        for id in self.calls.ids_of(|awaited| matches!(awaited, Awaited::Changes(_))) {
            if let Some(call) = self.calls.take(&id) {
                self.stop_following(&call, effects);
                self.answers.answer_raw(&id, call.route, &end_of_changes(&id), effects);
            }
        }
    }

    /// Watches no more what a subscription that is over was about, and nothing else in its session is.
    fn unwatch_unused(&mut self, ended: &SessionCall) {
        let Awaited::Changes(filter) = &ended.awaited else { return };
        for resource in self.watched.unwatched_after(filter, &self.calls) {
            self.actions.push_back(SessionAction::Unwatch(resource.clone()));
        }
    }

    /// Ends what follows tasks for a subscription that is over.
    pub(super) fn stop_following(&mut self, ended: &SessionCall, effects: &mut impl SessionEffects) {
        if let Awaited::Changes(filter) = &ended.awaited
            && stands("tasks-followed-until-the-end")
        {
            filter.followed().iter().for_each(|key| self.abandon(*key, effects));
        }
    }

    /// Ends a call on which nobody works any more. Gives the id under which it is still waited for.
    pub(super) fn end_call(&mut self, key: CallKey, effects: &mut impl SessionEffects) -> Option<Id> {
        self.questions.forget(key, &self.calls, &mut self.actions, effects);
        self.calls.end(key)
    }

    /// Nobody waits for this call any more.
    pub(super) fn abandon(&mut self, key: CallKey, effects: &mut impl SessionEffects) {
        self.questions.forget(key, &self.calls, &mut self.actions, effects);
        self.calls.abandon(key, &mut self.actions);
    }

    /// Once the client has ended and waits for nothing, we end.
    pub(super) fn stop_if_drained(&mut self, effects: &mut impl SessionEffects) {
        if let SessionPhase::Draining { code, cause, .. } = self.phase
            && self.calls.is_empty()
            && stands("front-ends-when-drained")
        {
            self.stop(self.now, code, &unhang_ends(cause), effects);
        }
    }

    /// Once everything has been stopped and has ended, we end.
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

/// Says that the whole of unhang ends.
pub(super) fn unhang_ends(cause: &str) -> String {
    format!("unhang is ending because {cause}")
}
