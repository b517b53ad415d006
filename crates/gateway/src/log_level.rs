//! Log levels: those of the protocol, which are the levels of syslog (RFC 5424), and the level that was asked for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Map;

use unhang_upstream::client::{Client, RequestOptions};

/// A level; the lowest one logs most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

use Level::*;

const NAMES: [(Level, &str); 8] = [
    (Debug, "debug"),
    (Info, "info"),
    (Notice, "notice"),
    (Warning, "warning"),
    (Error, "error"),
    (Critical, "critical"),
    (Alert, "alert"),
    (Emergency, "emergency"),
];

impl Level {
    /// Returns the level of this name, or `None` if there is none.
    pub fn named(name: &str) -> Option<Level> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
    }

    /// Returns the level's name in the protocol.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }
}

/// The level that somebody has asked for, if anybody has.
#[derive(Debug, Default)]
pub(super) struct RequestedLevel(Mutex<Option<Level>>);

impl RequestedLevel {
    /// Returns the level that was asked for.
    pub(super) fn get(&self) -> Option<Level> {
        *self.lock()
    }

    /// Replaces the level.
    pub(super) fn set(&self, level: Level) {
        *self.lock() = Some(level);
    }

    /// Lowers the level to this one, and returns whether that logs more than before.
    pub(super) fn lower_to(&self, level: Level) -> bool {
        let mut requested = self.lock();
        let is_more = requested.is_none_or(|now| level < now);
        if is_more {
            *requested = Some(level);
        }
        is_more
    }

    /// Tells a server from which level on to log, if its era sets the level once for all requests (protocol.md 3.3, row 10).
    pub(super) async fn tell(&self, server: &str, client: &Client) {
        let Some(level) = self.get() else { return };
        let Ok(session) = client.ready().await else { return };
        if session.revision.is_stateless() || !session.capabilities.contains_key("logging") {
            return;
        }
        let params = Map::from_iter([("level".to_owned(), level.name().into())]);
        if let Err(error) = client.request("logging/setLevel", params, &RequestOptions::default()).await {
            tracing::debug!("`{server}` does not accept a log level: {error}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Level>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_their_names_and_their_order() {
        for (level, name) in NAMES {
            assert_eq!((Level::named(name), level.name()), (Some(level), name));
        }
        assert!(NAMES.is_sorted() && Level::named("verbose").is_none());
    }
}
