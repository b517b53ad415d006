//! The changes that a server reports by itself: of single resources, and of its lists. They go to the client's listener.
//!
//! With a handshake, the client subscribes to resources one by one, and the server reports its lists unasked. Without one (2026-07-28), one
//! request that stays open asks for both: `subscriptions/listen`. The client sends it again if its stream breaks off.
//!
//! Invariants: a subscription ends when its value is dropped, and the server is told. Only its beginning has a deadline.

use std::time::Duration;

use serde_json::{Map, json, value::RawValue};
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

use super::{CallOptions, Client, Error, LISTEN, RequestOptions, object};
use unhang_core::{fault::FaultKind, units::in_words};

/// The pause between two attempts to listen again. It doubles up to the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The changes that a subscriber wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    /// The resources with these URIs (`notifications/resources/updated`).
    pub resources: Vec<String>,
    /// The lists of tools, resources and prompts (`notifications/tools/list_changed` and so on).
    pub lists: bool,
}

/// A subscription. It ends when this value is dropped.
#[derive(Debug)]
#[must_use = "a subscription ends when it is dropped"]
pub struct Subscription {
    _kept: oneshot::Sender<()>,
}

impl Subscription {
    /// Begins a subscription. The server is told of the end when the value is dropped.
    ///
    /// # Errors
    /// Fails as [`Client::subscribe`] does.
    pub(super) async fn begin(
        client: &Client,
        topics: Topics,
        options: &RequestOptions,
    ) -> Result<Self, Error> {
        match client.ready().await?.revision.is_stateless() {
            true => Self::listen(client, topics, options).await,
            false => Self::one_by_one(client, topics, options).await,
        }
    }

    /// Begins with one request that stays open (2026-07-28).
    async fn listen(client: &Client, topics: Topics, options: &RequestOptions) -> Result<Self, Error> {
        let (kept, ended) = oneshot::channel();
        let limit = options.timeout.unwrap_or(client.limits.request_timeout);
        let (acknowledged, mut seen) = watch::channel(None);
        let (failed, failure) = oneshot::channel();
        let listener = client.clone();
        tokio::spawn(async move {
            tokio::select! {
                // Dropping this future withdraws the request.
                error = listen(&listener, &topics, acknowledged) => drop(failed.send(error)),
                _ = ended => {}
            }
        });
        match timeout(limit, seen.changed()).await {
            Ok(Ok(())) => Ok(Self { _kept: kept }),
            Err(_) => Err(unacknowledged(client, limit)),
            // The request was refused or lost before that; the reason comes a moment later.
            Ok(Err(_)) => Err(failure.await.unwrap_or_else(|_| unacknowledged(client, limit))),
        }
    }

    /// Begins with one request for each resource. The server reports its lists unasked.
    async fn one_by_one(client: &Client, topics: Topics, options: &RequestOptions) -> Result<Self, Error> {
        let (kept, ended) = oneshot::channel();
        for uri in &topics.resources {
            client.request("resources/subscribe", object(json!({ "uri": uri })), options).await?;
        }
        let client = client.clone();
        tokio::spawn(async move {
            let _dropped = ended.await;
            for uri in topics.resources {
                let params = object(json!({ "uri": uri }));
                // If the server refuses this, nothing more can be done.
                let _ended =
                    client.request("resources/unsubscribe", params, &RequestOptions::default()).await;
            }
        });
        Ok(Self { _kept: kept })
    }
}

fn unacknowledged(client: &Client, limit: Duration) -> Error {
    let happened = format!("`{}` did not acknowledge `{LISTEN}` within {}", client.name, in_words(limit));
    client.failure(FaultKind::Deadline, LISTEN, happened, "raise --request-timeout if it needs longer")
}

/// Listens for as long as the server allows it, and returns the reason if the server did not allow it from the start.
async fn listen(
    client: &Client,
    topics: &Topics,
    acknowledged: watch::Sender<Option<Box<RawValue>>>,
) -> Error {
    let manner = CallOptions { progress: Some(acknowledged.clone()), ..CallOptions::default() };
    let mut pause = PAUSE;
    loop {
        let begun = tokio::time::Instant::now();
        let outcome = match client.ready().await {
            Ok(session) => {
                client.attempt(&session, LISTEN, &topics.filter(), (begun, Duration::MAX), &manner).await
            }
            Err(error) => return error,
        };
        match outcome {
            Err(error) if acknowledged.borrow().is_none() => return error,
            // The server has ended the stream. The client asks it to begin anew, as after the end of a connection.
            outcome => tracing::debug!("`{}` has ended a subscription: {:?}", client.name, outcome.err()),
        }
        if begun.elapsed() > LONGEST_PAUSE {
            pause = PAUSE;
        }
        sleep(pause).await;
        // By now a server process that has followed can be asked.
        client.doubted.notify_waiters();
        if topics.lists {
            client.listener.may_have_missed_some();
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Topics {
    /// Returns the params that ask for these changes.
    fn filter(&self) -> String {
        let mut filter = Map::new();
        if self.lists {
            for list in ["toolsListChanged", "promptsListChanged", "resourcesListChanged"] {
                filter.insert(list.to_owned(), true.into());
            }
        }
        if !self.resources.is_empty() {
            filter.insert("resourceSubscriptions".to_owned(), self.resources.clone().into());
        }
        json!({ "notifications": filter }).to_string()
    }
}
