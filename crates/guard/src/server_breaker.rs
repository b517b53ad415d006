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
