//! One request to a server. A task waits for its answer, passes on what the server says meanwhile, and hands the request over if a job is
//! made of it.
//!
//! Invariants: dropping the task withdraws the request. If the answer and the job come together, the answer wins. A client that has asked
//! for a task (2025-11-25) has it before its server's answers and questions, which wait here until then.

use std::{
    future::{pending, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use unhang_bridge::Era;
use unhang_jobs::id::JobId;
use unhang_wire::Json;

use super::{call_tasks::CallTaskEnd, effects::CallKey, tasks::era_of};
use unhang_background::{
    CallOrigin, CallServer, CallSource, LeaderJobFuture, NOT_KEPT_HINT, PendingCall, Promotable, Promoted,
    PromotedCalls, PromotedInWindow, RunningCall, SameCall, ToolOfCaller, UpstreamRequest, WhoIsAsked,
    joined, not_kept,
};
use unhang_core::fault::FaultKind;
use unhang_gateway::{
    CalledServer, JoinPolicy, ServerAnswer, ServerRequest, Servers, SessionKey, SideMessage, TaskNews,
};
use unhang_tools::{
    Cancellation,
    job_report::{JobReport, ReportReader},
    service::{Caller, JobService, JobServiceError},
};
use unhang_upstream::{client::Failure, kept_request::SentRequest, window_job::ORDER_LIMIT};

/// The time for which the id of a task, or of a job that a window orders, waits for the server to get the call.
const SENT_LIMIT: Duration = Duration::from_secs(1);

/// The channels from a server to the session, for progress and for messages beside the answer.
#[derive(Clone)]
pub(super) struct ProgressSinks {
    pub progress: mpsc::Sender<(CallKey, Box<RawValue>)>,
    pub aside: mpsc::Sender<(CallKey, SideMessage)>,
}

impl ProgressSinks {
    /// Passes a message on to the session, which takes its messages at once. If too many are on their way, a log line is lost and a question
    /// is declined. All else is never lost, since the client may wait for nothing else.
    async fn pass_on(&self, key: CallKey, message: SideMessage) {
        match message {
            SideMessage::TaskBegun | SideMessage::ElicitationOver(_) => {
                drop(self.aside.send((key, message)).await);
            }
            SideMessage::Asked(_) | SideMessage::Logged(_) => drop(self.aside.try_send((key, message))),
        }
    }
}

/// The order to make a job of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotionOrder {
    /// The tool's name as its client knows it.
    pub name: String,
    /// How long the server has been asked.
    pub elapsed: Duration,
    /// The party that gets the server's questions about the job.
    pub who: WhoIsAsked,
    /// The time that the call may take in all, if it is the call of another window, which alone knows that.
    pub window_limit: Option<Duration>,
}

/// The making of a job of a call, under way.
type AdoptionFuture = Pin<Box<dyn Future<Output = Result<Promoted, JobServiceError>> + Send>>;

/// Everything that is needed to make a job of a call.
pub(super) struct MayPromote {
    pub calls: PromotedCalls,
    pub jobs: Arc<dyn JobService>,
    pub caller: Caller,
    /// The name that the client gives itself.
    pub client: String,
    /// The session that calls.
    pub session: SessionKey,
    /// Whether the client has started this process.
    pub is_of_owner: bool,
    /// Which calls join the job that the same call has become.
    pub joining: JoinPolicy,
    /// Whether the client has asked for a task (2025-11-25).
    pub wants_a_task: bool,
    pub orders: oneshot::Receiver<PromotionOrder>,
}

/// The parts of a call that its job needs.
pub(super) struct PromotableCall {
    server: CalledServer,
    tool: String,
    params: Arc<str>,
    limit: Duration,
}

impl PromotableCall {
    fn of(servers: &Servers, asked: &ServerRequest) -> Option<Self> {
        let (tool, params) = (asked.tool.clone()?, Arc::clone(&asked.params));
        Some(Self { server: servers.whose(asked.server)?, tool, params, limit: asked.limit })
    }

    fn arguments(&self) -> Option<&str> {
        Json::new(self.params.as_bytes())?.member("arguments").map(Json::get)
    }

    fn same(&self, promote: &MayPromote) -> Option<SameCall> {
        let joins = match promote.joining {
            JoinPolicy::Never => false,
            JoinPolicy::WhereDeclared => self.server.is_repeatable(&self.tool),
            JoinPolicy::Always => true,
        };
        joins.then(|| self.tool_of(promote).call(self.arguments()))
    }

    fn promoted_in_window(&self, order: &PromotionOrder) -> PromotedInWindow {
        PromotedInWindow {
            tool: order.name.clone(),
            elapsed: order.elapsed,
            limit: self.limit,
            who: order.who.clone(),
        }
    }

    fn tool_of(&self, promote: &MayPromote) -> ToolOfCaller {
        let (caller, client) = (&promote.caller, promote.client.as_str());
        let call_origin =
            CallOrigin { caller, session: promote.session, client, is_owners: promote.is_of_owner };
        let server = CallServer {
            name: self.server.name(),
            instance: self.server.instance(),
            of_all_sessions: self.server.of_all_sessions(),
        };
        ToolOfCaller::new(&call_origin, &server, &self.tool)
    }

    /// Returns the job that the same call has become before, if this call may join it.
    async fn same_call_before(&self, promote: &MayPromote) -> Option<JobId> {
        if promote.joining == JoinPolicy::Never {
            return None;
        }
        let calls = promote.calls.joinable();
        calls.recall_ended().await;
        calls.may_join(self.tool_of(promote)).then(|| calls.find_same(&self.same(promote)?)).flatten()
    }
}

/// Asks a server and waits for the outcome.
pub(super) async fn ask(
    key: CallKey,
    servers: Servers,
    asked: Box<ServerRequest>,
    progress_sinks: ProgressSinks,
    mut cancellation: Cancellation,
    mut promote: Option<Box<MayPromote>>,
) -> CallTaskEnd {
    let about = promote.as_ref().and_then(|_| PromotableCall::of(&servers, &asked));
    if let (Some(about), Some(promote)) = (&about, &mut promote)
        && let Some(id) = about.same_call_before(promote).await
    {
        let joined = tokio::select! {
            () = cancellation.cancelled() => return CallTaskEnd::Nothing,
            // In a box, what few calls need makes the future of all others no larger.
            joined = Box::pin(join(promote, id, about.limit)) => joined,
        };
        match joined {
            Some(ended) => return ended,
            // That job has failed meanwhile; this call tries again.
            None => tracing::debug!(job = id.as_str(), "there is nothing to join"),
        }
    }
    let params = Arc::clone(&asked.params);
    let calls = promote.as_ref().map(|promote| promote.calls.clone());
    let mut source = Box::new(UpstreamRequest::new(servers, *asked, calls));
    if let (Some(about), Some(promote)) = (&about, promote.take_if(|promote| promote.wants_a_task)) {
        return Box::pin(task_first(promote, about, (source, params), cancellation)).await;
    }
    let running_call = RunningCall { way: source.ask(Arc::clone(&params)), params, source };
    answered(key, running_call, progress_sinks, cancellation, promote.zip(about)).await
}

/// Waits for the outcome of a request that was sent. That is a job if `promote` is given and the job is made before the answer comes.
pub(super) async fn answered(
    key: CallKey,
    mut running_call: RunningCall,
    progress_sinks: ProgressSinks,
    mut cancellation: Cancellation,
    promote: Option<(Box<MayPromote>, PromotableCall)>,
) -> CallTaskEnd {
    let (mut promote, about) = promote.unzip();
    let mut adopting: Option<AdoptionFuture> = None;
    let mut of_leader: Option<(LeaderJobFuture, PromotionOrder)> = None;
    loop {
        tokio::select! {
            biased;
            () = cancellation.cancelled() => {
                forget(promote, adopting);
                return CallTaskEnd::Nothing;
            }
            Ok(()) = running_call.way.seen.changed() => {
                let newest: Option<Box<RawValue>> = running_call.way.seen.borrow_and_update().clone();
                // If it does not fit, newer progress or the end follows soon.
                let _lossy = newest.map(|params| progress_sinks.progress.try_send((key, params)));
            }
            Some(one) = running_call.way.said.recv() => progress_sinks.pass_on(key, one).await,
            answered = &mut running_call.way.answering => {
                if let (Some(promote), Some(about), Some(job)) =
                    (&promote, &about, running_call.source.became_job_of_leader(&answered))
                {
                    // The job of this process, if the leader's answer to the order came too late.
                    adopting.into_iter().for_each(|adopting| promote.calls.forget(adopting));
                    return Box::pin(job_is_of_leader(promote, about, job, running_call.source.news())).await;
                }
                forget(promote, adopting);
                return CallTaskEnd::Server(Box::new(answered));
            }
            adopted = poll(&mut adopting) => match adopted {
                Ok(promoted) => return CallTaskEnd::Promoted(Box::new((promoted, running_call))),
                Err(why) => {
                    tracing::warn!("a call cannot become a job: {why}");
                    return CallTaskEnd::NotPromoted(Box::new((why.0, running_call)));
                }
            },
            (made, order) = made_by_leader(&mut of_leader) => {
                let (Some(promote), Some(about)) = (&promote, &about) else { continue };
                match made {
                    Ok(job) => return Box::pin(job_is_of_leader(promote, about, job, running_call.source.news())).await,
                    Err(why) => {
                        ends_with_window(&why);
                        adopting = Some(adopt(promote, about, order, (running_call.source.news().cloned(), None)));
                    }
                }
            }
            order = ordered(&mut promote), if adopting.is_none() => {
                if let (Some(order), Some(promote), Some(about)) = (order, &promote, &about) {
                    let source = &running_call.source;
                    if let Some(making) = source.job_of_leader(&about.promoted_in_window(&order)) {
                        of_leader = Some((making, order));
                        continue;
                    }
                    adopting = Some(adopt(promote, about, order, (source.news().cloned(), source.sent())));
                }
            }
        }
    }
}

/// Makes a job of a call before the server gets it: in the leading window, or here.
async fn task_first(
    promote: Box<MayPromote>,
    about: &PromotableCall,
    (mut source, params): (Box<UpstreamRequest>, Arc<str>),
    mut cancellation: Cancellation,
) -> CallTaskEnd {
    let mut promote = Some(promote);
    let order = tokio::select! {
        () = cancellation.cancelled() => None,
        order = ordered(&mut promote) => order,
    };
    let (Some(order), Some(promote)) = (order, promote) else { return CallTaskEnd::Nothing };
    let asking = (&mut *source, &params);
    let way = match asked_of_leader(&promote, about, &order, asking, &mut cancellation).await {
        Ok(way) => way,
        Err(ended) => return ended,
    };
    let (name, who) = (order.name.clone(), order.who.clone());
    let mut adopting = adopt(&promote, about, order, (source.news().cloned(), None));
    let adopted = tokio::select! {
        biased;
        () = cancellation.cancelled() => None,
        adopted = &mut adopting => Some(adopted),
    };
    let promoted = match adopted {
        Some(Ok(promoted)) => promoted,
        Some(Err(why)) => return refused_task(about, not_kept(&name, &why)),
        None => {
            promote.calls.forget(adopting);
            return CallTaskEnd::Nothing;
        }
    };
    let way = way.unwrap_or_else(|| source.ask(Arc::clone(&params)));
    let running_call = RunningCall { way, params, source };
    sent_task(&promote.calls, about, (promoted, running_call), &who, &mut cancellation).await
}

/// Sends a call to the leading window, if there is one, with the order to make a job of it first. Returns the way of its answer if the
/// leader takes no such orders, and `None` if the call was not sent, or the leader has refused the order. Fails with the end of the call
/// otherwise, which is the job of the leader at best.
async fn asked_of_leader(
    promote: &MayPromote,
    about: &PromotableCall,
    order: &PromotionOrder,
    (source, params): (&mut UpstreamRequest, &Arc<str>),
    cancellation: &mut Cancellation,
) -> Result<Option<PendingCall>, CallTaskEnd> {
    if !source.bring_order(&about.promoted_in_window(order)) {
        return Ok(None);
    }
    let mut way = source.ask(Arc::clone(params));
    let answered = tokio::select! {
        biased;
        () = cancellation.cancelled() => return Err(CallTaskEnd::Nothing),
        answered = timeout(ORDER_LIMIT, &mut way.answering) => answered.ok(),
    };
    match answered {
        Some(answered) => {
            if let Some(job) = source.became_job_of_leader(&answered) {
                return Err(job_is_of_leader(promote, about, job, source.news()).await);
            }
            if let Some(why) = source.refused_by_leader(&answered) {
                ends_with_window(&why);
                return Ok(None);
            }
            if answered.outcome.is_err() {
                return Err(CallTaskEnd::Server(Box::new(answered)));
            }
            ends_with_window("it has answered the call, and made no job of it");
            way.answering = Box::pin(ready(answered));
        }
        None => ends_with_window("it did not answer in time"),
    }
    Ok(Some(way))
}

/// Says why a job ends with this process.
fn ends_with_window(why: &str) {
    tracing::warn!("a job ends with this window, since the leading window does not keep it: {why}");
}

/// Waits until the server has got a call that is a task already, and its lifeline keeps it, so that the task outlives this process from the
/// moment when its client hears of it. A server that is down, busy or slow to start is not waited for.
async fn sent_task(
    calls: &PromotedCalls,
    about: &PromotableCall,
    (mut promoted, mut running_call): (Promoted, RunningCall),
    who: &WhoIsAsked,
    cancellation: &mut Cancellation,
) -> CallTaskEnd {
    let mut sent = running_call.source.sent();
    let kept = async {
        let sent = tokio::select! {
            biased;
            sent = timeout(SENT_LIMIT, until_sent(sent.as_mut())) => sent.ok().flatten(),
            answered = &mut running_call.way.answering => {
                running_call.way.answering = Box::pin(ready(answered));
                None
            }
        };
        calls.have_kept(&mut promoted, sent, who).await
    };
    let kept = tokio::select! {
        biased;
        () = cancellation.cancelled() => None,
        kept = kept => Some(kept),
    };
    let ended = match kept {
        Some(Ok(())) => return CallTaskEnd::Promoted(Box::new((promoted, running_call))),
        Some(Err(why)) => {
            refused_task(about, format!("`{}` cannot continue as a task: {}", about.tool, why.0))
        }
        None => CallTaskEnd::Nothing,
    };
    calls.forget(ready(Ok(promoted)));
    ended
}

/// Waits until a server process has got the request, and returns it; `None` if that cannot be known.
async fn until_sent(sent: Option<&mut watch::Receiver<Option<SentRequest>>>) -> Option<SentRequest> {
    sent?.wait_for(Option::is_some).await.ok()?.clone()
}

/// Returns the error for a client that has asked for a task and gets none.
fn refused_task(about: &PromotableCall, happened: String) -> CallTaskEnd {
    tracing::warn!("unhang refuses a call that was to be a task: {happened}");
    let failure = Failure {
        kind: FaultKind::Overloaded,
        server: about.server.name().to_owned(),
        method: Some("tools/call".to_owned()),
        happened,
        hint: NOT_KEPT_HINT.to_owned(),
        ..Failure::ended()
    };
    let outcome = Err(failure.into());
    CallTaskEnd::Server(Box::new(ServerAnswer {
        era: Era::Legacy,
        server_info: None,
        outcome,
        asked_for: None,
    }))
}

fn adopt(
    promote: &MayPromote,
    about: &PromotableCall,
    order: PromotionOrder,
    (news, mut sent): (Option<TaskNews>, Option<watch::Receiver<Option<SentRequest>>>),
) -> AdoptionFuture {
    // A lifeline can keep a request only after a server process has got it. A window counts from when it has sent the call to this process,
    // which may be earlier.
    let sent_limit = if order.window_limit.is_some() { SENT_LIMIT } else { Duration::ZERO };
    let (server, tool) = about.server.owner_of(&about.tool);
    let goes_on_as_task = news.as_ref().is_some_and(|news| news.known().is_some());
    let (limit, same) = match order.window_limit {
        // A later session of the window has another leader, or none, and so another name for the server.
        Some(limit) => (limit, None),
        None => (about.limit, about.same(promote)),
    };
    let call = Promotable {
        name: order.name,
        server,
        tool,
        is_repeatable: about.server.is_repeatable(&about.tool),
        arguments: about.arguments().map(str::to_owned),
        elapsed: order.elapsed,
        limit,
        same,
        is_unsent: sent.as_ref().is_none_or(|sent| sent.borrow().is_none()) && !goes_on_as_task,
    };
    let (calls, caller) = (promote.calls.clone(), promote.caller.clone());
    let who = order.who;
    Box::pin(async move {
        let mut promoted = calls.adopt_known(&caller, call, news.as_ref()).await?;
        let sent = timeout(sent_limit, until_sent(sent.as_mut())).await.ok().flatten();
        let sent = sent.filter(|_| !goes_on_as_task);
        if let Err(why) = calls.have_kept(&mut promoted, sent, &who).await {
            calls.forget(ready(Ok(promoted)));
            return Err(why);
        }
        promoted.report.does = news.map(|news| news.stage().does()).unwrap_or_default();
        Ok(promoted)
    })
}

/// Waits for the job that the leading window makes of a call, and returns it with the order; waits for ever, if none was ordered.
/// Cancel-safe.
async fn made_by_leader(
    of_leader: &mut Option<(LeaderJobFuture, PromotionOrder)>,
) -> (Result<JobId, String>, PromotionOrder) {
    let Some((making, order)) = of_leader else { return pending().await };
    let made = (making.await, order.clone());
    *of_leader = None;
    made
}

/// Returns the end of a call of which the leading window has made this job.
async fn job_is_of_leader(
    promote: &MayPromote,
    about: &PromotableCall,
    job: JobId,
    news: Option<&TaskNews>,
) -> CallTaskEnd {
    promote.calls.is_of_leader(job, about.same(promote));
    match promote.jobs.status(job, Duration::ZERO).await {
        Ok(report) => {
            let does = news.map(|news| news.stage().does()).unwrap_or_default();
            CallTaskEnd::OfLeader(Box::new(JobReport { does, ..report }))
        }
        Err(JobServiceError(why)) => {
            let failure = Failure {
                kind: FaultKind::Overloaded,
                server: about.server.name().to_owned(),
                method: Some("tools/call".to_owned()),
                happened: format!(
                    "the call continues as job {job}, and unhang cannot read its record: {why}"
                ),
                hint: "run `unhang job list`".to_owned(),
                ..Failure::ended()
            };
            let outcome = Err(failure.into());
            let answer = ServerAnswer { era: Era::Legacy, server_info: None, outcome, asked_for: None };
            CallTaskEnd::Server(Box::new(answer))
        }
    }
}

/// Gives up the job that was being made of a call.
fn forget(promote: Option<Box<MayPromote>>, adopting: Option<AdoptionFuture>) {
    if let (Some(promote), Some(adopting)) = (promote, adopting) {
        promote.calls.forget(adopting);
    }
}

/// Waits until a job is ordered for the call; forever, if no job may be made of it. Returns once. Cancel-safe.
async fn ordered(promote: &mut Option<Box<MayPromote>>) -> Option<PromotionOrder> {
    match promote {
        Some(promote) if !promote.orders.is_terminated() => (&mut promote.orders).await.ok(),
        _ => pending().await,
    }
}

async fn poll(adopting: &mut Option<AdoptionFuture>) -> <AdoptionFuture as Future>::Output {
    match adopting {
        Some(adopting) => adopting.await,
        None => pending().await,
    }
}

/// Waits for the job that the same call has become. Returns `None` if that job gave no result.
async fn join(promote: &mut MayPromote, id: JobId, limit: Duration) -> Option<CallTaskEnd> {
    if promote.wants_a_task {
        // The client gets the existing job, which may have ended.
        return Some(CallTaskEnd::Joined(Box::new(promote.jobs.status(id, Duration::ZERO).await.ok()?)));
    }
    let status = tokio::select! {
        joined = promote.calls.join(id, limit) => joined.ok()?,
        // The time after which this client gets a job has passed here, too.
        _order = &mut promote.orders => {
            let status = promote.calls.join(id, Duration::ZERO).await.ok()?;
            if !status.record.status.is_final() {
                return Some(CallTaskEnd::Joined(Box::new(JobReport::new(&status, ReportReader::Agent(promote.jobs.names())))));
            }
            status
        }
    };
    let result = joined(&*promote.jobs, &status).await?;
    promote.calls.joinable().was_read(&status.record).await;
    let era = era_of(Json::new(result.as_bytes())?);
    let outcome = Ok(RawValue::from_string(result).ok()?);
    Some(CallTaskEnd::Server(Box::new(ServerAnswer { era, server_info: None, outcome, asked_for: None })))
}
