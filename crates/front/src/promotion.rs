//! A call that is handed over as a job before its client gives it up: when, and what the client gets in place of the answer.
//!
//! Theory of operation. A call that may become a job knows the moment of its hand-over. Then the owner is asked to
//! make a job of it ([`SessionAction::Promote`]), which takes a write to the disk, and the call is in flight until its real limit, as it would be
//! if nothing had happened: where no job comes of it the client is none the worse. Whichever comes first is the answer: the server's own,
//! or the job ([`McpSession::promoted`](super::mcp_session::McpSession::promoted)). A client that has asked for a task (2025-11-25) may get
//! nothing else: its call is a job before the server is asked, and refused where none comes of it.
//!
//! Invariants
//!
//! - The client gets one answer, and the id of a job only when it is durable.
//! - To the server nothing has happened.
//! - While the client is asked something about the call it stays a call: somebody is at it. About a call that is a task from the first
//!   on the client is asked nothing before that.
//! - Over stdio, once the client's stdin has ended or a signal came, every call stays one: a job would end with the session.

use std::{borrow::Cow, time::Duration};

use unhang_bridge::{
    Splice,
    tasks::{self, Dialect},
};
use unhang_switches::stands;
use unhang_wire::Json;

use super::{
    answers::{implementation, own_result},
    call_terms::CallTiming,
    client_request::{ClientRequest, capabilities},
    effects::SessionAction,
    questions::ClientQuestions,
    session_calls::SessionCall,
    tasks::{JobCapabilities, POLL_INTERVAL, TaskView},
};
use unhang_core::{
    promotion::{Promotion, is_due},
    revision::Revision,
};
use unhang_tools::{handed_over, job_report::JobReport};

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
            Revision::V2025November => tasks::requested_task(params).map(|_| Dialect::Core),
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

    /// That of a call that may take so long as a call.
    pub(super) fn of(
        promotion_reply: PromotionReply,
        promotion: Promotion,
        limit: Duration,
        timing: CallTiming,
    ) -> Self {
        let after = promotion.moment(timing.clock);
        let after = match promotion_reply {
            // It is what its client has asked for, which waits for that alone.
            PromotionReply::Task(Dialect::Core) => after.map(|_| Duration::ZERO),
            _ => after.map(|after| after.saturating_sub(timing.waited)).filter(|after| *after < limit),
        };
        Self { at: after.map(|after| timing.now + after), promotion_reply }
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

impl JobCapabilities {
    /// What the client of this call can cope with.
    pub(super) fn promotion_reply(self, request: &ClientRequest<'_>, revision: Revision) -> PromotionReply {
        let params = request.params.filter(|_| self.are_there);
        params.map_or(PromotionReply::Words, |params| PromotionReply::of(params, revision))
    }
}

impl SessionCall {
    /// Whether its client has asked for a task (2025-11-25).
    pub(super) fn wants_a_task(&self) -> bool {
        self.promotion.promotion_reply == PromotionReply::Task(Dialect::Core)
    }

    /// Has a job made of the call where it is time for that, unless its client is being asked something about it.
    pub(super) fn promote_where_due(
        &mut self,
        now: Duration,
        questions: &ClientQuestions,
    ) -> Option<SessionAction> {
        let mut moment = self.promotion.at;
        let is_asked = || questions.about(self).is_some() && stands("asked-call-stays-a-call");
        let is_due = is_due(&mut moment, now, is_asked, Some(self.last_moment()));
        self.promotion.at = moment;
        if !is_due {
            return None;
        }
        let (key, name) = (self.key, self.awaited.name().to_owned());
        Some(SessionAction::Promote { key, name, elapsed: now.saturating_sub(self.since) })
    }

    /// The answer to it where it has become this job, which is kept for `ttl` after its end.
    pub(super) fn promoted_answer(&self, report: &JobReport, ttl: Option<Duration>) -> String {
        self.promotion.promotion_reply.result(report, self.awaited.name(), self.revision, ttl)
    }
}
