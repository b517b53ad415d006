//! The calls of one session: those whose clients wait for an answer, and those that somebody still works on.
//!
//! Invariants
//!
//! - A call that somebody works on is known by its key until that has ended, whether anybody waits for it or not. So what comes for it reaches
//!   nobody who came later under the same id.
//! - A call is in flight with the first moment at which anything is to be done about it.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use unhang_core::{heartbeat::Heartbeat, revision::Revision};
use unhang_gateway::Level;
use unhang_switches::stands;
use unhang_upstream::client::{LISTEN, ServerList};
use unhang_wire::{Id, InFlight};

use super::{
    effects::{CallKey, ReplyRoute, SessionAction, StreamKey},
    owners::UnroutedRequest,
    promotion::PromotionPlan,
    subscriptions::Filter,
};

/// What a client waits for.
#[derive(Clone, Debug)]
pub(super) enum Awaited {
    /// A tool of ours.
    Tool(String),
    /// What a server is asked. The token is the client's own, where it wants progress; a request that stands alone has said
    /// something of its client.
    Server { method: &'static str, about: String, token: Option<Id>, introduced: Option<Introduced> },
    /// A list, until the servers have come up.
    List(ServerList),
    /// The server whose it is, until that is known.
    Owner(Box<UnroutedRequest>),
    /// To hear of changes, until the client has heard enough.
    Changes(Filter),
    /// What is known of a task.
    Task(&'static str),
    /// What has come of a job, as a resource of this URI.
    Job(Box<str>),
}

/// What a request that stands alone has said of its client, for whoever asks that something.
#[derive(Clone, Debug)]
pub(super) struct Introduced {
    /// What the client can do, as JSON.
    pub client_capabilities: Box<str>,
    /// What the request was, in short.
    pub digest: u64,
    /// From which level on its client wants to hear what is logged.
    pub log_from: Option<Level>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct SessionCall {
    pub key: CallKey,
    pub awaited: Awaited,
    /// The server that has it, by its place.
    pub server: Option<usize>,
    pub revision: Revision,
    pub since: Duration,
    pub limit: Duration,
    /// The client's own clock, where the limit is that short because of it.
    pub clock: Option<Duration>,
    pub route: ReplyRoute,
    /// How it becomes a job, where it may.
    pub promotion: PromotionPlan,
    /// Whether the server is asked for longer than the client waits, as a job may last longer than a call.
    pub server_outlasts_client: bool,
    /// Why no job could be made of the call.
    pub not_promoted: Option<Box<str>>,
    /// What its client hears while nothing comes of it, where it wants to hear of that.
    pub heartbeat: Option<Box<Heartbeat>>,
}

impl SessionCall {
    /// One that begins now, may take so long, and is an answer or nothing.
    pub(super) fn new(
        (key, awaited): (CallKey, Awaited),
        (revision, route): (Revision, ReplyRoute),
        since: Duration,
        limit: Duration,
    ) -> SessionCall {
        let hand_over = PromotionPlan::never();
        let (server, clock, heartbeat) = (None, None, None);
        SessionCall {
            key,
            awaited,
            server,
            revision,
            since,
            limit,
            clock,
            route,
            promotion: hand_over,
            server_outlasts_client: false,
            not_promoted: None,
            heartbeat,
        }
    }
}

impl Awaited {
    /// What a person calls it.
    pub(super) fn name(&self) -> &str {
        match self {
            Awaited::Tool(tool) => tool,
            Awaited::Server { about, .. } => about,
            Awaited::List(list) => list.method(),
            Awaited::Owner(request) => &request.about,
            Awaited::Changes(_) => LISTEN,
            Awaited::Task(method) => method,
            Awaited::Job(uri) => uri,
        }
    }

    /// What the request has said of its client.
    pub(super) fn introduced(&self) -> Option<&Introduced> {
        match self {
            Awaited::Server { introduced, .. } => introduced.as_ref(),
            _ => None,
        }
    }

    /// The method of the request.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Awaited::Tool(_) => "tools/call",
            Awaited::Server { method, .. } => method,
            Awaited::List(list) => list.method(),
            Awaited::Owner(request) => request.method,
            Awaited::Changes(_) => LISTEN,
            Awaited::Task(method) => method,
            Awaited::Job(_) => "resources/read",
        }
    }

    /// What to do where it needs longer.
    pub(super) fn hint_to_wait(&self) -> &'static str {
        match self {
            Awaited::Tool(_) => {
                "it was stopped; raise --call-timeout, or set mode = \"job\" for this tool, which then answers at once"
            }
            Awaited::Server { method: "tools/call", .. } => {
                "the server was told; raise call-timeout in its limits if it needs longer"
            }
            Awaited::Owner(_) => {
                "servers are still being started, and it may be one's of them; look at /status or the log"
            }
            Awaited::Task(_) | Awaited::Job(_) => "ask again: what it is about goes on",
            Awaited::Server { .. } | Awaited::List(_) | Awaited::Changes(_) => {
                "the server was told; raise request-timeout in its limits if it needs longer"
            }
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SessionCalls {
    in_flight: InFlight<SessionCall>,
    /// Calls that have not ended yet, with the ids of those that are waited for.
    running: HashMap<CallKey, Option<Id>>,
    newest: CallKey,
}

impl Default for SessionCalls {
    fn default() -> Self {
        // A call is known by its key, so no answer can be taken for another's and none has to be remembered.
        SessionCalls { in_flight: InFlight::new(0), running: HashMap::new(), newest: 0 }
    }
}

impl SessionCalls {
    /// A key that no call has had.
    pub(super) fn new_key(&mut self) -> CallKey {
        self.newest += 1;
        self.newest
    }

    /// The key that was given out last.
    pub(super) fn newest(&self) -> CallKey {
        self.newest
    }

    /// Puts a request in flight for which somebody works.
    pub(super) fn begin(&mut self, id: &Id, call: SessionCall) {
        self.running.insert(call.key, Some(id.clone()));
        self.put_in_flight(id.clone(), call);
    }

    /// Puts a request in flight for which nobody works yet, or any more.
    pub(super) fn put_in_flight(&mut self, id: Id, call: SessionCall) {
        // It is free: a repeated id was refused, and none is remembered.
        let _registered = self.in_flight.register(id, Some(call.next_moment()), call);
    }

    /// Puts a request in flight that ends with its client's wish, or with us.
    pub(super) fn put_in_flight_for_ever(&mut self, id: Id, call: SessionCall) {
        // It is free: a repeated id was refused, and none is remembered.
        let _registered = self.in_flight.register(id, None, call);
    }

    /// Begins work whose outcome nobody waits for, or the request of this id beside its own call.
    pub(super) fn begin_beside(&mut self, id: Option<&Id>) -> CallKey {
        let key = self.new_key();
        self.running.insert(key, id.cloned());
        key
    }

    /// Takes a call out of flight on which somebody works; it is not waited for until its client comes back.
    pub(super) fn park(&mut self, key: CallKey) -> Option<(Id, SessionCall)> {
        let id = self.running.get(&key).cloned().flatten()?;
        let call = self.in_flight.cancel(&id)?;
        self.running.insert(key, None);
        Some((id, call))
    }

    /// Whether a request of this id is in flight.
    pub(super) fn contains(&self, id: &Id) -> bool {
        self.in_flight.contains(id)
    }

    /// The request of this id, where it is in flight.
    pub(super) fn get_mut(&mut self, id: &Id) -> Option<&mut SessionCall> {
        self.in_flight.get_mut(id)
    }

    /// Takes a request out of flight.
    pub(super) fn take(&mut self, id: &Id) -> Option<SessionCall> {
        self.in_flight.cancel(id)
    }

    /// No call becomes a job from now on, unless it is to be one before its server is asked.
    pub(super) fn keep_as_calls(&mut self) {
        for id in self.ids_of(|_| true) {
            if let Some(call) = self.in_flight.get_mut(&id).filter(|call| !call.wants_a_task()) {
                call.promotion.at = None;
            }
        }
    }

    /// Takes all requests out of flight.
    pub(super) fn take_all(&mut self) -> Vec<(Id, SessionCall)> {
        self.in_flight.take_all()
    }

    /// The requests in flight, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Id, &SessionCall)> {
        self.in_flight.iter()
    }

    /// The ids of the requests in flight that wait for something like this.
    pub(super) fn ids_of(&self, is_wanted: impl Fn(&Awaited) -> bool) -> Vec<Id> {
        let wanted = self.in_flight.iter().filter(|(_, call)| is_wanted(&call.awaited));
        wanted.map(|(id, _)| id.clone()).collect()
    }

    /// Whether something that came on this stream has no answer yet.
    pub(super) fn awaits(&self, stream: StreamKey) -> bool {
        self.in_flight.iter().any(|(_, call)| call.route.stream == stream)
    }

    /// Whether nobody waits for anything.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// How many there are. Lists that wait have nobody who works for them, and what was withdrawn may still be worked for.
    pub(super) fn len(&self) -> usize {
        self.running.len().max(self.in_flight.len())
    }

    /// Whether nobody works on anything.
    pub(super) fn have_ended(&self) -> bool {
        self.running.is_empty()
    }

    /// The id under which this call is waited for.
    pub(super) fn id_of(&self, key: CallKey) -> Option<&Id> {
        self.running.get(&key).and_then(Option::as_ref)
    }

    /// The call of this key, where it is waited for.
    pub(super) fn by_key(&self, key: CallKey) -> Option<&SessionCall> {
        self.id_of(key).and_then(|id| self.in_flight.get(id))
    }

    /// The call of this key, where it is waited for, to be changed.
    pub(super) fn by_key_mut(&mut self, key: CallKey) -> Option<&mut SessionCall> {
        let id = self.running.get(&key).and_then(Option::as_ref);
        id.and_then(|id| self.in_flight.get_mut(id))
    }

    /// Nobody works on this call any more. Gives the id under which it is still waited for.
    pub(super) fn end(&mut self, key: CallKey) -> Option<Id> {
        self.running.remove(&key).flatten()
    }

    /// Nobody waits for this call any more: whoever works on it is to hear of that.
    pub(super) fn abandon(&mut self, key: CallKey, actions: &mut VecDeque<SessionAction>) {
        if let Some(id) = self.running.get_mut(&key) {
            if stands("late-tool-answer-dropped") {
                *id = None;
            }
            if stands("abandoned-call-is-cancelled") {
                actions.push_back(SessionAction::Cancel(key));
            }
        }
    }

    /// When something is to be done about a call.
    pub(super) fn next_moment(&self) -> Option<Duration> {
        self.in_flight.next_deadline()
    }

    /// The id of a call about which something is to be done by now.
    pub(super) fn due(&self, now: Duration) -> Option<Id> {
        self.in_flight.due(now).cloned()
    }

    /// Puts off a call about which everything has been done that was due; false where it is over.
    pub(super) fn put_off(&mut self, id: &Id, now: Duration) -> bool {
        let next = self.in_flight.get(id).map(SessionCall::next_moment).filter(|next| *next > now);
        next.is_some_and(|next| self.in_flight.postpone(id, next))
    }

    /// Takes a call out of flight that is due.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<(Id, SessionCall)> {
        self.in_flight.expire(now)
    }
}
