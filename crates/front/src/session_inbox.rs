//! The inbox of a session, into which servers speak outside calls.
//!
//! Invariant: servers know the inbox once the client has ended its handshake and has opened the stream of its session.

use tokio::sync::mpsc;

use unhang_gateway::{Servers, SessionKey, SideMessage};

/// The most messages on their way to the session, which takes them at once.
const MESSAGES: usize = 64;

/// The inbox of a session; see the module's text.
pub(super) struct SessionInbox {
    way: mpsc::Sender<SideMessage>,
    received: mpsc::Receiver<SideMessage>,
    /// The key of the session's calls.
    key: SessionKey,
    has_shaken_hands: bool,
    /// The client has opened the stream of its session.
    is_heard: bool,
}

impl SessionInbox {
    /// Makes the inbox of a session whose calls have this key.
    pub(super) fn of(key: SessionKey) -> Self {
        let (way, received) = mpsc::channel(MESSAGES);
        Self { way, received, key, has_shaken_hands: false, is_heard: false }
    }

    /// Notes that the client has ended its handshake.
    pub(super) fn has_shaken_hands(&mut self, servers: Option<&Servers>) {
        self.has_shaken_hands = true;
        self.open(servers);
    }

    /// Notes that the client has opened the stream of its session.
    pub(super) fn is_heard(&mut self, servers: Option<&Servers>) {
        self.is_heard = true;
        self.open(servers);
    }

    fn open(&self, servers: Option<&Servers>) {
        if let Some(servers) = servers.filter(|_| self.has_shaken_hands && self.is_heard) {
            servers.client_hears(self.way.clone(), self.key);
        }
    }

    /// Returns the way to the client outside calls; `None` while it cannot be told anything so.
    pub(super) fn way(&self) -> Option<mpsc::Sender<SideMessage>> {
        (self.has_shaken_hands && self.is_heard).then(|| self.way.clone())
    }

    /// Waits for the next message. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<SideMessage> {
        self.received.recv().await
    }
}
