//! Calls of servers' tools that have become jobs. This crate waits for their answers while their clients do something else.
//!
//! ```text
//! front ─ RunningCall (the answer on its way, what is told beside) ─ PromotedCalls::adopt ─ HeldCall (durable) ─ the id goes out
//!                                                                     └ keep: a task ─┬ progress, logs ─► the job's
//!                                                                                     ├ questions ─► Inputs
//!                                                                                     └ the answer, an end, a wish ─► settled
//! ```
//!
//! # Theory of operation
//!
//! The server notices nothing when a call becomes a job: the future that waits for the answer stays where it is and gets another owner. The
//! call keeps the instances that the session has for itself. So an instance of the session's own lives until its last call has ended.
//!
//! # Invariants
//!
//! - A promoted call ends as a job: answered, failed, cancelled, or failed with the reason that unhang ended. If its server goes on without
//!   unhang as a task, or the stream of its answer can be resumed, the call is left to the process that takes it up (`tickets`). If the call has a keeper, it is left to the call holder
//!   ([`call_holder`]).
//! - A call that is to end is withdrawn from the server first, before unhang waits for the disk.
//! - If the configuration wants it, the same call joins the job that it has become, and does not run twice.

pub mod call_holder;
mod call_of_job;
mod call_source;
mod engine;
mod inputs;
mod joining;
mod kept_calls;
mod opening;
mod running_call;
mod same_call;
mod shown_questions;
mod stream_tickets;
mod tickets;

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::timeout,
};
use unhang_jobs::{
    engine::{Adoption, CallEnd, Engine, HeldCall, JobStatus},
    id::JobId,
    record::{Holder, JobState, repeat_advice},
};
use unhang_proc::deadline::Deadline;

use self::call_of_job::CallOfJob;
use self::call_source::answer_never_comes;
use self::inputs::Inputs;
use self::kept_calls::CallKeeping;
pub use self::{
    call_source::{CallSource, LeaderJobFuture, PendingCall, PromotedInWindow, UpstreamRequest},
    joining::JoinableCalls,
    running_call::RunningCall,
    same_call::{CallOrigin, CallServer, SameCall, ToolOfCaller},
};
pub use self::{engine::EngineService, inputs::OpenInput};
use unhang_gateway::{Replied, SideMessage, TaskNews};
use unhang_proc::server::HolderCommand;
use unhang_tools::{
    job_report::{JobReport, ReportReader, ToolNames},
    service::{CallAnswer, Caller, JobService, JobServiceError, ResultsExtent},
};
pub use unhang_upstream::keeping::WhoIsAsked;
use unhang_upstream::kept_request::{KeptRequest, SentRequest};

/// The time in which the ends of all calls have to reach the disk when unhang ends.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A call that is to become a job.
#[derive(Clone, Debug)]
pub struct Promotable {
    /// The name by which the client knows the tool.
    pub name: String,
    /// The server, as the configuration calls it.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
    /// Whether the server says that calling the tool twice is safe.
    pub is_repeatable: bool,
    /// The arguments of the call, as JSON.
    pub arguments: Option<String>,
    /// The time for which the server has worked on the call.
    pub elapsed: Duration,
    /// The time that the call may take in all.
    pub limit: Duration,
    /// The key that the same call would have, if calls of the tool may be joined.
    pub same: Option<SameCall>,
    /// Whether no process of the server has the call yet.
    pub is_unsent: bool,
}

/// A call that has become a job.
pub struct Promoted {
    pub(crate) held: HeldCall,
    /// The report of the job for the client.
    pub report: JobReport,
    is_repeatable: bool,
    same: Option<SameCall>,
    /// The request of the call, if its server goes on for it without this process.
    kept: Option<KeptRequest>,
}

impl Promoted {
    /// Returns the job's id.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.held.id()
    }
}

/// Tells when the job of a call has ended, or was left to another process.
#[derive(Debug)]
pub struct FollowedEnd(oneshot::Receiver<Infallible>);

impl FollowedEnd {
    /// Waits for that.
    pub async fn wait(self) {
        // Nothing is ever sent: the other end is dropped.
        let _over = self.0.await;
    }
}

/// The facts about a job that is followed.
struct FollowedJob {
    who: WhoIsAsked,
    /// The way to the session of the call, for a question that its server asks by itself; `None` if its client cannot be asked outside calls.
    session: Option<mpsc::Sender<SideMessage>>,
    is_repeatable: bool,
    /// The answer to `roots/list`, if the client that has gone had roots, as JSON.
    roots: Option<Box<str>>,
    /// Whether the process that made the call has gone, so that nobody answers what cannot wait.
    is_of_call_holder: bool,
}

/// All calls that have become jobs. Clones share their state.
#[derive(Clone)]
pub struct PromotedCalls {
    shared: Arc<PromotedCallsState>,
    /// The names by which the readers of reports know the tools.
    names: ToolNames,
}

struct PromotedCallsState {
    engine: Engine,
    tasks: Mutex<JoinSet<()>>,
    /// The reason why all calls end, once they do.
    ending: watch::Sender<Option<CallsEnd>>,
    joinable: JoinableCalls,
    inputs: Inputs,
    /// The news of the calls that are followed now.
    news: Mutex<HashMap<JobId, TaskNews>>,
    /// The command of a call holder, without its plan. Without it, calls end with this process.
    holder: Arc<OnceLock<HolderCommand>>,
}

/// The reason why all calls end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsEnd {
    /// The client of the calls has gone, and nobody else can ask for them through this process.
    ClientGone,
    /// This process ends.
    UnhangEnds,
}

impl PromotedCalls {
    /// Makes an empty collection whose calls become jobs of this engine. They end with this process.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self::held_by(engine, Arc::default())
    }

    /// Does the same with the command of a call holder, which goes on with the calls of stdio servers when this process has ended.
    pub(crate) fn held_by(engine: Engine, holder: Arc<OnceLock<HolderCommand>>) -> Self {
        let shared = PromotedCallsState {
            tasks: Mutex::default(),
            ending: watch::Sender::new(None),
            joinable: JoinableCalls::new(engine.clone()),
            engine,
            inputs: Inputs::default(),
            news: Mutex::default(),
            holder,
        };
        Self { shared: Arc::new(shared), names: ToolNames::default() }
    }

    /// Returns the same calls for clients that know the tools by these names.
    pub(crate) fn told_with(self, names: ToolNames) -> Self {
        Self { names, ..self }
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the calls that the same call may join.
    #[must_use]
    pub fn joinable(&self) -> &JoinableCalls {
        &self.shared.joinable
    }

    /// Returns a receiver that wakes up at every change of any job.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.engine.changes()
    }

    /// Returns a receiver for [`Self::inputs_changed`].
    pub fn input_changes(&self) -> watch::Receiver<u64> {
        self.shared.inputs.changes()
    }

    /// Waits until the questions of a task may have changed, whichever process holds it. Cancel-safe.
    pub async fn inputs_changed(&self, id: JobId, changes: &mut watch::Receiver<u64>) {
        // The sender lives as long as `self`.
        let changed = async { drop(changes.changed().await) };
        match self.shared.engine.holds_call(id) {
            true => changed.await,
            false => drop(timeout(shown_questions::LOOK, changed).await),
        }
    }

    /// Returns the questions that a task waits for, whichever process holds it.
    pub async fn open_inputs(&self, id: JobId) -> Vec<OpenInput> {
        match self.shared.engine.holds_call(id) {
            true => self.shared.inputs.open(id),
            false => shown_questions::open_elsewhere(&self.shared.engine, id).await,
        }
    }

    /// Gives an answer to the server that asked, in whichever process. Returns whether the task had an open question of this name.
    pub async fn answer_input(&self, id: JobId, key: &str, replied: Replied) -> bool {
        match self.shared.engine.holds_call(id) {
            true => self.shared.inputs.answer(id, key, replied),
            false => shown_questions::answer_elsewhere(&self.shared.engine, id, key, &replied).await,
        }
    }

    /// Names the process that has a call of this process resumed when this process has gone. Every process knows the keeper when the future is
    /// ready.
    ///
    /// # Errors
    /// Fails with the reason why the call ends with this process.
    pub fn name_keeper(
        &self,
        job: JobId,
        keeper: Holder,
    ) -> impl Future<Output = Result<(), JobServiceError>> + Send + use<> {
        let noted = self.shared.engine.name_keeper(job, keeper);
        async move { Ok(noted.await?) }
    }

    /// Makes a job of a call. The job is durable when this returns. Leaves nothing behind if the future is dropped.
    ///
    /// # Errors
    /// Fails with the reason why the call cannot become a job; it stays a call then.
    pub async fn adopt(&self, caller: &Caller, call: Promotable) -> Result<Promoted, JobServiceError> {
        self.adopt_known(caller, call, None).await
    }

    /// Does the same as [`Self::adopt`] with a call of which these news are known.
    ///
    /// # Errors
    /// Fails as [`Self::adopt`] does.
    pub async fn adopt_known(
        &self,
        caller: &Caller,
        call: Promotable,
        news: Option<&TaskNews>,
    ) -> Result<Promoted, JobServiceError> {
        let id = JobId::random()
            .map_err(|error| JobServiceError(format!("unhang cannot draw a job id: {error}")))?;
        let Promotable { name, server, tool, is_repeatable, arguments, elapsed, limit, same, is_unsent } =
            call;
        let (ticket, lost_with_holder) = tickets::at_adoption(news);
        let adoption = Adoption {
            id,
            name,
            owner: caller.name().map(str::to_owned),
            server,
            tool,
            is_repeatable,
            arguments,
            elapsed,
            timeout: Some(limit),
            ticket,
            lost_with_holder,
            is_unsent,
            lasting_key: same.and_then(|same| same.lasting_key()),
        };
        let (held, status) = self.shared.engine.adopt(adoption).await?;
        Ok(Promoted {
            held,
            report: JobReport::new(&status, ReportReader::Agent(self.names)),
            is_repeatable,
            same,
            kept: None,
        })
    }

    /// Has the server of an adopted call go on for it when this process has ended. `sent` is the request as the server was sent it. Does
    /// nothing if no process of the server has the request yet; that follows when it has.
    ///
    /// # Errors
    /// Fails with the reason why the call would end with this process, though calls of this server can outlive it.
    pub async fn have_kept(
        &self,
        promoted: &mut Promoted,
        sent: Option<SentRequest>,
        who: &WhoIsAsked,
    ) -> Result<(), JobServiceError> {
        match sent {
            Some(sent) => kept_calls::have_kept(self, promoted, &sent, who).await,
            None => Ok(()),
        }
    }

    /// Goes on with a call whose client now has the job's id. `session` is the way to that client outside calls, if there is one.
    pub fn keep(
        &self,
        promoted: Promoted,
        running_call: RunningCall,
        who: WhoIsAsked,
        session: Option<mpsc::Sender<SideMessage>>,
    ) -> FollowedEnd {
        let Promoted { held, is_repeatable, same, kept, .. } = promoted;
        if let Some(same) = same {
            self.shared.joinable.own.delivered(same, held.id());
        }
        let keeping = CallKeeping::new(kept, running_call.source.sent());
        let followed = FollowedJob { who, session, is_repeatable, roots: None, is_of_call_holder: false };
        self.go_on_keeping(held, (running_call, keeping), followed)
    }

    /// Notes that the leading window has made this job of a call, and that the client has its id. The same call joins it.
    pub fn is_of_leader(&self, id: JobId, same: Option<SameCall>) {
        let Some(same) = same else { return };
        self.shared.joinable.own.delivered(same, id);
        let shared = Arc::clone(&self.shared);
        self.tasks().spawn(async move {
            let mut ending = shared.ending.subscribe();
            tokio::select! {
                _ends = ending.wait_for(Option::is_some) => {}
                ended = shared.engine.wait(id, Deadline::after(Duration::MAX)) => {
                    shared.joinable.own.ended(id, ended.is_ok_and(|status| is_answered(&status)));
                }
            }
        });
    }

    fn go_on(&self, held: HeldCall, running_call: RunningCall, kept: FollowedJob) -> FollowedEnd {
        self.go_on_keeping(held, (running_call, CallKeeping::default()), kept)
    }

    fn go_on_keeping(
        &self,
        held: HeldCall,
        (running_call, keeping): (RunningCall, CallKeeping),
        followed: FollowedJob,
    ) -> FollowedEnd {
        let (over, ended) = oneshot::channel();
        let call = Box::new(CallOfJob { calls: self.clone(), held, running_call, keeping, followed });
        let mut tasks = self.tasks();
        // Tasks that have ended are forgotten.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            call.follow().await;
            drop(over);
        });
        FollowedEnd(ended)
    }

    fn news(&self) -> MutexGuard<'_, HashMap<JobId, TaskNews>> {
        self.shared.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the task looked at with which a server continues this job, and waits for that. Returns at once if this process looks at no such
    /// task. Returns whether the looks have ended meanwhile, so that the end of the job follows.
    pub async fn look(&self, id: JobId) -> bool {
        let news = self.news().get(&id).cloned();
        match news {
            Some(news) => news.look().await,
            None => false,
        }
    }

    /// Ends and removes the job of a call once it is adopted, since no client was told of the job.
    pub fn forget(&self, adopting: impl Future<Output = Result<Promoted, JobServiceError>> + Send + 'static) {
        let engine = self.shared.engine.clone();
        self.tasks().spawn(async move {
            // If the call was not adopted, there is nothing to remove.
            let Ok(Promoted { held, .. }) = adopting.await else { return };
            let id = held.id();
            let settled = held.settle(CallEnd::Cancelled).await;
            if let Err(error) = settled.map(drop).and(engine.remove(id).await) {
                tracing::warn!("unhang cannot remove job {id}, which no client knows: {error}");
            }
        });
    }

    /// Keeps the request of a call that another process goes on with, and its open questions, until this process has let go of the server.
    /// The server must hear neither that nobody waits nor that its questions are declined. Calls `then` after that.
    fn outlast(&self, id: JobId, mut running_call: RunningCall, then: impl FnOnce() + Send + 'static) {
        let calls = self.clone();
        tokio::spawn(async move {
            let _server_is_left_or_answered = (&mut running_call.way.answering).await;
            then();
            drop(running_call);
            calls.shared.inputs.forget(id);
        });
    }

    /// Waits until the job that this call has become has ended, but at most for `wait`, and returns its status.
    pub async fn join(&self, id: JobId, wait: Duration) -> Result<JobStatus, JobServiceError> {
        Ok(self.shared.engine.wait(id, Deadline::after(wait)).await?)
    }

    /// Returns a sentence about the jobs of earlier sessions for which an older process of this server works; `None` if there are none. A
    /// new process may need a file or a port that the older one has.
    #[must_use]
    pub fn earlier_jobs(&self, server: &str) -> Option<String> {
        let jobs = self.shared.engine.passed_on_to_others(server);
        let first = jobs.first()?.record.job_id;
        let which = match jobs.len() {
            1 => format!("job {first} of an earlier session has"),
            count => format!("job {first} and {} more of earlier sessions have", count - 1),
        };
        Some(format!(
            "{which} an older process of `{server}`, which may use a file or a port that a new one needs: wait for \
             the end of the job, or run `unhang job cancel {first}`"
        ))
    }

    /// Waits until all calls have ended, those that begin meanwhile included.
    pub(crate) async fn until_all_have_ended(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *self.tasks());
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }

    /// Ends all calls, each as a job that says why, and waits for that up to a limit.
    pub async fn end(&self, why: CallsEnd) {
        self.shared.ending.send_replace(Some(why));
        let mut tasks = std::mem::take(&mut *self.tasks());
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(END_LIMIT, all).await.is_err() {
            tracing::warn!(
                "unhang could not record in time that some calls failed as jobs; the next start records it"
            );
        }
    }
}

/// Stores the end of a call. If that fails, the log says so.
async fn store_end(held: HeldCall, end: CallEnd) {
    let id = held.id();
    if let Err(error) = held.settle_in_the_end(end).await {
        tracing::warn!(job = id.as_str(), "unhang cannot store the end of the job: {error}");
    }
}

/// Returns the result of a job for the same call, unchanged; `None` if the job has no result, so that the call may be made once more. Whoever
/// cancels a job wants nothing of the kind.
pub async fn joined(jobs: &dyn JobService, status: &JobStatus) -> Option<String> {
    if status.record.status == JobState::Cancelled {
        let id = status.record.job_id;
        let text = format!(
            "this call had joined job {id}, which was cancelled; call the tool again to start the work anew"
        );
        return Some(json!({ "content": [{ "type": "text", "text": text }], "isError": true }).to_string());
    }
    if !is_answered(status) {
        return None;
    }
    match jobs.answer(status.record.job_id, ResultsExtent::Bounded).await.ok()?? {
        CallAnswer::Result(result) => Some(result),
        CallAnswer::Error(_) => None,
    }
}

/// Returns why a call was refused whose client asked for a task (2025-11-25) and may get nothing else: it cannot be kept as a job.
pub fn not_kept(tool: &str, why: &JobServiceError) -> String {
    format!("unhang did not call `{tool}`, because it cannot store the call as a task: {}", why.0)
}

/// The hint that goes with [`not_kept`].
pub const NOT_KEPT_HINT: &str =
    "call it without `task`, or run `unhang job list` to see why unhang cannot store jobs";

/// Returns the advice whether to call the tool again.
pub(crate) fn advice(is_repeatable: bool) -> &'static str {
    repeat_advice(is_repeatable, false)
}

/// Returns whether a job has ended with a result that the same call can have as its answer.
pub(crate) fn is_answered(status: &JobStatus) -> bool {
    status.record.status == JobState::Completed
}
