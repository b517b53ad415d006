//! Turns for starts: a server that starts keeps a processor busy, and servers that all start at once are all late.
//!
//! Invariants: at most [`STARTS`] servers have a turn at a time, and one that hangs keeps its own for [`START_TURN`].

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// The most servers that start at the same time.
pub(super) const STARTS: usize = 4;
/// The longest time for which a starting server keeps others from starting.
pub(super) const START_TURN: Duration = Duration::from_secs(3);

/// The turns of all servers together. Clones are the same turns.
#[derive(Clone)]
pub(super) struct StartTurns(Arc<Semaphore>);

/// The turn of one server.
pub(super) struct StartTurn(OwnedSemaphorePermit);

impl Default for StartTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STARTS)))
    }
}

impl StartTurns {
    /// Waits for a turn. Cancel-safe.
    pub(super) async fn take(&self) -> Option<StartTurn> {
        // The semaphore is never closed.
        Arc::clone(&self.0).acquire_owned().await.ok().map(StartTurn)
    }
}

/// Does `work` within a turn. Gives the turn back after [`START_TURN`], and goes on.
pub(super) async fn in_turn<T>(turn: Option<StartTurn>, mut work: Pin<&mut impl Future<Output = T>>) -> T {
    let Some(StartTurn(permit)) = turn else { return work.await };
    match timeout(START_TURN, &mut work).await {
        Ok(done) => done,
        // A server that hangs keeps no other from its start.
        Err(_) => {
            drop(permit);
            work.await
        }
    }
}
