//! The limits of one server: numbers that a flag, an environment variable or the configuration file sets.
//!
//! Invariant: every default is a constant of [`config`](crate::config), which gives its reason.

use std::time::Duration;

use crate::{
    config::{
        BREAKER_COOLDOWN, BREAKER_FAILURES, BUSY_AFTER, CALL_TIMEOUT, EOF_GRACE, HEALTH_INTERVAL,
        JOB_TIMEOUT, MAX_IN_FLIGHT, MAX_MESSAGE, MAX_WAITING, QUEUE_BYTES, REQUEST_TIMEOUT, RESTART_DELAY,
        START_TIMEOUT, STDERR_LOG, STDERR_TAIL, STOP_GRACE, STOP_LIMIT,
    },
    promotion::Promotion,
};

/// The limits of one server. A flag goes before the environment, the environment before the file, and the file before these defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit from spawn to the first answer.
    pub start_timeout: Duration,
    /// The limit of any request but `tools/call`.
    pub request_timeout: Duration,
    /// The limit of a `tools/call`, in all.
    pub call_timeout: Duration,
    /// When a `tools/call` becomes a job.
    pub promote_after: Promotion,
    /// The limit of a `tools/call` that has become a job, in all.
    pub job_timeout: Duration,
    /// How long a call may keep one of several instances of a server before the next call goes to another instance.
    pub busy_after: Duration,
    /// How long calls in flight may take after the client's stdin ended.
    pub eof_grace: Duration,
    /// The time between the rungs of the stop ladder.
    pub stop_grace: Duration,
    /// The most bytes of one line, in either direction.
    pub max_message: usize,
    /// The most requests of one client at the same time; behind the gateway those with one server, of all clients together.
    pub max_in_flight: usize,
    /// The most requests that wait for their turn at one server behind the gateway.
    pub max_waiting: usize,
    /// The most bytes that wait for one peer.
    pub queue_bytes: usize,
    /// The first pause before a restart.
    pub restart_delay: Duration,
    /// The number of failures in a row that open the breaker.
    pub breaker_failures: u32,
    /// How long an open breaker refuses.
    pub breaker_cooldown: Duration,
    /// The idle time before a health check, and the time an answer to it may take.
    pub health_interval: Duration,
    /// The bytes of stderr that are kept in memory.
    pub stderr_tail: usize,
    /// The bytes of log on disk.
    pub stderr_log: u64,
    /// Whether every notification is kept from the client while a call runs (G-13, X-01).
    pub quiet: bool,
    /// Whether the same call of the same client joins the job that the first one has become, and does not run twice.
    pub join_same_call: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            start_timeout: START_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
            promote_after: Promotion::default(),
            job_timeout: JOB_TIMEOUT,
            busy_after: BUSY_AFTER,
            eof_grace: EOF_GRACE,
            stop_grace: STOP_GRACE,
            max_message: MAX_MESSAGE,
            max_in_flight: MAX_IN_FLIGHT,
            max_waiting: MAX_WAITING,
            queue_bytes: QUEUE_BYTES,
            restart_delay: RESTART_DELAY,
            breaker_failures: BREAKER_FAILURES,
            breaker_cooldown: BREAKER_COOLDOWN,
            health_interval: HEALTH_INTERVAL,
            stderr_tail: STDERR_TAIL,
            stderr_log: STDERR_LOG,
            quiet: false,
            join_same_call: false,
        }
    }
}

impl Limits {
    /// Returns the limit of the whole stop of a server: three graces, but never more than [`STOP_LIMIT`] unless the grace was raised.
    pub fn stop_limit(&self) -> Duration {
        STOP_LIMIT.max(self.stop_grace * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{EXIT_LIMIT, FLUSH_LIMIT, STOP_SLACK};

    #[test]
    fn x_05_the_limits_nest() {
        let limits = Limits::default();
        assert!(limits.stop_limit() <= STOP_LIMIT && STOP_LIMIT < EXIT_LIMIT);
        let patient = Limits { stop_grace: Duration::from_secs(5), ..Limits::default() };
        assert!(patient.stop_limit() >= patient.stop_grace * 3);
        assert!(limits.eof_grace + limits.stop_limit() + STOP_SLACK + FLUSH_LIMIT < EXIT_LIMIT);
    }

    #[test]
    fn the_stop_of_a_server_takes_three_graces_or_the_limit_if_that_is_longer() {
        for (grace, expect) in [(0, 3000), (999, 3000), (1000, 3000), (1001, 3003), (5000, 15_000)] {
            let limits = Limits { stop_grace: Duration::from_millis(grace), ..Limits::default() };
            assert_eq!(limits.stop_limit(), Duration::from_millis(expect), "{grace}");
        }
    }
}
