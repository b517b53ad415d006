//! Resources of one server that sessions want to hear of.
//!
//! Invariants: a server is asked once for a resource, however many sessions want to hear of it. It is asked again when it was started anew,
//! and told when no session wants to hear of it any more. While the server is asked for one resource, only the sessions that want that one
//! wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, broadcast},
    task::JoinSet,
};

use super::{backend::Backend, lifecycle::StartReason};
use unhang_upstream::client::{Client, Error, RequestOptions, Subscription, Topics};

/// The changes of resources that a session may not have heard of yet. The session misses older ones.
const UPDATES: usize = 1024;
/// The most resources that a server is asked for anew at the same time.
const AT_ONCE: usize = 16;

/// The resources of one server that sessions want to hear of.
#[derive(Default)]
pub(super) struct ResourceWatches(Mutex<HashMap<Arc<str>, WatchedResource>>);

/// A resource that sessions want to hear of.
#[derive(Default)]
struct WatchedResource {
    /// The number of watches.
    count: usize,
    /// Held by one watch while the server is asked: the others wait for the same answer.
    slot: SubscriptionSlot,
}

type SubscriptionSlot = Arc<AsyncMutex<Option<ResourceSubscription>>>;

/// The subscription by which a server tells of a resource.
struct ResourceSubscription {
    /// The start of the server that has the subscription.
    since: u64,
    _subscription: Subscription,
}

/// Tells that a resource of a server has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUpdate {
    /// The index of the server.
    pub server: usize,
    /// The resource, by the server's URI for it.
    pub uri: Arc<str>,
}

pub(super) type Updates = broadcast::Sender<ResourceUpdate>;

/// Makes a channel for changes of resources, which nobody hears yet.
pub(super) fn updates() -> Updates {
    broadcast::channel(UPDATES).0
}

/// Keeps the changes of a resource coming for one session, until it is dropped.
#[must_use = "nobody hears of it any more when it is dropped"]
pub struct Watch {
    backend: Arc<Backend>,
    uri: Arc<str>,
}

impl ResourceWatches {
    /// Returns whether no session wants to hear of anything.
    pub(super) fn is_empty(&self) -> bool {
        self.resources().is_empty()
    }

    /// Counts one more session that wants to hear of a resource.
    fn enter(&self, uri: &Arc<str>) -> SubscriptionSlot {
        let mut all = self.resources();
        let watched = all.entry(Arc::clone(uri)).or_default();
        watched.count += 1;
        Arc::clone(&watched.slot)
    }

    /// Counts one less session that wants to hear of a resource. The end of the subscription tells the server.
    fn leave(&self, uri: &Arc<str>) {
        let mut all = self.resources();
        let Some(watched) = all.get_mut(uri) else { return };
        watched.count -= 1;
        if watched.count == 0 {
            all.remove(uri);
        }
    }

    /// Subscribes to the same resources of the server `name` that was started anew by `start`, several at a time. A session that wants
    /// another resource does not wait for them.
    pub(super) async fn renew(&self, name: &str, client: &Client, start: u64, limit: Duration) {
        let all: Vec<(Arc<str>, SubscriptionSlot)> = {
            let resources = self.resources();
            resources.iter().map(|(uri, watched)| (Arc::clone(uri), Arc::clone(&watched.slot))).collect()
        };
        let mut asking = JoinSet::new();
        for (uri, slot) in all {
            if asking.len() >= AT_ONCE {
                let _one_has_ended = asking.join_next().await;
            }
            let (client, name) = (client.clone(), name.to_owned());
            asking.spawn(async move {
                let mut slot = slot.lock().await;
                // A session that wanted the resource may have asked already, or the first answer for it is still to come.
                if slot.as_ref().is_none_or(|watch| watch.since >= start) {
                    return;
                }
                match subscribed(&client, &uri, limit).await {
                    Ok(_subscription) => *slot = Some(ResourceSubscription { since: start, _subscription }),
                    Err(error) => tracing::warn!("`{name}` no longer reports changes of {uri}: {error}"),
                }
            });
        }
        while asking.join_next().await.is_some() {}
    }

    /// Locks the resources. The caller must not hold the lock over a wait.
    fn resources(&self) -> MutexGuard<'_, HashMap<Arc<str>, WatchedResource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Subscribes one more session to a resource, until the watch is dropped.
    ///
    /// # Errors
    /// Fails if the server cannot be started, or does not take the subscription.
    pub(super) async fn begin(backend: Arc<Backend>, uri: Arc<str>, limit: Duration) -> Result<Self, Error> {
        let ready = backend.ready(StartReason::Request).await?;
        let slot = backend.watches.enter(&uri);
        let watch = Self { backend, uri };
        let mut slot = slot.lock().await;
        // The server may have been started anew meanwhile. A client that has ended says so when it is asked.
        let current = watch.backend.connection().current();
        let (client, since) = current.unwrap_or_else(|| (ready.0, watch.backend.starts()));
        if slot.as_ref().is_none_or(|watch| watch.since != since) {
            let _subscription = subscribed(&client, &watch.uri, limit).await?;
            *slot = Some(ResourceSubscription { since, _subscription });
        }
        drop(slot);
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.backend.watches.leave(&self.uri);
    }
}

async fn subscribed(client: &Client, uri: &str, limit: Duration) -> Result<Subscription, Error> {
    let options = RequestOptions { timeout: Some(limit), ..RequestOptions::default() };
    client.subscribe(Topics { resources: vec![uri.to_owned()], lists: false }, &options).await
}
