//! Calls that become jobs before their clients give them up, while the server goes on with them undisturbed.
//!
//! Theory of operation. A call that may become a job knows the moment ([`PlannedPromotion`]). Then the owner is asked to make a job of it
//! ([`WrapAction::Promote`](super::effects::WrapAction::Promote)), which takes a write to the disk, and meanwhile it is a call like any other: whichever comes first is the answer, the
//! server's own or the job ([`WrapSession::promoted`](super::wrap_session::WrapSession::promoted)). From then on it stays in flight under its id on the server's side, and who keeps the job
//! takes the place of the client ([`WrapEffects::to_job`]). The call of a client that has asked for a task (2025-11-25) is kept from the server
//! until there is one, so that no answer comes first and no question is about nothing; where there can be none it is refused.
//!
//! # Invariants
//!
//! - The client gets one answer, and the id of a job only when the owner has said that there is one.
//! - To the server nothing has happened.
//! - What is a job keeps nobody waiting: neither the end of the session nor what a client wants to hear only between calls.
//! - While the client is asked something it may be about the call, which stays one.
//! - Once the client's stdin has ended every call stays one: a job would end with the session, and nobody could ask about it.

use std::time::Duration;

use unhang_bridge::{
    Splice,
    tasks::{self, Dialect},
};
use unhang_jobs::id::JobId;
use unhang_switches::stands;
use unhang_wire::{Id, Json, text_member};

use super::{
    added_capabilities::AddedCapabilities,
    calls::{CallTable, GuardedCall, Role},
    client_profile::ClientProfile,
    effects::WrapEffects,
};
use unhang_background::{NOT_KEPT_HINT, not_kept};
use unhang_core::{
    batch::BatchId, config::RETRY_BYTES, fault::FaultKind, limits::Limits, promotion::is_due,
    refusal::ErrorReport, revision::Revision,
};
use unhang_front::PromotionReply;
use unhang_tools::{job_report::ToolNames, service::JobServiceError};

/// When a job is made of a call, and of what.
#[derive(Debug)]
pub(super) struct PlannedPromotion {
    /// When; not any more, where this says nothing.
    pub at: Option<Duration>,
    /// As they came.
    params: Box<[u8]>,
    promotion_reply: PromotionReply,
    /// The job that the same call has become before, which this one waits for.
    joins: Option<JobId>,
    /// What was asked for about it last. Another call may have its id by the time that it comes to something.
    order: Option<WrapPromotionOrder>,
}

/// Tells what was asked for about calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrapPromotionOrder(u64);

/// What was asked for about calls so far.
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

/// A call that is handed over: a job is to be made of it, or it waits for one that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promote {
    /// Its id on the server's side.
    pub call: Id,
    /// What this is.
    pub order: WrapPromotionOrder,
    /// Its params, as they came.
    pub params: Box<[u8]>,
    /// For how long its client has waited.
    pub elapsed: Duration,
    /// What the client calls itself.
    pub client: Option<String>,
    /// The revision that it speaks.
    pub revision: Revision,
    /// What it gets in place of the answer.
    pub(super) promotion_reply: PromotionReply,
    /// What it calls the tools about jobs.
    pub names: ToolNames,
    /// Whether the server says that the tool may be called once more.
    pub is_repeatable: bool,
    /// The job that it waits for.
    pub joins: Option<JobId>,
}

/// A call that is answered by the job that the same call has become before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Its id on the server's side.
    pub call: Id,
    /// What this is.
    pub order: WrapPromotionOrder,
    /// The job.
    pub job: JobId,
    /// How long it may wait for that.
    pub limit: Duration,
}

/// What has come of such a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinOutcome {
    /// The result of the job.
    Answer(String),
    /// It still runs, and this is what its client gets in place of the answer.
    Still(String),
    /// There is nothing to wait for: it is a call like any other.
    Nothing,
}

impl PlannedPromotion {
    /// Tells whether its client copes with tasks of the extension.
    pub(super) fn declares_tasks(&self, revision: Revision) -> bool {
        // Once they are with whoever makes a job of it, nobody knows any more.
        Json::new(&self.params)
            .is_none_or(|params| PromotionReply::of(params, revision) != PromotionReply::Words)
    }

    /// Tells whether its client has asked for a task of ours. The server does not hear of that.
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
    /// Its client has asked for a task.
    pub(super) is_a_task: bool,
    /// Its client can ask about the job with our tools alone.
    pub(super) is_in_words: bool,
}

impl GuardedCall {
    /// Makes a call on behalf of a job, with these params, that begins now and was not sent yet.
    pub(super) fn of_job(wire_id: &Id, params: &str, now: Duration, limit: Duration) -> Self {
        let id = wire_id.to_json();
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        let call = GuardedCall::new(wire_id.clone(), "tools/call", Role::Other, now, Some(limit));
        GuardedCall { is_job: true, line: Some(line.into_bytes()), ..call }
    }

    /// Tells whether its server is asked only when it is the task that its client has asked for.
    pub(super) fn waits_for_its_task(&self) -> bool {
        !self.sent && self.promotion.as_deref().is_some_and(PlannedPromotion::is_of_a_task)
    }

    /// Tells whether it is time to make a job of it. That is true once, unless its client is asked something.
    pub(super) fn is_due(&mut self, now: Duration, client_is_asked: bool) -> bool {
        let deadline = self.deadline;
        let Some(promotion) = &mut self.promotion else { return false };
        let is_asked = || client_is_asked && stands("guarded-asked-call-stays-a-call");
        is_due(&mut promotion.at, now, is_asked, deadline)
    }

    /// Tells whether this is still the call of which this was asked for.
    pub(super) fn is_of(&self, order: WrapPromotionOrder) -> bool {
        let is_of =
            |promotion: &PlannedPromotion| promotion.order == Some(order) || !stands("order-is-of-its-call");
        self.promotion.as_deref().is_some_and(is_of)
    }

    /// Tells whether it still waits for the job that this was about.
    pub(super) fn waits_for_a_job(&self, order: WrapPromotionOrder) -> bool {
        self.is_of(order) && self.promotion.as_deref().is_some_and(|promotion| promotion.joins.is_some())
    }

    /// Has it wait for a job. Its server hears of it only where nothing comes of that. True where somebody has to wait for the job on its
    /// behalf.
    pub(super) fn join(&mut self, job: JobId, order: WrapPromotionOrder) -> bool {
        let Some(promotion) = &mut self.promotion else { return false };
        (promotion.joins, promotion.order) = (Some(job), Some(order));
        // Who has asked for a task gets the one that there is, which is handed over at once.
        !promotion.is_of_a_task()
    }

    /// Has it wait for no job any more, since nothing comes of that. From then on it may become one itself, if calls still may.
    pub(super) fn join_nothing(&mut self, now: Duration, may_become_a_job: bool) {
        if let Some(promotion) = &mut self.promotion {
            promotion.joins = None;
            promotion.at.get_or_insert(now);
        }
        if !may_become_a_job {
            self.promotion = None;
        }
    }

    /// Has it stay a call to its end; what was ordered for it is of no use any more. True where its server has not heard of it yet because
    /// it was to be a task first.
    pub(super) fn keep_as_call(&mut self) -> bool {
        let is_unsent = self.waits_for_its_task();
        match &mut self.promotion {
            Some(promotion) if promotion.joins.is_some() && !is_unsent => promotion.at = None,
            _ => self.promotion = None,
        }
        is_unsent
    }

    /// Gives what is asked of whoever makes a job of it, now that its time has come.
    pub(super) fn order_promotion(
        &mut self,
        wire_id: &Id,
        orders: &mut PromotionOrders,
        added_capabilities: &mut AddedCapabilities,
        (now, client): (Duration, &ClientProfile),
    ) -> Option<Promote> {
        let elapsed = now.saturating_sub(self.since);
        let promotion = self.promotion.as_mut()?;
        let (params, order) = match (promotion.joins, promotion.order) {
            // There may be nothing to wait for, and then it becomes a job itself.
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
            promotion_reply: promotion.promotion_reply,
            names: added_capabilities.names(),
            is_repeatable: added_capabilities.is_repeatable(&tool),
            joins: promotion.joins,
            params,
        })
    }

    /// Makes it the call of a job, which may take `limit` in all, and gives what its client has to hear of that.
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

    /// Says that it cannot be the task that its client has asked for.
    pub(super) fn not_kept(&self, why: &JobServiceError) -> ErrorReport<'static> {
        let line = self.line.as_deref().and_then(Json::new);
        let tool = line.and_then(|line| text_member(line.member("params")?, "name")).unwrap_or_default();
        ErrorReport { kind: FaultKind::Overloaded, summary: not_kept(&tool, why), hint: NOT_KEPT_HINT }
    }
}

/// What decides whether a request may become a job, where somebody keeps jobs.
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

    /// Tells whether this is a list of tools for a client that copes with tasks.
    pub(super) fn is_list_for_tasks(&self, method: &str, params: Option<Json<'_>>) -> bool {
        method == "tools/list" && params.is_some_and(|params| self.reply_to(params) != PromotionReply::Words)
    }

    /// Plans when a request becomes a job that may take `limit` as a call; never, for most.
    pub(super) fn plan(
        &self,
        method: &str,
        params: Option<Json<'_>>,
        (now, limit): (Duration, Option<Duration>),
    ) -> Option<Box<PlannedPromotion>> {
        let params = params.filter(|_| method == "tools/call")?;
        let after = self.limits.promote_after.moment(self.client.call_clock())?;
        let has_tasks = self.added_capabilities.has_tasks() == Some(true);
        let promotion_reply = if has_tasks { PromotionReply::Words } else { self.reply_to(params) };
        let after = match promotion_reply {
            // It is what its client has asked for, which waits for that alone.
            PromotionReply::Task(Dialect::Core) => Duration::ZERO,
            // A task is between the client and a server that has some.
            PromotionReply::Words if has_tasks && params.member("task").is_some() => return None,
            _ if limit.is_some_and(|limit| after >= limit) => return None,
            _ => after,
        };
        if !self.has_room_for(params) {
            return None;
        }
        let (at, params) = (Some(now + after), params.get().as_bytes().into());
        Some(PlannedPromotion { at, params, promotion_reply, joins: None, order: None }.into())
    }

    /// Tells whether these can be kept until the call is answered. What is large is bounded for all calls together.
    fn has_room_for(&self, params: Json<'_>) -> bool {
        let length = params.get().len();
        if length <= RETRY_BYTES || !stands("kept-params-bounded") {
            return true;
        }
        let kept = self.calls.iter().filter_map(|(_, call)| call.promotion.as_ref());
        let kept: usize = kept.map(|promotion| promotion.params.len()).sum();
        let has_room = kept + length <= self.limits.queue_bytes;
        if !has_room {
            tracing::warn!(
                server = self.server,
                "a call cannot become a job: its arguments are {length} bytes long, and {kept} are kept for others"
            );
        }
        has_room
    }

    /// Gives the job that the same call has become before.
    pub(super) fn same_call(
        &self,
        promotion: &PlannedPromotion,
        effects: &impl WrapEffects,
    ) -> Option<JobId> {
        let params = Json::new(&promotion.params)?;
        let is_safe =
            || text_member(params, "name").is_some_and(|tool| self.added_capabilities.is_repeatable(&tool));
        let joins = self.limits.join_same_call && is_safe() && stands("guarded-same-call-joins");
        joins.then(|| effects.same_call(self.client.name(), &promotion.params)).flatten()
    }

    /// Says why a call cannot be the task that its client has asked for, where there is no room for it.
    pub(super) fn refusal_of_task(
        &self,
        method: &str,
        params: Option<Json<'_>>,
    ) -> Option<ErrorReport<'static>> {
        let params =
            params.filter(|_| method == "tools/call" && self.added_capabilities.has_tasks() != Some(true))?;
        self.limits.promote_after.moment(self.client.call_clock())?;
        // The room is asked for first: nearly every call has it, and the kind of its caller costs a look into its parameters.
        let is_refused =
            !self.has_room_for(params) && self.reply_to(params) == PromotionReply::Task(Dialect::Core);
        is_refused.then(|| ErrorReport {
            kind: FaultKind::Overloaded,
            summary: "the call cannot be kept as a task: too much is kept for others".to_owned(),
            hint: "call it without `task`, or when others have been answered",
        })
    }
}

/// Returns the params of a question that can only be about a call which is a task to its client. They name the task.
pub(super) fn related(calls: &CallTable, line: &[u8]) -> Option<String> {
    let (_, call) = calls.only()?;
    let task = call.task.as_ref()?;
    let params = Json::new(line).and_then(|line| line.member("params"));
    stands("question-of-a-task-says-so").then(|| tasks::related(params, task))
}

/// Returns the line of such a call as its server is to have it.
pub(super) fn without_task(line: &[u8]) -> Option<Vec<u8>> {
    with_params(line, PromotionReply::Task(Dialect::Core).without_task(Json::new(line)?.member("params")?)?)
}

/// Returns a message with these params.
pub(super) fn with_params(line: &[u8], params: String) -> Option<Vec<u8>> {
    Some(Splice::new(Json::new(line)?).set("params", params).apply()?.into_owned().into_bytes())
}

/// Returns a client's response without the task that it says it is about; nothing, where it says none.
pub(super) fn unrelated(line: &[u8]) -> Option<Vec<u8>> {
    let line = Json::new(line)?;
    let result = tasks::unrelated(line.member("result")?)?.into_owned();
    Some(Splice::new(line).set("result", result).apply()?.into_owned().into_bytes())
}
