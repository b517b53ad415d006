//! Calls that become jobs before their clients give them up, while the server goes on with them undisturbed.
//!
//! Theory of operation. A call that may become a job knows the moment ([`PlannedPromotion`]). At that moment the owner is asked to make a
//! job of it ([`WrapAction::Promote`](super::effects::WrapAction::Promote)), which takes a write to the disk. Meanwhile it is a call like
//! any other. The first of two becomes the answer: the server's own, or the job
//! ([`WrapSession::promoted`](super::wrap_session::WrapSession::promoted)). From then on the call stays in flight under its id on the
//! server's side, and the job bridge takes the place of the client ([`WrapEffects::to_job`]). If a client has asked for a task
//! (2025-11-25), the server gets the call only once there is a task. So no answer comes first, and every question has a task. If there can
//! be no task, the call is refused.
//!
//! # Invariants
//!
//! - The client gets one answer. It gets the id of a job only after the owner has said that there is one.
//! - The server notices nothing.
//! - A job keeps nobody waiting: neither the end of the session, nor notifications that a client wants only between calls.
//! - While the client is asked something the call stays a call, because the question may be about it.
//! - Once the client's stdin has ended every call stays a call: a job would end with the session, and nobody could ask about it.

use std::time::Duration;

use unhang_bridge::{
    Splice,
    tasks::{self, Dialect},
};
use unhang_jobs::id::JobId;
use unhang_wire::{Id, Json, text_member};

use super::{
    added_capabilities::AddedCapabilities,
    calls::{CallTable, GuardedCall, Role},
    client_profile::ClientProfile,
    effects::WrapEffects,
};
use unhang_background::{NOT_KEPT_HINT, not_kept};
use unhang_core::{
    batch::BatchId,
    config::{LAST_MOMENT, RETRY_BYTES},
    fault::FaultKind,
    limits::Limits,
    promotion::is_due,
    refusal::ErrorReport,
    revision::Revision,
};
use unhang_front::PromotionReply;
use unhang_tools::{job_report::ToolNames, service::JobServiceError};

/// The plan to make a job of a call.
#[derive(Debug)]
pub(super) struct PlannedPromotion {
    /// When the call becomes a job; `None` once that is past or ruled out.
    pub at: Option<Duration>,
    /// The params of the call as they came.
    params: Box<[u8]>,
    promotion_reply: PromotionReply,
    /// The job that the same call has become before, which this one waits for.
    joins: Option<JobId>,
    /// The last order about the call. By the time of its outcome, another call may have the same id.
    order: Option<WrapPromotionOrder>,
}

/// The number of an order about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrapPromotionOrder(u64);

/// The orders about calls so far.
#[derive(Debug, Default)]
pub(super) struct PromotionOrders {
    last: u64,
}

impl PromotionOrders {
    pub(super) fn next(&mut self) -> WrapPromotionOrder {
        self.last += 1;
        WrapPromotionOrder(self.last)
    }
}

/// A call that is handed over: it becomes a job, or it waits for an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promote {
    /// The call's id on the server's side.
    pub call: Id,
    /// The number of this order.
    pub order: WrapPromotionOrder,
    /// The call's params, as they came.
    pub params: Box<[u8]>,
    /// For how long the client has waited.
    pub elapsed: Duration,
    /// The client's name.
    pub client: Option<String>,
    /// The revision that the client speaks.
    pub revision: Revision,
    /// The capabilities in the client's handshake, as JSON.
    pub capabilities: Option<Box<str>>,
    /// The form of the reply that the client gets in place of the answer.
    pub(super) promotion_reply: PromotionReply,
    /// The names of the tools about jobs.
    pub names: ToolNames,
    /// Whether the server says that the tool may be called once more.
    pub is_repeatable: bool,
    /// Whether the server has not got the call yet.
    pub is_unsent: bool,
    /// The job that the call waits for.
    pub joins: Option<JobId>,
}

/// A call that is answered by the job that the same call has become before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The call's id on the server's side.
    pub call: Id,
    /// The number of this order.
    pub order: WrapPromotionOrder,
    /// The job.
    pub job: JobId,
    /// How long the call may wait for the job.
    pub limit: Duration,
}

/// The outcome for a call that waits for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// The result of the job.
    Answer(String),
    /// The job still runs, and this is the result that the client gets in place of the answer.
    Still(String),
    /// There is no job to wait for: the call is like any other.
    Nothing,
}

impl PlannedPromotion {
    /// Returns whether the client copes with tasks of the extension.
    pub(super) fn declares_tasks(&self, revision: Revision) -> bool {
        // Once the params are handed over with an order, this can no longer be told.
        Json::new(&self.params)
            .is_none_or(|params| PromotionReply::of(params, revision) != PromotionReply::Words)
    }

    /// Returns whether the client has asked for a task of ours. The server does not hear of that.
    pub(super) fn is_of_a_task(&self) -> bool {
        self.promotion_reply == PromotionReply::Task(Dialect::Core)
    }
}

/// A call that has become a job, as its client still knows it.
#[derive(Debug)]
pub(super) struct PromotedCall {
    pub(super) client_id: Id,
    pub(super) batch: Option<BatchId>,
    pub(super) token: Option<Id>,
    /// Whether the client has asked for a task.
    pub(super) is_a_task: bool,
    /// Whether the client can ask about the job only with our tools.
    pub(super) is_in_words: bool,
}

impl GuardedCall {
    /// Makes a call on behalf of a job, with these params. It begins now and is not sent yet.
    pub(super) fn of_job(wire_id: &Id, params: &str, now: Duration, limit: Duration) -> Self {
        let id = wire_id.to_json();
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let call = GuardedCall::new(wire_id.clone(), "tools/call", Role::Other, now, Some(limit));
        GuardedCall { is_job: true, line: Some(line.into_bytes()), ..call }
    }

    /// Returns whether the server gets the call only once it is the task that the client has asked for.
    pub(super) fn waits_for_its_task(&self) -> bool {
        !self.sent && self.promotion.as_deref().is_some_and(PlannedPromotion::is_of_a_task)
    }

    /// Returns whether the call should become a job now. That is true once, unless the client is being asked something.
    pub(super) fn is_due(&mut self, now: Duration, client_is_asked: bool) -> bool {
        let deadline = self.deadline;
        let Some(promotion) = &mut self.promotion else { return false };
        let is_asked = || client_is_asked;
        is_due(&mut promotion.at, now, is_asked, deadline)
    }

    /// Returns whether this is still the call that the order was about.
    pub(super) fn is_of(&self, order: WrapPromotionOrder) -> bool {
        let is_of = |promotion: &PlannedPromotion| promotion.order == Some(order);
        self.promotion.as_deref().is_some_and(is_of)
    }

    /// Returns whether the call still waits for the job that the order was about.
    pub(super) fn waits_for_a_job(&self, order: WrapPromotionOrder) -> bool {
        self.is_of(order) && self.promotion.as_deref().is_some_and(|promotion| promotion.joins.is_some())
    }

    /// Makes the call wait for a job. The server gets the call only if nothing comes of that. Returns true if the bridge has to wait for
    /// the job on its behalf.
    pub(super) fn join(&mut self, job: JobId, order: WrapPromotionOrder) -> bool {
        let Some(promotion) = &mut self.promotion else { return false };
        (promotion.joins, promotion.order) = (Some(job), Some(order));
        // A client that has asked for a task gets the existing one, which is handed over at once.
        !promotion.is_of_a_task()
    }

    /// Ends the wait for a job of which nothing comes. From then on the call may become a job itself, if calls still may.
    pub(super) fn join_nothing(&mut self, now: Duration, may_become_a_job: bool) {
        if let Some(promotion) = &mut self.promotion {
            promotion.joins = None;
            promotion.at.get_or_insert(now);
        }
        if !may_become_a_job {
            self.promotion = None;
        }
    }

    /// Keeps the call a call to its end. Orders about it have no effect any more. Returns true if the server has not got the call yet
    /// because it was to be a task first.
    pub(super) fn keep_as_call(&mut self) -> bool {
        let is_unsent = self.waits_for_its_task();
        match &mut self.promotion {
            Some(promotion) if promotion.joins.is_some() && !is_unsent => promotion.at = None,
            _ => self.promotion = None,
        }
        is_unsent
    }

    /// Returns whether the call's time to become a job has come, and it has not become one.
    pub(super) fn is_overdue(&self) -> bool {
        self.promotion.as_ref().is_some_and(|promotion| promotion.at.is_none() && promotion.order.is_none())
    }

    /// Returns the order to make a job of the call, now that its time has come. If the names of our tools are not known yet, the call waits
    /// for them, unless it would end meanwhile.
    pub(super) fn order_promotion(
        &mut self,
        wire_id: &Id,
        orders: &mut PromotionOrders,
        added_capabilities: &mut AddedCapabilities,
        (now, client): (Duration, &ClientProfile),
    ) -> Option<Promote> {
        let elapsed = now.saturating_sub(self.since);
        let promotion = self.promotion.as_mut()?;
        if let Some(until) = added_capabilities.waits_for_tools(now)
            && self.deadline.is_none_or(|deadline| until + LAST_MOMENT < deadline)
        {
            added_capabilities.tool_list.make_wait(wire_id.clone());
            return None;
        }
        let (params, order) = match (promotion.joins, promotion.order) {
            // If there is no job to wait for, the call becomes one itself and needs its params.
            (Some(_), Some(order)) => (promotion.params.clone(), order),
            _ => (std::mem::take(&mut promotion.params), orders.next()),
        };
        promotion.order = Some(order);
        let tool = Json::new(&params).and_then(|params| text_member(params, "name")).unwrap_or_default();
        Some(Promote {
            call: wire_id.clone(),
            order,
            elapsed,
            client: client.name().map(str::to_owned),
            revision: client.revision(),
            capabilities: client.capabilities().map(Into::into),
            promotion_reply: promotion.promotion_reply,
            names: added_capabilities.names(),
            is_repeatable: added_capabilities.is_repeatable(&tool),
            is_unsent: !self.sent,
            joins: promotion.joins,
            params,
        })
    }

    /// Turns the call into that of a job, which may take `limit` in all. Returns the data for the client's reply.
    pub(super) fn become_job(&mut self, wire_id: &Id, job: &str, limit: Duration) -> PromotedCall {
        let reply = self.promotion.take().map(|promotion| promotion.promotion_reply);
        let is_a_task = reply == Some(PromotionReply::Task(Dialect::Core));
        self.is_job = true;
        self.task = is_a_task.then(|| job.into());
        (self.limit, self.deadline) = (Some(limit), Some(self.since + limit));
        (self.heartbeat, self.doubtful_answer) = (None, None);
        PromotedCall {
            client_id: std::mem::replace(&mut self.client_id, wire_id.clone()),
            batch: self.batch.take(),
            token: self.token.take(),
            is_a_task,
            is_in_words: reply == Some(PromotionReply::Words),
        }
    }

    /// Words the error of a call that cannot be the task that its client has asked for.
    pub(super) fn not_kept(&self, why: &JobServiceError) -> ErrorReport<'static> {
        let line = self.line.as_deref().and_then(Json::new);
        let tool = line.and_then(|line| text_member(line.member("params")?, "name")).unwrap_or_default();
        ErrorReport { kind: FaultKind::Overloaded, summary: not_kept(&tool, why), hint: NOT_KEPT_HINT }
    }
}

/// The rules that decide whether a request may become a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromotionRules<'a> {
    pub(super) server: &'a str,
    pub(super) limits: &'a Limits,
    pub(super) client: &'a ClientProfile,
    pub(super) calls: &'a CallTable,
    pub(super) added_capabilities: &'a AddedCapabilities,
}

impl PromotionRules<'_> {
    fn reply_to(&self, params: Json<'_>) -> PromotionReply {
        PromotionReply::of(params, self.client.revision())
    }

    /// Returns whether this is a list of tools for a client that copes with tasks.
    pub(super) fn is_list_for_tasks(&self, method: &str, params: Option<Json<'_>>) -> bool {
        method == "tools/list" && params.is_some_and(|params| self.reply_to(params) != PromotionReply::Words)
    }

    /// Plans when a request becomes a job that goes to the server `now`. As a call it may take `limit` since it came, so a call that has
    /// waited for the list of tools gets its time at the server if there is time for that. Returns `None` for most requests, which never
    /// become jobs.
    pub(super) fn plan(
        &self,
        method: &str,
        params: Option<Json<'_>>,
        (now, since, limit): (Duration, Duration, Option<Duration>),
    ) -> Option<Box<PlannedPromotion>> {
        let params = params.filter(|_| method == "tools/call")?;
        let after = self.limits.promote_after.moment(self.client.call_clock())?;
        let has_tasks = self.added_capabilities.has_tasks() == Some(true);
        let promotion_reply = if has_tasks { PromotionReply::Words } else { self.reply_to(params) };
        let after = match promotion_reply {
            // The client has asked for a task and waits for that alone.
            PromotionReply::Task(Dialect::Core) => Duration::ZERO,
            // This task is between the client and a server that has tasks.
            PromotionReply::Words if has_tasks && params.member("task").is_some() => return None,
            _ if limit.is_some_and(|limit| after >= limit) => return None,
            _ => after,
        };
        if !self.has_room_for(params) {
            return None;
        }
        let is_in_time = |at: &Duration| limit.is_none_or(|limit| *at < since + limit);
        let at = Some(now + after).filter(is_in_time).or(Some(since + after));
        let params = params.get().as_bytes().into();
        Some(PlannedPromotion { at, params, promotion_reply, joins: None, order: None }.into())
    }

    /// Returns whether these params can be kept until the call is answered. Large ones are bounded for all calls together.
    fn has_room_for(&self, params: Json<'_>) -> bool {
        let length = params.get().len();
        if length <= RETRY_BYTES {
            return true;
        }
        let kept = self.calls.iter().filter_map(|(_, call)| call.promotion.as_ref());
        let kept: usize = kept.map(|promotion| promotion.params.len()).sum();
        let has_room = kept + length <= self.limits.queue_bytes;
        if !has_room {
            tracing::warn!(
                server = self.server,
                "a call cannot become a job: its arguments are {length} bytes long, and unhang already \
                 keeps {kept} bytes for other calls"
            );
        }
        has_room
    }

    /// Returns the job that the same call has become before, if this one may join it.
    pub(super) fn same_call(&self, params: Json<'_>, effects: &impl WrapEffects) -> Option<JobId> {
        // Most calls end here, without a look into the params.
        if !self.limits.join_same_call || !self.added_capabilities.has_repeatable() {
            return None;
        }
        let is_safe =
            text_member(params, "name").is_some_and(|tool| self.added_capabilities.is_repeatable(&tool));
        is_safe.then(|| effects.same_call(self.client.name(), params.get().as_bytes())).flatten()
    }

    /// Returns why a call cannot be the task that its client has asked for, if there is no room for it.
    pub(super) fn refusal_of_task(
        &self,
        method: &str,
        params: Option<Json<'_>>,
    ) -> Option<ErrorReport<'static>> {
        let params =
            params.filter(|_| method == "tools/call" && self.added_capabilities.has_tasks() != Some(true))?;
        self.limits.promote_after.moment(self.client.call_clock())?;
        // The room is checked first: nearly every call has room, and the kind of reply costs a look into the params.
        let is_refused =
            !self.has_room_for(params) && self.reply_to(params) == PromotionReply::Task(Dialect::Core);
        is_refused.then(|| ErrorReport {
            kind: FaultKind::Overloaded,
            summary: "the call cannot become a task: unhang already keeps too many bytes for other calls"
                .to_owned(),
            hint: "call it without `task`, or after other calls have ended",
        })
    }
}

/// Returns the params of a question, with the task named, if it can only be about a call that is a task to its client.
pub(super) fn related(calls: &CallTable, line: &[u8]) -> Option<String> {
    let (_, call) = calls.only()?;
    let task = call.task.as_ref()?;
    let params = Json::new(line).and_then(|line| line.member("params"));
    Some(tasks::related(params, task))
}

/// Returns the line of such a call without its task, as the server gets it.
pub(super) fn without_task(line: &[u8]) -> Option<Vec<u8>> {
    with_params(line, PromotionReply::Task(Dialect::Core).without_task(Json::new(line)?.member("params")?)?)
}

/// Replaces the params of a message.
pub(super) fn with_params(line: &[u8], params: String) -> Option<Vec<u8>> {
    Some(Splice::new(Json::new(line)?).set("params", params).apply()?.into_owned().into_bytes())
}

/// Removes the task from a client's response. Returns `None` if it names none.
pub(super) fn unrelated(line: &[u8]) -> Option<Vec<u8>> {
    let line = Json::new(line)?;
    let result = tasks::unrelated(line.member("result")?)?.into_owned();
    Some(Splice::new(line).set("result", result).apply()?.into_owned().into_bytes())
}
