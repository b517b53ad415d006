//! The terms on which a server is asked. They say how long its client waits, how long the server has, and whether a job may be made of it
//! meanwhile.
//!
//! Invariants
//!
//! - The time that a request has waited for its server to start is part of its limit.
//! - A call that may become a job is given the time for that; until then unhang keeps the client's limit.

use std::time::Duration;

use super::{
    promotion::{PromotionPlan, PromotionReply},
    tasks::JobCapabilities,
};
use unhang_core::clients;
use unhang_gateway::{JoinPolicy, RequestTimeouts};
use unhang_upstream::http::headers::CallLimit;

/// The times that are known of a call when it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTiming {
    pub now: Duration,
    /// How long the request has waited already.
    pub waited: Duration,
    /// The time after which the client gives the call up, if that is known.
    pub clock: Option<Duration>,
    /// How long the window that asks waits, if it has said so.
    pub window: Option<CallLimit>,
}

/// The terms of one request; see the module's text.
#[derive(Debug)]
pub(super) struct CallTerms {
    /// How long the client waits.
    pub limit: Duration,
    /// The client's own timeout, if that is what makes the limit so short.
    pub clock: Option<Duration>,
    /// How long the server is asked from now on.
    pub asked_limit: Duration,
    /// The part of that limit that has passed.
    pub waited: Duration,
    /// How the call becomes a job, if it may.
    pub promotion: PromotionPlan,
    /// Whether the call joins the job that the same call has become.
    pub joining: JoinPolicy,
    /// Whether its client may hear heartbeats while it waits.
    pub has_heartbeat: bool,
}

impl CallTerms {
    /// Makes the terms of a request that is not a tool call and has waited this long.
    pub(super) fn of_request(timeouts: &RequestTimeouts, waited: Duration) -> CallTerms {
        let limit = timeouts.request.saturating_sub(waited);
        CallTerms {
            limit,
            clock: None,
            asked_limit: limit,
            waited,
            promotion: PromotionPlan::never(),
            joining: JoinPolicy::Never,
            has_heartbeat: false,
        }
    }

    /// Makes the terms of a call of this tool, whose client gets this reply if a job is made of it.
    pub(super) fn of_call(
        tool: &str,
        timeouts: &RequestTimeouts,
        promotion_reply: PromotionReply,
        jobs: JobCapabilities,
        timing: CallTiming,
    ) -> CallTerms {
        let most = timeouts.of_call(tool);
        let limit = clients::call_limit(timing.clock, most);
        let clock = timing.clock.filter(|_| limit < most);
        let limit = limit.saturating_sub(timing.waited);
        let job_limit = timeouts.of_job(tool);
        let promotion = jobs.promotes.then(|| timeouts.of_promotion(tool));
        // A call that is older than the limit of a job becomes none: as a job it would have ended already.
        let plan = PromotionPlan::of(promotion_reply, promotion, limit.min(job_limit), timing);
        let joining = if plan.at.is_some() { timeouts.of_joining(tool) } else { JoinPolicy::Never };
        let may_be_a_job = plan.may_be_a_job();
        let window = timing.window;
        let waited = timing.waited + window.map(|window| window.waited).unwrap_or_default();
        let asked_limit = match (may_be_a_job, jobs.are_of_windows) {
            (true, _) => job_limit,
            // The window that serves the client knows when to stop, and says so.
            (false, true) => {
                window.map_or(job_limit.max(limit), |window| window.limit.saturating_sub(waited))
            }
            (false, false) => limit,
        };
        // If windows ask, the window that serves the client knows when to stop.
        let limit = if jobs.are_of_windows { asked_limit } else { limit };
        let has_heartbeat = timeouts.has_heartbeat(tool);
        CallTerms { limit, clock, asked_limit, waited, promotion: plan, joining, has_heartbeat }
    }

    /// Returns whether a job may be made of the call.
    pub(super) fn may_be_a_job(&self) -> bool {
        self.promotion.may_be_a_job()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unhang_core::promotion::Promotion;

    const CALL: Duration = Duration::from_secs(60);
    const JOB: Duration = Duration::from_secs(600);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// The terms of a call that becomes a job after so long, and has waited for a second.
    fn terms(after: u64, call: Duration, are_of_windows: bool, window: Option<CallLimit>) -> CallTerms {
        let promotion = Promotion::After(seconds(after));
        let joining = JoinPolicy::Always;
        let timeouts = RequestTimeouts { call, job: JOB, promotion, joining, ..RequestTimeouts::default() };
        let jobs = JobCapabilities {
            are_there: true,
            promotes: !are_of_windows,
            are_of_windows,
            ..JobCapabilities::default()
        };
        let timing = CallTiming { now: seconds(100), waited: seconds(1), clock: None, window };
        CallTerms::of_call("tool", &timeouts, PromotionReply::Words, jobs, timing)
    }

    #[test]
    fn what_may_become_a_job_has_the_time_of_one() {
        let terms = terms(5, CALL, false, None);
        assert_eq!(terms.promotion.at, Some(seconds(104)), "what it has waited counts");
        assert_eq!((terms.limit, terms.asked_limit), (seconds(59), JOB));
        assert_eq!((terms.waited, terms.joining), (seconds(1), JoinPolicy::Always));
    }

    #[test]
    fn what_is_over_before_it_could_be_a_job_is_a_call() {
        let terms = terms(5, seconds(4), false, None);
        assert_eq!((terms.promotion.at, terms.joining), (None, JoinPolicy::Never));
        assert_eq!((terms.limit, terms.asked_limit), (seconds(3), seconds(3)));
    }

    #[test]
    fn a_window_is_served_for_as_long_as_it_waits() {
        let window = CallLimit { limit: seconds(10), waited: seconds(2) };
        let said = terms(5, CALL, true, Some(window));
        assert_eq!((said.limit, said.asked_limit, said.waited), (seconds(7), seconds(7), seconds(3)));
        let unsaid = terms(5, CALL, true, None);
        assert_eq!((unsaid.limit, unsaid.asked_limit, unsaid.waited), (JOB, JOB, seconds(1)));
    }

    /// The terms of a call by this clock, which has waited for a second.
    fn timed(timeouts: &RequestTimeouts, jobs: JobCapabilities, clock: Option<u64>) -> CallTerms {
        let timing =
            CallTiming { now: seconds(100), waited: seconds(1), clock: clock.map(seconds), window: None };
        CallTerms::of_call("tool", timeouts, PromotionReply::Words, jobs, timing)
    }

    #[test]
    fn a_clients_clock_is_told_where_it_shortens_the_limit() {
        for (clock, call, limit, is_told) in [
            (None, 60, 59, false),
            (Some(100), 60, 59, false),
            // 95 of 100 parts of the clock are the limit of the server, to the second.
            (Some(100), 95, 94, false),
            (Some(100), 96, 94, true),
            (Some(40), 60, 37, true),
            // All of it has passed.
            (Some(1), 60, 0, true),
        ] {
            let timeouts = RequestTimeouts { call: seconds(call), ..RequestTimeouts::default() };
            let terms = timed(&timeouts, JobCapabilities::default(), clock);
            assert_eq!(
                (terms.limit.as_secs(), terms.asked_limit, terms.clock),
                (limit, terms.limit, clock.filter(|_| is_told).map(seconds)),
                "{clock:?} {call}"
            );
        }
    }

    #[test]
    fn a_call_may_be_a_job_where_jobs_are_made_and_its_moment_comes_before_its_end() {
        let promotes = JobCapabilities { are_there: true, promotes: true, ..JobCapabilities::default() };
        let makes_none = JobCapabilities { promotes: false, ..promotes };
        let after = |count| Promotion::After(seconds(count));
        for (jobs, promotion, call, job, may_be) in [
            (promotes, after(5), 60, 600, true),
            (makes_none, after(5), 60, 600, false),
            (promotes, Promotion::Off, 60, 600, false),
            // A second has passed of both: four are left until the moment, and nine or four until the end.
            (promotes, after(5), 10, 600, true),
            (promotes, after(5), 5, 600, false),
            (promotes, after(5), 60, 5, true),
            (promotes, after(5), 60, 4, false),
        ] {
            let (call, job) = (seconds(call), seconds(job));
            let joining = JoinPolicy::Always;
            let timeouts = RequestTimeouts { call, job, promotion, joining, ..RequestTimeouts::default() };
            let terms = timed(&timeouts, jobs, None);
            assert_eq!(terms.may_be_a_job(), may_be, "{timeouts:?}");
            assert_eq!(terms.joining == JoinPolicy::Always, may_be, "{timeouts:?}");
            assert_eq!(terms.asked_limit, if may_be { job } else { terms.limit }, "{timeouts:?}");
            assert_eq!(terms.has_heartbeat, promotion != Promotion::Off, "{timeouts:?}");
        }
    }

    #[test]
    fn a_request_that_is_no_call_has_the_rest_of_its_limit_and_never_becomes_a_job() {
        let timeouts = RequestTimeouts { request: seconds(30), ..RequestTimeouts::default() };
        for (waited, left) in [(0, 30), (29, 1), (31, 0)] {
            let terms = CallTerms::of_request(&timeouts, seconds(waited));
            assert_eq!(
                (terms.limit, terms.asked_limit, terms.waited),
                (seconds(left), seconds(left), seconds(waited))
            );
            assert!(!terms.may_be_a_job() && !terms.promotion.is_refused() && !terms.has_heartbeat);
            assert_eq!((terms.clock, terms.joining), (None, JoinPolicy::Never));
        }
    }

    #[test]
    fn a_window_that_says_nothing_is_served_for_the_longer_of_both_limits() {
        for (call, limit) in [(60, JOB), (3600, seconds(3599))] {
            let terms = terms(5, seconds(call), true, None);
            assert_eq!((terms.limit, terms.asked_limit), (limit, limit), "{call}");
        }
    }
}
