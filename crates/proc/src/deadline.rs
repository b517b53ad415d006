//! A moment by which something must be over, in place of durations that add up.
//!
//! Invariants: a deadline made from another is never later than that one, so that inner waits cannot outlast outer ones.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, error::Elapsed};

/// A day. It stands for "no limit" if a duration would overflow the clock.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

/// A moment by which something must be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// Makes a deadline that lies `duration` ahead. A duration that would overflow the clock counts as a day.
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(duration).unwrap_or(now + FAR))
    }

    /// Makes a deadline of the given moment.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// Returns the moment itself.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Returns the earlier of two deadlines.
    #[must_use]
    pub fn earlier_of(self, other: Self) -> Self {
        self.min(other)
    }

    /// Makes a deadline `duration` ahead, but never later than this one.
    #[must_use]
    pub fn within(self, duration: Duration) -> Self {
        self.earlier_of(Self::after(duration))
    }

    /// Returns the time that is left; zero once the moment is past.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns whether the moment has come.
    #[must_use]
    pub fn is_past(self) -> bool {
        self.remaining().is_zero()
    }

    /// Waits until the moment has come.
    pub async fn sleep(self) {
        tokio::time::sleep_until(self.0).await;
    }

    /// Waits for `future`, but not beyond the deadline.
    ///
    /// # Errors
    /// Fails with [`Elapsed`] if the moment comes first.
    // No `async fn`: its state would hold `future` twice.
    pub fn timeout<F: Future>(self, future: F) -> impl Future<Output = Result<F::Output, Elapsed>> {
        tokio::time::timeout_at(self.0, future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_inner_deadline_is_never_later_than_the_outer_one() {
        let outer = Deadline::after(Duration::from_secs(5));
        assert_eq!(outer.within(Duration::from_secs(9)), outer);
        let inner = outer.within(Duration::from_secs(3));
        assert_eq!(inner.remaining(), Duration::from_secs(3));
        assert_eq!(inner.earlier_of(outer), inner);
        assert!(!inner.is_past());
        inner.sleep().await;
        assert!(inner.is_past());
        assert_eq!(outer.remaining(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_ends_what_does_not_end_by_itself() {
        let deadline = Deadline::after(Duration::from_secs(1));
        assert!(deadline.timeout(std::future::pending::<()>()).await.is_err());
        assert_eq!(Deadline::after(Duration::from_secs(1)).timeout(async { 7 }).await.ok(), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_duration_without_end_does_not_overflow_the_clock() {
        assert!(Deadline::after(Duration::MAX).remaining() >= FAR);
    }
}
