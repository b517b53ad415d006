//! The idle health check: is a server to which nobody talks still there (L-58, promise 8).
//!
//! Invariants: pure. The server is asked only while nothing is in flight, so a busy server is never asked and never judged. Any sign of
//! life starts the clock anew. A miss counts only while the server uses next to no processor time: busy is not hung. A server that has been
//! busy and deaf for longer than any call may take is hung all the same. A question that was open when a call came stays open, so a client
//! that asks again and again keeps no hung server.

use std::time::Duration;

use crate::{
    config::{BUSY_PERCENT, HEALTH_MISSES},
    limits::Limits,
};

/// The hint about a server that answers nothing while it works on a call.
pub const WORKS_ON_ONE_CALL: &str =
    "works on one call at a time; `instances = 2` would answer others meanwhile";

/// The action to take at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Do nothing yet.
    Wait,
    /// Ask the server whether it lives.
    Probe,
    /// Restart the server, which hangs: it left so many checks unanswered.
    Restart(u32),
}

/// The known facts about one server's health.
#[derive(Debug)]
pub struct Health {
    interval: Duration,
    call_timeout: Duration,
    last_life: Duration,
    asked_at: Option<Duration>,
    misses: u32,
    processor_time: Option<Duration>,
}

impl Health {
    /// Makes the health of a server that has just shown a sign of life.
    pub fn new(limits: &Limits, now: Duration) -> Health {
        Health {
            interval: limits.health_interval,
            call_timeout: limits.call_timeout,
            last_life: now,
            asked_at: None,
            misses: 0,
            processor_time: None,
        }
    }

    /// Notes that the server sent something.
    pub fn life(&mut self, now: Duration) {
        self.last_life = now;
        self.asked_at = None;
        self.misses = 0;
    }

    /// Returns when `tick` is to be called next.
    pub fn next_tick(&self) -> Duration {
        self.asked_at.unwrap_or(self.last_life).saturating_add(self.interval)
    }

    /// Judges the server, if the time for it has come. `processor_time` returns the time that the server's processes have used so far, if
    /// that can be read.
    pub fn tick(&mut self, now: Duration, processor_time: impl FnOnce() -> Option<Duration>) -> Advice {
        if now < self.next_tick() {
            return Advice::Wait;
        }
        let used = processor_time();
        let worked = used.is_some_and(|used| {
            let lately = used.saturating_sub(self.processor_time.unwrap_or_default());
            lately * 100 >= self.interval * BUSY_PERCENT
        });
        self.processor_time = used;
        if self.asked_at.is_some() {
            let hung_for_good = now - self.last_life > self.call_timeout + self.interval * HEALTH_MISSES;
            let missed = !worked || hung_for_good;
            // Misses count in a row: a server that works in bursts is at work.
            if missed {
                self.misses += 1;
            } else {
                self.misses = 0;
            }
        }
        if self.misses >= HEALTH_MISSES {
            return Advice::Restart(self.misses);
        }
        self.asked_at = Some(now);
        Advice::Probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn health() -> Health {
        Health::new(&Limits::default(), at(0))
    }

    #[test]
    fn three_misses_in_a_row_restart() {
        let mut health = health();
        assert_eq!(health.tick(at(29), || None), Advice::Wait);
        for second in [30, 60, 90] {
            assert_eq!(health.tick(at(second), || None), Advice::Probe);
        }
        assert_eq!(health.tick(at(120), || None), Advice::Restart(3));
    }

    #[test]
    fn any_sign_of_life_starts_anew() {
        let mut health = health();
        for second in [30, 60, 90] {
            health.tick(at(second), || None);
        }
        health.life(at(100));
        assert_eq!(health.tick(at(120), || None), Advice::Wait);
        assert_eq!(health.tick(at(130), || None), Advice::Probe);
    }

    #[test]
    fn l_58_a_server_that_works_is_not_taken_for_a_hung_one() {
        let mut health = health();
        let mut advice = Vec::new();
        for second in (30..300).step_by(30) {
            advice.push(health.tick(at(second), || Some(at(second))));
        }
        assert!(advice.iter().all(|advice| *advice == Advice::Probe), "{advice:?}");
    }

    #[test]
    fn l_58_a_hung_server_whose_timers_still_tick_is_hung() {
        let mut health = health();
        let tick = |health: &mut Health, count: u32| {
            health.tick(at(30) * count, || Some(Duration::from_millis(5) * count))
        };
        let advice: Vec<_> = (1..=4).map(|count| tick(&mut health, count)).collect();
        assert_eq!(advice.last(), Some(&Advice::Restart(3)), "{advice:?}");
    }

    #[test]
    fn l_58_a_server_that_works_in_bursts_is_not_taken_for_a_hung_one() {
        let mut health = health();
        // Two checks go by without work, then one with it.
        let advice: Vec<_> =
            (1..9).map(|count| health.tick(at(30 * count), || Some(at(count / 3)))).collect();
        assert!(advice.iter().all(|advice| *advice == Advice::Probe), "{advice:?}");
    }

    #[test]
    fn a_server_that_spins_for_ever_is_hung_in_the_end() {
        let mut health = health();
        let restarted = (30..1000)
            .step_by(30)
            .find(|second| health.tick(at(*second), || Some(at(*second))) == Advice::Restart(3));
        assert!(restarted.is_some_and(|second| second > 300), "{restarted:?}");
    }

    #[test]
    fn a_server_that_spins_has_the_time_of_a_call_and_of_three_checks_since_its_last_sign_of_life() {
        for began in [0, 1000] {
            let mut health = Health::new(&Limits::default(), at(0));
            health.life(at(began));
            let restarted = (began + 30..began + 1000)
                .step_by(30)
                .find(|second| health.tick(at(*second), || Some(at(*second))) == Advice::Restart(3));
            // Five minutes and three times 30 s, and then three checks without an answer.
            assert_eq!(restarted, Some(began + 480));
        }
    }

    #[test]
    fn a_server_is_busy_if_it_computed_for_a_hundredth_of_the_time_between_two_checks() {
        for (milliseconds, expect) in [(299, Advice::Restart(3)), (300, Advice::Probe)] {
            let mut health = health();
            let mut advice = Advice::Wait;
            for count in 1..=4 {
                // It had used a lot before, which says nothing.
                let used = at(60) + Duration::from_millis(milliseconds) * count;
                advice = health.tick(at(30) * count, || Some(used));
            }
            assert_eq!(advice, expect, "{milliseconds}");
        }
    }

    #[test]
    fn the_next_tick_is_one_interval_after_the_last_sign_of_life_or_question() {
        let mut health = health();
        assert_eq!(health.next_tick(), at(30));
        assert_eq!(health.tick(at(35), || None), Advice::Probe);
        assert_eq!(health.next_tick(), at(65));
        assert_eq!(health.tick(at(64), || None), Advice::Wait);
        health.life(at(50));
        assert_eq!(health.next_tick(), at(80));
        // A miss before the sign of life does not count any more.
        for (second, expect) in [(80, Advice::Probe), (110, Advice::Probe), (140, Advice::Probe)] {
            assert_eq!(health.tick(at(second), || None), expect, "{second}");
        }
        assert_eq!(health.tick(at(170), || None), Advice::Restart(3));
    }
}
