//! Time and last resorts: the waits that make a faulty server what it is, all bounded.
//!
//! # Invariants
//!
//! - Nothing here waits longer than [`BOUND`] in all.

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the longest vice lasts: well beyond the patience of any test, short enough that a failed one leaves nothing.
pub const BOUND: Duration = Duration::from_secs(120);

/// The exit code of a faulty server that ran into [`BOUND`], the one that `timeout` uses.
const BOUND_REACHED: u8 = 124;

/// Does nothing for a while: a faulty server is slow by this, and a harness pauses between two looks.
#[expect(
    clippy::disallowed_methods,
    reason = "being slow is the vice; whoever looks for something by this has a limit"
)]
pub fn pause(length: Duration) {
    std::thread::sleep(length.min(BOUND));
}

/// Reads the clock.
#[expect(clippy::disallowed_methods, reason = "the zoo has no async runtime whose time could be paused")]
pub fn now() -> Instant {
    Instant::now()
}

/// Burns one processor for a while.
pub fn burn(length: Duration) {
    let end = now() + length.min(BOUND);
    while now() < end {
        std::hint::spin_loop();
    }
}

/// Stays alive and does nothing until [`BOUND`].
pub fn linger() -> ExitCode {
    // In slices, so that a stopped and continued process does not start its whole wait again.
    let end = now() + BOUND;
    while now() < end {
        pause(Duration::from_millis(500));
    }
    ExitCode::from(BOUND_REACHED)
}

/// Locks a mutex; what a panicked thread left behind is still good enough to misbehave with.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
