//! Calls of windows: their headers, and the jobs that are made of them. A window orders the job, and the leading window makes it and follows
//! it, since it has the server.
//!
//! Invariants
//!
//! - The job is made as any other: durable, and kept by the server's lifeline, before its window hears of it.
//! - Nothing is left of a job whose window has stopped waiting before that.

use tokio::sync::oneshot;
use unhang_background::{Promoted, RunningCall, WhoIsAsked};
use unhang_jobs::id::JobId;

use super::{SessionJobs, SessionRuntime};
use crate::{
    asking::{MayPromote, PromotionOrder},
    call_tasks::CallTaskEnd,
    effects::{CallKey, SessionEffects},
};
use unhang_gateway::{JoinPolicy, OfSession, ServerRequest};
use unhang_tools::{job_report::JobReport, service::JobService as _};
use unhang_upstream::{
    http::headers::CallLimit,
    window_job::{WindowCallName, WindowJobOrder, became_job, no_job},
};

/// The headers of a request that comes from a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfWindow {
    /// The session of its client.
    pub session: OfSession,
    /// How long the window waits for the answer, if the request is a call.
    pub limit: Option<CallLimit>,
    /// The name by which the window orders a job of the call.
    pub call: Option<WindowCallName>,
    /// The order to make a job of the call before its server gets it, or the reason why it is refused; `None` if there is none.
    pub order: Option<Result<WindowJobOrder, String>>,
}

/// The reason why a call stays a call for now.
const STAYS: &str = "its client is asked something, or the window that runs the servers ends";

/// The server asks about such a task outside of calls, and only the window has the client to whom that goes.
const OWN_TASK: &str = "its server makes a task of its own of it";

/// The reason why this process makes no job of a window's call.
const NO_JOBS: &str = "the window that runs the servers makes no jobs";

/// Gets the job of a call, or the reason why no job was made of it.
pub(crate) type WindowJobReply = oneshot::Sender<Result<JobId, String>>;

/// The call of a window, of which it may order a job.
pub(super) struct WindowCall {
    /// The jobs of this process, if the clients are windows.
    jobs: Option<SessionJobs>,
    /// The name that the window has given the call.
    name: Option<WindowCallName>,
    /// Whether a call of the window is there.
    is_there: bool,
    key: Option<CallKey>,
    /// The order of the window, if it has come before the call.
    early: Option<(WindowJobOrder, WindowJobReply)>,
    /// The order that the call has brought, or the reason why it is refused.
    brought: Option<Result<WindowJobOrder, String>>,
    /// The order of the window, while the job is being made.
    pub(super) ordered: Option<OrderedJob>,
}

impl WindowCall {
    pub(super) fn of(jobs: Option<SessionJobs>) -> Self {
        Self { jobs, name: None, is_there: false, key: None, early: None, brought: None, ordered: None }
    }
}

/// An order to make a job of a window's call, while the job is being made.
pub(super) struct OrderedJob {
    who: WhoIsAsked,
    /// Gets the outcome; `None` if the call has brought the order, so that its answer tells.
    reply: Option<WindowJobReply>,
}

impl OrderedJob {
    /// Tells the window that its call stays a call of this process.
    pub(super) fn refuse(self, why: String) {
        if let Some(reply) = self.reply {
            // The window may have gone.
            let _gone = reply.send(Err(why));
        }
    }

    /// Returns whether the window does not wait any more.
    fn is_withdrawn(&self) -> bool {
        self.reply.as_ref().is_some_and(WindowJobReply::is_closed)
    }
}

impl SessionRuntime {
    /// Notes the window's session that a request belongs to. Ignores it unless the clients are windows.
    pub(crate) fn of_window(mut self, window: Option<OfWindow>) -> SessionRuntime {
        let window = window.filter(|_| self.mcp_session.jobs.are_of_windows);
        let client = &mut self.mcp_session.client;
        client.window_limit = window.as_ref().and_then(|window| window.limit);
        client.is_asked_beside = window.as_ref().is_some_and(|window| window.session.is_asked_beside);
        self.window_call.name = window.as_ref().and_then(|window| window.call);
        let session = window.as_ref().map(|window| window.session);
        self.window_call.brought = window.and_then(|window| window.order);
        SessionRuntime { window: session, ..self }
    }

    /// Asks a server for a window, or for another client of whose call this process makes no job by itself.
    pub(super) fn ask_for_window(&mut self, key: CallKey, asked: ServerRequest) {
        let Some(order) = self.window_call.brought.take() else {
            let promote = self.may_promote_for_window(key, &asked);
            return self.ask(key, asked, promote);
        };
        match order.and_then(|order| self.promote_first(key, &asked, order)) {
            // The client has asked for a task, and its window has no way to declare that.
            Ok(promote) => self.ask(key, ServerRequest { wants_a_task: true, ..asked }, Some(promote)),
            Err(why) => {
                tracing::info!("no job is made of the call of another window: {why}");
                let error = self.window_call.name.map(|name| no_job(&why, name)).unwrap_or_default();
                self.calls.spawn(key, async move { CallTaskEnd::NoJobForWindow(error) });
            }
        }
    }

    /// Returns everything that is needed to make a job of this call of a window before its server gets it, as the call orders it.
    ///
    /// # Errors
    /// Fails with the reason why no job can be made of it.
    fn promote_first(
        &mut self,
        key: CallKey,
        asked: &ServerRequest,
        order: WindowJobOrder,
    ) -> Result<MayPromote, String> {
        if self.mcp_session.stays_a_call(key) {
            return Err(STAYS.to_owned());
        }
        let server = self.servers.as_ref().and_then(|servers| servers.whose(asked.server));
        if server.zip(asked.tool.as_deref()).is_some_and(|(server, tool)| server.makes_tasks_of(tool)) {
            return Err(OWN_TASK.to_owned());
        }
        let promote = self.promotable_for_window(key, asked).ok_or_else(|| NO_JOBS.to_owned())?;
        self.window_call.is_there = true;
        self.order_job(order, None);
        Ok(MayPromote { wants_a_task: true, ..promote })
    }

    /// Returns everything that is needed to make a job of this call of a window, which can be ordered from now on, and may have been ordered
    /// already. Returns `None` if no job can be made of it.
    fn may_promote_for_window(&mut self, key: CallKey, asked: &ServerRequest) -> Option<MayPromote> {
        let promote = self.promotable_for_window(key, asked);
        self.window_call.is_there = true;
        if let Some((order, reply)) = self.window_call.early.take().filter(|(_, reply)| !reply.is_closed()) {
            self.make_job(order, reply);
        }
        promote
    }

    fn promotable_for_window(&mut self, key: CallKey, asked: &ServerRequest) -> Option<MayPromote> {
        self.window_call.name?;
        asked.tool.as_ref()?;
        let jobs = self.window_call.jobs.clone()?;
        let promote = self.may_promote_with(&jobs, key, (JoinPolicy::Never, false))?;
        self.window_call.key = Some(key);
        Some(promote)
    }

    /// Makes a job of the call of a window. `reply` gets the job when the call has become it. An order that has come before the call, or
    /// before the call has come back with its client's input, waits for the call.
    pub(crate) fn make_job(&mut self, order: WindowJobOrder, reply: WindowJobReply) {
        self.order_job(order, Some(reply));
    }

    fn order_job(&mut self, order: WindowJobOrder, reply: Option<WindowJobReply>) {
        let ordered = OrderedJob { who: order.who.clone(), reply };
        let key = self.window_call.key;
        if key.is_none() && self.window_call.is_there {
            return ordered.refuse(NO_JOBS.to_owned());
        }
        if key.is_some_and(|key| self.mcp_session.stays_a_call(key)) {
            return ordered.refuse(STAYS.to_owned());
        }
        let WindowJobOrder { tool, elapsed, limit, who, .. } = order.clone();
        let promotion = PromotionOrder { name: tool, elapsed, who, window_limit: Some(limit) };
        match key.is_some_and(|key| self.calls.promote(key, promotion)) {
            true => self.window_call.ordered = Some(ordered),
            false => self.window_call.early = ordered.reply.map(|reply| (order, reply)),
        }
    }

    /// Answers the call of a window of which this process has made a job.
    pub(super) fn promoted_for_window(
        &mut self,
        key: CallKey,
        (promoted, running_call): (Promoted, RunningCall),
        ordered: OrderedJob,
        effects: &mut impl SessionEffects,
    ) {
        let (now, job) = (self.now(), promoted.id());
        let Some(calls) = self.window_call.jobs.as_ref().and_then(SessionJobs::promoted) else { return };
        let Some(name) = self.window_call.name else { return };
        // A question from before the job existed is about the call.
        while let Ok((key, aside)) = self.asides.try_recv() {
            self.said(Some(key), aside, effects);
        }
        if ordered.is_withdrawn() || self.mcp_session.stays_a_call(key) {
            calls.forget(async move { Ok(promoted) });
            ordered.refuse(STAYS.to_owned());
            return self.stays(key, running_call);
        }
        let OrderedJob { who, reply } = ordered;
        if !self.mcp_session.refused(now, key, &became_job(job, name), effects) {
            drop(running_call);
            return calls.forget(async move { Ok(promoted) });
        }
        tracing::info!(job = job.as_str(), "the call of another window continues as a job");
        drop(calls.keep(promoted, running_call, who, None));
        // The answer to the call names the job as well.
        let _gone = reply.map(|reply| reply.send(Ok(job)));
    }

    /// Answers a call of which the leading window has made a job. If nobody waits for it any more, the job is cancelled.
    pub(super) fn is_job_of_leader(
        &mut self,
        key: CallKey,
        report: &JobReport,
        effects: &mut impl SessionEffects,
    ) {
        let (now, id): (_, JobId) = (self.now(), report.job_id);
        if self.mcp_session.promoted(now, key, report, effects).is_some() {
            return;
        }
        if let Some(jobs) = self.jobs.clone() {
            tokio::spawn(async move {
                if let Err(error) = jobs.service.terminate(id).await {
                    tracing::warn!(
                        job = id.as_str(),
                        "unhang cannot cancel the job, which no client knows: {error}"
                    );
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::sync::oneshot::error::TryRecvError;

    use super::{super::SessionEvent, *};
    use crate::session_context::SessionContext;
    use unhang_core::limits::Limits;
    use unhang_gateway::{FairnessKey, SessionKey, testing::call};
    use unhang_tools::toolbox::NoTools;

    #[test]
    fn a_session_that_is_named_counts_from_windows_alone() {
        let named = OfSession { key: SessionKey::drawn(), is_asked_beside: true, is_one_client: true };
        let context = SessionContext::new(Arc::new(NoTools), None, None);
        let limit = Some(CallLimit { limit: Duration::from_secs(7), waited: Duration::from_secs(1) });
        let call = Some(WindowCallName::drawn());
        for (context, expect) in
            [(context.clone(), (None, None, None)), (context.of_windows(None), (Some(named), limit, call))]
        {
            let window = OfWindow { session: named, limit, call, order: None };
            let work = SessionRuntime::new(Limits::default(), &context, FairnessKey::new("one"), None)
                .of_window(Some(window));
            let known = (work.window, work.mcp_session.client.window_limit, work.window_call.name);
            assert_eq!(known, expect);
        }
    }

    #[test]
    fn an_order_that_comes_before_its_call_waits_for_the_call() {
        let context = SessionContext::new(Arc::new(NoTools), None, None).of_windows(None);
        let mut work = SessionRuntime::new(Limits::default(), &context, FairnessKey::new("one"), None);
        let (reply, mut made) = oneshot::channel();
        let order = WindowJobOrder {
            call: WindowCallName::drawn(),
            tool: "slow".to_owned(),
            elapsed: Duration::ZERO,
            limit: Duration::MAX,
            who: WhoIsAsked::Nobody,
        };
        work.make_job(order, reply);
        assert_eq!(made.try_recv(), Err(TryRecvError::Empty), "the call comes");
        assert!(work.may_promote_for_window(1, &call("slow", Duration::MAX)).is_none(), "there are no jobs");
        assert_eq!(made.try_recv(), Ok(Err(NO_JOBS.to_owned())));
    }

    #[tokio::test]
    async fn a_call_whose_order_is_refused_does_not_reach_its_server() {
        let name = WindowCallName::drawn();
        let order = WindowJobOrder {
            call: name,
            tool: "slow".to_owned(),
            elapsed: Duration::ZERO,
            limit: Duration::MAX,
            who: WhoIsAsked::Nobody,
        };
        for (order, expect) in
            [(Ok(order), NO_JOBS), (Err("of another version".to_owned()), "of another version")]
        {
            let context = SessionContext::new(Arc::new(NoTools), None, None).of_windows(None);
            let session = OfSession { key: SessionKey::drawn(), is_asked_beside: true, is_one_client: true };
            let window = OfWindow { session, limit: None, call: Some(name), order: Some(order) };
            let mut work = SessionRuntime::new(Limits::default(), &context, FairnessKey::new("one"), None)
                .of_window(Some(window));
            work.ask_for_window(1, call("slow", Duration::MAX));
            let SessionEvent::Ended(ended) = work.event().await else { panic!("the end of the call") };
            let Some((1, CallTaskEnd::NoJobForWindow(error))) = work.calls.settle(ended) else {
                panic!("it is refused")
            };
            assert!(error.contains(expect), "{error}");
        }
    }
}
