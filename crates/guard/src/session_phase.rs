//! The way out of a session.
//!
//! ```text
//! Running ──eof──► Draining ──all answered, or grace──► Stopping ──server gone──► Closed
//! Running ──signal, client gone──────────────────────► Stopping
//! Running ──never came up──► Unstartable ──one request told, or grace──► Closed
//! ```

use std::time::Duration;

/// The stage of the session on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrapPhase {
    Running,
    /// The client has ended. Requests in flight may still be answered.
    Draining {
        until: Duration,
    },
    /// The server never came up, and no request has been told of that yet.
    Unstartable {
        until: Duration,
    },
    /// The server is being stopped.
    Stopping {
        until: Duration,
        code: u8,
    },
    Closed,
}

impl WrapPhase {
    /// Returns when the next stage begins at the latest.
    pub(super) fn next_tick(self) -> Option<Duration> {
        match self {
            WrapPhase::Draining { until, .. } => Some(until),
            WrapPhase::Unstartable { until } => Some(until),
            WrapPhase::Stopping { until, .. } => Some(until),
            _ => None,
        }
    }

    /// Returns whether requests may still be answered.
    pub(super) fn serves(self) -> bool {
        matches!(self, WrapPhase::Running | WrapPhase::Draining { .. })
    }
}
