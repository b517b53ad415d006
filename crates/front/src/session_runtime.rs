//! The machinery of one session: its state machine, a task for each call, and the news from the servers behind it.
//!
//! Theory of operation. The owner, which carries the client's lines, feeds the session and calls [`SessionRuntime::act`] to carry out its
//! actions. It waits for [`SessionRuntime::event`] beside the client, and hands each event to [`SessionRuntime::take`]. A call ends with an
//! answer, with a panic, or soon after it was cancelled. The session is told in each case.
//!
//! Invariants: nothing here waits for the client. Dropping the runtime withdraws all its requests.

mod window_calls;

use std::{collections::HashMap, future::pending, sync::Arc, time::Duration};

use data_encoding::BASE32_NOPAD;
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use unhang_bridge::Era;
use unhang_jobs::id::JobId;

use self::window_calls::WindowCall;
pub(super) use self::window_calls::{OfWindow, WindowJobReply};
use super::{
    asking::{MayPromote, ProgressSinks, answered, ask},
    call_tasks::{CallTaskEnd, CallTasks, FinishedTask},
    effects::{CallKey, QuestionKey, QuestionSubject, Resource, SessionAction, SessionEffects},
    followed::TaskNewsSender,
    jobs::{QuestionSender, SessionJobs},
    mcp_session::McpSession,
    session_context::SessionContext,
    session_inbox::SessionInbox,
    session_watches::SessionWatches,
    tally::{CountedCall, FrontTally},
    tasks::{TaskAsked, TaskTold},
    window_questions::{ReplyWay, WindowQuestions},
};
use unhang_background::{Promoted, RunningCall};
use unhang_core::limits::Limits;
use unhang_gateway::{
    FairnessKey, JoinPolicy, KnownServers, OfSession, OpenServerQuestion, OpenWindow, ResourceUpdate,
    ServerRequest, Servers, SessionKey, SideMessage,
};
use unhang_tools::{ToolCall, Toolbox, service::Caller};
use unhang_upstream::client::ServerList;

/// The most progress reports on their way to the session, which takes them at once.
const PROGRESS: usize = 1024;

/// The most task changes on their way to the session.
const FOLLOWED: usize = 16;

/// The most questions and logs on their way to the session.
const ASIDES: usize = 256;

/// The caller of a request without a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatelessCaller {
    pub key: SessionKey,
    /// A token identifies the caller. An address or a user may have several clients.
    pub has_token: bool,
}

/// An event behind a session.
pub(super) enum SessionEvent {
    Ended(FinishedTask),
    Told(CallKey, Box<RawValue>),
    Said(CallKey, SideMessage),
    /// A server says something outside calls.
    SaidOutside(SideMessage),
    /// The server no longer needs the answer to this question.
    QuestionOver(QuestionKey),
    /// A task that the client follows has changed.
    Followed(CallKey, Box<TaskTold>),
    /// The knowledge about the servers has changed.
    Known,
    /// The own tools have changed.
    Tools,
    /// A resource has changed.
    Updated(ResourceUpdate),
}

/// The machinery of one session; see the module's text.
pub(super) struct SessionRuntime {
    pub mcp_session: McpSession,
    origin: Instant,
    toolbox: Arc<dyn Toolbox>,
    tools: Option<watch::Receiver<()>>,
    servers: Option<Servers>,
    /// The jobs, on behalf of the caller.
    jobs: Option<SessionJobs>,
    caller: Caller,
    /// Tells this session from every other.
    session: SessionKey,
    /// Whether the client has started this process.
    pub is_of_owner: bool,
    /// The session that a window has named, if the clients are windows.
    window: Option<OfSession>,
    /// The caller of a request without a session: the owner of the questions about its calls.
    stateless_caller: Option<StatelessCaller>,
    tally: Arc<FrontTally>,
    known: Option<watch::Receiver<KnownServers>>,
    inbox: SessionInbox,
    /// The client counts as one of several, because it is a window.
    _open_window: Option<OpenWindow>,
    watches: SessionWatches,
    /// Progress of requests to servers, on its way from their tasks to the session.
    tell: mpsc::Sender<(CallKey, Box<RawValue>)>,
    told: mpsc::Receiver<(CallKey, Box<RawValue>)>,
    /// Log messages and questions of servers about calls, on the same way.
    aside: mpsc::Sender<(CallKey, SideMessage)>,
    asides: mpsc::Receiver<(CallKey, SideMessage)>,
    /// Changes of tasks that the client follows, on the same way.
    follow: TaskNewsSender,
    followed: mpsc::Receiver<(CallKey, Box<TaskTold>)>,
    /// The ways of replies to the questions that servers have asked.
    replies: HashMap<QuestionKey, ReplyWay>,
    /// The waits for the ends of these questions.
    open_questions: JoinSet<QuestionKey>,
    next_question: QuestionKey,
    /// The questions to windows, if the clients are windows.
    window_questions: Option<Arc<WindowQuestions>>,
    calls: CallTasks,
    /// The call of a window, of which it may order a job.
    window_call: WindowCall,
}

impl SessionRuntime {
    /// Makes the runtime of a session of this client that begins now. Its calls are parked under this secret.
    pub(super) fn new(
        limits: Limits,
        context: &SessionContext,
        fairness_key: FairnessKey,
        secret: Option<String>,
    ) -> SessionRuntime {
        let known = context.servers.as_ref().map(Servers::known);
        let (tell, told) = mpsc::channel(PROGRESS);
        let (aside, asides) = mpsc::channel(ASIDES);
        let (follow, followed) = mpsc::channel(FOLLOWED);
        // The watch comes before the definitions, so that no change is missed.
        let tools = context.toolbox.changes();
        let definitions = context.toolbox.definitions();
        let mut mcp_session = McpSession::new(limits, definitions, context.instructions.clone())
            .with_metrics(Arc::clone(&context.tally))
            .with_fairness_key(fairness_key)
            .with_tracing(context.telemetry.clone(), context.transport);
        if let Some(secret) = secret {
            mcp_session.set_state_secret(secret);
        }
        if tools.is_some() {
            mcp_session.tools_may_change();
        }
        let jobs = context.jobs.as_ref().map(|jobs| jobs.on_behalf(&context.caller));
        if let Some(jobs) = &jobs {
            mcp_session.jobs = jobs.seen_by(&context.caller);
        }
        mcp_session.jobs.are_of_windows = context.are_windows();
        let session = SessionKey::drawn();
        let windows = context.servers.as_ref().filter(|_| context.are_windows());
        SessionRuntime {
            mcp_session: match &known {
                Some(known) => mcp_session.with_servers(known.borrow().clone()),
                None => mcp_session,
            },
            origin: Instant::now(),
            toolbox: Arc::clone(&context.toolbox),
            tools,
            servers: context.servers.clone(),
            jobs,
            caller: context.caller.clone(),
            session,
            is_of_owner: false,
            window: None,
            stateless_caller: None,
            tally: Arc::clone(&context.tally),
            known,
            inbox: SessionInbox::of(session),
            _open_window: windows.map(Servers::window_comes),
            watches: SessionWatches::default(),
            tell,
            told,
            aside,
            asides,
            follow,
            followed,
            replies: HashMap::new(),
            open_questions: JoinSet::new(),
            next_question: 0,
            window_questions: context.window_questions.clone(),
            calls: CallTasks::default(),
            window_call: WindowCall::of(context.window_jobs.clone()),
        }
    }

    /// Restricts it to a single request.
    pub(super) fn alone(self) -> SessionRuntime {
        SessionRuntime { mcp_session: self.mcp_session.for_one_request(), ..self }
    }

    /// Sets the caller of a request without a session. Work that other requests of this caller have left counts as its own (F-90).
    pub(super) fn asks_as(self, caller: StatelessCaller) -> SessionRuntime {
        SessionRuntime { stateless_caller: Some(caller), ..self }
    }

    /// Returns the session that questions about its calls are for. A client of 2026-07-28 gets a question as the answer to a call.
    fn own_session(&self, client: Era) -> OfSession {
        match self.stateless_caller {
            None => {
                let is_asked_beside = client == Era::Legacy;
                OfSession { key: self.session, is_asked_beside, is_one_client: true }
            }
            Some(StatelessCaller { key, has_token }) => {
                // One token may serve several programs.
                let program = has_token.then(|| self.mcp_session.client_name());
                let key = program.map_or(key, |program| SessionKey::of(&(key, program)));
                OfSession { key, is_asked_beside: false, is_one_client: has_token }
            }
        }
    }

    /// Notes that the client has opened the stream of its session.
    pub(super) fn client_listens(&mut self) {
        self.inbox.is_heard(self.servers.as_ref());
    }

    /// Returns the counters of all sessions.
    pub(super) fn tally(&self) -> &Arc<FrontTally> {
        &self.tally
    }

    /// Returns the time since the session began.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Returns when the session's [`McpSession::tick`] is due at the latest.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.mcp_session.next_tick().map(|tick| self.origin + tick)
    }

    /// Carries out the actions of the session. Returns the exit code at the end.
    pub(super) fn act(&mut self) -> Option<u8> {
        while let Some(action) = self.mcp_session.next_action() {
            match action {
                SessionAction::Call { key, tool, arguments, length, limit } => {
                    let cancellation = self.calls.cancellation(key);
                    let caller = self.caller.clone();
                    self.call(key, ToolCall { tool, arguments, length, caller, limit, cancellation });
                }
                SessionAction::Ask { key, asked, may_be_a_job, joining } => {
                    let session = self.window.unwrap_or_else(|| self.own_session(asked.client));
                    let asked = ServerRequest { session: Some(session), ..*asked };
                    match may_be_a_job {
                        true => {
                            let promote = self.may_promote(key, joining);
                            self.ask(key, asked, promote);
                        }
                        false => self.ask_for_window(key, asked),
                    }
                }
                SessionAction::Refresh { key, list, wanted } => self.refresh(key, list, wanted),
                SessionAction::Watch { key, resource, limit } => self.watch(key, resource, limit),
                SessionAction::ClientSpeaks { era, capabilities } => {
                    if let Some(servers) = &self.servers {
                        servers.client_declares(&capabilities);
                        match era {
                            Some(era) => servers.client_speaks(era),
                            None => servers.client_probes(),
                        }
                    }
                }
                SessionAction::HandshakeOver => self.inbox.has_shaken_hands(self.servers.as_ref()),
                SessionAction::RootsChanged => {
                    self.servers.iter().for_each(Servers::roots_changed);
                }
                SessionAction::Log(level) => {
                    if let Some(servers) = &self.servers {
                        servers.log_from(level);
                    }
                }
                SessionAction::Unwatch(resource) => self.watches.end(&resource),
                SessionAction::Reply { question, replied } => {
                    if let Some(way) = self.replies.remove(&question) {
                        way.reply(replied);
                    }
                }
                SessionAction::Leave(question) => drop(self.replies.remove(&question)),
                SessionAction::Promote { key, order } => drop(self.calls.promote(key, order)),
                SessionAction::Task { key, asked } => self.task(key, asked),
                SessionAction::FollowTask { key, id } => self.follow(key, id),
                SessionAction::Cancel(key) => self.calls.cancel(key),
                SessionAction::Exit(code) => return Some(code),
            }
        }
        None
    }

    fn call(&mut self, key: CallKey, call: ToolCall) {
        let toolbox = Arc::clone(&self.toolbox);
        let counted = CountedCall::begin(Arc::clone(&self.tally), call.tool.clone());
        // The toolbox is called inside the task, so that a panic of the toolbox ends the task alone.
        self.calls.spawn(key, async move {
            let answer = toolbox.call(call).await;
            counted.ended(answer.is_error);
            CallTaskEnd::Tool(answer)
        });
    }

    fn ask(&mut self, key: CallKey, asked: ServerRequest, promote: Option<MayPromote>) {
        let cancellation = self.calls.cancellation(key);
        let Some(servers) = self.servers.clone() else { return };
        let progress_sinks = ProgressSinks { progress: self.tell.clone(), aside: self.aside.clone() };
        // An async function has room for an argument twice, and every call has such a task. So the large ones are in boxes.
        let (asked, promote) = (Box::new(asked), promote.map(Box::new));
        self.calls.spawn(key, ask(key, servers, asked, progress_sinks, cancellation, promote));
    }

    /// Returns everything that is needed to make a job of this call, which can be ordered from now on. Returns `None` without a job
    /// service.
    fn may_promote(&mut self, key: CallKey, joining: JoinPolicy) -> Option<MayPromote> {
        let jobs = self.jobs.clone()?;
        self.may_promote_with(&jobs, key, (joining, self.mcp_session.wants_a_task(key)))
    }

    /// Does the same with this job service.
    fn may_promote_with(
        &mut self,
        jobs: &SessionJobs,
        key: CallKey,
        (joining, wants_a_task): (JoinPolicy, bool),
    ) -> Option<MayPromote> {
        Some(MayPromote {
            calls: jobs.promoted()?,
            jobs: jobs.service.clone(),
            caller: self.caller.clone(),
            client: self.mcp_session.client_name(),
            session: self.session,
            is_of_owner: self.is_of_owner,
            joining,
            wants_a_task,
            orders: self.calls.promotion_orders(key),
        })
    }

    fn task(&mut self, key: CallKey, asked: TaskAsked) {
        let Some(jobs) = self.jobs.clone() else { return };
        let offered = self.mcp_session.offered_to(key);
        let beside = QuestionSender { key, beside: self.aside.clone(), offered };
        let waits = matches!(asked, TaskAsked::Result(..));
        let mut cancellation = self.calls.cancellation(key);
        self.calls.spawn(key, async move {
            tokio::select! {
                // A client that no longer waits has not answered the questions of the task, which stay open.
                biased;
                () = cancellation.cancelled(), if waits => CallTaskEnd::Nothing,
                told = jobs.told(asked, beside) => CallTaskEnd::Task(Box::new(told)),
            }
        });
    }

    fn follow(&mut self, key: CallKey, id: JobId) {
        let Some(jobs) = self.jobs.clone() else { return };
        let mut cancellation = self.calls.cancellation(key);
        let tell = self.follow.clone();
        self.calls.spawn(key, async move {
            tokio::select! {
                () = jobs.follow(id, key, tell) => {}
                () = cancellation.cancelled() => {}
            }
            CallTaskEnd::Nothing
        });
    }

    fn refresh(&mut self, key: CallKey, list: ServerList, wanted: Option<String>) {
        let servers = self.servers.clone();
        self.calls.spawn(key, async move {
            CallTaskEnd::Refreshed(match servers {
                Some(servers) => servers.refresh(list, wanted.as_deref()).await,
                None => None,
            })
        });
    }

    fn watch(&mut self, key: CallKey, resource: Resource, limit: Duration) {
        let Some(servers) = self.servers.clone() else { return };
        self.watches.listen(&servers);
        self.calls.spawn(key, async move {
            let (server, uri) = resource.clone();
            CallTaskEnd::Watched(resource, servers.watch(server, uri, limit).await)
        });
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn event(&mut self) -> SessionEvent {
        tokio::select! {
            Some(ended) = self.calls.next() => SessionEvent::Ended(ended),
            Some((key, params)) = self.told.recv() => SessionEvent::Told(key, params),
            Some((key, aside)) = self.asides.recv() => SessionEvent::Said(key, aside),
            Some(aside) = self.inbox.next() => SessionEvent::SaidOutside(aside),
            Some((key, told)) = self.followed.recv() => SessionEvent::Followed(key, told),
            Some(Ok(question)) = self.open_questions.join_next(), if !self.open_questions.is_empty() => {
                SessionEvent::QuestionOver(question)
            }
            () = changed(&mut self.known) => SessionEvent::Known,
            () = changed(&mut self.tools) => SessionEvent::Tools,
            updated = self.watches.next() => SessionEvent::Updated(updated),
        }
    }

    /// Passes an event to the session.
    pub(super) fn take(&mut self, event: SessionEvent, effects: &mut impl SessionEffects) {
        let now = self.now();
        match event {
            SessionEvent::Ended(ended) => self.call_ended(ended, effects),
            SessionEvent::Told(key, params) => self.mcp_session.progressed(now, key, &params, effects),
            SessionEvent::Said(call, aside) => self.said(Some(call), aside, effects),
            SessionEvent::SaidOutside(aside) => self.said(None, aside, effects),
            SessionEvent::QuestionOver(question) => {
                match self.replies.remove(&question).is_some_and(|way| way.is_open()) {
                    true => self.mcp_session.question_withdrawn(now, question, effects),
                    // The reply was not a message of this session.
                    false => self.mcp_session.questions.answered_elsewhere(question),
                }
            }
            SessionEvent::Followed(key, told) => self.mcp_session.task_changed(now, key, &told, effects),
            SessionEvent::Updated(news) => self.mcp_session.updated(now, &(news.server, news.uri), effects),
            SessionEvent::Tools => {
                self.tools.as_mut().map(watch::Receiver::borrow_and_update);
                self.mcp_session.tools_changed(now, self.toolbox.definitions(), effects);
            }
            SessionEvent::Known => self.servers_changed(effects),
        }
    }

    /// Tells the session the news of the servers, before it reads a message. The client may know already that they have changed.
    pub(super) fn catch_up(&mut self, effects: &mut impl SessionEffects) {
        if self.known.as_ref().is_some_and(|known| known.has_changed().unwrap_or(false)) {
            self.servers_changed(effects);
        }
    }

    fn servers_changed(&mut self, effects: &mut impl SessionEffects) {
        let known = self.known.as_mut().map(|known| known.borrow_and_update().clone());
        let Some(known) = known else { return };
        self.mcp_session.servers_changed(self.now(), &known, effects);
    }

    /// Hands a call over that has become a job, which goes on without the session. The call may have to stay a call instead.
    fn promoted(
        &mut self,
        key: CallKey,
        (promoted, running_call): (Promoted, RunningCall),
        effects: &mut impl SessionEffects,
    ) {
        let now = self.now();
        let Some(calls) = self.jobs.as_ref().and_then(SessionJobs::promoted) else { return };
        // A question from before the job existed is about the call.
        while let Ok((key, aside)) = self.asides.try_recv() {
            self.said(Some(key), aside, effects);
        }
        if self.mcp_session.stays_a_call(key) {
            calls.forget(async move { Ok(promoted) });
            return self.stays(key, running_call);
        }
        let who = self.mcp_session.promoted(now, key, &promoted.report, effects);
        match who {
            Some(who) => drop(calls.keep(promoted, running_call, who, self.inbox.way())),
            // The job's id has reached no client, and no client waits.
            None => {
                drop(running_call);
                calls.forget(async move { Ok(promoted) });
            }
        }
    }

    /// Lets a call go on as a call.
    fn stays(&mut self, key: CallKey, running_call: RunningCall) {
        let cancellation = self.calls.cancellation(key);
        let progress_sinks = ProgressSinks { progress: self.tell.clone(), aside: self.aside.clone() };
        self.calls.spawn(key, answered(key, running_call, progress_sinks, cancellation, None));
    }

    /// Passes on what a server says beside this call, or outside calls.
    fn said(&mut self, call: Option<CallKey>, aside: SideMessage, effects: &mut impl SessionEffects) {
        let now = self.now();
        match (aside, call) {
            (SideMessage::Logged(params), Some(call)) => self.mcp_session.logged(now, call, &params, effects),
            (SideMessage::TaskBegun, Some(call)) => self.mcp_session.task_begun(now, call, effects),
            (SideMessage::Logged(_) | SideMessage::TaskBegun, None) => {}
            (SideMessage::ElicitationOver(params), call) => {
                self.mcp_session.elicitation_over(now, call, &params, effects);
            }
            (SideMessage::Asked(question), call) => self.asked(call, *question, effects),
        }
    }

    fn asked(&mut self, call: Option<CallKey>, asked: OpenServerQuestion, effects: &mut impl SessionEffects) {
        let OpenServerQuestion { key, method, params, is_of_several, reply, mut over } = asked;
        let windows = self.window_questions.as_ref();
        let windows = windows.filter(|_| self.mcp_session.client.is_asked_beside);
        let (question, way) = match windows {
            // The window knows the question by its key, beside whichever call it is put.
            Some(windows) => (key, ReplyWay::OfWindow(windows.carry(key, reply))),
            None => {
                self.next_question += 1;
                (self.next_question, ReplyWay::Here(reply))
            }
        };
        self.replies.insert(question, way);
        self.open_questions.spawn(async move {
            over.wait().await;
            question
        });
        let about = match call {
            None => QuestionSubject::Session,
            Some(call) if is_of_several => QuestionSubject::OneOfSeveral(call),
            Some(call) => QuestionSubject::Call(call),
        };
        self.mcp_session.asked(self.now(), about, question, (&method, params.as_deref()), effects);
    }

    fn call_ended(&mut self, finished: FinishedTask, effects: &mut impl SessionEffects) {
        let Some((key, ended)) = self.calls.settle(finished) else { return };
        let now = self.now();
        match ended {
            CallTaskEnd::Tool(answer) => self.mcp_session.ended(now, key, &answer, effects),
            CallTaskEnd::Server(answered) => {
                // Earlier messages of the server come before its answer.
                while let Ok((key, params)) = self.told.try_recv() {
                    self.mcp_session.progressed(now, key, &params, effects);
                }
                while let Ok((key, aside)) = self.asides.try_recv() {
                    self.said(Some(key), aside, effects);
                }
                self.mcp_session.answered(now, key, &answered, effects);
            }
            CallTaskEnd::Refreshed(owner) => {
                // The new lists were published before the refresh ended.
                self.servers_changed(effects);
                self.mcp_session.refreshed(now, key, owner, effects);
            }
            CallTaskEnd::Watched(resource, outcome) => {
                let outcome = outcome.map(|watch| self.watches.keep(resource.clone(), watch));
                self.mcp_session.watched(now, key, &resource, outcome, effects);
            }
            CallTaskEnd::Promoted(promoted) => match self.window_call.ordered.take() {
                Some(ordered) => self.promoted_for_window(key, *promoted, ordered, effects),
                None => self.promoted(key, *promoted, effects),
            },
            CallTaskEnd::OfLeader(report) => self.is_job_of_leader(key, &report, effects),
            CallTaskEnd::NoJobForWindow(error) => drop(self.mcp_session.refused(now, key, &error, effects)),
            CallTaskEnd::NotPromoted(stays) => {
                let (why, running_call) = *stays;
                let goes_on = match self.window_call.ordered.take() {
                    // The window makes a job of its own.
                    Some(ordered) => {
                        ordered.refuse(why);
                        self.mcp_session.is_awaited(key)
                    }
                    None => self.mcp_session.not_promoted(key, why),
                };
                if goes_on {
                    return self.stays(key, running_call);
                }
                drop(running_call);
                self.mcp_session.abandoned(now, key, effects);
            }
            CallTaskEnd::Joined(report) => drop(self.mcp_session.promoted(now, key, &report, effects)),
            CallTaskEnd::Task(told) => self.mcp_session.task_told(now, key, &told, effects),
            CallTaskEnd::Nothing => {
                // The last news of a task comes before the end of the task that reported it.
                while let Ok((key, told)) = self.followed.try_recv() {
                    self.mcp_session.task_changed(now, key, &told, effects);
                }
                self.mcp_session.abandoned(now, key, effects);
            }
        }
    }
}

/// Makes an unguessable name. Returns `None` if the system has no random source.
pub(super) fn random_name() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
}

/// Waits until the watched value has changed; forever, if it cannot change. Cancel-safe.
async fn changed<T>(watched: &mut Option<watch::Receiver<T>>) {
    let told = match watched {
        Some(watched) => watched.changed().await.is_ok(),
        None => false,
    };
    if !told {
        pending::<()>().await;
    }
}
