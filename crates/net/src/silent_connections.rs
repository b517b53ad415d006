//! Connections on which nobody has asked for anything yet, or has shown that it may: the first to go if there is no room for another.
//!
//! Invariants: a client that has shown that it may ask, or is being answered, is not sent away from here. Neither is a connection younger
//! than [`SILENCE`], in which an honest client has sent its request. A request that needs no permission makes no connection younger.

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

/// The silence after which a connection may be sent away.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// All silent connections.
#[derive(Clone, Default)]
pub(crate) struct SilentConnections(Arc<Mutex<SilentState>>);

#[derive(Default)]
struct SilentState {
    next: u64,
    /// The connections in the order in which they came.
    all: BTreeMap<u64, SilentConnection>,
}

struct SilentConnection {
    address: Option<IpAddr>,
    since: Instant,
    go: Arc<Notify>,
}

/// A connection that may be silent, until it ends. While it speaks, and once it has shown that it may, it does not count as silent.
pub(crate) struct UnprovenConnection {
    silent: SilentConnections,
    number: u64,
    address: Option<IpAddr>,
    since: Instant,
    go: Arc<Notify>,
    is_speaking: AtomicBool,
    has_asked: AtomicBool,
    is_proven: AtomicBool,
}

impl SilentConnections {
    /// Enters a connection that has come from this address.
    pub(crate) fn enter(&self, address: Option<IpAddr>) -> UnprovenConnection {
        let go = Arc::new(Notify::new());
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let since = Instant::now();
        state.all.insert(number, SilentConnection { address, since, go: Arc::clone(&go) });
        let [is_speaking, has_asked, is_proven] = [(); 3].map(|()| AtomicBool::new(false));
        UnprovenConnection {
            silent: self.clone(),
            number,
            address,
            since,
            go,
            is_speaking,
            has_asked,
            is_proven,
        }
    }

    /// Sends the oldest silent connection away, of those whose address `is_meant` accepts, or of all if `is_any`. Returns whether there was
    /// one of at least [`SILENCE`].
    pub(crate) fn send_away(&self, is_meant: impl Fn(IpAddr) -> bool, is_any: bool) -> bool {
        let mut state = self.state();
        let fits = |waiting: &SilentConnection| is_any || waiting.address.is_some_and(&is_meant);
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

    fn state(&self) -> MutexGuard<'_, SilentState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnprovenConnection {
    /// Notes that the connection has asked for something. It does not count as silent until it is answered.
    pub(crate) fn speaks(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
        if !self.is_speaking.swap(true, Ordering::Relaxed) {
            self.silent.state().all.remove(&self.number);
        }
    }

    /// Notes that the connection was answered. It is silent again, with its old age, unless it has shown now or before that it may ask.
    pub(crate) fn was_answered(&self, is_proven: bool) {
        if is_proven {
            self.is_proven.store(true, Ordering::Relaxed);
        }
        if self.is_proven.load(Ordering::Relaxed) {
            return;
        }
        let (address, since, go) = (self.address, self.since, Arc::clone(&self.go));
        self.is_speaking.store(false, Ordering::Relaxed);
        self.silent.state().all.insert(self.number, SilentConnection { address, since, go });
    }

    /// Returns whether the connection has asked for anything at all.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// Waits until the connection is sent away. Cancel-safe.
    pub(crate) async fn sent_away(&self) {
        loop {
            self.go.notified().await;
            // A connection that spoke at the last moment stays.
            if !self.is_speaking.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl Drop for UnprovenConnection {
    fn drop(&mut self) {
        self.silent.state().all.remove(&self.number);
    }
}
