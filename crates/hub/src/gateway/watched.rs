//! Resources of one server that somebody wants to hear of.
//!
//! Invariants: a server is asked once for a resource, however many want to hear of it, again when it was started anew, and told when
//! nobody does any more.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::broadcast};
use unhang_switches::stands;

use super::backend::{Backend, Starter};
use crate::client::{Client, Error, Options, Subscription, Topics};

/// A resource that somebody wants to hear of.
pub(super) struct Watched {
    count: usize,
    /// Since which start of the server.
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
        let mut watched = self.watched.lock().await;
        // It may have been started anew meanwhile. One that has ended says so when it is asked.
        let (client, since) = self.current().unwrap_or((ready.0, self.starts()));
        match watched.get_mut(&uri) {
            Some(watched) if watched.since == since => watched.count += 1,
            other => {
                let count = other.map_or(0, |watched| watched.count) + 1;
                let _subscription = subscribed(&client, &uri, limit).await?;
                watched.insert(Arc::clone(&uri), Watched { count, since, _subscription });
            }
        }
        drop(watched);
        Ok(Watch { backend: self, uri })
    }

    /// Hears of the same resources of a server that was started anew.
    pub(super) async fn watch_again(&self, client: &Client, now: u64) {
        let mut watched = self.watched.lock().await;
        for (uri, watched) in watched.iter_mut().filter(|(_, watched)| watched.since != now) {
            match subscribed(client, uri, self.request_timeout()).await {
                Ok(subscription) => (watched.since, watched._subscription) = (now, subscription),
                Err(error) => tracing::warn!("`{}` does not tell of {uri} any more: {error}", self.name()),
            }
        }
    }
}

async fn subscribed(client: &Client, uri: &str, limit: Duration) -> Result<Subscription, Error> {
    let options = Options { timeout: Some(limit), ..Options::default() };
    client.subscribe(Topics { resources: vec![uri.to_owned()], lists: false }, &options).await
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (backend, uri) = (Arc::clone(&self.backend), Arc::clone(&self.uri));
        // Without a runtime there is no server any more either.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let mut watched = backend.watched.lock().await;
            let Some(last) = watched.get_mut(&uri) else { return };
            last.count -= 1;
            if last.count == 0 && stands("unwatched-is-unsubscribed") {
                watched.remove(&uri);
            }
        });
    }
}
