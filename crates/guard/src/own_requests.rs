//! Requests of the guard itself to the server: the replayed session, health checks and the list of tools.
//!
//! Invariant: no other request in flight has an id of the guard, and no request whose answer may still come.

use std::time::Duration;

use unhang_core::{config::LATE_IDS, session::RecordedSession};
use unhang_wire::{Completion, Id, InFlight};

/// A request of the guard itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnRequest {
    /// The replayed `initialize`.
    Handshake,
    /// The replayed level and subscriptions, and health checks. Any answer will do.
    AnyAnswer,
    /// A page of the server's tools.
    ToolList,
}

/// The requests of the guard itself that wait for an answer.
#[derive(Debug)]
pub(super) struct OwnRequests {
    in_flight: InFlight<OwnRequest>,
    last: u64,
}

impl Default for OwnRequests {
    fn default() -> Self {
        Self { in_flight: InFlight::new(LATE_IDS), last: 0 }
    }
}

impl OwnRequests {
    /// Returns an id that is free here and, as `is_free_elsewhere` says, among other requests.
    pub(super) fn next_id(&mut self, is_free_elsewhere: impl Fn(&Id) -> bool) -> Id {
        loop {
            self.last += 1;
            let id = Id::Text(format!("unhang-{}", self.last).into());
            if self.in_flight.is_free(&id) && is_free_elsewhere(&id) {
                return id;
            }
        }
    }

    /// Enters a request.
    pub(super) fn register(&mut self, request: OwnRequest, id: Id, deadline: Duration) {
        let _registered = self.in_flight.register(id, Some(deadline), request);
    }

    /// Enters the requests that tell a fresh process the session after the handshake. Returns their lines.
    pub(super) fn replay(
        &mut self,
        session: &RecordedSession,
        deadline: Duration,
        is_free_elsewhere: impl Fn(&Id) -> bool,
    ) -> Vec<Vec<u8>> {
        session.sequel(|| {
            let id = self.next_id(&is_free_elsewhere);
            self.register(OwnRequest::AnyAnswer, id.clone(), deadline);
            id
        })
    }

    pub(super) fn complete(&mut self, id: &Id) -> Completion<OwnRequest> {
        self.in_flight.complete(id)
    }

    /// Ends the request that an unusable answer is for. An answer without an id is for the request for tools, if there is one: that came
    /// before the others. Returns `None` if the answer is for no request of the guard.
    pub(super) fn end_by_unusable(&mut self, id: Option<&Id>) -> Option<OwnRequest> {
        let Some(id) = id else {
            let is_of_tools = |(_, request): &(&Id, &OwnRequest)| **request == OwnRequest::ToolList;
            let id = self.in_flight.iter().find(is_of_tools)?.0.clone();
            // A better answer may still come.
            return self.in_flight.cancel(&id);
        };
        self.in_flight.complete(id).entry()
    }

    /// Ends requests whose deadline has passed, until one of them is a handshake. Returns its id, or `None` if there is none.
    pub(super) fn expire_handshake(&mut self, now: Duration) -> Option<Id> {
        loop {
            let (id, request) = self.in_flight.expire(now)?;
            if request == OwnRequest::Handshake {
                return Some(id);
            }
        }
    }

    /// Gives a handshake that has expired another deadline.
    pub(super) fn renew_handshake(&mut self, id: Id, deadline: Duration) {
        let _not_late = self.in_flight.complete(&id);
        self.register(OwnRequest::Handshake, id, deadline);
    }

    /// Forgets the requests to a process that has ended.
    pub(super) fn forget_all(&mut self) {
        let _forgotten = self.in_flight.take_all();
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.in_flight.next_deadline()
    }

    pub(super) fn contains(&self, id: &Id) -> bool {
        self.in_flight.contains(id)
    }

    pub(super) fn is_free(&self, id: &Id) -> bool {
        self.in_flight.is_free(id)
    }
}
