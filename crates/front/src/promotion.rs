//! Promotion: a call becomes a job before its client gives it up. Decides when, and what the client gets in place of the answer.
//!
//! Theory of operation. A call that may become a job knows the moment of its promotion. At that moment the owner is asked to make a job of
//! it ([`SessionAction::Promote`]), which takes a write to the disk. Meanwhile the call stays in flight until its real limit: if no job
//! comes of it, the client loses nothing. The answer is the server's own or the job
//! ([`McpSession::promoted`](super::mcp_session::McpSession::promoted)), whichever comes first. A client that has asked for a task
//! (2025-11-25) accepts nothing else. Its call is a job before the server is asked, and is refused if no job comes of it. A client that has
//! declared tasks (2026-07-28) gets a task as soon as the server creates one, as it would directly.
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
    asking::PromotionOrder,
    call_terms::CallTiming,
    client_request::{ClientRequest, capabilities},
    effects::SessionAction,
    questions::ClientQuestions,
    session_calls::SessionCall,
    session_profile::SessionProfile,
    tasks::{JobCapabilities, TaskView},
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
    /// Whether the call becomes a job as soon as its server continues it as a task: the client has declared tasks (2026-07-28).
    pub takes_server_tasks: bool,
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
                let view = TaskView::of(report, ttl);
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
        Self { at: None, promotion_reply: PromotionReply::Words, takes_server_tasks: false }
    }

    /// Makes the plan of a call with this limit. The promotion must come before the limit. `promotion` is `None` where no call becomes a job.
    pub(super) fn of(
        promotion_reply: PromotionReply,
        promotion: Option<Promotion>,
        limit: Duration,
        timing: CallTiming,
    ) -> Self {
        let takes_server_tasks =
            promotion.is_some() && promotion_reply == PromotionReply::Task(Dialect::Extension);
        let promotion = promotion.unwrap_or(Promotion::Off);
        let after = promotion.moment(timing.clock);
        let after = match promotion_reply {
            // The client has asked for the task, and waits for nothing else.
            PromotionReply::Task(Dialect::Core) => after.map(|_| Duration::ZERO),
            _ => after.map(|after| after.saturating_sub(timing.waited)).filter(|after| *after < limit),
        };
        Self { at: after.map(|after| timing.now + after), promotion_reply, takes_server_tasks }
    }

    /// Returns whether the client has asked for a task (2025-11-25).
    pub(super) fn wants_a_task(self) -> bool {
        self.promotion_reply == PromotionReply::Task(Dialect::Core)
    }

    /// Returns whether a job may be made of the call.
    pub(super) fn may_be_a_job(self) -> bool {
        self.at.is_some() || self.takes_server_tasks
    }

    /// Returns whether the client wants a task, but the call cannot become one.
    pub(super) fn is_refused(self) -> bool {
        self.at.is_none() && self.wants_a_task()
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
        self.promotion.wants_a_task()
    }

    /// Orders a job for the call if the time has come, unless its client is being asked something about it.
    pub(super) fn promote_where_due(
        &mut self,
        now: Duration,
        questions: &ClientQuestions,
        client: &SessionProfile,
    ) -> Option<SessionAction> {
        let mut moment = self.promotion.at;
        let is_asked = || questions.about(self).is_some();
        let is_due = is_due(&mut moment, now, is_asked, Some(self.last_moment()));
        self.promotion.at = moment;
        if !is_due {
            return None;
        }
        let (name, elapsed) = (self.awaited.name().to_owned(), now.saturating_sub(self.since));
        let order = PromotionOrder { name, elapsed, who: client.who_is_asked(self), window_limit: None };
        Some(SessionAction::Promote { key: self.key, order })
    }

    /// Makes the answer to a call that has become this job, which is kept for `ttl` after its end.
    pub(super) fn promoted_answer(&self, report: &JobReport, ttl: Option<Duration>) -> String {
        self.promotion.promotion_reply.result(report, self.awaited.name(), self.revision, ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    const WORDS: PromotionReply = PromotionReply::Words;
    const CORE: PromotionReply = PromotionReply::Task(Dialect::Core);
    const EXTENSION: PromotionReply = PromotionReply::Task(Dialect::Extension);

    #[test]
    fn a_job_has_the_form_that_its_client_supports_in_its_revision() {
        use Revision::{V2024November, V2025June, V2025March, V2025November, V2026July};
        const DECLARED: &str = r#""_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        const ASKED: &str = r#""task":{"ttl":1000}"#;
        let both = format!("{{{ASKED},{DECLARED}}}");
        let (asked, declared) = (format!("{{{ASKED}}}"), format!("{{{DECLARED}}}"));
        let undeclared = r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"extensions":{}}}}"#;
        for (params, core, extension) in [
            ("{}", WORDS, WORDS),
            (r#"{"task":true}"#, WORDS, WORDS),
            (undeclared, WORDS, WORDS),
            (&asked, CORE, WORDS),
            (&declared, WORDS, EXTENSION),
            (&both, CORE, EXTENSION),
        ] {
            for (revision, expect) in [
                (V2024November, WORDS),
                (V2025March, WORDS),
                (V2025June, WORDS),
                (V2025November, core),
                (V2026July, extension),
            ] {
                assert_eq!(PromotionReply::of(json(params), revision), expect, "{params} {revision:?}");
            }
        }
    }

    #[test]
    fn a_server_does_not_see_the_request_for_a_task() {
        let wanted = r#"{ "name":"a", "task":{"ttl":1}, "x":1.0e0 }"#;
        let plan = |promotion_reply, at| PromotionPlan { at, promotion_reply, takes_server_tasks: false };
        for (promotion_reply, at, expect) in [
            (CORE, Some(Duration::ZERO), r#"{ "name":"a", "x":1.0e0 }"#),
            // In this revision the member is not a request for a task. The server may use it in its own way.
            (EXTENSION, Some(Duration::ZERO), wanted),
            (WORDS, Some(Duration::ZERO), wanted),
            (WORDS, None, wanted),
        ] {
            let plan = plan(promotion_reply, at);
            assert_eq!(plan.asked(wanted.to_owned()), expect, "{plan:?}");
        }
        assert_eq!(CORE.without_task(json(r#"{"task":{}}"#)).as_deref(), Some("{}"));
        assert_eq!(WORDS.without_task(json(r#"{"task":{}}"#)), None);
    }

    #[test]
    fn a_call_becomes_a_job_after_what_is_configured_and_before_its_limit_or_at_once_as_a_task() {
        const NOW: u64 = 100;
        let seconds = Duration::from_secs;
        let after = |count| Promotion::After(seconds(count));
        for (reply, promotion, clock, waited, limit, expect) in [
            (WORDS, after(45), None, 0, 60, Some(NOW + 45)),
            (EXTENSION, after(45), None, 0, 60, Some(NOW + 45)),
            // The time that the call has waited is a part of it.
            (WORDS, after(45), None, 5, 60, Some(NOW + 40)),
            (WORDS, after(45), None, 50, 60, Some(NOW)),
            (WORDS, after(45), Some(50), 0, 47, Some(NOW + 40)),
            // At its limit the call has ended.
            (WORDS, after(60), None, 0, 60, None),
            (WORDS, after(60), None, 0, 61, Some(NOW + 60)),
            (WORDS, after(60), None, 1, 60, Some(NOW + 59)),
            (WORDS, Promotion::Off, None, 0, 60, None),
            // Its client waits for nothing else, so no limit comes before.
            (CORE, after(45), None, 0, 60, Some(NOW)),
            (CORE, after(60), None, 0, 60, Some(NOW)),
            (EXTENSION, Promotion::Off, None, 0, 60, None),
            (CORE, Promotion::Off, None, 0, 60, None),
        ] {
            let clock = clock.map(seconds);
            let timing = CallTiming { now: seconds(NOW), waited: seconds(waited), clock, window: None };
            let plan = PromotionPlan::of(reply, Some(promotion), seconds(limit), timing);
            assert_eq!(plan.at, expect.map(seconds), "{reply:?} {promotion} {waited} {limit}");
            let is_refused = reply == CORE && expect.is_none();
            assert_eq!((plan.promotion_reply, plan.is_refused()), (reply, is_refused));
            assert_eq!(plan.takes_server_tasks, reply == EXTENSION);
            assert_eq!(plan.may_be_a_job(), expect.is_some() || reply == EXTENSION);
            let none = PromotionPlan::of(reply, None, seconds(limit), timing);
            assert!(!none.may_be_a_job(), "nobody keeps jobs");
        }
        assert_eq!((PromotionPlan::never().at, PromotionPlan::never().is_refused()), (None, false));
    }
}
