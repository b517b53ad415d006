//! Calls that are handed over as jobs before their clients give them up, while the server goes on with them undisturbed.
//!
//! Theory of operation. A call that may become a job knows the moment ([`PlannedPromotion`]). Then the owner is asked to make a job of it
//! ([`WrapAction::Promote`]), which takes a write to the disk, and meanwhile it is a call like any other: whichever comes first is the answer, the
//! server's own or the job ([`WrapSession::promoted`]). From then on it stays in flight under its id on the server's side, and who keeps the job
//! takes the place of the client ([`WrapEffects::to_job`]). The call of a client that has asked for a task (2025-11-25) is kept from the server
//! until there is one, so that no answer comes first and no question is about nothing; where there can be none it is refused.
//!
//! # Invariants
//!
//! - The client gets one answer, and the id of a job only when the owner has said that there is one.
//! - To the server nothing has happened.
//! - What is a job keeps nobody waiting: neither the end of the session nor what a client wants to hear only between calls.
//! - While the client is asked something it may be about the call, which stays one.

use std::time::Duration;

use unhang_bridge::{
    Splice,
    tasks::{self, Dialect},
};
use unhang_jobs::id::JobId;
use unhang_switches::stands;
use unhang_wire::{Id, Json, one_line, text_member};

use super::{
    calls::{GuardedCall, Role},
    effects::{JobNews, WrapAction, WrapEffects},
    offers::Offers,
    wrap_session::{WrapEnd, WrapSession},
};
use unhang_background::{NOT_KEPT_HINT, not_kept};
use unhang_core::{
    batch::BatchId, config::RETRY_BYTES, fault::FaultKind, refusal::ErrorReport, revision::Revision,
};
use unhang_front::PromotionReply;
use unhang_tools::{job_report::ToolNames, service::JobError};

/// When a call is looked at again while the client is asked something.
const WHILE_ASKED: Duration = Duration::from_secs(1);

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
    /// Its client copes with tasks of the extension.
    pub(super) fn declares_tasks(&self, revision: Revision) -> bool {
        // Once they are with whoever makes a job of it, nobody knows any more.
        Json::new(&self.params)
            .is_none_or(|params| PromotionReply::of(params, revision) != PromotionReply::Words)
    }

    /// Its client has asked for a task of ours, of which the server does not hear.
    pub(super) fn is_of_a_task(&self) -> bool {
        self.promotion_reply == PromotionReply::Task(Dialect::Core)
    }
}

/// The line of such a call as its server is to have it.
pub(super) fn without_task(line: &[u8]) -> Option<Vec<u8>> {
    with_params(line, PromotionReply::Task(Dialect::Core).without_task(Json::new(line)?.member("params")?)?)
}

/// A message with these params.
pub(super) fn with_params(line: &[u8], params: String) -> Option<Vec<u8>> {
    Some(Splice::new(Json::new(line)?).set("params", params).apply()?.into_owned().into_bytes())
}

/// A client's response without the task that it says it is about; nothing, where it says none.
pub(super) fn unrelated(line: &[u8]) -> Option<Vec<u8>> {
    let line = Json::new(line)?;
    let result = tasks::unrelated(line.member("result")?)?.into_owned();
    Some(Splice::new(line).set("result", result).apply()?.into_owned().into_bytes())
}

impl GuardedCall {
    /// Its server is not asked before it is the task that its client has asked for.
    pub(super) fn waits_for_its_task(&self) -> bool {
        !self.sent && self.promotion.as_deref().is_some_and(PlannedPromotion::is_of_a_task)
    }

    /// Whether it is time to hand it over. Once, unless its client is asked something.
    pub(super) fn is_due(&mut self, now: Duration, client_is_asked: bool) -> bool {
        let deadline = self.deadline;
        let Some(promotion) = &mut self.promotion else { return false };
        if promotion.at.is_none_or(|at| at > now) {
            return false;
        }
        let again = now + WHILE_ASKED;
        let is_asked = client_is_asked && stands("guarded-asked-call-stays-a-call");
        promotion.at =
            Some(again).filter(|again| is_asked && deadline.is_none_or(|deadline| *again < deadline));
        promotion.at.is_none()
    }
}

impl WrapSession {
    /// The same, with somebody who keeps jobs.
    #[must_use]
    pub fn with_jobs(self) -> WrapSession {
        WrapSession { offers: Some(Box::default()), ..self }
    }

    /// When a request becomes a job that may take so long as a call; never, for most.
    pub(super) fn plan_promotion(
        &self,
        method: &str,
        params: Option<Json<'_>>,
        limit: Option<Duration>,
    ) -> Option<Box<PlannedPromotion>> {
        let offers = self.offers.as_ref().filter(|_| method == "tools/call")?;
        let params = params?;
        let after = self.limits.promote_after.moment(self.client.call_clock())?;
        let has_tasks = offers.has_tasks() == Some(true);
        let promotion_reply = if has_tasks {
            PromotionReply::Words
        } else {
            PromotionReply::of(params, self.client.revision())
        };
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
        let params = params.get().as_bytes().into();
        Some(
            PlannedPromotion {
                at: Some(self.now + after),
                params,
                promotion_reply,
                joins: None,
                order: None,
            }
            .into(),
        )
    }

    /// Whether these can be kept until the call is answered: what is large is bounded for all calls together.
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
                server = self.name,
                "a call cannot become a job: its arguments are {length} bytes long, and {kept} are kept for others"
            );
        }
        has_room
    }

    /// Whether this is a list of tools for a client that copes with tasks.
    pub(super) fn is_list_for_tasks(&self, method: &str, params: Option<Json<'_>>) -> bool {
        self.offers.is_some()
            && method == "tools/list"
            && params.is_some_and(|params| {
                PromotionReply::of(params, self.client.revision()) != PromotionReply::Words
            })
    }

    /// The job that the same call has become before.
    pub(super) fn joined_by(
        &self,
        promotion: &PlannedPromotion,
        effects: &impl WrapEffects,
    ) -> Option<JobId> {
        let params = Json::new(&promotion.params)?;
        let is_safe =
            |offers: &Offers| text_member(params, "name").is_some_and(|tool| offers.is_repeatable(&tool));
        let joins = self.limits.join_same_call
            && self.offers.as_deref().is_some_and(is_safe)
            && stands("guarded-same-call-joins");
        joins.then(|| effects.same_call(self.client.name(), &promotion.params)).flatten()
    }

    /// Keeps a call from its server until it is the task that its client has asked for.
    pub(super) fn keep_for_its_task(&mut self, wire_id: &Id, line: &[u8]) {
        if let Some(call) = self.calls.get_mut(wire_id) {
            call.line = Some(line.to_vec());
        }
    }

    /// Why a call cannot be the task that its client has asked for, where there is no room for it.
    pub(super) fn refusal_of_task(
        &self,
        method: &str,
        params: Option<Json<'_>>,
    ) -> Option<ErrorReport<'static>> {
        let offers = self.offers.as_ref().filter(|_| method == "tools/call")?;
        let params = params.filter(|_| offers.has_tasks() != Some(true))?;
        self.limits.promote_after.moment(self.client.call_clock())?;
        // The room is asked for first: nearly every call has it, and the kind of its caller costs a look into its parameters.
        let is_refused = !self.has_room_for(params)
            && PromotionReply::of(params, self.client.revision()) == PromotionReply::Task(Dialect::Core);
        is_refused.then(|| ErrorReport {
            kind: FaultKind::Overloaded,
            summary: "the call cannot be kept as a task: too much is kept for others".to_owned(),
            hint: "call it without `task`, or when others have been answered",
        })
    }

    /// There can be no job of a call: whoever has asked for a task is told so, and its server has not been asked.
    pub fn not_promoted(
        &mut self,
        now: Duration,
        (wire_id, order): (&Id, WrapPromotionOrder),
        why: &JobError,
        effects: &mut impl WrapEffects,
    ) {
        self.now = now;
        let waits = |call: &GuardedCall| !call.is_job && call.waits_for_its_task();
        if !self.is_of(wire_id, order) || !self.calls.get(wire_id).is_some_and(waits) {
            return;
        }
        let Some(call) = self.calls.cancel(wire_id) else { return };
        self.calls.await_nothing(wire_id);
        self.breaker.settle_trial(wire_id, self.now);
        self.tokens.end(call.token.clone());
        let line = call.line.as_deref().and_then(Json::new);
        let tool = line.and_then(|line| text_member(line.member("params")?, "name")).unwrap_or_default();
        let error_report =
            ErrorReport { kind: FaultKind::Overloaded, summary: not_kept(&tool, why), hint: NOT_KEPT_HINT };
        self.tell_call(&call, error_report, None, effects);
        self.after_call(effects);
    }

    /// A call waits for a job, and its server hears of it only where nothing comes of that.
    pub(super) fn join(&mut self, wire_id: Id, job: JobId, line: &[u8]) {
        let order = self.next_order();
        let Some(call) = self.calls.get_mut(&wire_id) else { return };
        call.line = Some(line.to_vec());
        let Some(promotion) = &mut call.promotion else { return };
        (promotion.joins, promotion.order) = (Some(job), Some(order));
        // Who has asked for a task gets the one that there is, which is handed over at once.
        if !promotion.is_of_a_task() {
            let limit = call.limit.unwrap_or(self.limits.call_timeout);
            self.actions.push_back(WrapAction::Join(Join { call: wire_id, order, job, limit }.into()));
        }
    }

    fn next_order(&mut self) -> WrapPromotionOrder {
        self.last_order += 1;
        WrapPromotionOrder(self.last_order)
    }

    /// Whether this is still the call of which this was asked for.
    fn is_of(&self, wire_id: &Id, order: WrapPromotionOrder) -> bool {
        let promotion = self.calls.get(wire_id).and_then(|call| call.promotion.as_ref());
        promotion.is_some_and(|promotion| promotion.order == Some(order) || !stands("order-is-of-its-call"))
    }

    /// Whether a call still waits for the job that this was about.
    pub fn waits_for_a_job(&self, wire_id: &Id, order: WrapPromotionOrder) -> bool {
        let promotion = self.calls.get(wire_id).and_then(|call| call.promotion.as_ref());
        self.is_of(wire_id, order) && promotion.is_some_and(|promotion| promotion.joins.is_some())
    }

    /// Something has come of a call that waits for a job.
    pub fn joined(
        &mut self,
        now: Duration,
        (wire_id, order): (&Id, WrapPromotionOrder),
        came: JoinOutcome,
        effects: &mut impl WrapEffects,
    ) {
        self.now = now;
        if !self.waits_for_a_job(wire_id, order) {
            return;
        }
        let Some(call) = self.calls.get_mut(wire_id) else { return };
        let is_job_still = matches!(came, JoinOutcome::Still(_));
        match came {
            JoinOutcome::Answer(result) | JoinOutcome::Still(result) => {
                let (client_id, batch) = (call.client_id.clone(), call.batch);
                let token = call.token.take();
                self.calls.await_nothing(wire_id);
                self.calls.forget_name(&client_id);
                self.breaker.settle_trial(wire_id, self.now);
                self.tokens.end(token);
                if is_job_still {
                    self.list_job_tools(effects);
                }
                self.answer_with(&client_id, batch, &result, effects);
            }
            JoinOutcome::Nothing => {
                if let Some(promotion) = &mut call.promotion {
                    promotion.joins = None;
                    promotion.at.get_or_insert(now);
                }
                let is_of_a_task = call.waits_for_its_task();
                self.calls.note_next_moment(wire_id);
                if !is_of_a_task {
                    self.send_or_hold(wire_id, effects);
                }
            }
        }
    }

    fn answer_with(
        &mut self,
        client_id: &Id,
        batch: Option<BatchId>,
        result: &str,
        effects: &mut impl WrapEffects,
    ) {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, client_id.to_json());
        self.answers.send(batch, &one_line(line.as_bytes()), effects);
        self.after_call(effects);
    }

    /// Has a call handed over whose time has come.
    pub(super) fn order(&mut self, wire_id: &Id) {
        let (client, revision, next) =
            (self.client.name().map(str::to_owned), self.client.revision(), self.next_order());
        let Some((call, offers)) = self.calls.get_mut(wire_id).zip(self.offers.as_mut()) else { return };
        let Some(promotion) = &mut call.promotion else { return };
        let (params, order) = match (promotion.joins, promotion.order) {
            // There may be nothing to wait for, and then it becomes a job itself.
            (Some(_), Some(order)) => (promotion.params.clone(), order),
            _ => (std::mem::take(&mut promotion.params), next),
        };
        promotion.order = Some(order);
        let tool = Json::new(&params).and_then(|params| text_member(params, "name")).unwrap_or_default();
        let promote = Promote {
            call: wire_id.clone(),
            order,
            elapsed: self.now.saturating_sub(call.since),
            client,
            revision,
            promotion_reply: promotion.promotion_reply,
            names: offers.names(),
            is_repeatable: offers.is_repeatable(&tool),
            joins: promotion.joins,
            params,
        };
        self.actions.push_back(WrapAction::Promote(promote.into()));
    }

    /// A call is a job now, on the disk; `result` is what its client gets in place of the server's. False where nobody waits for that any
    /// more, so that the job is of no use.
    pub fn promoted(
        &mut self,
        now: Duration,
        (wire_id, order): (&Id, WrapPromotionOrder),
        (job, result): (&str, &str),
        effects: &mut impl WrapEffects,
    ) -> bool {
        self.now = now;
        if !self.is_of(wire_id, order) {
            return false;
        }
        let Some(call) = self.calls.get_mut(wire_id).filter(|call| !call.is_job) else { return false };
        call.is_job = true;
        let is_a_task = call.promotion.as_deref().is_some_and(PlannedPromotion::is_of_a_task);
        let is_in_words = call
            .promotion
            .as_deref()
            .is_some_and(|promotion| promotion.promotion_reply == PromotionReply::Words);
        call.task = is_a_task.then(|| job.into());
        let limit = self.limits.job_timeout;
        (call.limit, call.deadline) = (Some(limit), Some(call.since + limit));
        (call.heartbeat, call.promotion) = (None, None);
        let client_id = std::mem::replace(&mut call.client_id, wire_id.clone());
        let (batch, token) = (call.batch.take(), call.token.take());
        tracing::info!(
            server = self.name,
            client = self.client.name(),
            job,
            "`{}` (id {client_id}) goes on as a job",
            call.method
        );
        self.calls.note_next_moment(wire_id);
        // Others are not kept waiting for what it says about the server: that may take hours.
        self.breaker.settle_trial(wire_id, self.now);
        self.calls.forget_name(&client_id);
        if let Some(token) = token {
            self.tokens.give_to_job(token, wire_id, &self.calls);
        }
        if is_in_words {
            self.list_job_tools(effects);
        }
        self.answer_with(&client_id, batch, result, effects);
        let is_unsent = |call: &GuardedCall| is_a_task && !call.sent;
        if matches!(self.end, WrapEnd::None | WrapEnd::Draining { .. })
            && self.calls.get(wire_id).is_some_and(is_unsent)
        {
            self.send_or_hold(wire_id, effects);
        }
        true
    }

    /// Nobody wants the result of a call that is a job, or was to become one, any more.
    pub fn job_withdrawn(&mut self, now: Duration, wire_id: &Id, effects: &mut impl WrapEffects) {
        self.now = now;
        if self.calls.get(wire_id).is_some_and(|call| call.is_job)
            && let Some(call) = self.calls.cancel(wire_id)
        {
            self.breaker.settle_trial(wire_id, self.now);
            if call.sent {
                self.cancel_at_server(wire_id, "the job was cancelled", effects);
            } else {
                self.calls.await_nothing(wire_id);
            }
        }
    }

    /// Asks the server once more, on behalf of a job, with what it wanted to know first. Gives the id of the request there.
    pub fn ask_for_job(&mut self, now: Duration, params: &str, effects: &mut impl WrapEffects) -> Id {
        self.now = now;
        let wire_id = self.own_id();
        let limit = self.limits.job_timeout;
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{params}}}"#,
            wire_id.to_json()
        );
        let call = GuardedCall {
            client_id: wire_id.clone(),
            method: "tools/call".into(),
            role: Role::Other,
            since: now,
            deadline: Some(now + limit),
            limit: Some(limit),
            token: None,
            heartbeat: None,
            batch: None,
            promotion: None,
            copes_with_tasks: false,
            is_job: true,
            task: None,
            line: Some(line.into_bytes()),
            sent: false,
            retried: false,
            held_since: now,
            held_for: Duration::ZERO,
        };
        // The id is free, so this cannot be refused.
        self.calls.register_as(wire_id.clone(), call);
        self.send_or_hold(&wire_id, effects);
        wire_id
    }

    /// Sends the server a call that it has not had, or holds it until the server is back.
    fn send_or_hold(&mut self, wire_id: &Id, effects: &mut impl WrapEffects) {
        if self.server.is_live() {
            return self.send_held(wire_id, effects);
        }
        if let Some(call) = self.calls.get_mut(wire_id) {
            call.held_since = self.now;
            let bytes = call.line.as_ref().map_or(0, Vec::len);
            self.held.hold_call(wire_id.clone(), bytes);
        }
        self.wake();
    }

    /// The params of what the server asks, where that can only be about a call that is a task to its client, as that has to hear of it.
    pub(super) fn related(&self, line: &[u8]) -> Option<String> {
        let (_, call) = self.calls.only()?;
        let task = call.task.as_ref()?;
        let params = Json::new(line).and_then(|line| line.member("params"));
        stands("question-of-a-task-says-so").then(|| tasks::related(params, task))
    }

    /// Tells a job what has come of its call.
    pub(super) fn answer_job(&self, wire_id: &Id, line: &[u8], effects: &mut impl WrapEffects) {
        let era =
            if self.client.is_modern() { unhang_bridge::Era::Modern } else { unhang_bridge::Era::Legacy };
        effects.to_job(wire_id, JobNews::Answer(era, line));
    }

    /// The server logs something, which can only be about the call that it works on.
    pub(super) fn job_logs(&self, params: Option<Json<'_>>, effects: &mut impl WrapEffects) {
        if let (Some((wire_id, call)), Some(params)) = (self.calls.only(), params)
            && call.is_job
        {
            effects.to_job(wire_id, JobNews::Log(params.get().as_bytes()));
        }
    }
}
