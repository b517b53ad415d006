//! When to stop trying: back-off between restarts, and the breaker that fences off a server that keeps failing (promise 6, L-56).
//!
//! Invariants: pure, time is handed in. Start failures and dead processes count; a caller's timeout does not. Only an answered request
//! resets the count. A handshake does not, so a server that shakes hands and dies on every call is fenced off too.

use std::time::Duration;

use crate::{config::RESTART_DELAY_MAX, limits::Limits};

/// The breaker's answer to a new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerVerdict {
    /// The request passes.
    Pass,
    /// The request passes as the one trial after the cool-down.
    Trial,
    /// The request is refused; the next trial is possible after this long.
    Refuse(Duration),
}

/// The breaker's phase, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerPhase {
    /// Requests pass.
    Closed,
    /// Requests are refused, for this long.
    Open(Duration),
    /// One request may try, or is trying.
    Trial,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitState {
    Closed,
    Open { until: Duration },
    Trial,
}

/// Counts failures in a row, and decides what follows from them.
#[derive(Debug)]
pub struct Breaker {
    threshold: u32,
    cooldown: Duration,
    first_delay: Duration,
    failures: u32,
    state: CircuitState,
    jitter: u64,
}

impl Breaker {
    /// Makes a closed breaker. `seed` varies the back-off between processes, so many guards do not restart in step.
    pub fn new(limits: &Limits, seed: u64) -> Breaker {
        Breaker {
            threshold: limits.breaker_failures,
            cooldown: limits.breaker_cooldown,
            first_delay: limits.restart_delay,
            failures: 0,
            state: CircuitState::Closed,
            jitter: seed | 1,
        }
    }

    /// Returns the number of failures since the last answered request.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Asks whether one request may pass. A [`BreakerVerdict::Trial`] is given once; it ends with `succeeded` or `failed`.
    pub fn ask(&mut self, now: Duration) -> BreakerVerdict {
        match self.state {
            CircuitState::Closed => BreakerVerdict::Pass,
            CircuitState::Open { until } if now < until => BreakerVerdict::Refuse(until - now),
            CircuitState::Trial => BreakerVerdict::Refuse(self.cooldown),
            CircuitState::Open { .. } => {
                self.state = CircuitState::Trial;
                BreakerVerdict::Trial
            }
        }
    }

    /// Returns the breaker's phase, and changes nothing.
    pub fn phase(&self, now: Duration) -> BreakerPhase {
        match self.state {
            CircuitState::Closed => BreakerPhase::Closed,
            CircuitState::Open { until } if now < until => BreakerPhase::Open(until - now),
            CircuitState::Open { .. } | CircuitState::Trial => BreakerPhase::Trial,
        }
    }

    /// Returns whether the breaker is open: unhang then starts nothing on its own account.
    pub fn is_open(&self) -> bool {
        matches!(self.state, CircuitState::Open { .. })
    }

    /// Notes that a request of the client was answered, and closes the breaker.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.state = CircuitState::Closed;
    }

    /// Notes that the trial ended without saying anything about the server (cancelled, expired): the next request may try.
    pub fn trial_abandoned(&mut self, now: Duration) {
        if self.state == CircuitState::Trial {
            self.state = CircuitState::Open { until: now };
        }
    }

    /// Notes that a start failed or a process died. Returns whether this opened the breaker.
    pub fn failed(&mut self, now: Duration) -> bool {
        self.failures = self.failures.saturating_add(1);
        // A trial is reached only with so many failures, so a failed one opens the breaker again.
        let opens = self.failures >= self.threshold;
        if opens {
            self.state = CircuitState::Open { until: now + self.cooldown };
        }
        opens
    }

    /// Returns the pause before the next start. It doubles from the first delay, is at most [`RESTART_DELAY_MAX`] and never goes beyond the
    /// cool-down. Jitter brings it to between three quarters and the whole of that.
    pub fn delay(&mut self) -> Duration {
        let doublings = self.failures.saturating_sub(1);
        let ceiling = RESTART_DELAY_MAX.max(self.first_delay);
        let full = self.first_delay.saturating_mul(2_u32.saturating_pow(doublings)).min(ceiling);
        // After the cool-down a trial is due, and nothing may keep it waiting.
        let full = full.min(self.cooldown);
        // A xorshift step: nothing here needs good randomness, only a spread.
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        let jitter = self.jitter % 1000;
        full - full.mul_f64(0.25 * jitter as f64 / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(&Limits::default(), 7)
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn opens_after_the_fifth_failure_and_allows_one_trial() {
        let mut breaker = breaker();
        for _ in 0..4 {
            assert!(!breaker.failed(at(1)));
            assert_eq!(breaker.ask(at(1)), BreakerVerdict::Pass);
        }
        assert!(breaker.failed(at(1)));
        assert_eq!(breaker.ask(at(2)), BreakerVerdict::Refuse(at(29)));
        assert_eq!(
            (breaker.phase(at(2)), breaker.phase(at(31))),
            (BreakerPhase::Open(at(29)), BreakerPhase::Trial)
        );
        assert_eq!(breaker.ask(at(31)), BreakerVerdict::Trial);
        assert!(matches!(breaker.ask(at(31)), BreakerVerdict::Refuse(_)), "only one trial");
        assert_eq!(breaker.phase(at(31)), BreakerPhase::Trial);
        assert!(breaker.failed(at(32)), "a failed trial opens it again at once");
        assert!(matches!(breaker.ask(at(33)), BreakerVerdict::Refuse(_)));
        assert_eq!(breaker.ask(at(62)), BreakerVerdict::Trial);
        breaker.succeeded();
        assert_eq!((breaker.ask(at(62)), breaker.failures()), (BreakerVerdict::Pass, 0));
        assert_eq!(breaker.phase(at(62)), BreakerPhase::Closed);
    }

    #[test]
    fn an_abandoned_trial_lets_the_next_request_try() {
        let mut breaker = breaker();
        assert!((0..5).any(|_| breaker.failed(at(0))));
        assert_eq!(breaker.ask(at(30)), BreakerVerdict::Trial);
        breaker.trial_abandoned(at(40));
        assert_eq!(breaker.ask(at(40)), BreakerVerdict::Trial);
    }

    #[test]
    fn pauses_double_to_a_ceiling_and_are_jittered_downwards() {
        // Longer than the ceiling, which would be the shorter cool-down otherwise.
        let breaker_cooldown = RESTART_DELAY_MAX * 10;
        let mut breaker = Breaker::new(&Limits { breaker_cooldown, ..Limits::default() }, 7);
        let mut full = Limits::default().restart_delay;
        // So often does a trial fail in a quarter of an hour.
        for _ in 0..40 {
            breaker.failed(at(0));
            let delay = breaker.delay();
            assert!(delay <= full && delay >= full.mul_f64(0.75), "{delay:?} of {full:?}");
            full = (full * 2).min(RESTART_DELAY_MAX);
        }
    }

    #[test]
    fn f_51_no_pause_is_longer_than_the_cool_down() {
        let cooldown = at(3);
        let mut breaker = Breaker::new(&Limits { breaker_cooldown: cooldown, ..Limits::default() }, 7);
        for _ in 0..20 {
            breaker.failed(at(0));
            assert!(breaker.delay() <= cooldown);
        }
    }

    #[test]
    fn guards_that_lost_the_same_thing_do_not_restart_in_step() {
        let pauses: BTreeSet<Duration> =
            (0..20).map(|seed| Breaker::new(&Limits::default(), seed).delay()).collect();
        assert!(pauses.len() > 5, "{pauses:?}");
    }

    #[test]
    fn an_abandoned_trial_changes_nothing_if_there_is_none() {
        let mut breaker = breaker();
        breaker.trial_abandoned(at(1));
        assert_eq!((breaker.phase(at(1)), breaker.ask(at(1))), (BreakerPhase::Closed, BreakerVerdict::Pass));
        for failures in 1..=5 {
            breaker.failed(at(1));
            assert_eq!((breaker.failures(), breaker.is_open()), (failures, failures == 5));
        }
        breaker.trial_abandoned(at(2));
        assert_eq!(breaker.ask(at(2)), BreakerVerdict::Refuse(at(29)), "it is still open");
        assert_eq!(breaker.ask(at(31)), BreakerVerdict::Trial);
        assert!(!breaker.is_open(), "the trial may start a server");
    }

    #[test]
    fn the_pauses_of_one_guard_are_spread_over_the_whole_last_quarter() {
        for seed in 0..40 {
            let mut breaker = Breaker::new(&Limits::default(), seed);
            let full = Limits::default().restart_delay;
            let pauses: BTreeSet<Duration> = (0..200).map(|_| breaker.delay()).collect();
            let (least, most) = (full.mul_f64(0.75), full);
            assert!(pauses.len() > 150, "seed {seed}: {} of 200 differ", pauses.len());
            assert!(
                pauses.first().is_some_and(|pause| (least..full.mul_f64(0.77)).contains(pause)),
                "{seed}"
            );
            assert!(pauses.last().is_some_and(|pause| (full.mul_f64(0.98)..=most).contains(pause)), "{seed}");
        }
    }
}
