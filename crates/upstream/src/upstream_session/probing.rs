//! Requests that nobody waits for, which ask a server for a sign of life.
//!
//! Invariant: a probe does not make the server busy.

use unhang_wire::{Id, compose};

use super::{LISTEN, Outgoing, RequestOrigin, UpstreamSession};
use crate::handshake::HandshakeRequest;

impl UpstreamSession {
    /// Returns whether the server is ready and has nothing to do.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_nothing =
            |method: &str, whose: &RequestOrigin| matches!(whose, RequestOrigin::Probe) || method == LISTEN;
        self.session.is_some()
            && !self.is_ending
            && self.questions.is_empty()
            && self.request_table.calls().all(|call| is_nothing(&call.method, &call.whose))
    }

    /// Asks a server that nobody talks to for a sign of life (L-58). Anything that the server says afterwards counts as one. A probe does
    /// not make the server busy; every other request does.
    pub(crate) fn probe(&mut self) -> Id {
        self.probe_by(self.is_stateless().then_some(HandshakeRequest::Discover))
    }

    /// Sends a probe by a request of the handshake, or by `ping`.
    pub(crate) fn probe_by(&mut self, ask: Option<HandshakeRequest>) -> Id {
        let (since, limit) = (self.now(), self.limits.health_interval);
        let (method, params) = match ask {
            Some(ask) => (ask.method(), self.introduction.params(ask)),
            None => ("ping", "{}".to_owned()),
        };
        let id = self.request_table.begin(since, method, limit, RequestOrigin::Probe);
        let line = compose::request(&id, method, &params);
        let probe = id.clone();
        self.out.push(Outgoing::Request { id, method: method.into(), line, mirrored: Vec::new() });
        probe
    }
}
