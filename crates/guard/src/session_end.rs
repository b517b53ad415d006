//! The way out of a session.
//!
//! ```text
//! None ──eof──► Draining ──all answered, or grace──► Stopping ──server gone──► Over
//! None ──signal, client gone──────────────────────► Stopping
//! None ──never came up──► Unstartable ──one request told, or grace──► Over
//! ```

use std::time::Duration;

use unhang_switches::stands;

/// How far the session is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrapEnd {
    None,
    /// The client has ended; what is in flight may still be answered.
    Draining {
        until: Duration,
        code: u8,
    },
    /// The server never came up, and nobody has been told yet.
    Unstartable {
        until: Duration,
    },
    /// The server is being stopped.
    Stopping {
        until: Duration,
        code: u8,
    },
    Over,
}

impl WrapEnd {
    /// Tells when the next stage begins at the latest.
    pub(super) fn next_tick(self) -> Option<Duration> {
        match self {
            WrapEnd::Draining { until, .. } if stands("eof-grace-ends") => Some(until),
            WrapEnd::Unstartable { until } if stands("unasked-failure-ends") => Some(until),
            WrapEnd::Stopping { until, .. } if stands("stop-ends") => Some(until),
            _ => None,
        }
    }

    /// Tells whether requests may still be answered.
    pub(super) fn serves(self) -> bool {
        matches!(self, WrapEnd::None | WrapEnd::Draining { .. })
    }
}
