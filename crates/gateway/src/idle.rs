//! A server that nobody has asked anything for a while rests, if the configuration wants that: it is stopped, and started again when it is
//! asked.
//!
//! Invariants
//!
//! - A server is stopped only while no request waits for it or is with it, and nobody wants to hear of its resources.
//! - A resting server's lists stay listed, and only a request starts it.
//! - The next process is started once the last one has gone, or is past the limit of its stop.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, sleep},
};

use super::backend::Backend;
use unhang_core::units::in_words;
use unhang_upstream::client::Client;

/// Whether a server is wanted.
pub(super) struct Demand {
    /// Callers that want something of the server now.
    users: usize,
    /// When the server was last wanted.
    last: Instant,
    /// The server was stopped because nobody wanted it.
    rests: bool,
}

/// Counts a caller that wants something of a server, until it is dropped.
pub(super) struct UseGuard<'a>(&'a Backend);

impl Demand {
    pub(super) fn new() -> Self {
        Self { users: 0, last: Instant::now(), rests: false }
    }

    /// Notes that the server is started now.
    pub(super) fn started(&mut self) {
        self.last = Instant::now();
        self.rests = false;
    }

    /// Notes that the server is stopped, and starts when it is asked.
    pub(super) fn rest(&mut self) {
        self.rests = true;
    }

    /// Returns whether the server was stopped because nobody wanted anything of it.
    pub(super) fn rests(&self) -> bool {
        self.rests
    }

    /// Returns whether somebody wants something of the server now.
    pub(super) fn is_wanted(&self) -> bool {
        self.users > 0
    }

    /// Returns whether the server was last wanted at least `idle` ago.
    pub(super) fn has_rested_for(&self, idle: Duration) -> bool {
        self.last.elapsed() >= idle
    }

    /// Returns how long the server cannot rest yet. If that time is over, the server is in use or there is nothing to stop, and the next
    /// look is due after `idle`.
    fn until_look(&self, idle: Duration) -> Duration {
        let left = idle.saturating_sub(self.last.elapsed());
        if left.is_zero() { idle } else { left }
    }

    fn enter(&mut self) {
        self.users += 1;
    }

    fn leave(&mut self) {
        self.users -= 1;
        self.last = Instant::now();
    }
}

impl Backend {
    /// Counts a caller that wants something of the server from now on.
    pub(super) fn used(&self) -> UseGuard<'_> {
        self.connection().demand.enter();
        UseGuard(self)
    }

    /// Returns whether somebody wants something of the server now.
    pub(super) fn is_wanted(&self) -> bool {
        self.connection().demand.is_wanted()
    }

    /// Waits until nobody wants anything of the server.
    pub(super) async fn until_unwanted(&self) {
        while self.is_wanted() {
            self.idle_notify.notified().await;
        }
    }

    /// Stops the server whenever it has been asked nothing for `idle`. Never ends.
    pub(super) async fn rest_after(self: Arc<Self>, idle: Duration) {
        loop {
            let pause = self.connection().demand.until_look(idle);
            sleep(pause).await;
            let stop = Arc::clone(&self.stop_lock).lock_owned().await;
            let Some(client) = self.to_be_stopped(idle) else { continue };
            tracing::info!(
                "{} got no request for {}; unhang stops it until the next request",
                self.title(),
                in_words(idle)
            );
            self.put_to_rest(client, stop);
        }
    }

    /// Stops a server that was started only for its lists.
    pub(super) async fn rest_now(self: &Arc<Self>) {
        let stop = Arc::clone(&self.stop_lock).lock_owned().await;
        let client = {
            let mut connection = self.connection();
            connection.demand.rest();
            connection.take()
        };
        if let Some(client) = client {
            self.put_to_rest(client, stop);
        }
    }

    /// Stops the server as soon as nobody wants anything of it, unless somebody watches its resources.
    pub(super) async fn rest_once_unwanted(self: &Arc<Self>) {
        self.until_unwanted().await;
        let stop = Arc::clone(&self.stop_lock).lock_owned().await;
        if let Some(client) = self.to_be_stopped(Duration::ZERO) {
            tracing::debug!("no client uses `{}` in its era; unhang stops that process", self.name());
            self.put_to_rest(client, stop);
        }
    }

    fn put_to_rest(self: &Arc<Self>, client: Client, stop: OwnedMutexGuard<()>) {
        let backend = Arc::clone(self);
        // In a task of its own, so that the end of the gateway cuts off this function but not the stop that it has begun.
        tokio::spawn(async move {
            if !client.dispose().await {
                tracing::warn!("`{}` had not ended in time; its lifeline ends it", backend.name());
            }
            drop(stop);
        });
    }

    /// Takes the client away if nobody has wanted anything of it for `idle`. From then on nobody else has the client.
    fn to_be_stopped(&self, idle: Duration) -> Option<Client> {
        if !self.lists.has_been_listed() {
            return None;
        }
        // A server is in use if somebody is about to hear of a resource, or has just heard enough.
        let is_watched = !self.watches.is_empty();
        self.connection().take_idle(idle, is_watched)
    }
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        let mut connection = self.0.connection();
        connection.demand.leave();
        if !connection.demand.is_wanted() {
            self.0.idle_notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::broadcast, time::timeout};

    use super::{super::testing::mute, *};
    use crate::lifecycle::StartReason;

    const SOON: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn who_keeps_its_lists_does_not_wake_it() {
        let (_mute, entry) = mute();
        let (updates, _) = broadcast::channel(1);
        let backend = Backend::new(entry, 0, updates, Arc::default(), None);
        let backend = Arc::new(backend);
        let for_ever = timeout(SOON / 10, Arc::clone(&backend).rest_after(Duration::MAX)).await;
        assert!(for_ever.is_err(), "so long nobody waits");
        backend.connection().demand.rests = true;
        timeout(SOON, backend.list()).await.expect("nothing is asked").expect("nothing is wrong");
        assert_eq!(backend.starts(), 0);
        assert!(timeout(SOON / 10, backend.ready(StartReason::Request)).await.is_err(), "it never answers");
        assert!(backend.starts() == 1 && !backend.connection().demand.rests());
    }
}
