//! Waits of threads that have no runtime, for events that can only be polled: a lock of another process, the end of a supervisor.
//!
//! Invariants: every wait has a limit, and says whether it was reached.

use std::{thread, time::Duration};

use unhang_proc::tree::now;

/// The moment at which a wait has to end.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimit {
    begin: Duration,
    length: Duration,
}

impl WaitLimit {
    /// Sets the limit to the moment that lies `length` ahead.
    #[must_use]
    pub fn after(length: Duration) -> Self {
        Self { begin: now(), length }
    }

    /// Returns the time that has passed since the limit was set.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        now().saturating_sub(self.begin)
    }

    /// Returns whether the limit was reached.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.elapsed() >= self.length
    }
}

/// Repeats `look` until it finds something. Returns `None` if the limit was reached first.
///
/// # Errors
/// Fails as `look` does.
pub fn look_until<T, E>(
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_limit_is_over_when_its_length_has_passed() {
        assert!(WaitLimit::after(Duration::ZERO).is_over());
        let short = WaitLimit::after(Duration::from_millis(2));
        pause(Duration::from_millis(3));
        assert!(short.is_over() && short.elapsed() >= Duration::from_millis(3), "{:?}", short.elapsed());
        let long = WaitLimit::after(HOUR);
        assert!(!long.is_over() && long.elapsed() < HOUR, "{:?}", long.elapsed());
    }

    #[test]
    fn a_look_is_repeated_until_it_finds_something_or_fails_or_the_limit_is_reached() {
        // (the limit, the look that finds something or fails, what comes of it)
        for (limit, found_at, outcome) in [
            (HOUR, 1, Ok(Some(1))),
            (HOUR, 3, Ok(Some(3))),
            (HOUR, -3, Err(3)),
            (Duration::ZERO, 1, Ok(Some(1))),
            (Duration::ZERO, 2, Ok(None)),
            (Duration::from_millis(5), 1_000_000, Ok(None)),
        ] {
            let mut looks = 0;
            let found = look_until(WaitLimit::after(limit), Duration::from_micros(1), || {
                looks += 1;
                match looks {
                    look if look == found_at => Ok(Some(look)),
                    look if look == -found_at => Err(look),
                    _ => Ok(None),
                }
            });
            assert_eq!(found, outcome, "{limit:?}, {found_at}");
        }
    }
}
