//! Resources of one server that somebody wants to hear of.
//!
//! Invariants: a server is asked once for a resource, however many want to hear of it, again when it was started anew, and told when
//! nobody does any more. While it is asked for one resource nobody waits but those who want that one.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, broadcast},
    task::JoinSet,
};
use unhang_switches::stands;

use super::backend::{Backend, Starter};
use unhang_upstream::client::{Client, Error, RequestOptions, Subscription, Topics};

/// Resources that a server is asked for anew at the same time.
const AT_ONCE: usize = 16;

/// A resource that somebody wants to hear of.
#[derive(Default)]
pub(super) struct Watched {
    /// How many do.
    count: usize,
    /// Held while the server is asked, by one of them: the others wait for the same answer.
    heard: Hearing,
}

type Hearing = Arc<AsyncMutex<Option<ResourceListener>>>;

/// A server tells of a resource.
struct ResourceListener {
    /// Since which of its starts.
    since: u64,
    _subscription: Subscription,
}

/// A resource of a server has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    /// The server's place.
    pub server: usize,
    /// The resource, as the server calls it.
    pub uri: Arc<str>,
}

pub(super) type Updates = broadcast::Sender<Updated>;

/// Somebody hears of a resource until this is dropped.
#[must_use = "nobody hears of it any more when it is dropped"]
pub struct Watch {
    backend: Arc<Backend>,
    uri: Arc<str>,
}

impl Backend {
    /// Hears of a resource for one more, until that one has enough.
    ///
    /// # Errors
    /// Why the server does not tell of it.
    pub(super) async fn watch(self: Arc<Self>, uri: Arc<str>, limit: Duration) -> Result<Watch, Error> {
        let ready = self.ready(Starter::Caller).await?;
        let (watch, heard) = self.wants(uri);
        let mut heard = heard.lock().await;
        // It may have been started anew meanwhile. One that has ended says so when it is asked.
        let (client, since) = self.current().unwrap_or((ready.0, self.starts()));
        if heard.as_ref().is_none_or(|heard| heard.since != since) {
            let _subscription = subscribed(&client, &watch.uri, limit).await?;
            *heard = Some(ResourceListener { since, _subscription });
        }
        Ok(watch)
    }

    /// Counts one more who wants to hear of it.
    fn wants(self: &Arc<Self>, uri: Arc<str>) -> (Watch, Hearing) {
        let mut all = self.watched();
        let watched = all.entry(Arc::clone(&uri)).or_default();
        watched.count += 1;
        (Watch { backend: Arc::clone(self), uri }, Arc::clone(&watched.heard))
    }

    /// Resources that somebody wants to hear of. Not to be held over any wait.
    pub(super) fn watched(&self) -> MutexGuard<'_, HashMap<Arc<str>, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the same resources of a server that was started anew, several at a time. A session that wants another one does not
    /// wait for them.
    pub(super) async fn watch_again(&self, client: &Client, now: u64) {
        let all: Vec<(Arc<str>, Hearing)> = {
            let watched = self.watched();
            watched.iter().map(|(uri, watched)| (Arc::clone(uri), Arc::clone(&watched.heard))).collect()
        };
        let (limit, mut asking) = (self.request_timeout(), JoinSet::new());
        for (uri, heard) in all {
            if asking.len() >= AT_ONCE {
                let _one_has_ended = asking.join_next().await;
            }
            let (client, name) = (client.clone(), self.name().to_owned());
            asking.spawn(async move {
                let mut heard = heard.lock().await;
                // A session that wanted it may have asked already, or the first answer for it is still to come.
                if heard.as_ref().is_none_or(|heard| heard.since >= now) {
                    return;
                }
                match subscribed(&client, &uri, limit).await {
                    Ok(_subscription) => *heard = Some(ResourceListener { since: now, _subscription }),
                    Err(error) => tracing::warn!("`{name}` does not tell of {uri} any more: {error}"),
                }
            });
        }
        while asking.join_next().await.is_some() {}
    }
}

async fn subscribed(client: &Client, uri: &str, limit: Duration) -> Result<Subscription, Error> {
    let options = RequestOptions { timeout: Some(limit), ..RequestOptions::default() };
    client.subscribe(Topics { resources: vec![uri.to_owned()], lists: false }, &options).await
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.backend.watched();
        let Some(watched) = all.get_mut(&self.uri) else { return };
        watched.count -= 1;
        // The server is told by the end of the subscription.
        if watched.count == 0 && stands("unwatched-is-unsubscribed") {
            all.remove(&self.uri);
        }
    }
}
