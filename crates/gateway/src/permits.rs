//! Permits that clients take in turn: the shell around [`Fair`], with tasks that wait.
//!
//! Invariants
//!
//! - A permit is given back when it is dropped, also one that nobody has picked up.
//! - A task that stops waiting has no place in the line from that moment on.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use unhang_core::{
    config::{RETRY_LEAST, RETRY_MOST},
    fair::{Bounds, Fair, FairnessKey, QueueTicket, Served},
};

/// The newest duration counts for one part of this many in the estimate of how long a permit is held.
const NEWEST: u32 = 8;

/// Permits, and the tasks that wait for one.
pub(super) struct PermitQueue(Mutex<PermitState>);

struct PermitState {
    fair: Fair<oneshot::Sender<Permit>>,
    /// The estimate of how long a permit is held.
    kept: Duration,
}

/// A permit, until it is dropped.
pub(super) struct Permit {
    permits: Arc<PermitQueue>,
    fairness_key: FairnessKey,
    since: Instant,
}

/// The error if there is neither a permit nor room to wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueFull {
    /// The bounds that were reached.
    pub bounds: Bounds,
    /// The time after which another try is worthwhile.
    pub retry_after: Duration,
}

/// A task that waits.
struct QueuedRequest<'a> {
    permits: &'a PermitQueue,
    fairness_key: &'a FairnessKey,
    ticket: QueueTicket,
}

impl PermitQueue {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self(Mutex::new(PermitState { fair: Fair::new(bounds), kept: Duration::ZERO })))
    }

    /// Returns the bounds.
    pub(super) fn bounds(&self) -> Bounds {
        self.state().fair.bounds()
    }

    /// Changes the bounds, and serves the tasks that the new ones have room for.
    pub(super) fn bound(self: &Arc<Self>, bounds: Bounds) {
        let served = self.state().fair.bound(bounds);
        self.give(served);
    }

    /// Returns how many tasks wait.
    pub(super) fn waiting(&self) -> usize {
        self.state().fair.waiting()
    }

    /// Waits for the client's turn. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`QueueFull`] if there is no room to wait, or if the request has to give way to a client that waits for less.
    pub(super) async fn take(self: &Arc<Self>, fairness_key: &FairnessKey) -> Result<Permit, QueueFull> {
        let (entered, given) = {
            let mut state = self.state();
            if state.fair.take(fairness_key) {
                return Ok(self.permit(fairness_key.clone()));
            }
            let (give, given) = oneshot::channel();
            (state.fair.wait(fairness_key, give), given)
        };
        let Ok((ticket, displaced)) = entered else { return Err(self.full()) };
        let _waiting = QueuedRequest { permits: self, fairness_key, ticket };
        // The end of the channel tells the request that has to give way.
        drop(displaced);
        given.await.map_err(|_displaced| self.full())
    }

    fn permit(self: &Arc<Self>, fairness_key: FairnessKey) -> Permit {
        Permit { permits: Arc::clone(self), fairness_key, since: Instant::now() }
    }

    /// Gives a permit to each task that is served. A permit that is not picked up is given back, and goes to the next task.
    fn give(self: &Arc<Self>, served: impl IntoIterator<Item = Served<oneshot::Sender<Permit>>>) {
        for Served { fairness_key, waiter } in served {
            let _not_picked_up = waiter.send(self.permit(fairness_key));
        }
    }

    fn full(&self) -> QueueFull {
        let state = self.state();
        let bounds = state.fair.bounds();
        let count = |count: usize| u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        // By then the tasks that wait now have had their permits, if calls go on to take as long as they did.
        let rounds = f64::from(count(state.fair.waiting())) / f64::from(count(bounds.permits));
        let retry_after =
            Duration::try_from_secs_f64(state.kept.as_secs_f64() * rounds).unwrap_or(RETRY_MOST);
        QueueFull { bounds, retry_after: retry_after.clamp(RETRY_LEAST, RETRY_MOST) }
    }

    fn state(&self) -> MutexGuard<'_, PermitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.permits.state();
            state.kept = match state.kept {
                Duration::ZERO => self.since.elapsed(),
                kept => kept - kept / NEWEST + self.since.elapsed() / NEWEST,
            };
            state.fair.leave(&self.fairness_key)
        };
        self.permits.give(next);
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        drop(self.permits.state().fair.withdraw(self.fairness_key, self.ticket));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    fn permits(permits: usize, room: usize) -> Arc<PermitQueue> {
        PermitQueue::new(Bounds { permits, room })
    }

    #[tokio::test]
    async fn who_stops_waiting_takes_up_no_room_and_no_turn() {
        let (permits, one, other) = (permits(1, 1), FairnessKey::new("one"), FairnessKey::new("other"));
        let held = permits.take(&one).await.expect("it is free");
        for _ in 0..3 {
            let gave_up = timeout(Duration::ZERO, permits.take(&one)).await;
            assert!(gave_up.is_err(), "it waits, and there is room for that");
        }
        let (waiting, fairness_key) = (Arc::clone(&permits), other.clone());
        let waiting = tokio::spawn(async move { waiting.take(&fairness_key).await });
        tokio::task::yield_now().await;
        assert_eq!(permits.waiting(), 1);
        drop(held);
        let held = waiting.await.expect("no panic").expect("its turn");
        assert_eq!(held.fairness_key, other);
        // Served, and gone before it could look.
        let mut served = Box::pin(permits.take(&one));
        assert!(timeout(Duration::ZERO, &mut served).await.is_err());
        drop(held);
        drop(served);
        permits.take(&other).await.expect("nobody has it");
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_is_told_when_there_may_be_some() {
        let (permits, many, few) = (permits(2, 4), FairnessKey::new("many"), FairnessKey::new("few"));
        let held = [permits.take(&many).await.expect("free"), permits.take(&many).await.expect("free")];
        let wait = || {
            let (permits, many) = (Arc::clone(&permits), many.clone());
            tokio::spawn(async move { permits.take(&many).await.map(drop) })
        };
        let waiting: Vec<_> = (0..4).map(|_| wait()).collect();
        tokio::task::yield_now().await;
        let full = wait().await.expect("no panic").expect_err("there is no room");
        assert_eq!(full.retry_after, RETRY_LEAST, "nothing is known yet");
        let (served, fairness_key) = (Arc::clone(&permits), few.clone());
        let served = tokio::spawn(async move { served.take(&fairness_key).await });
        advance(Duration::from_secs(6)).await;
        drop(held);
        drop(served.await.expect("no panic").expect("whoever has less finds room, and is next"));
        let mut outcomes = Vec::new();
        for waiting in waiting {
            outcomes.push(waiting.await.expect("no panic").err());
        }
        assert_eq!(outcomes.iter().flatten().count(), 1, "one had to give way");
        let held = [permits.take(&many).await.expect("free"), permits.take(&many).await.expect("free")];
        let _waiting: Vec<_> = (0..4).map(|_| wait()).collect();
        tokio::task::yield_now().await;
        let full = wait().await.expect("no panic").expect_err("there is no room");
        assert!(full.retry_after > RETRY_LEAST && full.retry_after < RETRY_MOST, "{full:?}");
        drop(held);
    }
}
