//! Waits of threads that have no runtime, for events that can only be polled: a lock of another process, the end of a supervisor.
//!
//! Invariants: every wait has a limit, and says whether it was reached.

use std::{thread, time::Duration};

use unhang_proc::tree::now;

/// The moment at which a wait has to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit {
    begin: Duration,
    length: Duration,
}

impl WaitLimit {
    /// Sets the limit to the moment that lies `length` ahead.
    pub(crate) fn after(length: Duration) -> Self {
        Self { begin: now(), length }
    }

    /// Returns the time that has passed since the limit was set.
    pub(crate) fn elapsed(&self) -> Duration {
        now().saturating_sub(self.begin)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.elapsed() >= self.length
    }
}

/// Repeats `look` until it finds something. Returns `None` if the limit was reached first.
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

/// Sleeps, and leaves the processor to others.
#[expect(
    clippy::disallowed_methods,
    reason = "another process is looked at, and tells nobody when it is done"
)]
pub(crate) fn pause(length: Duration) {
    thread::sleep(length);
}
