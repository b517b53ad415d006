//! The connection of one loop to the store, for a loop that must not block.
//!
//! Invariants
//!
//! - An operation runs on a thread that may block, and one at a time. The loop waits for its outcome.
//! - An outage is told once when it begins and once when it ends.

use std::time::Duration;

use tokio::task::spawn_blocking;
use unhang_postgres::{PostgresError, PostgresStore, StoreAddress};

/// The first pause after a failed operation. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between two tries to reach the store.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The connection of one loop.
#[derive(Debug)]
pub(crate) struct StoreLink {
    /// `None` while an operation runs, or after one has panicked.
    store: Option<PostgresStore>,
    address: StoreAddress,
    /// The subject and the end of a sentence about the purpose of the connection.
    subject: &'static str,
    purpose: &'static str,
    failures: u32,
}

impl StoreLink {
    /// Makes a link that connects with its first operation.
    pub(crate) fn new(address: StoreAddress, purpose: &'static str) -> Self {
        Self::of("the worker", address, purpose)
    }

    /// Makes a link of somebody else than a worker.
    pub(crate) fn of(subject: &'static str, address: StoreAddress, purpose: &'static str) -> Self {
        Self { store: None, address, subject, purpose, failures: 0 }
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// Fails as the operation does, or because no connection can be made.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut PostgresStore) -> Result<T, PostgresError> + Send + 'static,
    ) -> Result<T, PostgresError> {
        let (store, address) = (self.store.take(), self.address.clone());
        let done = spawn_blocking(move || {
            let mut store = match store.map_or_else(|| PostgresStore::open(address), Ok) {
                Ok(store) => store,
                Err(error) => return (None, Err(error)),
            };
            let outcome = work(&mut store);
            (Some(store), outcome)
        });
        let (store, outcome) = match done.await {
            Ok(done) => done,
            // A bug, which was reported; the next operation has a new connection.
            Err(error) => {
                let (store, detail) = (self.address.shown().to_owned(), error.to_string());
                (None, Err(PostgresError::Failed { store, doing: "asked it", detail }))
            }
        };
        self.store = store;
        self.tell(outcome.as_ref().err());
        outcome
    }

    fn tell(&mut self, error: Option<&PostgresError>) {
        match error {
            Some(error) if self.failures == 0 => {
                tracing::warn!("{} cannot {}: {error}; it tries again", self.subject, self.purpose);
            }
            Some(_) => {}
            None if self.failures > 0 => tracing::info!("{} can {} again", self.subject, self.purpose),
            None => {}
        }
        self.failures = if error.is_some() { self.failures.saturating_add(1) } else { 0 };
    }

    /// Returns the pause before the next try, which grows with each failure.
    pub(crate) fn pause(&self) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(8));
        jittered(doubled.min(LONGEST_PAUSE))
    }
}

/// Returns a random time between three quarters of this one and all of it, so that many workers do not ask at the same moment.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let share = getrandom::u32().unwrap_or_default() % 1000;
    pause * 3 / 4 + pause / 4 * share / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_at_least_three_quarters_of_its_length() {
        let pause = Duration::from_secs(4);
        for _ in 0..1000 {
            let jittered = jittered(pause);
            assert!((Duration::from_secs(3)..=pause).contains(&jittered), "{jittered:?}");
        }
    }
}
