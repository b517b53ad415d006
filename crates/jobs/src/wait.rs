//! Waits of threads that have no runtime, for what can only be looked at: a lock of another process, the end of a shim.
//!
//! Invariants: every wait has a limit, and says whether it was reached.

use std::{thread, time::Duration};

use unhang_proc::tree::now;

/// A moment by which something must have happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit {
    begin: Duration,
    length: Duration,
}

impl WaitLimit {
    /// The moment that lies `length` ahead.
    pub(crate) fn after(length: Duration) -> Self {
        Self { begin: now(), length }
    }

    /// The time that has passed since it was set.
    pub(crate) fn elapsed(&self) -> Duration {
        now().saturating_sub(self.begin)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.elapsed() >= self.length
    }
}

/// Looks again and again. None where the limit was reached first.
pub(crate) fn look_until<T, E>(
    limit: WaitLimit,
    between: Duration,
    mut look: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    loop {
        let seen = look()?;
        if seen.is_some() || limit.is_over() {
            return Ok(seen);
        }
        pause(between);
    }
}

/// Leaves time to others.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is looked at, and tells nobody when it is done"
)]
pub(crate) fn pause(length: Duration) {
    thread::sleep(length);
}
