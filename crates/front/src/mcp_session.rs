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
//! End:  None ──eof──► Draining ──all answered, or grace──► Stopping ──all calls ended──► Over
//!       None ──signal, client gone────────────────────────► Stopping
//! ```

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use unhang_jobs::id::JobId;
use unhang_switches::stands;
use unhang_wire::Id;

use super::{
    answers::AnswerWriter,
    client_profile::ClientProfile,
    offers::SessionOffers,
    parking::Parking,
    questions::ClientQuestions,
    session_calls::{Awaited, SessionCall, SessionCalls},
    subscriptions::{WatchedResources, end_of_changes},
    tally::Tally,
    tasks::{JobsBehind, TaskAsked},
    traces::Traces,
};
use unhang_core::{
    batch::BatchId,
    config::STOP_LIMIT,
    exit,
    fault::FaultKind,
    limits::Limits,
    queue::Class,
    refusal::ErrorReport,
    revision::Revision,
    telemetry::{Parent, Telemetry},
    units::in_words,
};
use unhang_gateway::{FairnessKey, Joining, KnownServers, Level, Replied, ServerRequest};
use unhang_tools::Definition;
use unhang_upstream::client::ServerList;

/// What the session calls itself in errors.
pub(super) const NAME: &str = "unhang";

/// Names what a client says at once and is answered at once: a POST. Over pipes there is one stream for everything.
pub type StreamKey = u64;

/// The stream of a session that has no other.
pub const ONLY_STREAM: StreamKey = 0;

/// An answer that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// Its code.
    pub code: i32,
    /// Whether we refuse what was asked. Otherwise a server does, and to us it is an answer like any other.
    pub is_ours: bool,
}

/// Where a line belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// It answers what came on this stream.
    Answer {
        /// The stream.
        stream: StreamKey,
        /// The error that it is, where it is one and stands alone.
        error: Option<ErrorAnswer>,
    },
    /// It tells something beside, while what came on this stream is worked on.
    Beside(StreamKey),
    /// It is about the session.
    Session,
}

/// How an answer goes back: on the stream on which it was asked for, in its batch where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub stream: StreamKey,
    pub batch: Option<BatchId>,
}

/// What the session sees of the world and may do to it. None of these may wait.
pub trait SessionEffects {
    /// Sends one line (without its ending) to the client.
    fn to_client(&mut self, to: To, class: Class, line: &[u8]);
    /// What came on this stream gets no answer any more: the client has withdrawn it.
    fn nothing_to_client(&mut self, stream: StreamKey);
    /// Whether something can be said beside the answer to what came on this stream.
    fn takes_more(&self, stream: StreamKey) -> bool;
    /// Bytes that wait for the client.
    fn client_backlog(&self) -> usize;
}

/// Names a call while it runs, which can be longer than its request waits: an id can be in use again by then.
pub type CallKey = u64;

/// A resource of a server, as the server calls it: its place and the URI.
pub type Resource = (usize, Arc<str>);

/// Names a question that a server has asked.
pub type QuestionKey = u64;

/// What a question of a server is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionSubject {
    /// This call.
    Call(CallKey),
    /// This call, or another one of the session that the same server has.
    OneOfSeveral(CallKey),
}

/// What the owner has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionAction {
    /// Call a tool, then say [`McpSession::ended`].
    Call {
        /// What to call it by.
        key: CallKey,
        /// The tool's name, one of those that are listed.
        tool: String,
        /// What it is called with.
        arguments: Map<String, Value>,
        /// How long that was, as JSON.
        length: usize,
    },
    /// Ask a server, then say [`McpSession::answered`].
    Ask {
        /// What to call it by.
        key: CallKey,
        /// What it is asked.
        asked: ServerRequest,
        /// Whether it may become a job.
        may_be_a_job: bool,
        /// Whether it joins the job that the same call has become.
        joining: Joining,
    },
    /// Hear of a resource, then say [`McpSession::watched`].
    Watch {
        /// What to call it by.
        key: CallKey,
        /// Which one.
        resource: Resource,
        /// How long it may take.
        limit: Duration,
    },
    /// Hear of it no more.
    Unwatch(Resource),
    /// Have servers log from this level on.
    Log(Level),
    /// This came of a question that a server has asked.
    Reply {
        /// The question.
        question: QuestionKey,
        /// What the client answered, or why there is no answer.
        replied: Replied,
    },
    /// Make a job of what a server is asked, then say [`McpSession::promoted`], unless it is answered before.
    Promote {
        /// The call.
        key: CallKey,
        /// What its client calls the tool.
        name: String,
        /// For how long it has been asked.
        elapsed: Duration,
    },
    /// Ask for what is known of a task, then say [`McpSession::task_told`].
    Task {
        /// What to call it by.
        key: CallKey,
        /// What is asked.
        asked: TaskAsked,
    },
    /// Say [`McpSession::task_changed`] whenever this task is another than it was, until it has ended.
    FollowTask {
        /// What to call it by.
        key: CallKey,
        /// The task.
        id: JobId,
    },
    /// Nobody waits for this call any more: it is to come to its end soon.
    Cancel(CallKey),
    /// Deliver what waits for the client, then end with this code.
    Exit(u8),
}

/// What was counted in the life of a front; shown at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionCounters {
    /// Requests of the client.
    pub requests: u64,
    /// Requests that were answered with a result.
    pub answered: u64,
    /// Lines and requests that were answered with an error.
    pub faults: u64,
    /// Requests that the client withdrew.
    pub withdrawn: u64,
}

/// The way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    None,
    Draining { until: Duration, cause: &'static str },
    Stopping { until: Duration, code: u8 },
    Over,
}

/// The session. See the module's text.
#[derive(Debug)]
pub struct McpSession {
    pub(super) limits: Limits,
    pub(super) now: Duration,
    /// Sessions may begin with one.
    pub(super) shakes_hands: bool,
    pub(super) client: ClientProfile,
    /// Who asks, where clients wait for one another.
    pub(super) fairness_key: FairnessKey,
    pub(super) offers: SessionOffers,
    /// What there is of jobs behind the session.
    pub(super) jobs: JobsBehind,
    pub(super) answers: AnswerWriter,
    pub(super) calls: SessionCalls,
    /// What the client is asked on behalf of servers.
    pub(super) questions: ClientQuestions,
    pub(super) parking: Parking,
    pub(super) watched: WatchedResources,
    pub(super) actions: VecDeque<SessionAction>,
    pub(super) end: SessionEnd,
}

impl McpSession {
    /// A front at time zero that offers these tools.
    pub fn new(limits: Limits, tools: Arc<[Definition]>, instructions: Option<Arc<str>>) -> McpSession {
        McpSession {
            limits,
            now: Duration::ZERO,
            shakes_hands: true,
            client: ClientProfile::default(),
            fairness_key: FairnessKey::new(""),
            offers: SessionOffers::new(tools, instructions),
            jobs: JobsBehind::default(),
            answers: AnswerWriter::default(),
            calls: SessionCalls::default(),
            questions: ClientQuestions::default(),
            parking: Parking::default(),
            watched: WatchedResources::default(),
            actions: VecDeque::new(),
            end: SessionEnd::None,
        }
    }

    /// The same with servers behind it.
    #[must_use]
    pub fn with_servers(mut self, known: KnownServers) -> McpSession {
        self.offers.put_servers(known);
        self
    }

    /// The same, counted with others.
    pub(crate) fn counted_in(mut self, tally: Arc<Tally>) -> McpSession {
        self.answers.count_in(tally);
        self
    }

    /// The same, and its requests are told there.
    pub(crate) fn traced_by(mut self, telemetry: Option<Telemetry>, transport: &'static str) -> McpSession {
        self.answers.trace_with(Traces::told_to(telemetry, transport));
        self
    }

    /// The next message comes with this trace in its headers.
    pub(crate) fn comes_with(&mut self, header: Option<Parent>) {
        self.answers.traces().comes_with(header);
    }

    /// The same for this one of those who ask.
    #[must_use]
    pub fn asked_by(self, fairness_key: FairnessKey) -> McpSession {
        McpSession { fairness_key, ..self }
    }

    /// What the client calls itself.
    pub(super) fn client_name(&self) -> String {
        self.answers.client_name().unwrap_or_default().to_owned()
    }

    /// What the log calls the session.
    pub fn call_session(&mut self, name: &str) {
        self.answers.name_session(name);
    }

    /// What is to be done next, until there is nothing.
    pub fn next_action(&mut self) -> Option<SessionAction> {
        self.actions.pop_front()
    }

    /// For one request alone, which has to name its revision: there is no handshake.
    pub fn alone(self) -> McpSession {
        McpSession { shakes_hands: false, ..self }
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
        self.offers.tools_may_change();
    }

    /// Calls may be parked under names that begin with this, which nobody guesses.
    pub fn parks_under(&mut self, secret: String) {
        self.parking.park_under(secret);
    }

    /// Calls wait for their clients to come back.
    pub fn has_parked(&self) -> bool {
        !self.parking.is_empty()
    }

    /// When [`McpSession::tick`] is due at the latest.
    pub fn next_tick(&self) -> Option<Duration> {
        let end = match self.end {
            SessionEnd::Draining { until, .. } | SessionEnd::Stopping { until, .. } => Some(until),
            SessionEnd::None | SessionEnd::Over => None,
        };
        let calls = self.calls.next_moment().filter(|_| stands("tool-deadline"));
        end.into_iter().chain(calls).chain(self.parking.next_tick()).min()
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
            let silent =
                || format!("`{}` did not answer within {}", call.awaited.name(), in_words(call.limit));
            let (happened, hint) = unanswered.unwrap_or_else(|| (silent(), call.awaited.hint_to_wait()));
            let error_report = ErrorReport { kind: FaultKind::Deadline, summary: happened, hint };
            self.answers.tell(self.now, &id, &call, error_report, effects);
        }
        self.parking.forget(Some(now), &mut self.actions);
        self.check_drained(effects);
        match self.end {
            SessionEnd::Draining { until, cause } if now >= until => {
                self.stop(now, exit::DONE, cause, effects);
            }
            SessionEnd::Stopping { until, code } if now >= until => self.finish(code),
            _ => {}
        }
    }

    /// The next call that is over, once whatever is due about others has been done.
    fn next_over(&mut self, effects: &mut impl SessionEffects) -> Option<(Id, SessionCall)> {
        let now = self.now;
        while let Some(id) = self.calls.due(now) {
            if let Some(call) = self.calls.get_mut(&id) {
                self.actions.extend(call.hand_over_where_due(now, &self.questions));
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
        let result = self.offers.list(list, call, self.jobs);
        self.answers.answer_raw(id, call.way, &result, effects);
    }

    /// The client's stdin ended: what is in flight may still be answered for a while.
    pub fn client_end(&mut self, now: Duration, effects: &mut impl SessionEffects) {
        self.drain(now, "the client closed its stream", effects);
    }

    /// Takes nothing new from now on, for this reason; what is in flight may still be answered for a while.
    pub fn drain(&mut self, now: Duration, cause: &'static str, effects: &mut impl SessionEffects) {
        self.now = now;
        if self.end == SessionEnd::None {
            self.end = SessionEnd::Draining { until: now + self.limits.eof_grace, cause };
            self.end_all_changes(effects);
            self.check_drained(effects);
        }
    }

    /// Ends now: a signal, or the client reads no more. What is in flight is answered first, and then waited for: a command
    /// that is stopped needs a moment to be gone.
    pub fn stop(&mut self, now: Duration, code: u8, cause: &str, effects: &mut impl SessionEffects) {
        self.now = now;
        if matches!(self.end, SessionEnd::Stopping { .. } | SessionEnd::Over) {
            return;
        }
        self.end = SessionEnd::Stopping { until: now + STOP_LIMIT, code };
        self.parking.forget(None, &mut self.actions);
        self.end_all_changes(effects);
        for (id, call) in self.calls.take_all() {
            self.abandon(call.key, effects);
            // The window that asks does not end itself, and its session goes on.
            let (ends, hint) = match self.jobs.are_of_windows {
                true => (
                    "the window that has the servers for all windows is ending".to_owned(),
                    "call it again if it is safe to repeat; another window has the servers now",
                ),
                false => (
                    format!("unhang is ending because {cause}"),
                    "call it again in the next session if it is safe to repeat",
                ),
            };
            let (name, elapsed) = (call.awaited.name(), in_words(self.now.saturating_sub(call.since)));
            let happened = format!("{ends}; `{name}` had not answered after {elapsed}");
            self.answers.tell(
                self.now,
                &id,
                &call,
                ErrorReport { kind: FaultKind::ShuttingDown, summary: happened, hint },
                effects,
            );
        }
        self.check_stopped();
    }

    /// Ends all subscriptions: nobody hears them any more.
    fn end_all_changes(&mut self, effects: &mut impl SessionEffects) {
        for id in self.calls.ids_of(|awaited| matches!(awaited, Awaited::Changes(_))) {
            if let Some(call) = self.calls.take(&id) {
                self.follow_no_more(&call, effects);
                self.answers.answer_raw(&id, call.way, &end_of_changes(&id), effects);
            }
        }
    }

    /// Ends what follows tasks for a subscription that is over.
    pub(super) fn follow_no_more(&mut self, ended: &SessionCall, effects: &mut impl SessionEffects) {
        if let Awaited::Changes(filter) = &ended.awaited
            && stands("tasks-followed-until-the-end")
        {
            filter.followed().iter().for_each(|key| self.abandon(*key, effects));
        }
    }

    /// Ends a call on which nobody works any more. Gives the id under which it is still waited for.
    pub(super) fn over(&mut self, key: CallKey, effects: &mut impl SessionEffects) -> Option<Id> {
        self.questions.forget(key, &self.calls, &mut self.actions, effects);
        self.calls.end(key)
    }

    /// Nobody waits for this call any more.
    pub(super) fn abandon(&mut self, key: CallKey, effects: &mut impl SessionEffects) {
        self.questions.forget(key, &self.calls, &mut self.actions, effects);
        self.calls.abandon(key, &mut self.actions);
    }

    /// Once the client has ended and waits for nothing, we end.
    pub(super) fn check_drained(&mut self, effects: &mut impl SessionEffects) {
        if let SessionEnd::Draining { cause, .. } = self.end
            && self.calls.is_empty()
            && stands("front-ends-when-drained")
        {
            self.stop(self.now, exit::DONE, cause, effects);
        }
    }

    /// Once everything has been stopped and has ended, we end.
    pub(super) fn check_stopped(&mut self) {
        if let SessionEnd::Stopping { code, .. } = self.end
            && self.calls.have_ended()
        {
            self.finish(code);
        }
    }

    fn finish(&mut self, code: u8) {
        self.end = SessionEnd::Over;
        self.actions.push_back(SessionAction::Exit(code));
    }
}
