//! The sender of a call's requests, and what comes of a request.
//!
//! Invariant: dropping a [`PendingCall`] withdraws its request.

use std::{
    future::{pending, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use unhang_bridge::Era;
use unhang_core::fault::FaultKind;
use unhang_gateway::{ServerAnswer, ServerRequest, Servers, SideMessage, TaskNews, is_leader, job_of_leader};
use unhang_jobs::id::JobId;
use unhang_proc::unnamed_file::FilePart;
use unhang_upstream::{
    client::{Error, Failure},
    keeping::WhoIsAsked,
    kept_request::{SentRequest, SentSender},
    question::ASIDES,
    window_job::{WindowCallName, WindowJobOrder, read_became_job, read_no_job},
};

use super::PromotedCalls;

/// The answer to a request, and everything that the server sends before it. Dropping it withdraws the request.
pub struct PendingCall {
    /// The answer, once it is there.
    pub answering: Pin<Box<dyn Future<Output = ServerAnswer> + Send>>,
    /// The newest progress.
    pub seen: watch::Receiver<Option<Box<RawValue>>>,
    /// The log messages and questions of the server about the request.
    pub said: mpsc::Receiver<SideMessage>,
}

/// The sender of a request.
pub trait CallSource: Send {
    /// Makes the request with these params, for the first time or once more.
    fn ask(&mut self, params: Arc<str>) -> PendingCall;

    /// Returns the news of the task with which the server goes on; `None` if there are none.
    fn news(&self) -> Option<&TaskNews> {
        None
    }

    /// Returns the result of the request that was answered last, if it is in a file because it is long. The answer then has a short one in
    /// its place.
    fn long_result(&mut self) -> Option<FilePart> {
        None
    }

    /// Returns what tells which request its server was sent last, so that the request can be kept; `None` if it cannot.
    fn sent(&self) -> Option<watch::Receiver<Option<SentRequest>>> {
        None
    }

    /// Waits until the server cannot be asked once more, and returns why; for ever, if a server process that has ended is started anew. The
    /// future borrows nothing.
    fn server_over(&self) -> Pin<Box<dyn Future<Output = ServerAnswer> + Send>> {
        Box::pin(pending())
    }

    /// Has the leading window make a job of the request, with the facts in this order, and returns that job; `None` if no leading window has
    /// the request. Dropping the future withdraws the order.
    fn job_of_leader(&self, _facts: &PromotedInWindow) -> Option<LeaderJobFuture> {
        None
    }

    /// Returns the job of the leading window that this answer names; `None` if it is any other answer.
    fn became_job_of_leader(&self, _answered: &ServerAnswer) -> Option<JobId> {
        None
    }

    /// Returns whether another process has made the call, and the stream of its answer is resumed.
    fn is_resumed(&self) -> bool {
        false
    }
}

/// The job that the leading window makes of a request, or the reason why it makes none.
pub type LeaderJobFuture = Pin<Box<dyn Future<Output = Result<JobId, String>> + Send>>;

/// The facts that a leading window needs to make a job of a request.
#[derive(Clone, Debug)]
pub struct PromotedInWindow {
    /// The name by which the client knows the tool.
    pub tool: String,
    /// The time for which the call has taken.
    pub elapsed: Duration,
    /// The time that the call may take in all.
    pub limit: Duration,
    /// The party that gets the server's questions about the job.
    pub who: WhoIsAsked,
}

impl PromotedInWindow {
    /// Makes the order for the call of this name.
    fn order(self, call: WindowCallName) -> WindowJobOrder {
        let Self { tool, elapsed, limit, who } = self;
        WindowJobOrder { call, tool, elapsed, limit, who }
    }
}

/// Returns a request that fails at once.
pub(super) fn answer_never_comes(failure: Failure) -> PendingCall {
    let outcome = Err(Error::from(failure));
    let answered = ServerAnswer { era: Era::Modern, server_info: None, outcome, asked_for: None };
    let ((_, seen), (_, said)) = (watch::channel(None), mpsc::channel(1));
    PendingCall { answering: Box::pin(ready(answered)), seen, said }
}

/// Adds the jobs of earlier sessions to the error of a server that did not start: an older process may be in its way.
fn name_earlier_jobs(answered: &mut ServerAnswer, calls: &PromotedCalls, server: &str) {
    if let Err(Error::Failure(failure)) = &mut answered.outcome
        && matches!(failure.kind, FaultKind::StartFailed | FaultKind::BreakerOpen)
        && let Some(jobs) = calls.earlier_jobs(server)
    {
        failure.happened = format!("{}; {jobs}", failure.happened);
    }
}

/// A request to one of these servers. The session's own instances live as long as its calls.
pub struct UpstreamRequest {
    servers: Servers,
    asked: ServerRequest,
    news: Option<TaskNews>,
    sent: SentSender,
    /// The jobs, for the errors of servers that do not start.
    calls: Option<PromotedCalls>,
}

impl UpstreamRequest {
    /// Prepares a request to one of these servers. Nothing is sent until [`CallSource::ask`]. If the server does not start, the error names
    /// those of `calls` for which an older process of it works.
    pub fn new(servers: Servers, asked: ServerRequest, calls: Option<PromotedCalls>) -> Self {
        // Any call of a window that waits for a task may become a job.
        let is_promotable = asked.may_wait && is_leader(&servers, asked.server);
        let asked = ServerRequest { window_call: is_promotable.then(WindowCallName::drawn), ..asked };
        let news = asked.may_wait.then(TaskNews::new);
        Self { servers, asked, news, sent: watch::Sender::new(None), calls }
    }

    /// Has the next request bring the order that the leading window make a job of it before its server gets it. Returns false if no leading
    /// window gets the request, or if the order is too long.
    pub fn bring_order(&mut self, facts: &PromotedInWindow) -> bool {
        let order = self.asked.window_call.and_then(|call| facts.clone().order(call).header());
        self.asked.job_order = order.map(Into::into);
        self.asked.job_order.is_some()
    }

    /// Returns why the leading window has refused the order that the request has brought, and the request with it; `None` if this is any
    /// other answer.
    pub fn refused_by_leader(&self, answered: &ServerAnswer) -> Option<String> {
        read_no_job(&answered.outcome, self.asked.window_call?)
    }
}

impl CallSource for UpstreamRequest {
    fn ask(&mut self, params: Arc<str>) -> PendingCall {
        let job_order = self.asked.job_order.take();
        let asked = ServerRequest { params, job_order, ..self.asked.clone() };
        let (progress, seen) = watch::channel(None);
        let (asides, said) = mpsc::channel(ASIDES);
        let progress = asked.wants_progress.then_some(progress);
        let (news, sent) = (self.news.clone(), Some(self.sent.clone()));
        let calls = self.calls.clone().zip(self.servers.whose(asked.server));
        // In a box, because an async block has room for a future that it captures and once more for the one that it awaits.
        let answering = Box::pin(self.servers.ask_and_hear(asked, progress, Some(asides), news, sent));
        let answering = async move {
            let mut answered = answering.await;
            if let Some((calls, server)) = calls {
                name_earlier_jobs(&mut answered, &calls, server.name());
            }
            answered
        };
        PendingCall { answering: Box::pin(answering), seen, said }
    }

    fn news(&self) -> Option<&TaskNews> {
        self.news.as_ref()
    }

    fn sent(&self) -> Option<watch::Receiver<Option<SentRequest>>> {
        Some(self.sent.subscribe())
    }

    fn job_of_leader(&self, facts: &PromotedInWindow) -> Option<LeaderJobFuture> {
        let order = facts.clone().order(self.asked.window_call?);
        let (servers, server_index) = (self.servers.clone(), self.asked.server);
        Some(Box::pin(async move { job_of_leader(&servers, server_index, &order).await }))
    }

    fn became_job_of_leader(&self, answered: &ServerAnswer) -> Option<JobId> {
        read_became_job(&answered.outcome, self.asked.window_call?)
    }
}
