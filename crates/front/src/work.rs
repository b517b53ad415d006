//! What works for one session: its machine, a task for each call, and what is told of the servers behind it.
//!
//! Theory of operation. Whoever carries the client's lines feeds the machine, lets [`Work::act`] do what it wants done, and
//! waits for [`Work::event`] beside the client, to hand it to [`Work::take`]. A call ends with an answer, a panic, or soon after
//! it was cancelled; whichever it is, the machine is told.
//!
//! Invariants: nothing here waits for the client; what is dropped is withdrawn from whoever worked on it.

use std::{collections::HashMap, future::pending, pin::Pin, sync::Arc, time::Duration};

use data_encoding::BASE32_NOPAD;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::value::RawValue;
use tokio::{
    sync::{broadcast::error::RecvError, mpsc, oneshot, watch},
    task::{Id as TaskId, JoinError, JoinSet},
    time::Instant,
};
use unhang_bridge::Era;
use unhang_jobs::id::JobId;
use unhang_switches::stands;

use super::{
    asking::{MayPromote, Order, Tellers, answered, ask},
    followed::Following,
    jobs::Jobs,
    machine::{About, Action, CallKey, Machine, Outside, QuestionKey, Resource},
    tally::{CountedCall, Tally},
    tasks::{TaskAsked, TaskTold, TasksTold},
};
use unhang_background::{Going, Promoted};
use unhang_core::{config::Limits, telemetry::Telemetry};
use unhang_gateway::{
    Answered, Aside, Asked, Asker, Changes, Joining, Known, MayRead, OfSession, Question, Replied, Servers,
    SessionKey, Updated, Watch,
};
use unhang_tools::{
    Cancellation, ToolAnswer, ToolCall, Toolbox,
    job_report::JobReport,
    service::{Caller, JobError},
};
use unhang_upstream::{client::Error, http::headers::CallLimit};

/// Reports of progress that may be on their way to the machine; it takes them at once.
const PROGRESS: usize = 1024;

/// Tasks that have changed, on their way to the machine.
const FOLLOWED: usize = 16;

/// Questions and logs that may be on their way to the machine.
const ASIDES: usize = 256;

/// What stands behind sessions. Clones are the same.
#[derive(Clone)]
pub(super) struct Behind {
    pub toolbox: Arc<dyn Toolbox>,
    pub servers: Option<Servers>,
    /// What there is of jobs.
    pub jobs: Option<Jobs>,
    /// Those who come are windows, which make jobs of calls themselves.
    are_windows: bool,
    /// Whose jobs those are that begin here.
    pub caller: Caller,
    pub instructions: Option<Arc<str>>,
    /// What is counted of all sessions in front of it.
    pub tally: Arc<Tally>,
    /// Where its requests are told, where somebody wants to see them, and what carries them there.
    pub telemetry: Option<Telemetry>,
    pub transport: &'static str,
}

impl Behind {
    pub(super) fn new(
        toolbox: Arc<dyn Toolbox>,
        servers: Option<Servers>,
        instructions: Option<String>,
    ) -> Behind {
        let instructions = instructions.map(Into::into);
        let (tally, telemetry) = (Arc::default(), None);
        Behind {
            toolbox,
            servers,
            jobs: None,
            are_windows: false,
            caller: Caller::owner(),
            instructions,
            tally,
            telemetry,
            transport: "tcp",
        }
    }

    /// The same for somebody who begins now, with instances of their own of servers that are not shared. `owner` is who that is, where
    /// they are told from others by more than their session.
    pub(super) fn for_session(&self, owner: Option<Asker>, may_read: MayRead) -> Behind {
        self.with(self.servers.as_ref().map(|servers| servers.for_session_of(owner, may_read)))
    }

    /// The same with these servers.
    pub(super) fn with(&self, servers: Option<Servers>) -> Behind {
        Behind { servers, ..self.clone() }
    }

    /// The same with jobs behind it.
    pub(super) fn with_jobs(self, jobs: Option<Jobs>) -> Behind {
        Behind { jobs, ..self }
    }

    /// The same for windows.
    pub(super) fn of_windows(self) -> Behind {
        Behind { are_windows: true, ..self }
    }

    pub(super) fn are_windows(&self) -> bool {
        self.are_windows
    }

    /// The same for this caller.
    pub(super) fn called_by(self, caller: Caller) -> Behind {
        Behind { caller, ..self }
    }

    /// The same, told there.
    pub(super) fn traced_by(self, telemetry: Option<Telemetry>, transport: &'static str) -> Behind {
        Behind { telemetry, transport, ..self }
    }
}

/// What a window says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OfWindow {
    /// The session of its client.
    pub session: OfSession,
    /// For how long it waits for the answer, where it is a call.
    pub limit: Option<CallLimit>,
}

/// A job that is being made of a call.
pub(super) type Adopting = Pin<Box<dyn Future<Output = Result<Promoted, JobError>> + Send>>;

/// What comes of a task.
pub(super) enum Ended {
    Tool(ToolAnswer),
    Server(Box<Answered>),
    /// A resource is watched, or not.
    Watched(Resource, Result<Watch, Error>),
    /// A call has become a job.
    Promoted(Box<(Promoted, Going)>),
    /// The same call was a job already, and still is.
    Joined(Box<JobReport>),
    /// What was asked of tasks.
    Task(Box<TasksTold>),
    /// Nobody waits for it any more.
    Nothing,
}

/// What has happened behind a session.
pub(super) enum Event {
    Ended(Result<(TaskId, Ended), JoinError>),
    Told(CallKey, Box<RawValue>),
    Said(CallKey, Aside),
    /// A task that somebody follows is another than it was.
    Followed(CallKey, Box<TaskTold>),
    /// Something else is known of the servers.
    Known,
    /// There are other tools of ours.
    Tools,
    /// A resource has changed.
    Updated(Updated),
}

/// See the module's text.
pub(super) struct Work {
    pub machine: Machine,
    origin: Instant,
    toolbox: Arc<dyn Toolbox>,
    tools: Option<watch::Receiver<()>>,
    servers: Option<Servers>,
    /// On behalf of the caller.
    jobs: Option<Jobs>,
    caller: Caller,
    /// Tells this session from every other.
    session: SessionKey,
    /// The session that a window has said that it is, where we are asked by windows.
    window: Option<OfSession>,
    /// Whose the questions about its calls are: the session's, or the caller's where there is none.
    asks_as: SessionKey,
    /// Calls of which a job may be made.
    orders: HashMap<CallKey, oneshot::Sender<Order>>,
    tally: Arc<Tally>,
    known: Option<watch::Receiver<Known>>,
    /// Resources that the client watches.
    watches: HashMap<Resource, Watch>,
    /// Changes of those that anybody watches, since this client does: who watches nothing is not woken for others.
    updates: Option<Changes>,
    /// Progress of requests to servers, on its way from their tasks to the machine.
    tell: mpsc::Sender<(CallKey, Box<RawValue>)>,
    told: mpsc::Receiver<(CallKey, Box<RawValue>)>,
    /// What else servers say and ask about calls, on the same way.
    aside: mpsc::Sender<(CallKey, Aside)>,
    asides: mpsc::Receiver<(CallKey, Aside)>,
    /// What is told of tasks that the client follows, on the same way.
    follow: Following,
    followed: mpsc::Receiver<(CallKey, Box<TaskTold>)>,
    /// Who waits for the answers.
    replies: HashMap<QuestionKey, oneshot::Sender<Replied>>,
    next_question: QuestionKey,
    calls: JoinSet<Ended>,
    keys: HashMap<TaskId, CallKey>,
    cancels: HashMap<CallKey, watch::Sender<bool>>,
}

impl Work {
    /// For a session of this asker's that begins now. Its calls are parked under this secret.
    pub(super) fn new(limits: Limits, behind: &Behind, asker: Asker, secret: Option<String>) -> Work {
        let known = behind.servers.as_ref().map(Servers::known);
        let (tell, told) = mpsc::channel(PROGRESS);
        let (aside, asides) = mpsc::channel(ASIDES);
        let (follow, followed) = mpsc::channel(FOLLOWED);
        // Before they are asked for, so that no change is missed.
        let tools = behind.toolbox.changes();
        let definitions = behind.toolbox.definitions();
        let mut machine = Machine::new(limits, definitions, behind.instructions.clone())
            .counted_in(Arc::clone(&behind.tally))
            .asked_by(asker)
            .traced_by(behind.telemetry.clone(), behind.transport);
        if let Some(secret) = secret {
            machine.parks_under(secret);
        }
        if tools.is_some() {
            machine.tools_may_change();
        }
        let jobs = behind.jobs.as_ref().map(|jobs| jobs.on_behalf(&behind.caller));
        if let Some(jobs) = &jobs {
            machine.jobs = jobs.seen_by(&behind.caller);
        }
        machine.jobs.are_of_windows = behind.are_windows;
        let session = SessionKey::drawn();
        Work {
            machine: match &known {
                Some(known) => machine.with_servers(known.borrow().clone()),
                None => machine,
            },
            origin: Instant::now(),
            toolbox: Arc::clone(&behind.toolbox),
            tools,
            servers: behind.servers.clone(),
            jobs,
            caller: behind.caller.clone(),
            session,
            window: None,
            asks_as: session,
            orders: HashMap::new(),
            tally: Arc::clone(&behind.tally),
            known,
            watches: HashMap::new(),
            updates: None,
            tell,
            told,
            aside,
            asides,
            follow,
            followed,
            replies: HashMap::new(),
            next_question: 0,
            calls: JoinSet::new(),
            keys: HashMap::new(),
            cancels: HashMap::new(),
        }
    }

    /// The same for one request alone.
    pub(super) fn alone(self) -> Work {
        Work { machine: self.machine.alone(), ..self }
    }

    /// The same for a caller without a session: what its other requests have left is its own (F-90).
    pub(super) fn asks_as(self, caller: SessionKey) -> Work {
        Work { asks_as: caller, ..self }
    }

    /// The same for one of this session of a window; from nobody but windows that counts.
    pub(super) fn of_window(mut self, window: Option<OfWindow>) -> Work {
        let window = window.filter(|_| self.machine.jobs.are_of_windows);
        self.machine.window_limit = window.and_then(|window| window.limit);
        Work { window: window.map(|window| window.session), ..self }
    }

    /// What is counted of all sessions.
    pub(super) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// The time since the session began.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// When the machine's [`Machine::tick`] is due at the latest.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.machine.next_tick().map(|tick| self.origin + tick)
    }

    /// Carries out what the machine wants; returns the exit code at the end.
    pub(super) fn act(&mut self) -> Option<u8> {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::Call { key, tool, arguments, length } => {
                    let (cancel, cancellation) = Cancellation::new();
                    self.cancels.insert(key, cancel);
                    let caller = self.caller.clone();
                    self.call(key, ToolCall { tool, arguments, length, caller, cancellation });
                }
                Action::Ask { key, asked, may_be_a_job, joining } => {
                    let (cancel, cancellation) = Cancellation::new();
                    self.cancels.insert(key, cancel);
                    let promote = may_be_a_job.then(|| self.may_promote(key, joining)).flatten();
                    // A client without a session, of 2026-07-28, is asked by the answer to the call that a question is about.
                    let own = OfSession { key: self.asks_as, is_asked_beside: asked.client == Era::Legacy };
                    let asked = Asked { session: Some(self.window.unwrap_or(own)), ..asked };
                    self.ask(key, asked, cancellation, promote);
                }
                Action::Watch { key, resource, limit } => self.watch(key, resource, limit),
                Action::Log(level) => {
                    if let Some(servers) = &self.servers {
                        servers.log_from(level);
                    }
                }
                Action::Unwatch(resource) => drop(self.watches.remove(&resource)),
                Action::Reply { question, replied } => {
                    if let Some(reply) = self.replies.remove(&question) {
                        // The server may have gone meanwhile.
                        let _gone = reply.send(replied);
                    }
                }
                Action::Promote { key, name, elapsed } => {
                    if let Some(order) = self.orders.remove(&key) {
                        // It may have been answered a moment ago.
                        let _answered = order.send(Order { name, elapsed });
                    }
                }
                Action::Task { key, asked } => self.task(key, asked),
                Action::FollowTask { key, id } => self.follow(key, id),
                Action::Cancel(key) => {
                    if let Some(cancel) = self.cancels.get(&key) {
                        cancel.send_replace(true);
                    }
                }
                Action::Exit(code) => return Some(code),
            }
        }
        None
    }

    fn call(&mut self, key: CallKey, call: ToolCall) {
        let toolbox = Arc::clone(&self.toolbox);
        let counted = CountedCall::begin(Arc::clone(&self.tally), call.tool.clone());
        // In the task already when the toolbox is asked, so that a panic of its is the task's.
        let task = self.calls.spawn(async move {
            let answer = toolbox.call(call).await;
            counted.ended(answer.is_error);
            Ended::Tool(answer)
        });
        self.keys.insert(task.id(), key);
    }

    fn ask(&mut self, key: CallKey, asked: Asked, cancellation: Cancellation, promote: Option<MayPromote>) {
        let Some(servers) = self.servers.clone() else { return };
        let tellers = Tellers { progress: self.tell.clone(), aside: self.aside.clone() };
        let task = self.calls.spawn(ask(key, servers, asked, tellers, cancellation, promote));
        self.keys.insert(task.id(), key);
    }

    /// What is needed to make a job of this call, which can be ordered from now on.
    fn may_promote(&mut self, key: CallKey, joining: Joining) -> Option<MayPromote> {
        let jobs = self.jobs.as_ref()?;
        let calls = jobs.promoted()?;
        let (order, orders) = oneshot::channel();
        self.orders.insert(key, order);
        Some(MayPromote {
            calls,
            jobs: jobs.service.clone(),
            caller: self.caller.clone(),
            client: self.machine.client_name(),
            session: self.session,
            joining,
            wants_a_task: self.machine.wants_a_task(key),
            orders,
        })
    }

    fn task(&mut self, key: CallKey, asked: TaskAsked) {
        let Some(jobs) = self.jobs.clone() else { return };
        let aside = self.aside.clone();
        let task =
            self.calls.spawn(async move { Ended::Task(Box::new(jobs.told(asked, (key, aside)).await)) });
        self.keys.insert(task.id(), key);
    }

    fn follow(&mut self, key: CallKey, id: JobId) {
        let Some(jobs) = self.jobs.clone() else { return };
        let (cancel, mut cancellation) = Cancellation::new();
        self.cancels.insert(key, cancel);
        let tell = self.follow.clone();
        let task = self.calls.spawn(async move {
            tokio::select! {
                () = jobs.follow(id, key, tell) => {}
                () = cancellation.cancelled() => {}
            }
            Ended::Nothing
        });
        self.keys.insert(task.id(), key);
    }

    fn watch(&mut self, key: CallKey, resource: Resource, limit: Duration) {
        let Some(servers) = self.servers.clone() else { return };
        // Before the server is asked, so that nothing is missed.
        self.updates.get_or_insert_with(|| servers.updates());
        let task = self.calls.spawn(async move {
            let (server, uri) = resource.clone();
            Ended::Watched(resource, servers.watch(server, uri, limit).await)
        });
        self.keys.insert(task.id(), key);
    }

    /// Waits for something to happen. Cancel-safe.
    pub(super) async fn event(&mut self) -> Event {
        tokio::select! {
            Some(ended) = self.calls.join_next_with_id() => Event::Ended(ended),
            Some((key, params)) = self.told.recv() => Event::Told(key, params),
            Some((key, aside)) = self.asides.recv() => Event::Said(key, aside),
            Some((key, told)) = self.followed.recv() => Event::Followed(key, told),
            () = changed(&mut self.known) => Event::Known,
            () = changed(&mut self.tools) => Event::Tools,
            updated = updated(&mut self.updates) => Event::Updated(updated),
        }
    }

    /// Tells the machine what has happened.
    pub(super) fn take(&mut self, event: Event, outside: &mut impl Outside) {
        let now = self.now();
        match event {
            Event::Ended(ended) => self.call_ended(ended, outside),
            Event::Told(key, params) => self.machine.progressed(now, key, &params, outside),
            Event::Said(call, aside) => self.said(call, aside, outside),
            Event::Followed(key, told) => self.machine.task_changed(now, key, &told, outside),
            Event::Updated(Updated { server, uri }) => self.machine.updated(now, &(server, uri), outside),
            Event::Tools => {
                self.tools.as_mut().map(watch::Receiver::borrow_and_update);
                self.machine.tools_changed(now, self.toolbox.definitions(), outside);
            }
            Event::Known => {
                let known = self.known.as_mut().map(|known| known.borrow_and_update().clone());
                if let Some(known) = known {
                    self.machine.servers_changed(now, &known, outside);
                }
            }
        }
    }

    /// A call is a job from now on: it goes on without us.
    fn promoted(&mut self, key: CallKey, (promoted, going): (Promoted, Going), outside: &mut impl Outside) {
        let now = self.now();
        let Some(calls) = self.jobs.as_ref().and_then(Jobs::promoted) else { return };
        // What was asked before there was a job is about the call.
        while let Ok((key, aside)) = self.asides.try_recv() {
            self.said(key, aside, outside);
        }
        if self.machine.is_asked(key) {
            calls.forget(async move { Ok(promoted) });
            return self.stays(key, going);
        }
        let who = self.machine.promoted(now, key, &promoted.report, outside);
        match who {
            Some(who) => calls.keep(promoted, going, who),
            // Nobody has heard of it, and nobody waits.
            None => {
                drop(going);
                calls.forget(async move { Ok(promoted) });
            }
        }
    }

    /// A call goes on as what it was.
    fn stays(&mut self, key: CallKey, going: Going) {
        let (cancel, cancellation) = Cancellation::new();
        self.cancels.insert(key, cancel);
        let tellers = Tellers { progress: self.tell.clone(), aside: self.aside.clone() };
        let task = self.calls.spawn(answered(key, going, tellers, cancellation, None));
        self.keys.insert(task.id(), key);
    }

    fn said(&mut self, call: CallKey, aside: Aside, outside: &mut impl Outside) {
        let now = self.now();
        match aside {
            Aside::Logged(params) => self.machine.logged(now, call, &params, outside),
            Aside::Asked(Question { method, params, is_of_several, reply }) => {
                self.next_question += 1;
                let question = self.next_question;
                self.replies.insert(question, reply);
                let about = match is_of_several {
                    true => About::OneOfSeveral(call),
                    false => About::Call(call),
                };
                self.machine.asked(now, about, question, (&method, params.as_deref()), outside);
            }
        }
    }

    fn call_ended(&mut self, ended: Result<(TaskId, Ended), JoinError>, outside: &mut impl Outside) {
        let panicked = ended.is_err();
        let (task, ended) = ended.unwrap_or_else(|error| {
            let text = "this tool failed by a bug in unhang, which goes on; its stderr and log say where";
            (error.id(), Ended::Tool(ToolAnswer::error(text)))
        });
        let Some(key) = self.keys.remove(&task).filter(|_| !panicked || stands("panic-is-answered")) else {
            return;
        };
        self.cancels.remove(&key);
        self.orders.remove(&key);
        let now = self.now();
        match ended {
            Ended::Tool(answer) => self.machine.ended(now, key, &answer, outside),
            Ended::Server(answered) => {
                // What was told before the answer comes before it.
                while let Ok((key, params)) = self.told.try_recv() {
                    self.machine.progressed(now, key, &params, outside);
                }
                while let Ok((key, aside)) = self.asides.try_recv() {
                    self.said(key, aside, outside);
                }
                self.machine.answered(now, key, &answered, outside);
            }
            Ended::Watched(resource, outcome) => {
                let outcome = outcome.map(|watch| drop(self.watches.insert(resource.clone(), watch)));
                self.machine.watched(now, key, &resource, outcome, outside);
            }
            Ended::Promoted(promoted) => self.promoted(key, *promoted, outside),
            Ended::Joined(report) => drop(self.machine.promoted(now, key, &report, outside)),
            Ended::Task(told) => self.machine.task_told(now, key, &told, outside),
            Ended::Nothing => {
                // What was told last comes before the end of whoever told it.
                while let Ok((key, told)) = self.followed.try_recv() {
                    self.machine.task_changed(now, key, &told, outside);
                }
                self.machine.forgotten(now, key, outside);
            }
        }
    }
}

/// A name that nobody guesses; none where the system has no random source.
pub(super) fn random_name() -> Option<String> {
    let mut bytes = [0; 16];
    // The call fills short requests whole, or fails.
    getrandom(&mut bytes, GetRandomFlags::empty()).ok()?;
    Some(BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
}

/// Waits until something has changed; for ever where nothing can. Cancel-safe.
async fn changed<T>(watched: &mut Option<watch::Receiver<T>>) {
    let told = match watched {
        Some(watched) => watched.changed().await.is_ok(),
        None => false,
    };
    if !told {
        pending::<()>().await;
    }
}

/// The next change of a resource; never, where there are no servers. Cancel-safe.
async fn updated(updates: &mut Option<Changes>) -> Updated {
    loop {
        match updates {
            None => return pending().await,
            Some(changes) => match changes.recv().await {
                Ok(updated) => return updated,
                Err(RecvError::Lagged(missed)) => {
                    tracing::warn!("{missed} changes of resources came faster than they could be told");
                }
                Err(RecvError::Closed) => *updates = None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unhang_tools::toolbox::NoTools;

    #[test]
    fn a_session_that_is_named_counts_from_windows_alone() {
        let named = OfSession { key: SessionKey::drawn(), is_asked_beside: true };
        let behind = Behind::new(Arc::new(NoTools), None, None);
        let limit = Some(CallLimit { limit: Duration::from_secs(7), waited: Duration::from_secs(1) });
        for (behind, expect) in [(behind.clone(), (None, None)), (behind.of_windows(), (Some(named), limit))]
        {
            let window = OfWindow { session: named, limit };
            let work = Work::new(Limits::default(), &behind, Asker::new("one"), None).of_window(Some(window));
            assert_eq!((work.window, work.machine.window_limit), expect);
        }
    }
}
