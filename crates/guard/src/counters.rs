//! Counters of a guard.

/// The counters of a guard, which are shown at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrapCounters {
    /// Requests of the client.
    pub requests: u64,
    /// Requests that were answered by the server.
    pub answered: u64,
    /// Requests that were answered with an error of ours.
    pub faults: u64,
    /// Lines of the server's stdout that were not messages.
    pub junk: u64,
    /// Answers whose id had the wrong type and was repaired.
    pub repaired_ids: u64,
    /// Answers that no request waited for.
    pub unknown_ids: u64,
    /// Answers that came after their request was cancelled or expired.
    pub late_answers: u64,
    /// Notifications that were kept from the client.
    pub dropped_notifications: u64,
    /// Requests that were sent again after a restart.
    pub retried: u64,
    /// Restarts of the server.
    pub restarts: u64,
}
