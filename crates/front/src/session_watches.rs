//! The resources of servers that the client of a session watches, and their changes.
//!
//! Invariant: a session that watches nothing is not woken by changes for other sessions.

use std::{collections::HashMap, future::pending};

use tokio::sync::broadcast::error::RecvError;

use super::effects::Resource;
use unhang_gateway::{ResourceUpdate, Servers, Watch, WatchChanges};

/// The watches of a session; see the module's text.
#[derive(Default)]
pub(super) struct SessionWatches {
    watches: HashMap<Resource, Watch>,
    /// Changes of the resources that any client watches, since this client watches some.
    updates: Option<WatchChanges>,
}

impl SessionWatches {
    /// Starts to receive changes. The server is asked only after that, so that no change is missed.
    pub(super) fn listen(&mut self, servers: &Servers) {
        self.updates.get_or_insert_with(|| servers.updates());
    }

    /// Keeps the watch of this resource until [`SessionWatches::end`].
    pub(super) fn keep(&mut self, resource: Resource, watch: Watch) {
        self.watches.insert(resource, watch);
    }

    /// Ends the watch of this resource.
    pub(super) fn end(&mut self, resource: &Resource) {
        self.watches.remove(resource);
    }

    /// Waits for the next change of a resource; forever, if nothing is watched. Cancel-safe.
    pub(super) async fn next(&mut self) -> ResourceUpdate {
        loop {
            match &mut self.updates {
                None => return pending().await,
                Some(changes) => match changes.recv().await {
                    Ok(updated) => return updated,
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(
                            "unhang left out {missed} notifications of changed resources, because they \
                            came too fast"
                        );
                    }
                    Err(RecvError::Closed) => self.updates = None,
                },
            }
        }
    }
}
