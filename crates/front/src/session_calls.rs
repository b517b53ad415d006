//! The calls of one session: those whose clients wait for an answer, and those whose work has not ended.
//!
//! Invariants
//!
//! - A call has its key until its work has ended, whether a client waits for it or not. So its outcome reaches no later request under the
//!   same id.
//! - A call is in flight together with the first moment at which it needs attention.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use unhang_core::{heartbeat::Heartbeat, revision::Revision};
use unhang_gateway::Level;
use unhang_upstream::client::{LISTEN, ServerList};
use unhang_wire::{Id, InFlight};

use super::{
    effects::{CallKey, ReplyRoute, SessionAction, StreamKey},
    owners::UnroutedRequest,
    promotion::PromotionPlan,
    subscriptions::Filter,
};

/// The outcome that a client waits for.
#[derive(Clone, Debug)]
pub(super) enum Awaited {
    /// A tool of unhang itself.
    Tool(String),
    /// A request to a server. The token is the client's own, if it wants progress. A request that stands alone introduces its client.
    Server { method: &'static str, about: String, token: Option<Id>, introduced: Option<Introduced> },
    /// A list, while servers start.
    List(ServerList),
    /// A list, while servers are asked whether they have changed it.
    RefreshedList(ServerList),
    /// The answer to a handshake or a discovery, while servers start.
    Introduction(&'static str),
    /// The server that owns the subject, until it is known.
    Owner(Box<UnroutedRequest>),
    /// Changes, until the client ends the subscription.
    Changes(Filter),
    /// A request about a task.
    Task(&'static str),
    /// The result of a job, as a resource of this URI.
    Job(Box<str>),
}

/// How a request that stands alone introduces its client, for questions to that client.
#[derive(Clone, Debug)]
pub(super) struct Introduced {
    /// The client's capabilities, as JSON.
    pub client_capabilities: Box<str>,
    /// The digest of the request.
    pub digest: u64,
    /// The lowest level of log messages that its client wants.
    pub log_from: Option<Level>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct SessionCall {
    pub key: CallKey,
    pub awaited: Awaited,
    /// The server that has it.
    pub server: Option<CalledUpstream>,
    pub revision: Revision,
    pub since: Duration,
    pub limit: Duration,
    /// The client's own timeout, if that is what makes the limit so short.
    pub clock: Option<Duration>,
    pub route: ReplyRoute,
    /// How the call becomes a job, if it may.
    pub promotion: PromotionPlan,
    /// Whether the server is asked for longer than the client waits, as a job may last longer than a call.
    pub server_outlasts_client: bool,
    /// The reason why no job could be made of the call.
    pub not_promoted: Option<Box<str>>,
    /// The heartbeats to its client while nothing else comes, if the client wants progress.
    pub heartbeat: Option<Box<Heartbeat>>,
    /// Whether its client shows views (MCP Apps), if it asks for a list.
    pub shows_views: bool,
    /// Until then, a job is likely being made of the call, because its server continues it as a task.
    pub becomes_task_until: Duration,
    /// The hint at another tool, if no server lists this one and its server refuses it.
    pub nearest_hint: Option<Box<str>>,
}

impl SessionCall {
    /// Makes a call that begins at `since`, has this limit, and never becomes a job.
    pub(super) fn new(
        (key, awaited): (CallKey, Awaited),
        (revision, route): (Revision, ReplyRoute),
        since: Duration,
        limit: Duration,
    ) -> SessionCall {
        let plan = PromotionPlan::never();
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
            promotion: plan,
            server_outlasts_client: false,
            not_promoted: None,
            heartbeat,
            shows_views: false,
            becomes_task_until: Duration::ZERO,
            nearest_hint: None,
        }
    }
}

/// The server that has a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CalledUpstream {
    /// The index of the server.
    pub index: usize,
    /// The server behind that one which has the tool, if that one is the leading window.
    pub behind: Option<Box<str>>,
}

impl Awaited {
    /// Returns its name for people.
    pub(super) fn name(&self) -> &str {
        match self {
            Awaited::Tool(tool) => tool,
            Awaited::Server { about, .. } => about,
            Awaited::List(list) | Awaited::RefreshedList(list) => list.method(),
            Awaited::Introduction(method) => method,
            Awaited::Owner(request) => &request.about,
            Awaited::Changes(_) => LISTEN,
            Awaited::Task(method) => method,
            Awaited::Job(uri) => uri,
        }
    }

    /// Returns how the request introduces its client.
    pub(super) fn introduced(&self) -> Option<&Introduced> {
        match self {
            Awaited::Server { introduced, .. } => introduced.as_ref(),
            _ => None,
        }
    }

    /// Returns the method of the request.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Awaited::Tool(_) => "tools/call",
            Awaited::Server { method, .. } => method,
            Awaited::List(list) | Awaited::RefreshedList(list) => list.method(),
            Awaited::Introduction(method) => method,
            Awaited::Owner(request) => request.method,
            Awaited::Changes(_) => LISTEN,
            Awaited::Task(method) => method,
            Awaited::Job(_) => "resources/read",
        }
    }

    /// Returns the hint for a call that needs more time.
    pub(super) fn hint_to_wait(&self) -> &'static str {
        match self {
            Awaited::Tool(_) => {
                "unhang stopped it; raise --call-timeout, or set mode = \"job\" for this tool, which \
                 then answers at once"
            }
            Awaited::Server { method: "tools/call", .. } => {
                "unhang told the server to stop; raise call-timeout in its limits if it needs longer"
            }
            Awaited::Owner(_) => {
                "unhang is still starting servers, and one of them may have it; see /status or the log"
            }
            Awaited::Task(_) | Awaited::Job(_) => "ask again: the job continues",
            Awaited::Server { .. }
            | Awaited::List(_)
            | Awaited::RefreshedList(_)
            | Awaited::Introduction(_)
            | Awaited::Changes(_) => {
                "unhang told the server to stop; raise request-timeout in its limits if it needs longer"
            }
        }
    }
}

/// The calls of one session; see the module's text.
#[derive(Debug)]
pub(super) struct SessionCalls {
    in_flight: InFlight<SessionCall>,
    /// Calls whose work has not ended, with the ids of their waiting requests.
    running: HashMap<CallKey, Option<Id>>,
    newest: CallKey,
}

impl Default for SessionCalls {
    fn default() -> Self {
        // A call is known by its key, so an answer always finds its own call, and no id has to be remembered.
        SessionCalls { in_flight: InFlight::new(0), running: HashMap::new(), newest: 0 }
    }
}

impl SessionCalls {
    /// Returns a key that no call has had.
    pub(super) fn new_key(&mut self) -> CallKey {
        self.newest += 1;
        self.newest
    }

    /// Returns the newest key.
    pub(super) fn newest(&self) -> CallKey {
        self.newest
    }

    /// Puts a request in flight whose work begins.
    pub(super) fn begin(&mut self, id: &Id, call: SessionCall) {
        self.running.insert(call.key, Some(id.clone()));
        self.put_in_flight(id.clone(), call);
    }

    /// Puts a request in flight without any work behind it.
    pub(super) fn put_in_flight(&mut self, id: Id, call: SessionCall) {
        // The id is free: a repeated id was refused, and none is remembered.
        let _registered = self.in_flight.register(id, Some(call.next_moment()), call);
    }

    /// Puts a request in flight that ends only when its client or unhang ends it.
    pub(super) fn put_in_flight_for_ever(&mut self, id: Id, call: SessionCall) {
        // The id is free: a repeated id was refused, and none is remembered.
        let _registered = self.in_flight.register(id, None, call);
    }

    /// Begins work without a waiting request, or for the request of this id beside its own call.
    pub(super) fn begin_beside(&mut self, id: Option<&Id>) -> CallKey {
        let key = self.new_key();
        self.running.insert(key, id.cloned());
        key
    }

    /// Takes a running call out of flight. No request waits for it until its client comes back.
    pub(super) fn park(&mut self, key: CallKey) -> Option<(Id, SessionCall)> {
        let id = self.running.get(&key).cloned().flatten()?;
        let call = self.in_flight.cancel(&id)?;
        self.running.insert(key, None);
        Some((id, call))
    }

    /// Returns whether a request of this id is in flight.
    pub(super) fn contains(&self, id: &Id) -> bool {
        self.in_flight.contains(id)
    }

    /// Returns the request of this id if it is in flight.
    pub(super) fn get_mut(&mut self, id: &Id) -> Option<&mut SessionCall> {
        self.in_flight.get_mut(id)
    }

    /// Takes a request out of flight.
    pub(super) fn take(&mut self, id: &Id) -> Option<SessionCall> {
        self.in_flight.cancel(id)
    }

    /// Makes calls stay calls from now on, except those that must become a job before their server is asked.
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

    /// Returns the requests in flight, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Id, &SessionCall)> {
        self.in_flight.iter()
    }

    /// Returns the ids of the requests in flight that wait for a matching outcome.
    pub(super) fn ids_of(&self, is_wanted: impl Fn(&Awaited) -> bool) -> Vec<Id> {
        let wanted = self.in_flight.iter().filter(|(_, call)| is_wanted(&call.awaited));
        wanted.map(|(id, _)| id.clone()).collect()
    }

    /// Returns whether input of this stream has no answer yet.
    pub(super) fn awaits(&self, stream: StreamKey) -> bool {
        self.in_flight.iter().any(|(_, call)| call.route.stream == stream)
    }

    /// Returns whether a request of this stream waits for a server before unhang knows whether it refuses the request: its headers may
    /// differ from its arguments, or no server may have the method.
    pub(super) fn may_be_refused(&self, stream: StreamKey) -> bool {
        let is_undecided = |awaited: &Awaited| match awaited {
            Awaited::Owner(request) => request.has_unchecked_headers(),
            Awaited::List(list) => *list == ServerList::Skills,
            _ => false,
        };
        self.in_flight.iter().any(|(_, call)| call.route.stream == stream && is_undecided(&call.awaited))
    }

    /// Returns whether no request is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the number of running calls or of requests in flight, whichever is larger. Waiting lists have no work, and withdrawn calls
    /// may still have some.
    pub(super) fn len(&self) -> usize {
        self.running.len().max(self.in_flight.len())
    }

    /// Returns whether all work has ended.
    pub(super) fn have_ended(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns the id of the request that waits for this call.
    pub(super) fn id_of(&self, key: CallKey) -> Option<&Id> {
        self.running.get(&key).and_then(Option::as_ref)
    }

    /// Returns the call of this key if a request waits for it.
    pub(super) fn by_key(&self, key: CallKey) -> Option<&SessionCall> {
        self.id_of(key).and_then(|id| self.in_flight.get(id))
    }

    /// Returns the call of this key, to be changed, if a request waits for it.
    pub(super) fn by_key_mut(&mut self, key: CallKey) -> Option<&mut SessionCall> {
        let id = self.running.get(&key).and_then(Option::as_ref);
        id.and_then(|id| self.in_flight.get_mut(id))
    }

    /// Notes that the work on this call has ended. Returns the id of the request that still waits for it, if there is one.
    pub(super) fn end(&mut self, key: CallKey) -> Option<Id> {
        self.running.remove(&key).flatten()
    }

    /// Notes that no request waits for this call any more, and has its work cancelled.
    pub(super) fn abandon(&mut self, key: CallKey, actions: &mut VecDeque<SessionAction>) {
        if let Some(id) = self.running.get_mut(&key) {
            *id = None;
            actions.push_back(SessionAction::Cancel(key));
        }
    }

    /// Returns the next moment at which a call needs attention.
    pub(super) fn next_moment(&self) -> Option<Duration> {
        self.in_flight.next_deadline()
    }

    /// Returns the id of a call that needs attention by now.
    pub(super) fn due(&self, now: Duration) -> Option<Id> {
        self.in_flight.due(now).cloned()
    }

    /// Moves a call to its next moment, which may come earlier than before.
    pub(super) fn look_again(&mut self, key: CallKey) {
        let Some(id) = self.running.get(&key).and_then(Option::as_ref) else { return };
        if let Some(next) = self.in_flight.get(id).map(SessionCall::next_moment) {
            self.in_flight.postpone(id, next);
        }
    }

    /// Moves a call to its next moment, after all due work on it was done. Returns false if its time is over.
    pub(super) fn put_off(&mut self, id: &Id, now: Duration) -> bool {
        let next = self.in_flight.get(id).map(SessionCall::next_moment).filter(|next| *next > now);
        next.is_some_and(|next| self.in_flight.postpone(id, next))
    }

    /// Takes a call out of flight whose time is over.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<(Id, SessionCall)> {
        self.in_flight.expire(now)
    }
}
