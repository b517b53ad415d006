//! The resources of servers that the client of a session watches, and the changes that it hears of.
//!
//! Invariant: whoever watches nothing is not woken for the changes of what others watch.

use std::{collections::HashMap, future::pending};

use tokio::sync::broadcast::error::RecvError;

use super::effects::Resource;
use unhang_gateway::{ResourceUpdate, Servers, Watch, WatchChanges};

/// See the module's text.
#[derive(Default)]
pub(super) struct SessionWatches {
    watches: HashMap<Resource, Watch>,
    /// Changes of those that anybody watches, since this client does.
    updates: Option<WatchChanges>,
}

impl SessionWatches {
    /// Hears of changes from now on. A server is asked after that, so that nothing is missed.
    pub(super) fn listen(&mut self, servers: &Servers) {
        self.updates.get_or_insert_with(|| servers.updates());
    }

    /// Keeps the watch of this resource until it is watched no more.
    pub(super) fn keep(&mut self, resource: Resource, watch: Watch) {
        self.watches.insert(resource, watch);
    }

    /// Watches this resource no more.
    pub(super) fn end(&mut self, resource: &Resource) {
        self.watches.remove(resource);
    }

    /// Waits for the next change of a resource; for ever, where nothing is watched. Cancel-safe.
    pub(super) async fn next(&mut self) -> ResourceUpdate {
        loop {
            match &mut self.updates {
                None => return pending().await,
                Some(changes) => match changes.recv().await {
                    Ok(updated) => return updated,
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!("{missed} changes of resources came faster than they could be told");
                    }
                    Err(RecvError::Closed) => self.updates = None,
                },
            }
        }
    }
}
