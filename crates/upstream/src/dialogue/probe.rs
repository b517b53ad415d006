//! Questions whose only purpose is that a server which nobody talks to shows that it lives (L-58).
//!
//! Invariant: whoever asks something, or is asked, makes the server busy; a probe does not.

use super::{Ask, Dialogue, Out, Whose, conversation};
use crate::LISTEN;

impl Dialogue {
    /// Whether nothing is going on with a server that could answer.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_nothing = |method: &str, whose: &Whose| matches!(whose, Whose::Probe) || method == LISTEN;
        self.session.is_some()
            && !self.is_ending
            && self.questions.is_empty()
            && self.conversation.calls().all(|call| is_nothing(&call.method, &call.whose))
    }

    /// Asks for a sign of life. What comes of it is known by what is heard of the server, whatever that is.
    pub(crate) fn probe(&mut self) {
        let (since, limit) = (self.now(), self.limits.health_interval);
        let (method, params) = match self.is_stateless() {
            true => (Ask::Discover.method(), self.introduction.params(Ask::Discover)),
            false => ("ping", "{}".to_owned()),
        };
        let id = self.conversation.begin(since, method, limit, Whose::Probe);
        let line = conversation::request(&id, method, &params);
        self.out.push_back(Out::Request { id, method: method.into(), line, mirrored: Vec::new() });
    }
}
