//! Questions whose only purpose is that a server which nobody talks to shows that it lives (L-58).
//!
//! Invariant: whoever asks something, or is asked, makes the server busy; a probe does not.

use super::{HandshakeRequest, Outgoing, RequestOrigin, UpstreamSession, request_table};
use crate::LISTEN;

impl UpstreamSession {
    /// Whether nothing is going on with a server that could answer.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_nothing =
            |method: &str, whose: &RequestOrigin| matches!(whose, RequestOrigin::Probe) || method == LISTEN;
        self.session.is_some()
            && !self.is_ending
            && self.questions.is_empty()
            && self.request_table.calls().all(|call| is_nothing(&call.method, &call.whose))
    }

    /// Asks for a sign of life. What comes of it is known by what is heard of the server, whatever that is.
    pub(crate) fn probe(&mut self) {
        let (since, limit) = (self.now(), self.limits.health_interval);
        let (method, params) = match self.is_stateless() {
            true => {
                (HandshakeRequest::Discover.method(), self.introduction.params(HandshakeRequest::Discover))
            }
            false => ("ping", "{}".to_owned()),
        };
        let id = self.request_table.begin(since, method, limit, RequestOrigin::Probe);
        let line = request_table::request(&id, method, &params);
        self.out.push_back(Outgoing::Request { id, method: method.into(), line, mirrored: Vec::new() });
    }
}
