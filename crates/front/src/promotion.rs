//! Promotion: a call becomes a job before its client gives it up. Decides when, and what the client gets in place of the answer.
//!
//! Theory of operation. A call that may become a job knows the moment of its promotion. At that moment the owner is asked to make a job of
//! it ([`SessionAction::Promote`]), which takes a write to the disk. Meanwhile the call stays in flight until its real limit: if no job
//! comes of it, the client loses nothing. The answer is the server's own or the job
//! ([`McpSession::promoted`](super::mcp_session::McpSession::promoted)), whichever comes first. A client that has asked for a task
//! (2025-11-25) accepts nothing else. Its call is a job before the server is asked, and is refused if no job comes of it.
//!
//! Invariants
//!
//! - The client gets one answer, and the id of a job only when the job is durable.
//! - The server notices nothing of a promotion.
//! - While the client is asked something about a call, it stays a call, because a person is working on it. A call that is a task from the
//!   beginning asks its client nothing before it is a job.
//! - Over stdio, after the client's stdin has ended or a signal came, every call stays a call: a job would end with the session.

use std::{borrow::Cow, time::Duration};

use unhang_bridge::{
    Splice,
    tasks::{self, Dialect},
};
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
    /// The moment of the promotion; `None` if there is none.
    pub at: Option<Duration>,
    /// The answer that its client gets.
    pub promotion_reply: PromotionReply,
}

/// The form in which a client gets a job in place of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotionReply {
    /// A result for its model, in plain words, with the same data for programs.
    Words,
    /// A task.
    Task(Dialect),
}

impl PromotionReply {
    /// Returns the form that the client of a call with these params supports.
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

    /// Makes the result of a promoted call of this tool, for a client of this revision. The job is kept for `ttl` after its end.
    pub fn result(self, report: &JobReport, tool: &str, revision: Revision, ttl: Option<Duration>) -> String {
        match self {
            PromotionReply::Words => own_result(handed_over(report, tool).to_json(revision), revision),
            PromotionReply::Task(dialect) => {
                let view = TaskView::of(report, ttl, POLL_INTERVAL);
                let said = format!(
                    "`{tool}` continues in the background as task {}; the task returns its result when \
                     it completes.",
                    report.job_id
                );
                let server = implementation().to_string();
                tasks::created(dialect, &view.task(), Some(&said), Some(&server))
            }
        }
    }

    /// Returns the params without the request for a task, which the server does not see. Returns `None` if they contain none.
    pub fn without_task(self, params: Json<'_>) -> Option<String> {
        if self != PromotionReply::Task(Dialect::Core) {
            return None;
        }
        Splice::new(params).remove("task").apply().map(Cow::into_owned)
    }
}

impl PromotionPlan {
    /// Makes the plan of a call that never becomes a job.
    pub(super) fn never() -> Self {
        Self { at: None, promotion_reply: PromotionReply::Words }
    }

    /// Makes the plan of a call with this limit. The promotion must come before the limit.
    pub(super) fn of(
        promotion_reply: PromotionReply,
        promotion: Promotion,
        limit: Duration,
        timing: CallTiming,
    ) -> Self {
        let after = promotion.moment(timing.clock);
        let after = match promotion_reply {
            // The client has asked for the task, and waits for nothing else.
            PromotionReply::Task(Dialect::Core) => after.map(|_| Duration::ZERO),
            _ => after.map(|after| after.saturating_sub(timing.waited)).filter(|after| *after < limit),
        };
        Self { at: after.map(|after| timing.now + after), promotion_reply }
    }

    /// Returns whether the client wants a task, but the call cannot become one.
    pub(super) fn is_refused(self) -> bool {
        self.at.is_none() && self.promotion_reply == PromotionReply::Task(Dialect::Core)
    }

    /// Returns the params for the server, without the request for a task, which concerns only the client and unhang.
    pub(super) fn asked(self, params: String) -> String {
        let json = Json::new(params.as_bytes()).filter(|_| self.at.is_some());
        let without = json.and_then(|params| self.promotion_reply.without_task(params));
        without.unwrap_or(params)
    }
}

impl JobCapabilities {
    /// Returns the form of a job that the client of this call supports.
    pub(super) fn promotion_reply(self, request: &ClientRequest<'_>, revision: Revision) -> PromotionReply {
        let params = request.params.filter(|_| self.are_there);
        params.map_or(PromotionReply::Words, |params| PromotionReply::of(params, revision))
    }
}

impl SessionCall {
    /// Returns whether its client has asked for a task (2025-11-25).
    pub(super) fn wants_a_task(&self) -> bool {
        self.promotion.promotion_reply == PromotionReply::Task(Dialect::Core)
    }

    /// Orders a job for the call if the time has come, unless its client is being asked something about it.
    pub(super) fn promote_where_due(
        &mut self,
        now: Duration,
        questions: &ClientQuestions,
    ) -> Option<SessionAction> {
        let mut moment = self.promotion.at;
        let is_asked = || questions.about(self).is_some();
        let is_due = is_due(&mut moment, now, is_asked, Some(self.last_moment()));
        self.promotion.at = moment;
        if !is_due {
            return None;
        }
        let (key, name) = (self.key, self.awaited.name().to_owned());
        Some(SessionAction::Promote { key, name, elapsed: now.saturating_sub(self.since) })
    }

    /// Makes the answer to a call that has become this job, which is kept for `ttl` after its end.
    pub(super) fn promoted_answer(&self, report: &JobReport, ttl: Option<Duration>) -> String {
        self.promotion.promotion_reply.result(report, self.awaited.name(), self.revision, ttl)
    }
}
