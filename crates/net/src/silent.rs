//! Connections on which nobody has asked for anything yet: the first to go where there is no room for another.
//!
//! Invariants: whoever has asked for something is not sent away from here; neither is a connection of less than [`SILENCE`], in which
//! an honest client has said what it wants.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// After so much silence a connection may be sent away.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// All of them.
#[derive(Clone, Default)]
pub(crate) struct Silent(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    /// In the order in which they came.
    all: BTreeMap<u64, Waiting>,
}

struct Waiting {
    address: Option<IpAddr>,
    since: Instant,
    go: Arc<Notify>,
}

/// One of them, until it speaks or ends.
pub(crate) struct Newcomer {
    silent: Silent,
    number: u64,
    go: Arc<Notify>,
    has_spoken: AtomicBool,
}

impl Silent {
    /// Somebody has come from this address.
    pub(crate) fn enter(&self, address: Option<IpAddr>) -> Newcomer {
        let go = Arc::new(Notify::new());
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.all.insert(number, Waiting { address, since: Instant::now(), go: Arc::clone(&go) });
        Newcomer { silent: self.clone(), number, go, has_spoken: AtomicBool::new(false) }
    }

    /// Sends away whoever has been silent for longest: of those from one address, where that is given. Whether there was anybody.
    pub(crate) fn send_away(&self, is_meant: impl Fn(IpAddr) -> bool, is_any: bool) -> bool {
        let mut state = self.state();
        let fits = |waiting: &Waiting| is_any || waiting.address.is_some_and(&is_meant);
        let first = state.all.iter().find(|(_, waiting)| fits(waiting));
        let Some(number) =
            first.filter(|(_, waiting)| waiting.since.elapsed() >= SILENCE).map(|(number, _)| *number)
        else {
            return false;
        };
        if let Some(waiting) = state.all.remove(&number) {
            waiting.go.notify_one();
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Newcomer {
    /// It has asked for something, and is none of them any more.
    pub(crate) fn speaks(&self) {
        if !self.has_spoken.swap(true, Ordering::Relaxed) {
            self.silent.state().all.remove(&self.number);
        }
    }

    /// Waits until it is sent away. Cancel-safe.
    pub(crate) async fn sent_away(&self) {
        self.go.notified().await;
        if self.has_spoken.load(Ordering::Relaxed) {
            // It spoke at the last moment, and stays.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.silent.state().all.remove(&self.number);
    }
}
