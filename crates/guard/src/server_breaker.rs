//! The breaker that leaves a failing server alone, and the request that tries whether the server works again.
//!
//! Invariant: at most one request is the trial. The trial ends with that request, however that ends.

use std::time::Duration;

use unhang_core::{
    breaker::{Breaker, BreakerPhase, BreakerVerdict},
    fault::FaultKind,
    limits::Limits,
    refusal::ErrorReport,
    units::in_words,
};
use unhang_wire::Id;

/// The breaker. See the module's text.
#[derive(Debug)]
pub(super) struct ServerBreaker {
    breaker: Breaker,
    /// The trial request, by its id on the server's side.
    trial: Option<Id>,
    cooldown: Duration,
}

impl ServerBreaker {
    /// Makes a closed breaker. `seed` only varies the back-off.
    pub(super) fn new(limits: &Limits, seed: u64) -> Self {
        Self { breaker: Breaker::new(limits, seed), trial: None, cooldown: limits.breaker_cooldown }
    }

    /// Decides whether a request may go to the server.
    pub(super) fn ask(&mut self, now: Duration) -> BreakerVerdict {
        self.breaker.ask(now)
    }

    /// Notes that this request is the trial.
    pub(super) fn begin_trial(&mut self, wire_id: Id) {
        self.trial = Some(wire_id);
    }

    /// Ends the trial if it is this request, without judging the server. The next request may try.
    pub(super) fn settle_trial(&mut self, wire_id: &Id, now: Duration) {
        if self.trial.as_ref() == Some(wire_id) {
            self.end_trial(now);
        }
    }

    /// Ends the trial without a success.
    pub(super) fn end_trial(&mut self, now: Duration) {
        if self.trial.take().is_some() {
            self.breaker.trial_abandoned(now);
        }
    }

    /// Notes an answer.
    pub(super) fn succeeded(&mut self) {
        self.breaker.succeeded();
    }

    /// Notes the death of the server. Returns true if the server is left alone from now on.
    pub(super) fn failed(&mut self, now: Duration) -> bool {
        let opened = self.breaker.failed(now);
        self.trial = None;
        opened
    }

    /// Returns how long the next start waits.
    pub(super) fn delay(&mut self) -> Duration {
        self.breaker.delay()
    }

    pub(super) fn failures(&self) -> u32 {
        self.breaker.failures()
    }

    /// Returns when another try is worthwhile, if the server is left alone.
    pub(super) fn retry_after(&self, kind: FaultKind, now: Duration) -> Option<Duration> {
        let phase = self.breaker.phase(now);
        match phase {
            BreakerPhase::Open(rest) if kind == FaultKind::BreakerOpen => Some(rest),
            BreakerPhase::Trial if kind == FaultKind::BreakerOpen => Some(self.cooldown),
            _ => None,
        }
    }

    /// Words the news that the server is left alone from now on, for `cooldown`.
    pub(super) fn opened(&self, server: &str, cooldown: Duration) -> String {
        let (failures, cooldown) = (self.failures(), in_words(cooldown));
        format!("`{server}` failed {failures} times in a row, and unhang does not use it for {cooldown}")
    }

    /// Words the refusal of a request while the server is left alone for another `wait`.
    pub(super) fn refusal(&self, server: &str, wait: Duration) -> ErrorReport<'static> {
        let summary = format!(
            "`{server}` failed {} times in a row, and unhang does not use it for another {}",
            self.failures(),
            in_words(wait)
        );
        ErrorReport { kind: FaultKind::BreakerOpen, summary, hint: MEND_HINT }
    }

    /// Words the error of a call whose server is gone.
    pub(super) fn loss(&self, happened: &str) -> ErrorReport<'static> {
        let kind = if self.breaker.is_open() { FaultKind::BreakerOpen } else { FaultKind::ServerExited };
        ErrorReport { kind, summary: happened.to_owned(), hint: MEND_HINT }
    }
}

/// The hint about a server that keeps failing.
const MEND_HINT: &str = "fix the cause that error.data.stderrTail shows, then try again";

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A breaker that opens with the second failure in a row.
    fn breaker() -> ServerBreaker {
        let limits = Limits { breaker_failures: 2, breaker_cooldown: at(30), ..Limits::default() };
        ServerBreaker::new(&limits, 1)
    }

    fn opened() -> ServerBreaker {
        let mut breaker = breaker();
        assert!(!breaker.failed(at(0)) && breaker.failed(at(0)));
        breaker
    }

    /// A breaker whose trial is the request with the id 1, since second 30.
    fn on_trial() -> ServerBreaker {
        let mut breaker = opened();
        assert_eq!(breaker.ask(at(30)), BreakerVerdict::Trial);
        breaker.begin_trial(Id::from(1));
        breaker
    }

    #[test]
    fn only_the_refusal_by_an_open_breaker_says_when_to_try_again() {
        for (breaker, now, expect) in [
            (breaker(), 10, None),
            (opened(), 10, Some(at(20))),
            (opened(), 30, Some(at(30))),
            (on_trial(), 31, Some(at(30))),
        ] {
            assert_eq!(breaker.retry_after(FaultKind::BreakerOpen, at(now)), expect, "{breaker:?}");
            for kind in [FaultKind::ServerExited, FaultKind::Deadline, FaultKind::InvalidRequest] {
                assert_eq!(breaker.retry_after(kind, at(now)), None, "{kind:?} {breaker:?}");
            }
        }
    }

    #[test]
    fn a_refusal_tells_how_often_the_server_failed_and_how_long_it_is_left_alone() {
        let refusal = opened().refusal("srv", at(20));
        assert_eq!(
            (refusal.kind, refusal.summary.as_str(), refusal.hint),
            (
                FaultKind::BreakerOpen,
                "`srv` failed 2 times in a row, and unhang does not use it for another 20s",
                MEND_HINT
            )
        );
        let mut breaker = breaker();
        assert_eq!(breaker.failures(), 0);
        breaker.failed(at(0));
        assert_eq!(breaker.failures(), 1);
        breaker.succeeded();
        assert_eq!(breaker.failures(), 0, "an answer ends the row");
    }

    #[test]
    fn a_lost_call_is_told_whether_the_server_is_used_again() {
        for (breaker, kind) in [(breaker(), FaultKind::ServerExited), (opened(), FaultKind::BreakerOpen)] {
            let loss = breaker.loss("`srv` ended");
            assert_eq!((loss.kind, loss.summary.as_str(), loss.hint), (kind, "`srv` ended", MEND_HINT));
        }
    }

    #[test]
    fn a_trial_ends_with_its_own_request_only() {
        let cooldown = BreakerVerdict::Refuse(at(30));
        let mut breaker = on_trial();
        breaker.settle_trial(&Id::from(2), at(31));
        assert_eq!(breaker.ask(at(31)), cooldown, "another request is not the trial");
        breaker.settle_trial(&Id::from(1), at(32));
        assert_eq!(breaker.ask(at(32)), BreakerVerdict::Trial, "the next one may try");
        breaker.end_trial(at(33));
        assert_eq!(breaker.ask(at(33)), cooldown, "nobody said which request that trial was");
        breaker.begin_trial(Id::from(3));
        breaker.end_trial(at(34));
        assert_eq!(breaker.ask(at(34)), BreakerVerdict::Trial);
        breaker.begin_trial(Id::from(4));
        assert!(breaker.failed(at(35)), "a trial whose server dies opens the breaker again");
        breaker.settle_trial(&Id::from(4), at(36));
        assert_eq!(breaker.ask(at(36)), BreakerVerdict::Refuse(at(29)));
        breaker.succeeded();
        assert_eq!(breaker.ask(at(37)), BreakerVerdict::Pass);
    }

    #[test]
    fn the_next_start_waits_after_a_failure() {
        let mut breaker = opened();
        let full = Limits::default().restart_delay * 2;
        let delay = breaker.delay();
        assert!(delay >= full.mul_f64(0.75) && delay <= full, "{delay:?} of {full:?}");
    }
}
