//! The stop ladder: close the input, wait, SIGTERM, wait, SIGKILL, wait, give up on asking (X-12, L-13 to L-15).
//!
//! A pure state machine of (state, time). The owner of a server climbs it with its own clock, and so does the lifeline if its owner has
//! gone. Times are durations since any fixed origin of the caller's choice.
//!
//! Invariants: no rung is climbed twice or skipped. Whatever `grace` says, the last rung comes before `limit` has passed.

use std::time::Duration;

/// The share of the limit that is kept for the force of the last rung: a tenth.
const RESERVE: u32 = 10;
/// How long the report of the sweep may take after the end of a server that nobody stopped: the sweep's own bound and a second of slack.
const REPORT_LIMIT: Duration = Duration::from_secs(3);

/// How patient a stop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopTimeouts {
    /// The wait after the input was closed, and again after SIGTERM.
    pub grace: Duration,
    /// The limit of the whole stop. A `grace` longer than a third of it is cut to a third.
    pub limit: Duration,
}

impl StopTimeouts {
    fn grace(self) -> Duration {
        self.grace.min(self.limit / 3)
    }

    /// Returns the time from SIGKILL until the owner gives up on the lifeline, which was to send it.
    fn last_wait(self) -> Duration {
        let reserve = self.limit / RESERVE;
        self.limit - reserve - 2 * self.grace()
    }
}

/// The action that is due when a rung is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAction {
    /// Send SIGTERM to the server's process group.
    Terminate,
    /// Send SIGKILL to everything.
    Kill,
    /// The lifeline did not answer: the owner kills the tree by itself.
    Abandon,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    /// Nobody wants the server to stop.
    Ground,
    /// The input is closed; SIGTERM comes at the time given.
    Closed(Duration),
    /// SIGTERM was sent; SIGKILL comes at the time given.
    Terminated(Duration),
    /// SIGKILL was asked for, or the server has ended by itself; the report must come by the time given.
    Killed(Duration),
    /// Nothing is left to be done.
    Top,
}

/// The state of a stop.
#[derive(Clone, Debug)]
pub struct Ladder {
    timeouts: StopTimeouts,
    rung: Rung,
    /// When the stop has to be over, once it has started.
    last: Option<Duration>,
}

impl Ladder {
    /// Makes a ladder for a stop that has not started.
    #[must_use]
    pub fn new(timeouts: StopTimeouts) -> Self {
        Self { timeouts, rung: Rung::Ground, last: None }
    }

    /// Starts the stop; the caller closes the input at this moment. Does nothing if the stop has started already.
    pub fn begin(&mut self, now: Duration) {
        if self.rung == Rung::Ground {
            self.rung = Rung::Closed(now + self.timeouts.grace());
            self.last = Some(now + 2 * self.timeouts.grace() + self.timeouts.last_wait());
        }
    }

    /// Skips to SIGKILL, which the caller sends at this moment. Returns `false` if SIGKILL was sent before.
    pub fn kill(&mut self, now: Duration) -> bool {
        if matches!(self.rung, Rung::Killed(_) | Rung::Top) {
            return false;
        }
        self.rung = Rung::Killed(now + self.timeouts.last_wait());
        true
    }

    /// Notes that the server itself has ended. Nothing more is sent to it, but the report of the sweep has its time.
    pub fn server_ended(&mut self, now: Duration) {
        if !matches!(self.rung, Rung::Killed(_) | Rung::Top) {
            self.rung = Rung::Killed(self.last.unwrap_or(now + REPORT_LIMIT));
        }
    }

    /// Returns whether the stop has started.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.rung != Rung::Ground
    }

    /// Returns the time at which [`Self::step`] has something to do; `None` if it has nothing to do at any time.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        match self.rung {
            Rung::Ground | Rung::Top => None,
            Rung::Closed(at) | Rung::Terminated(at) | Rung::Killed(at) => Some(at),
        }
    }

    /// Climbs one rung if its time has come, and returns the action that is due then.
    pub fn step(&mut self, now: Duration) -> Option<StopAction> {
        let (rung, action) = match self.rung {
            Rung::Closed(at) if now >= at => {
                (Rung::Terminated(now + self.timeouts.grace()), StopAction::Terminate)
            }
            Rung::Terminated(at) if now >= at => {
                (Rung::Killed(now + self.timeouts.last_wait()), StopAction::Kill)
            }
            Rung::Killed(at) if now >= at => (Rung::Top, StopAction::Abandon),
            _ => return None,
        };
        self.rung = rung;
        Some(action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: StopTimeouts =
        StopTimeouts { grace: Duration::from_secs(1), limit: Duration::from_secs(3) };

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Steps through `times` (milliseconds) and compares what each asks for.
    fn check(ladder: &mut Ladder, expected: &[(u64, Option<StopAction>)]) {
        for &(at, action) in expected {
            assert_eq!(ladder.step(ms(at)), action, "at {at} ms");
        }
    }

    #[test]
    fn x_12_the_rungs_come_in_order_and_within_the_limit() {
        let mut ladder = Ladder::new(PATIENCE);
        check(&mut ladder, &[(5_000, None)]);
        ladder.begin(ms(10_000));
        assert_eq!(ladder.next(), Some(ms(11_000)));
        check(
            &mut ladder,
            &[
                (10_999, None),
                (11_000, Some(StopAction::Terminate)),
                (11_001, None),
                (12_000, Some(StopAction::Kill)),
                (12_699, None),
                (12_700, Some(StopAction::Abandon)),
                (99_000, None),
            ],
        );
        assert_eq!(ladder.next(), None);
    }

    #[test]
    fn a_long_grace_is_cut_so_that_the_limit_holds() {
        let mut ladder = Ladder::new(StopTimeouts { grace: ms(5_000), limit: ms(3_000) });
        ladder.begin(ms(0));
        check(
            &mut ladder,
            &[
                (1_000, Some(StopAction::Terminate)),
                (2_000, Some(StopAction::Kill)),
                (2_700, Some(StopAction::Abandon)),
            ],
        );
    }

    #[test]
    fn a_second_begin_changes_nothing() {
        let mut ladder = Ladder::new(PATIENCE);
        ladder.begin(ms(0));
        ladder.begin(ms(900));
        check(&mut ladder, &[(1_000, Some(StopAction::Terminate))]);
    }

    #[test]
    fn kill_skips_the_graces_and_is_sent_once() {
        let mut ladder = Ladder::new(PATIENCE);
        assert!(ladder.kill(ms(0)));
        assert!(!ladder.kill(ms(1)));
        ladder.begin(ms(2));
        check(&mut ladder, &[(699, None), (700, Some(StopAction::Abandon))]);
    }

    #[test]
    fn the_report_of_a_server_that_ended_by_itself_has_a_limit_too() {
        let mut ladder = Ladder::new(PATIENCE);
        ladder.server_ended(ms(0));
        check(&mut ladder, &[(2_999, None), (3_000, Some(StopAction::Abandon))]);
    }

    #[test]
    fn a_server_that_ends_while_stopping_is_not_signalled_again() {
        let mut ladder = Ladder::new(PATIENCE);
        ladder.begin(ms(0));
        check(&mut ladder, &[(1_000, Some(StopAction::Terminate))]);
        ladder.server_ended(ms(1_100));
        check(&mut ladder, &[(2_000, None), (2_700, Some(StopAction::Abandon))]);
    }
}
