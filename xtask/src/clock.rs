//! Time: one place that reads the clock, one that pauses.

use std::time::{Duration, Instant};

/// How long between two looks at what cannot be waited on, such as `/proc` or a growing file.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Returns the present moment.
#[expect(clippy::disallowed_methods, reason = "there is no tokio here whose clock could be paused")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Looks until `condition` holds or `limit` is over; returns whether it held.
#[expect(
    clippy::disallowed_methods,
    reason = "/proc and growing files cannot be waited on; the condition has a limit"
)]
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = now() + limit;
    loop {
        if condition() {
            return true;
        }
        if now() >= end {
            return false;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}
