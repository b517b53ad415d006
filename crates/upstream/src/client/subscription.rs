//! Changes that a server tells of by itself: of single resources, and of its lists. What it tells goes to the client's listener.
//!
//! With a handshake, resources are subscribed to one by one, and lists are told of unasked; without one (2026-07-28) both are asked for
//! with one request that stays open, `subscriptions/listen`, which is asked again where its stream broke off.
//!
//! Invariants: a subscription ends with its value: the server is told. Nothing here has a deadline but its beginning.

use std::time::Duration;

use serde_json::{Map, json, value::RawValue};
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

use super::{CallOptions, Client, Error, LISTEN, RequestOptions, object};
use unhang_core::{fault::FaultKind, units::in_words};

/// Between two attempts to listen again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What somebody wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    /// The resources with these URIs (`notifications/resources/updated`).
    pub resources: Vec<String>,
    /// The lists of tools, resources and prompts (`notifications/tools/list_changed` and so on).
    pub lists: bool,
}

/// A subscription. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "a subscription ends when it is dropped"]
pub struct Subscription {
    _kept: oneshot::Sender<()>,
}

impl Subscription {
    /// Begins to hear of changes. The server is told of the end when the value is dropped.
    ///
    /// # Errors
    /// As [`Client::subscribe`].
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
                // Dropping it withdraws the request.
                error = listen(&listener, &topics, acknowledged) => drop(failed.send(error)),
                _ = ended => {}
            }
        });
        match timeout(limit, seen.changed()).await {
            Ok(Ok(())) => Ok(Self { _kept: kept }),
            Err(_) => Err(unacknowledged(client, limit)),
            // It was refused or lost before that, and why comes a moment later.
            Ok(Err(_)) => Err(failure.await.unwrap_or_else(|_| unacknowledged(client, limit))),
        }
    }

    /// Begins with one request for each resource. Lists are told of unasked.
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
                // Where it is refused nothing more can be done.
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

/// Listens for as long as the server lets us, and gives why it did not let us from the start.
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
            // The server has ended it, and may be asked to begin anew, as after an end of its connection.
            outcome => tracing::debug!("`{}` has ended a subscription: {:?}", client.name, outcome.err()),
        }
        if begun.elapsed() > LONGEST_PAUSE {
            pause = PAUSE;
        }
        sleep(pause).await;
        // By now whoever has followed it can be asked.
        client.doubted.notify_waiters();
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl Topics {
    /// The params that ask for it.
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
