//! The sessions that there are, so that all can be told of a change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::session_servers::SessionServers;

/// The servers of each session, so that all sessions can be told of a change.
#[derive(Default)]
pub(super) struct SessionRegistry(Mutex<RegisteredSessions>);

#[derive(Default)]
struct RegisteredSessions {
    by_number: HashMap<u64, Weak<SessionServers>>,
    next: u64,
}

impl SessionRegistry {
    /// Adds a session, and returns its number.
    pub(super) fn enter(&self, session_servers: Weak<SessionServers>) -> u64 {
        let mut sessions = self.sessions();
        let number = sessions.next;
        sessions.next += 1;
        sessions.by_number.insert(number, session_servers);
        number
    }

    /// Removes the session of this number.
    pub(super) fn leave(&self, number: u64) {
        self.sessions().by_number.remove(&number);
    }

    /// Returns the servers of each session that there is.
    pub(super) fn all(&self) -> Vec<Arc<SessionServers>> {
        self.sessions().by_number.values().filter_map(Weak::upgrade).collect()
    }

    fn sessions(&self) -> MutexGuard<'_, RegisteredSessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
