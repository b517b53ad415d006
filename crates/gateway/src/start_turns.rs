//! Turns for starts: a server that starts keeps a processor busy, and all at once are late together.
//!
//! Invariants: at most [`STARTS`] servers have a turn at a time, and one that hangs keeps its own for [`START_TURN`].

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Servers that start at the same time.
pub(super) const STARTS: usize = 4;
/// For how long others are kept from starting by one that does.
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
        // It is never closed.
        Arc::clone(&self.0).acquire_owned().await.ok().map(StartTurn)
    }
}

/// Does what keeps a processor busy, as one of few who may at the same time.
pub(super) async fn in_turn<T>(turn: Option<StartTurn>, mut work: Pin<&mut impl Future<Output = T>>) -> T {
    let Some(StartTurn(permit)) = turn else { return work.await };
    match timeout(START_TURN, &mut work).await {
        Ok(done) => done,
        // One that hangs keeps no other from its start.
        Err(_) => {
            drop(permit);
            work.await
        }
    }
}
