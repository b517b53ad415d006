//! What is known of the clients whose sessions are open: their eras, and the extensions that they declare.
//!
//! Invariant: what clients declare is bounded, and the first client that declares an extension counts.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value};
use tokio::{sync::watch, time::timeout};
use unhang_bridge::{Era, tasks};

use super::session_inboxes::SessionInboxes;
use crate::route::{
    apps,
    extensions::{self, Extensions},
};
use unhang_core::config::{CLIENT_EXTENSION_BYTES, CLIENT_EXTENSIONS};

/// The sessions that are open: the number of each era, and the extensions that clients have declared.
#[derive(Debug, Default)]
pub(super) struct OpenSessions {
    legacy: AtomicUsize,
    modern: AtomicUsize,
    /// A client has waited for the servers.
    has_begun: watch::Sender<bool>,
    /// The extensions that clients have declared so far. The first client that declares one counts.
    extensions: Mutex<Extensions>,
    /// The ways to the clients outside calls.
    pub(super) inboxes: SessionInboxes,
}

/// An open session of this era, until it is dropped.
pub(super) struct OpenSession {
    sessions: Arc<OpenSessions>,
    era: Era,
    /// The number of the session.
    number: u64,
}

impl OpenSessions {
    /// Counts a session of this era, which has this number.
    pub(super) fn enter(self: &Arc<Self>, era: Era, number: u64) -> OpenSession {
        self.of(era).fetch_add(1, Ordering::Relaxed);
        self.inboxes.enter(number, era);
        self.note_begun();
        OpenSession { sessions: Arc::clone(self), era, number }
    }

    /// Notes that a client waits for the servers.
    pub(super) fn note_begun(&self) {
        self.has_begun.send_replace(true);
    }

    /// Notes the extensions that a client declares with these capabilities, as JSON, up to a bound.
    pub(super) fn note_declared(&self, capabilities: &str) {
        let capabilities: Map<String, Value> = serde_json::from_str(capabilities).unwrap_or_default();
        let mut known = self.known_extensions();
        for (name, settings) in extensions::of_capabilities(&capabilities) {
            let is_small = name.len() + settings.to_string().len() <= CLIENT_EXTENSION_BYTES;
            if is_small && known.len() < CLIENT_EXTENSIONS {
                known.entry(name).or_insert(settings);
            }
        }
    }

    /// Returns the extensions that the gateway declares to servers: those of its clients, and views, which it passes on in any case.
    pub(super) fn declared(&self) -> Extensions {
        let mut declared = self.known_extensions().clone();
        declared.insert(apps::UI.to_owned(), apps::declared());
        // A client declares tasks with each call that may become one.
        declared.remove(tasks::EXTENSION);
        declared
    }

    fn known_extensions(&self) -> MutexGuard<'_, Extensions> {
        self.extensions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there is a session of this era.
    pub(super) fn has(&self, era: Era) -> bool {
        self.of(era).load(Ordering::Relaxed) > 0
    }

    /// Waits for the first session, for so long at most.
    pub(super) async fn until_first(&self, limit: Duration) {
        let mut has_begun = self.has_begun.subscribe();
        let _has_or_is_late = timeout(limit, has_begun.wait_for(|has_begun| *has_begun)).await;
    }

    fn of(&self, era: Era) -> &AtomicUsize {
        match era {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        }
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.sessions.of(self.era).fetch_sub(1, Ordering::Relaxed);
        self.sessions.inboxes.leave(self.number);
    }
}
