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

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value};
use unhang_bridge::params::Signature;
use unhang_jobs::id::JobId;
use unhang_switches::stands;
use unhang_wire::{Id, InFlight};

use super::{
    answers::AnswerWriter,
    handover::PromotionPlan,
    owners::Ownerless,
    parking::Parking,
    questions::OpenQuestion,
    subscriptions::Filter,
    tally::Tally,
    tasks::{JobsBehind, TaskAsked},
    traces::Traces,
};
use unhang_core::{
    batch::BatchId,
    config::STOP_LIMIT,
    exit,
    fault::FaultKind,
    heartbeat::Heartbeat,
    limits::Limits,
    queue::Class,
    refusal::ErrorReport,
    revision::Revision,
    telemetry::{Parent, Telemetry},
    units::in_words,
};
use unhang_gateway::{FairnessKey, Joining, KnownServers, Level, Replied, ServerRequest};
use unhang_tools::Definition;
use unhang_upstream::{
    client::{LISTEN, ServerList},
    http::headers::CallLimit,
};

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

/// What a client waits for.
#[derive(Clone, Debug)]
pub(super) enum Awaited {
    /// A tool of ours.
    Tool(String),
    /// What a server is asked. The token is the client's own, where it wants progress; a request that stands alone has said
    /// something of its client.
    Server { method: &'static str, about: String, token: Option<Id>, introduced: Option<Introduced> },
    /// A list, until the servers have come up.
    List(ServerList),
    /// The server whose it is, until that is known.
    Owner(Box<Ownerless>),
    /// To hear of changes, until the client has heard enough.
    Changes(Filter),
    /// What is known of a task.
    Task(&'static str),
    /// What has come of a job, as a resource of this URI.
    Job(Box<str>),
}

/// What a request that stands alone has said of its client, for whoever asks that something.
#[derive(Clone, Debug)]
pub(super) struct Introduced {
    /// What the client can do, as JSON.
    pub offers: Box<str>,
    /// What the request was, in short.
    pub digest: u64,
    /// From which level on its client wants to hear what is logged.
    pub log_from: Option<Level>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct SessionCall {
    pub key: CallKey,
    pub awaited: Awaited,
    /// The server that has it, by its place.
    pub server: Option<usize>,
    pub revision: Revision,
    pub since: Duration,
    pub limit: Duration,
    /// The client's own clock, where the limit is that short because of it.
    pub clock: Option<Duration>,
    pub way: Way,
    /// How it becomes a job, where it may.
    pub hand_over: PromotionPlan,
    /// What its client hears while nothing comes of it, where it wants to hear of that.
    pub heartbeat: Option<Box<Heartbeat>>,
}

impl SessionCall {
    /// One that begins now, may take so long, and is an answer or nothing.
    pub(super) fn new(
        (key, awaited): (CallKey, Awaited),
        (revision, way): (Revision, Way),
        since: Duration,
        limit: Duration,
    ) -> SessionCall {
        let hand_over = PromotionPlan::never();
        let (server, clock, heartbeat) = (None, None, None);
        SessionCall { key, awaited, server, revision, since, limit, clock, way, hand_over, heartbeat }
    }
}

/// The way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEnd {
    None,
    Draining { until: Duration, cause: &'static str },
    Stopping { until: Duration, code: u8 },
    Over,
}

impl Awaited {
    /// What a person calls it.
    pub(super) fn name(&self) -> &str {
        match self {
            Awaited::Tool(tool) => tool,
            Awaited::Server { about, .. } => about,
            Awaited::List(list) => list.method(),
            Awaited::Owner(request) => &request.about,
            Awaited::Changes(_) => LISTEN,
            Awaited::Task(method) => method,
            Awaited::Job(uri) => uri,
        }
    }

    /// What the request has said of its client.
    pub(super) fn introduced(&self) -> Option<&Introduced> {
        match self {
            Awaited::Server { introduced, .. } => introduced.as_ref(),
            _ => None,
        }
    }

    /// The method of the request.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Awaited::Tool(_) => "tools/call",
            Awaited::Server { method, .. } => method,
            Awaited::List(list) => list.method(),
            Awaited::Owner(request) => request.method,
            Awaited::Changes(_) => LISTEN,
            Awaited::Task(method) => method,
            Awaited::Job(_) => "resources/read",
        }
    }

    /// What to do where it needs longer.
    pub(super) fn hint_to_wait(&self) -> &'static str {
        match self {
            Awaited::Tool(_) => {
                "it was stopped; raise --call-timeout, or set mode = \"job\" for this tool, which then answers at once"
            }
            Awaited::Server { method: "tools/call", .. } => {
                "the server was told; raise call-timeout in its limits if it needs longer"
            }
            Awaited::Owner(_) => {
                "servers are still being started, and it may be one's of them; look at /status or the log"
            }
            Awaited::Task(_) | Awaited::Job(_) => "ask again: what it is about goes on",
            Awaited::Server { .. } | Awaited::List(_) | Awaited::Changes(_) => {
                "the server was told; raise request-timeout in its limits if it needs longer"
            }
        }
    }
}

/// The session. See the module's text.
#[derive(Debug)]
pub struct McpSession {
    pub(super) limits: Limits,
    pub(super) tools: Arc<[Definition]>,
    /// There may be others later.
    pub(super) tools_change: bool,
    /// What is known of the servers behind us, where there are any.
    pub(super) servers: Option<KnownServers>,
    /// What the client is told about the whole, to give to its model.
    pub(super) instructions: Option<Arc<str>>,
    pub(super) now: Duration,
    pub(super) answers: AnswerWriter,
    /// Who asks, where clients wait for one another.
    pub(super) fairness_key: FairnessKey,
    pub(super) actions: VecDeque<SessionAction>,
    /// Sessions may begin with one.
    pub(super) shakes_hands: bool,
    /// The revision that the handshake came to.
    pub(super) session: Option<Revision>,
    /// What there is of jobs behind the session.
    pub(super) jobs: JobsBehind,
    /// For how long the window that asks waits for the answer to a call, where it has said so.
    pub(super) window_limit: Option<CallLimit>,
    /// What the client of the session calls itself, and its version.
    pub(super) session_client: Option<(Box<str>, Option<Box<str>>)>,
    pub(super) calls: InFlight<SessionCall>,
    /// Calls that have not ended yet, with the ids of those that are waited for.
    pub(super) running: HashMap<CallKey, Option<Id>>,
    pub(super) next_key: CallKey,
    /// What the client has said of itself at the beginning of its session, as a stateless server is told it.
    pub(super) signature: Option<Arc<Signature>>,
    /// From which level on the client of the session wants to hear what is logged.
    pub(super) log_from: Option<Level>,
    /// What the client is asked on behalf of servers, by our own ids.
    pub(super) questions: HashMap<Id, OpenQuestion>,
    pub(super) parking: Parking,
    /// Resources that the client of the session wants to hear of, and what it calls them.
    pub(super) watched: HashMap<Resource, String>,
    pub(super) end: SessionEnd,
}

impl McpSession {
    /// A front at time zero that offers these tools.
    pub fn new(limits: Limits, tools: Arc<[Definition]>, instructions: Option<Arc<str>>) -> McpSession {
        McpSession {
            limits,
            tools,
            tools_change: false,
            servers: None,
            instructions,
            now: Duration::ZERO,
            answers: AnswerWriter::default(),
            fairness_key: FairnessKey::new(""),
            actions: VecDeque::new(),
            shakes_hands: true,
            session: None,
            jobs: JobsBehind::default(),
            window_limit: None,
            session_client: None,
            // A call is known by its key, so no answer can be taken for another's and none has to be remembered.
            calls: InFlight::new(0),
            running: HashMap::new(),
            next_key: 0,
            signature: None,
            log_from: None,
            questions: HashMap::new(),
            parking: Parking::default(),
            watched: HashMap::new(),
            end: SessionEnd::None,
        }
    }

    /// The same with servers behind it.
    pub fn with_servers(self, known: KnownServers) -> McpSession {
        McpSession { servers: Some(known), ..self }
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
        self.session
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
        self.calls.iter().any(|(_, call)| call.way.stream == stream)
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
        self.unpark(None);
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

    /// A call has come to its end. Gives the id under which it is still waited for.
    pub(super) fn over(&mut self, key: CallKey, effects: &mut impl SessionEffects) -> Option<Id> {
        self.forget_questions(key, effects);
        self.running.remove(&key).flatten()
    }

    /// Nobody waits for this call any more.
    pub(super) fn abandon(&mut self, key: CallKey, effects: &mut impl SessionEffects) {
        self.forget_questions(key, effects);
        if let Some(id) = self.running.get_mut(&key) {
            if stands("late-tool-answer-dropped") {
                *id = None;
            }
            if stands("abandoned-call-is-cancelled") {
                self.actions.push_back(SessionAction::Cancel(key));
            }
        }
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

    pub(super) fn check_stopped(&mut self) {
        if let SessionEnd::Stopping { code, .. } = self.end
            && self.running.is_empty()
        {
            self.finish(code);
        }
    }

    pub(super) fn finish(&mut self, code: u8) {
        self.end = SessionEnd::Over;
        self.actions.push_back(SessionAction::Exit(code));
    }
}
