//! The handshake of a session with its server: what is asked, and what comes of the answers.
//!
//! Invariant: the whole handshake has one deadline, however many processes or requests it takes.

use std::{sync::Arc, time::Duration};

use unhang_wire::{Id, compose};

use super::{AbandonedCalls, Outgoing, RequestOrigin, ServerPhase, UpstreamSession};
use crate::{
    handshake::{Handshake, HandshakeRequest, HandshakeStep, REMOTE_START_HINT, START_HINT, ServerInfo},
    resumed_request::ResumedRequest,
};
use unhang_core::{error::Failure, units::in_words};

impl UpstreamSession {
    /// Begins the first handshake, in the way that the server was found to understand.
    pub(crate) fn greet(&mut self) {
        if !self.is_legacy {
            return self.begin(HandshakeRequest::Discover);
        }
        self.handshake = Handshake::guessing(&self.name, self.now());
        self.ask(HandshakeRequest::Initialize);
    }

    /// Goes on with a session that another process has begun, and whose requests the server works on. Each request comes with the party
    /// that waits for its answer.
    pub(crate) fn resume(
        &mut self,
        server: ServerInfo,
        requests: impl IntoIterator<Item = (ResumedRequest, RequestOrigin)>,
        answered: impl IntoIterator<Item = Id>,
    ) {
        self.is_resumed = true;
        for (request, origin) in requests {
            let ResumedRequest { id, token, method, elapsed, limit } = request;
            let times = (Duration::ZERO, elapsed);
            if !self.request_table.resume((id.clone(), token), times, &method, limit, origin) {
                tracing::warn!("`{}` has two requests with the id {id}; unhang drops one of them", self.name);
            }
        }
        for id in answered {
            let (times, origin) = ((Duration::ZERO, Duration::ZERO), RequestOrigin::Probe);
            self.request_table.resume((id.clone(), None), times, "tools/call", Duration::ZERO, origin);
            self.request_table.withdraw(&id);
        }
        self.can_be_asked(server);
    }

    /// Begins a handshake with this request.
    pub(crate) fn begin(&mut self, ask: HandshakeRequest) {
        self.session = None;
        // A server that is greeted anew knows nothing of earlier calls.
        self.abandoned = AbandonedCalls::default();
        self.handshake = Handshake::new(&self.name, self.now(), ask);
        self.ask(ask);
    }

    /// Notes that the process has ended, and returns whether another one is to be started and greeted: this one was asked for
    /// `server/discover` and nothing else.
    pub(crate) fn wants_another_process(&mut self, how_it_ended: &str) -> bool {
        if !self.is_shaking() || !self.handshake.has_only_discovered() {
            return false;
        }
        tracing::info!(
            "{how_it_ended} at `server/discover`; unhang starts it once more, and begins with `initialize`"
        );
        for id in self.request_table.ids(|whose| matches!(whose, RequestOrigin::Handshake(_))) {
            self.request_table.withdraw(&id);
        }
        self.handshake = self.handshake.with_another_process(how_it_ended);
        true
    }

    /// Greets another process of a server that ended at `server/discover`.
    pub(crate) fn greet_another_process(&mut self) {
        self.ask(HandshakeRequest::Initialize);
    }

    /// Adds to the failure of a start what the server did before at `server/discover`.
    pub(crate) fn tell_refusal(&self, failure: &mut Failure) {
        self.handshake.tell_refusal(failure);
    }

    /// Returns whether the server was greeted on a guess, so that it is asked for the other era if it refuses.
    pub(crate) fn is_greeted_on_a_guess(&self) -> bool {
        self.is_shaking() && self.handshake.may_be_wrong()
    }

    /// Returns whether the server is the leading window, which understands everything that unhang sends.
    pub(crate) fn is_leader(&self) -> bool {
        self.questions.is_of_leader
    }

    fn ask(&mut self, ask: HandshakeRequest) {
        // The whole handshake has one deadline, from its beginning on.
        let (since, limit) = (self.handshake.since(), self.limits.start_timeout);
        let id = self.request_table.begin(since, ask.method(), limit, RequestOrigin::Handshake(ask));
        let line = compose::request(&id, ask.method(), &self.introduction.params(ask));
        self.out.push(Outgoing::Request { id, method: ask.method().into(), line, mirrored: Vec::new() });
    }

    pub(super) fn step(&mut self, step: HandshakeStep) {
        match step {
            HandshakeStep::Wait => {}
            HandshakeStep::Ask(ask) => self.ask(ask),
            HandshakeStep::Ready(session) => self.ready(*session),
            HandshakeStep::Failed(kind, happened, hint) => {
                let hint = if self.is_remote && hint == START_HINT { REMOTE_START_HINT } else { hint };
                let failure = self.failure(kind, happened, hint);
                self.end(failure);
            }
            HandshakeStep::FailedWith(failure) => self.end(*failure),
        }
    }

    fn ready(&mut self, session: ServerInfo) {
        if !session.revision.is_stateless() {
            let line = compose::notification("notifications/initialized", "{}");
            self.out.push(Outgoing::Initialized(line));
        }
        let (since, revision) = (self.now(), session.revision.name());
        tracing::info!("`{}` is ready after {} (revision {revision})", self.name, in_words(since));
        self.can_be_asked(session);
    }

    fn can_be_asked(&mut self, server: ServerInfo) {
        let session = Arc::new(server);
        self.session = Some(session.clone());
        self.tell(ServerPhase::Ready(session));
    }
}
