//! A call that is handed over as a job before its client gives it up: when, and what the client gets in place of the answer.
//!
//! Theory of operation. A call that may become a job knows the moment of its hand-over. Then the owner is asked to
//! make a job of it ([`SessionAction::Promote`]), which takes a write to the disk, and the call is in flight until its real limit, as it would be
//! if nothing had happened: where no job comes of it the client is none the worse. Whichever comes first is the answer: the server's own,
//! or the job ([`McpSession::promoted`]). A client that has asked for a task (2025-11-25) may get nothing else: its call is a job before the
//! server is asked, and refused where none comes of it.
//!
//! Invariants
//!
//! - The client gets one answer, and the id of a job only when it is durable.
//! - To the server nothing has happened.
//! - While the client is asked something about the call it stays a call: somebody is at it. About a call that is a task from the first
//!   on the client is asked nothing before that.

use std::{borrow::Cow, time::Duration};

use unhang_bridge::{
    Splice,
    tasks::{self, Dialect},
};
use unhang_switches::stands;
use unhang_wire::{Id, Json};

use super::{
    answers::{implementation, own_result},
    mcp_session::{CallKey, McpSession, SessionAction, SessionCall, SessionEffects},
    requests::{ClientRequest, capabilities},
    tasks::{POLL_INTERVAL, TaskView},
};
use unhang_background::WhoIsAsked;
use unhang_core::{promotion::Promotion, revision::Revision};
use unhang_tools::{handed_over, job_report::JobReport};

/// When a call that somebody is asked about is looked at again.
const WHILE_ASKED: Duration = Duration::from_secs(1);

/// How a call becomes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PromotionPlan {
    /// When; never, where this says nothing.
    pub at: Option<Duration>,
    /// What its client gets.
    pub promotion_reply: PromotionReply,
}

/// What a client gets in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionReply {
    /// A result for its model, in plain words, with the same for programs.
    Words,
    /// A task.
    Task(Dialect),
}

impl PromotionReply {
    /// What the client of a call with these params can cope with.
    pub fn of(params: Json<'_>, revision: Revision) -> PromotionReply {
        let dialect = match revision {
            Revision::V2025November => tasks::wanted(params).map(|_| Dialect::Core),
            _ if revision.is_stateless() => {
                capabilities(params).filter(|offered| tasks::declares(*offered)).map(|_| Dialect::Extension)
            }
            _ => None,
        };
        dialect.map_or(PromotionReply::Words, PromotionReply::Task)
    }

    /// The result of a call of this tool, as a client of this revision has it, which goes on as a job that is kept for so long after its
    /// end.
    pub fn result(self, report: &JobReport, tool: &str, revision: Revision, ttl: Option<Duration>) -> String {
        match self {
            PromotionReply::Words => own_result(handed_over(report, tool).to_json(revision), revision),
            PromotionReply::Task(dialect) => {
                let view = TaskView::of(report, ttl, POLL_INTERVAL);
                let said = format!(
                    "`{tool}` goes on in the background as task {}; its result comes when it is done.",
                    report.job_id
                );
                let server = implementation().to_string();
                tasks::created(dialect, &view.task(), Some(&said), Some(&server))
            }
        }
    }

    /// The params of a call as its server is to have them: whether it becomes a task is between the client and us.
    pub fn without_task(self, params: Json<'_>) -> Option<String> {
        if self != PromotionReply::Task(Dialect::Core) {
            return None;
        }
        Splice::new(params).remove("task").apply().map(Cow::into_owned)
    }
}

impl PromotionPlan {
    /// It does not.
    pub(super) fn never() -> Self {
        Self { at: None, promotion_reply: PromotionReply::Words }
    }

    /// Its client wants a task of what becomes none.
    pub(super) fn is_refused(self) -> bool {
        self.at.is_none() && self.promotion_reply == PromotionReply::Task(Dialect::Core)
    }

    /// What the server is asked: whether it becomes a task is between the client and us.
    pub(super) fn asked(self, params: String) -> String {
        let json = Json::new(params.as_bytes()).filter(|_| self.at.is_some());
        let without = json.and_then(|params| self.promotion_reply.without_task(params));
        without.unwrap_or(params)
    }
}

impl McpSession {
    /// What the client of this call can cope with.
    pub(super) fn promotion_reply(&self, request: &ClientRequest<'_>, revision: Revision) -> PromotionReply {
        let params = request.params.filter(|_| self.jobs.are_there);
        params.map_or(PromotionReply::Words, |params| PromotionReply::of(params, revision))
    }

    /// How a call of a server's tool becomes a job that may take so long as a call.
    pub(super) fn hand_over(
        &self,
        request: &ClientRequest<'_>,
        revision: Revision,
        promotion: Promotion,
        limit: Duration,
    ) -> PromotionPlan {
        let promotion_reply = self.promotion_reply(request, revision);
        let promotion = if self.jobs.promotes { promotion } else { Promotion::Off };
        let after = promotion.moment(self.clock(request, revision));
        let after = match promotion_reply {
            // It is what its client has asked for, which waits for that alone.
            PromotionReply::Task(Dialect::Core) => after.map(|_| Duration::ZERO),
            _ => after.map(|after| after.saturating_sub(request.waited)).filter(|after| *after < limit),
        };
        PromotionPlan { at: after.map(|after| self.now + after), promotion_reply }
    }

    /// Whether the client of this call has asked for a task (2025-11-25).
    pub(super) fn wants_a_task(&self, key: CallKey) -> bool {
        let call = self.running.get(&key).and_then(Option::as_ref).and_then(|id| self.calls.get(id));
        call.is_some_and(|call| call.hand_over.promotion_reply == PromotionReply::Task(Dialect::Core))
    }

    /// A job is to be made of this call, where it is time for that.
    pub(super) fn hand_over_where_due(&mut self, id: &Id) {
        let is_due = |call: &&SessionCall| call.hand_over.at.is_some_and(|at| at <= self.now);
        let Some(call) = self.calls.get(id).filter(is_due) else { return };
        let is_asked = self.is_asked_about(call) && stands("asked-call-stays-a-call");
        let Some(call) = self.calls.get_mut(id) else { return };
        let again = self.now + WHILE_ASKED;
        call.hand_over.at = Some(again).filter(|again| is_asked && *again < call.last_moment());
        if call.hand_over.at.is_none() {
            let (key, name) = (call.key, call.awaited.name().to_owned());
            let elapsed = self.now.saturating_sub(call.since);
            self.actions.push_back(SessionAction::Promote { key, name, elapsed });
        }
    }

    /// Whether the client of this call is being asked something about it, beside it or by its answer.
    pub(super) fn is_asked(&self, key: CallKey) -> bool {
        let call = self.running.get(&key).and_then(Option::as_ref).and_then(|id| self.calls.get(id));
        let is_asked = call.is_some_and(|call| self.is_asked_about(call)) || self.parking.call(key).is_some();
        is_asked && stands("asked-call-stays-a-call")
    }

    /// A call is a job now, on the disk. Says who can be asked about it from now on; nothing where its client waits for nothing any more.
    pub fn promoted(
        &mut self,
        now: Duration,
        key: CallKey,
        report: &JobReport,
        effects: &mut impl SessionEffects,
    ) -> Option<WhoIsAsked> {
        self.now = now;
        let id = self.over(key, effects);
        let call = id.as_ref().and_then(|id| self.calls.cancel(id));
        if let (Some(id), Some(call)) = (&id, &call) {
            tracing::info!(
                session = self.answers.session_name(),
                client = self.answers.client_name(),
                job = report.job_id.as_str(),
                "`{}` goes on as a job",
                call.awaited.name()
            );
            self.hand_over_as(id, call, report, effects);
        }
        self.check_drained(effects);
        self.check_stopped();
        call.map(|call| self.who_is_asked(&call))
    }

    fn who_is_asked(&self, call: &SessionCall) -> WhoIsAsked {
        let session = self.signature.as_ref().filter(|_| !call.revision.is_stateless());
        let said = session.map(|signature| signature.client_capabilities.as_str());
        let said = said.or_else(|| call.awaited.introduced().map(|introduced| &*introduced.offers));
        match call.hand_over.promotion_reply {
            PromotionReply::Words => WhoIsAsked::Nobody,
            PromotionReply::Task(_) => WhoIsAsked::Followers(said.unwrap_or("{}").into()),
        }
    }

    /// Answers a call with the job that it has become.
    pub(super) fn hand_over_as(
        &mut self,
        id: &Id,
        call: &SessionCall,
        report: &JobReport,
        effects: &mut impl SessionEffects,
    ) {
        let result =
            call.hand_over.promotion_reply.result(report, call.awaited.name(), call.revision, self.jobs.ttl);
        self.answers.answer_raw(id, call.way, &result, effects);
    }
}
