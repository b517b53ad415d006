//! The requests in flight, as the actor looks them up, and probes: requests that nobody waits for, which ask for a sign of life.
//!
//! Invariant: a probe does not make the server busy.

use unhang_wire::{Id, compose};

use super::{LISTEN, Outgoing, RequestOrigin, UpstreamSession};
use crate::{call_stream::CallStream, handshake::HandshakeRequest, keeping::KeptRoots, question::OfSession};

impl UpstreamSession {
    /// Returns whether somebody waits for the answer to this request.
    pub(crate) fn awaits(&self, id: &Id) -> bool {
        self.request_table.whose(id).is_some()
    }

    /// Returns the session that waits for the answer to this request, if there is one.
    pub(crate) fn session_of(&self, id: &Id) -> Option<OfSession> {
        match self.request_table.whose(id) {
            Some(RequestOrigin::Caller { session, .. }) => *session,
            _ => None,
        }
    }

    /// Returns the listener that hears of the stream of this request's answer; `None` if there is none.
    pub(crate) fn stream_of(&self, id: &Id) -> Option<&CallStream> {
        match self.request_table.whose(id) {
            Some(RequestOrigin::Caller { stream, .. }) => stream.as_ref(),
            _ => None,
        }
    }

    /// Returns the ids of the server's questions that wait for an answer.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = &Id> {
        self.questions.ids()
    }

    /// Returns the roots that the clients of the server have told it last.
    pub(crate) fn kept_roots(&self) -> KeptRoots {
        self.questions.known_roots.kept()
    }

    /// Returns whether a client has told the server other roots since the last look.
    pub(crate) fn take_new_roots(&mut self) -> bool {
        self.questions.known_roots.take_new()
    }

    /// Returns whether a question of the server waits for its answer.
    pub(crate) fn is_asked(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Returns the request of the handshake that has this id; `None` if it is another request, or over.
    pub(crate) fn of_handshake(&self, id: &Id) -> Option<HandshakeRequest> {
        match self.request_table.whose(id) {
            Some(RequestOrigin::Handshake(ask)) => Some(*ask),
            _ => None,
        }
    }

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
