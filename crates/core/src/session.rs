//! The requests by which a client has set up its session with a server, kept to set up a fresh server process (promise 6).
//!
//! Invariants: pure. A record holds the client's own bytes and replays them unchanged but for the id. A stateless client (2026-07-28)
//! leaves nothing here, so nothing is replayed for it.

use std::{collections::BTreeMap, ops::Range};

use unhang_wire::{Id, replace_id};

use crate::config::MAX_SUBSCRIPTIONS;

/// A request that can be sent again under another id.
#[derive(Clone, Debug)]
struct RequestTemplate {
    raw: Vec<u8>,
    id_span: Range<usize>,
}

impl RequestTemplate {
    fn with_id(&self, id: &Id) -> Vec<u8> {
        replace_id(&self.raw, self.id_span.clone(), id)
    }
}

/// The session of one client with one server.
#[derive(Debug, Default)]
pub struct RecordedSession {
    initialize: Option<RequestTemplate>,
    initialized: Option<Vec<u8>>,
    level: Option<RequestTemplate>,
    subscriptions: BTreeMap<String, RequestTemplate>,
}

impl RecordedSession {
    /// Records an `initialize` request; an earlier session is over.
    pub fn initialize(&mut self, raw: &[u8], id_span: Range<usize>) {
        *self = RecordedSession::default();
        self.initialize = Some(RequestTemplate { raw: raw.to_vec(), id_span });
    }

    /// Records that the client has sent `notifications/initialized`.
    pub fn initialized(&mut self, raw: &[u8]) {
        self.initialized = Some(raw.to_vec());
    }

    /// Records the last `logging/setLevel`.
    pub fn level(&mut self, raw: &[u8], id_span: Range<usize>) {
        self.level = Some(RequestTemplate { raw: raw.to_vec(), id_span });
    }

    /// Records a subscription to a resource. Beyond [`MAX_SUBSCRIPTIONS`] it works but is not replayed.
    pub fn subscribe(&mut self, uri: String, raw: &[u8], id_span: Range<usize>) {
        if self.subscriptions.len() < MAX_SUBSCRIPTIONS {
            self.subscriptions.insert(uri, RequestTemplate { raw: raw.to_vec(), id_span });
        }
    }

    /// Forgets a subscription.
    pub fn unsubscribe(&mut self, uri: &str) {
        self.subscriptions.remove(uri);
    }

    /// Returns whether the client has finished the handshake.
    pub fn is_initialized(&self) -> bool {
        self.initialized.is_some()
    }

    /// Returns whether the replay will send this very line anyway.
    pub fn says(&self, raw: &[u8]) -> bool {
        self.initialized.as_deref() == Some(raw)
    }

    /// Returns the handshake to open a replay with; `None` if there was none.
    pub fn opening(&self, id: &Id) -> Option<Vec<u8>> {
        self.initialize.as_ref().map(|template| template.with_id(id))
    }

    /// Returns the lines that follow once the handshake is answered. Each request gets an id from `next_id`.
    pub fn sequel(&self, mut next_id: impl FnMut() -> Id) -> Vec<Vec<u8>> {
        let level = self.level.iter();
        let subscriptions = self.subscriptions.values();
        let requests = level.chain(subscriptions);
        let requests: Vec<_> = requests.map(|template| template.with_id(&next_id())).collect();
        self.initialized.iter().cloned().chain(requests).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str) -> (Vec<u8>, Range<usize>) {
        let raw = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        let at = raw.find(":1,").expect("the id stands there") + 1;
        (raw.into_bytes(), at..at + 1)
    }

    #[test]
    fn a_session_is_replayed_in_order_with_fresh_ids() {
        let mut session = RecordedSession::default();
        assert!(session.opening(&Id::Integer(9)).is_none());
        let (raw, span) = request("initialize");
        session.initialize(&raw, span);
        session.initialized(b"initialized");
        for (uri, keep) in [("a", true), ("b", false)] {
            let (raw, span) = request(uri);
            session.subscribe(uri.to_owned(), &raw, span);
            if !keep {
                session.unsubscribe(uri);
            }
        }
        let (raw, span) = request("logging/setLevel");
        session.level(&raw, span);
        assert!(
            session
                .opening(&Id::Integer(9))
                .is_some_and(|raw| raw.windows(6).any(|bytes| bytes == b"\"id\":9"))
        );
        let mut number = 10;
        let sequel = session.sequel(|| {
            number += 1;
            Id::Integer(number)
        });
        let sequel: Vec<_> = sequel.into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
        assert_eq!(sequel.len(), 3);
        assert_eq!(sequel[0], "initialized");
        assert!(sequel[1].contains("setLevel") && sequel[1].contains("\"id\":11"));
        assert!(sequel[2].contains("\"a\"") && sequel[2].contains("\"id\":12"));
    }

    #[test]
    fn subscriptions_are_bounded() {
        let mut session = RecordedSession::default();
        for number in 0..=MAX_SUBSCRIPTIONS {
            let (raw, span) = request("resources/subscribe");
            session.subscribe(number.to_string(), &raw, span);
        }
        assert_eq!(session.sequel(|| Id::Integer(1)).len(), MAX_SUBSCRIPTIONS);
    }

    #[test]
    fn a_new_initialize_ends_the_old_session() {
        let mut session = RecordedSession::default();
        session.initialized(b"initialized");
        let (raw, span) = request("initialize");
        session.initialize(&raw, span);
        assert!(!session.is_initialized());
    }

    #[test]
    fn only_the_line_that_the_replay_sends_anyway_is_said_by_it() {
        let mut session = RecordedSession::default();
        assert!(!session.is_initialized() && !session.says(b"") && !session.says(b"initialized"));
        session.initialized(b"initialized");
        assert!(session.is_initialized() && session.says(b"initialized"));
        for other in [b"".as_slice(), b"initialize", b"initialized "] {
            assert!(!session.says(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn only_the_last_level_is_replayed_and_nothing_of_an_earlier_session() {
        let mut session = RecordedSession::default();
        let replayed = |session: &RecordedSession| -> Vec<String> {
            let lines = session.sequel(|| Id::Integer(5));
            lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect()
        };
        assert!(replayed(&session).is_empty());
        for level in ["debug", "error"] {
            let (raw, span) = request(level);
            session.level(&raw, span);
        }
        let (raw, span) = request("resources/subscribe");
        session.subscribe("a".to_owned(), &raw, span.clone());
        assert_eq!(
            replayed(&session),
            [
                r#"{"jsonrpc":"2.0","id":5,"method":"error"}"#,
                r#"{"jsonrpc":"2.0","id":5,"method":"resources/subscribe"}"#
            ]
        );
        session.initialize(&raw, span);
        assert!(replayed(&session).is_empty());
    }
}
