//! What becomes of each process or connection of a server, from its start to its end, whoever wanted it.
//!
//! Invariants
//!
//! - A server that was started anew is told what sessions had told the one before, before anybody's request reaches it; one that does not
//!   answer that delays nobody for long.
//! - Its end is counted when it happens.
//! - While somebody wants to hear of its resources it is started again as soon as it may be, whether anybody asks it something or not.
//! - Nothing here keeps a server that nobody has any more.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, sleep_until, timeout};

use super::backend::{Backend, Next, Starter};
use unhang_core::config::{RESTORE_PATIENCE, RETRY_MOST};
use unhang_upstream::client::Client;

impl Backend {
    /// Looks after a client that was just started, until it has ended.
    pub(super) fn tend(self: &Arc<Self>, client: &Client, start: u64, starter: Starter) {
        let (opened, ended) = (client.opened(), client.ended());
        let backend = Arc::downgrade(self);
        tokio::spawn(async move {
            if opened.await {
                restore(&backend, start).await;
                if starter == Starter::Watcher
                    && let Some(backend) = backend.upgrade()
                {
                    // Who watches asks nothing that would tell how it is.
                    backend.abandon_trial();
                }
            }
            ended.await;
            if let Some(backend) = backend.upgrade() {
                backend.ended(start);
            }
            stay_watched(&backend, start).await;
        });
    }

    /// Waits until the server of this start has been told what sessions had told the one before, but not for long.
    pub(super) async fn until_restored(&self, start: u64) {
        if *self.restored.borrow() >= start {
            return;
        }
        let mut restored = self.restored.subscribe();
        // The one that tells the server gives up earlier, and says so.
        let _told = timeout(RESTORE_PATIENCE, restored.wait_for(|restored| *restored >= start)).await;
    }

    /// The client of this start has ended. Where it was taken away before, somebody has ended it on purpose.
    fn ended(&self, start: u64) {
        let mut state = self.state();
        let is_over = state.client.as_ref().is_some_and(|client| !client.is_usable());
        if is_over && state.is_of(start) {
            self.count_end(&mut state);
        }
    }
}

/// Tells a server what sessions had told the one before it.
async fn restore(backend: &Weak<Backend>, start: u64) {
    let Some(backend) = backend.upgrade() else { return };
    if let Some((client, _)) = backend.current().filter(|(_, current)| *current == start) {
        let told = Arc::clone(&backend);
        let telling = tokio::spawn(async move {
            told.set_level().await;
            told.watches.renew(told.name(), &client, start, told.request_timeout()).await;
        });
        if timeout(RESTORE_PATIENCE, telling).await.is_err() {
            tracing::warn!(
                "`{}` is slow to take up what it is to tell of; requests do not wait",
                backend.name()
            );
        }
    }
    backend.restored.send_if_modified(|restored| {
        let is_newer = *restored < start;
        *restored = start.max(*restored);
        is_newer
    });
}

/// Starts a server again that has ended after this start, for as long as somebody wants to hear of its resources and nobody else starts it.
async fn stay_watched(backend: &Weak<Backend>, start: u64) {
    loop {
        let again = match backend.upgrade() {
            Some(backend) if backend.starts() == start && !backend.watches.is_empty() => {
                match backend.next(Starter::Watcher) {
                    Next::Wait(until) => until,
                    Next::Refuse(rest) => Instant::now() + rest,
                    Next::Full(_) => Instant::now() + RETRY_MOST,
                    Next::Ask(..) | Next::Closed => return,
                }
            }
            _ => return,
        };
        sleep_until(again).await;
    }
}
