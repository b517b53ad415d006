//! Resources of one server that sessions want to hear of.
//!
//! Invariants: a server is asked once for a resource, however many sessions want to hear of it. It is asked again when it was started anew,
//! and told when no session wants to hear of it any more. While the server is asked for one resource, only the sessions that want that one
//! wait. The further instances of a server are asked for the same resources as the first, and a change is told once.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, broadcast},
    task::JoinSet,
    time::sleep,
};

use super::{backend::Backend, lifecycle::StartReason};
use unhang_core::config::UPDATE_MERGE;
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

    /// Returns the resources that sessions want to hear of.
    fn uris(&self) -> HashSet<Arc<str>> {
        self.resources().keys().map(Arc::clone).collect()
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
        watch.tell_further_instances();
        Ok(watch)
    }
}

impl Watch {
    /// Lets the further instances of the server be asked for the resources that are watched now.
    fn tell_further_instances(&self) {
        let Some(pool) = &self.backend.instances else { return };
        // Without a runtime there is no server any more either.
        let Ok(runtime) = Handle::try_current() else { return };
        for further in pool.further().into_iter().filter(|further| further.runs()) {
            runtime.spawn(async move { mirror(&further).await });
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.backend.watches.leave(&self.uri);
        self.tell_further_instances();
    }
}

/// The resources for which a further instance of a server was asked. The wish of sessions is kept with the first instance, so that it keeps
/// no further instance from resting.
#[derive(Default)]
pub(super) struct MirroredSubscriptions(AsyncMutex<HashMap<Arc<str>, ResourceSubscription>>);

/// Asks a further instance of a server for the resources that sessions want to hear of now.
pub(super) async fn mirror(further: &Backend) {
    let Some(first) = further.first_instance() else { return };
    let mut mirrored = further.mirrored.0.lock().await;
    let Some((client, since)) = further.connection().current() else { return };
    let wanted = first.watches.uris();
    mirrored.retain(|uri, subscription| subscription.since == since && wanted.contains(uri));
    for uri in wanted {
        if mirrored.contains_key(&uri) {
            continue;
        }
        match subscribed(&client, &uri, further.request_timeout()).await {
            Ok(_subscription) => drop(mirrored.insert(uri, ResourceSubscription { since, _subscription })),
            Err(error) => tracing::warn!("{} does not report changes of {uri}: {error}", further.title()),
        }
    }
}

/// Tells once of a change that several instances of a server report. It holds each report back for [`UPDATE_MERGE`], so that a change after
/// that is told again.
#[derive(Default)]
pub(super) struct UpdateMerger(Mutex<HashSet<Arc<str>>>);

impl UpdateMerger {
    /// Tells of this change soon. Must be called in a runtime.
    pub(super) fn tell(self: &Arc<Self>, updates: &Updates, update: ResourceUpdate) {
        if !self.held().insert(Arc::clone(&update.uri)) {
            return;
        }
        let (merger, updates) = (Arc::clone(self), updates.clone());
        tokio::spawn(async move {
            sleep(UPDATE_MERGE).await;
            merger.held().remove(&update.uri);
            // If nobody listens, the change is for nobody.
            let _heard = updates.send(update);
        });
    }

    fn held(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn subscribed(client: &Client, uri: &str, limit: Duration) -> Result<Subscription, Error> {
    let options = RequestOptions { timeout: Some(limit), ..RequestOptions::default() };
    client.subscribe(Topics { resources: vec![uri.to_owned()], lists: false }, &options).await
}
