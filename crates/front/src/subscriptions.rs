//! What clients want to hear of: changes of lists, by `subscriptions/listen` (2026-07-28) or because there is a session, and changes of
//! resources (protocol.md 3.3, rows 11, 12 and 18).
//!
//! Invariants
//!
//! - A subscription hears first that it is there, then what it asked to hear, and nothing else; each message says which one it is for.
//! - It has no limit: it ends with its client's wish, or with us, and then with a result.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, value::RawValue};
use unhang_bridge::Era;
use unhang_jobs::id::JobId;
use unhang_switches::stands;
use unhang_wire::{Id, Json};

use super::{
    answers::implementation,
    mcp_session::{
        Awaited, CallKey, McpSession, Resource, SessionAction, SessionCall, SessionEffects, To, Way,
    },
    requests::{ClientRequest, invalid_params},
};
use unhang_core::{
    config::{MAX_SUBSCRIPTIONS, REQUEST_TIMEOUT},
    fault::FaultKind,
    queue::Class,
    refusal::{Addressee, ErrorReport},
    revision::Revision,
};
use unhang_gateway::{
    KnownServers, ServerAnswer,
    route::{catalog::Catalog, names::Owner},
};
use unhang_tools::Definition;
use unhang_upstream::client::{Error, LISTEN, ServerList};

/// The requests of a session that wants to hear of a resource, and has heard enough.
pub(super) const SUBSCRIBE: &str = "resources/subscribe";
pub(super) const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// In the `_meta` of everything that is for a subscription: the id of its request.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The lists whose changes clients hear of, what those are called, and the member of a filter that asks for them. Templates come
/// with resources.
const LISTS: [(ServerList, &str, &str); 3] = [
    (ServerList::Tools, "tools", "toolsListChanged"),
    (ServerList::Prompts, "prompts", "promptsListChanged"),
    (ServerList::Resources, "resources", "resourcesListChanged"),
];

/// What a subscription wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// In the order of [`LISTS`].
    lists: [bool; 3],
    /// With what the client calls them.
    resources: Vec<(Resource, String)>,
    tasks: Vec<JobId>,
    /// What follows them.
    pub(super) followed: Vec<CallKey>,
}

impl Filter {
    fn of(params: Option<Json<'_>>, catalog: &Catalog) -> Filter {
        let wanted = params.and_then(|params| params.member("notifications"));
        let has =
            |member| wanted.and_then(|wanted| wanted.member(member)).is_some_and(|wish| wish.get() == "true");
        let mut resources = Vec::new();
        if let Some(uris) = wanted.and_then(|wanted| wanted.member("resourceSubscriptions")) {
            uris.each_element(|uri| {
                let known =
                    uri.text().and_then(|uri| Some((resource(catalog.resource(&uri)?), uri.into_owned())));
                resources.extend(known.filter(|_| resources.len() < MAX_SUBSCRIPTIONS));
            });
        }
        let lists = LISTS.map(|(_, _, member)| has(member));
        Filter { lists, resources, ..Filter::default() }
    }

    /// As it is told back: what nobody has is left out.
    fn to_json(&self) -> Value {
        let wanted = LISTS.iter().zip(self.lists).filter(|(_, wanted)| *wanted);
        let mut told: Map<String, Value> =
            wanted.map(|((.., member), _)| ((*member).to_owned(), true.into())).collect();
        if !self.resources.is_empty() {
            let uris = self.resources.iter().map(|(_, uri)| uri.as_str());
            told.insert("resourceSubscriptions".to_owned(), uris.collect());
        }
        if !self.tasks.is_empty() {
            told.insert("taskIds".to_owned(), self.tasks.iter().map(|id| id.as_str()).collect());
        }
        told.into()
    }

    /// What the client calls what it hears of when this has changed.
    fn hears_of(&self, changed: &Resource) -> Option<String> {
        self.resources.iter().find_map(|(watched, public)| heard_as(watched, public, changed))
    }
}

fn resource(owner: Owner) -> Resource {
    (owner.server, owner.name.into())
}

/// What a client that watches one resource calls another one that has changed: the same, or a part of it.
fn heard_as(watched: &Resource, public: &str, changed: &Resource) -> Option<String> {
    let part = changed.1.strip_prefix(&*watched.1).filter(|_| watched.0 == changed.0)?;
    (part.is_empty() || part.starts_with('/') || watched.1.ends_with('/')).then(|| format!("{public}{part}"))
}

impl McpSession {
    /// A client wants to hear of changes from now on.
    pub(super) fn listen(
        &mut self,
        id: &Id,
        params: Option<Json<'_>>,
        (revision, way): (Revision, Way),
        effects: &mut impl SessionEffects,
    ) {
        if !effects.takes_more(way.stream) {
            let happened = format!("`{LISTEN}` came from a client that takes nothing but an answer");
            let error_report = ErrorReport {
                kind: FaultKind::InvalidRequest,
                summary: happened,
                hint: "accept text/event-stream",
            };
            return self.answers.refuse(way, Addressee::request(id, LISTEN, None), error_report, effects);
        }
        let catalog = self.servers.as_ref().map(|known| Arc::clone(&known.catalog)).unwrap_or_default();
        let mut filter = Filter::of(params, &catalog);
        filter.tasks = self.tasks_wanted(params);
        for (resource, _) in filter.resources.clone() {
            // What comes of it nobody waits for.
            let key = self.new_key();
            self.running.insert(key, None);
            self.actions.push_back(SessionAction::Watch { key, resource, limit: REQUEST_TIMEOUT });
        }
        let told = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"{SUBSCRIPTION}":{}}},"notifications":{}}}}}"#,
            id.to_json(),
            filter.to_json()
        );
        filter.followed = self.follow_tasks(id, &filter.tasks);
        let (key, awaited) = (self.new_key(), Awaited::Changes(filter));
        let (since, limit) = (self.now, Duration::MAX);
        let call = SessionCall::new((key, awaited), (revision, way), since, limit);
        // It is free: a repeated id was refused, and none is remembered.
        let _registered = self.calls.register(id.clone(), None, call);
        effects.to_client(To::Beside(way.stream), Class::Kept, told.as_bytes());
    }

    /// A client of a session wants to hear of a resource from now on, or no more.
    pub(super) fn subscription(
        &mut self,
        request: &ClientRequest<'_>,
        begins: bool,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let Some(uri) = request.text("uri") else {
            let happened = format!("`{}` names no resource in params.uri", request.method);
            let error_report = invalid_params(happened, "name what it is about");
            return self.answers.refuse(request.way, request.addressee(), error_report, effects);
        };
        let owner = self.servers.as_ref().and_then(|known| known.catalog.resource(&uri));
        let how = (revision, request.way);
        match owner {
            Some(owner) if begins => self.subscribe(&request.id, &uri, owner, how, effects),
            Some(owner) => self.unsubscribe(&request.id, owner, how, effects),
            None => self.answers.refuse_resource(&request.id, &uri, revision, request.way, effects),
        }
    }

    /// A client of a session wants to hear of a resource.
    pub(super) fn subscribe(
        &mut self,
        id: &Id,
        uri: &str,
        owner: Owner,
        (revision, way): (Revision, Way),
        effects: &mut impl SessionEffects,
    ) {
        let known = self.servers.as_ref();
        let patience = known.and_then(|known| known.patience.get(&owner.server));
        let limit = patience.map_or(REQUEST_TIMEOUT, |patience| patience.request);
        let resource = resource(owner);
        if self.watched.len() >= MAX_SUBSCRIPTIONS && stands("front-subscriptions-bounded") {
            let happened = format!("the session hears of {} resources already", self.watched.len());
            let error_report = ErrorReport {
                kind: FaultKind::Overloaded,
                summary: happened,
                hint: "unsubscribe from some of them",
            };
            return self.answers.refuse(way, Addressee::request(id, SUBSCRIBE, None), error_report, effects);
        }
        self.watched.insert(resource.clone(), uri.to_owned());
        let (key, about) = (self.new_key(), uri.to_owned());
        let awaited = Awaited::Server { method: SUBSCRIBE, about, token: None, introduced: None };
        let call = SessionCall::new((key, awaited), (revision, way), self.now, limit);
        self.begin(id, call);
        self.actions.push_back(SessionAction::Watch { key, resource, limit });
    }

    /// It has heard enough of it.
    pub(super) fn unsubscribe(
        &mut self,
        id: &Id,
        owner: Owner,
        (revision, way): (Revision, Way),
        effects: &mut impl SessionEffects,
    ) {
        let resource = resource(owner);
        if self.watched.remove(&resource).is_some() {
            self.actions.push_back(SessionAction::Unwatch(resource));
        }
        self.answers.answer(id, revision, way, Map::new(), effects);
    }

    /// A server tells of a resource from now on, or why it does not.
    pub fn watched(
        &mut self,
        now: Duration,
        key: CallKey,
        resource: &Resource,
        outcome: Result<(), Error>,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if outcome.is_err() {
            self.watched.remove(resource);
        }
        let outcome = outcome.map(|()| RawValue::from_string("{}".to_owned()).unwrap_or_default());
        let answered = ServerAnswer { era: Era::Legacy, server_info: None, outcome, asked_for: None };
        self.answered(now, key, &answered, effects);
    }

    /// A resource has changed: whoever wants to hear of it does.
    pub fn updated(&mut self, now: Duration, changed: &Resource, effects: &mut impl SessionEffects) {
        self.now = now;
        let line = |public: &str, meta: &str| {
            let uri = Value::from(public);
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{{meta}"uri":{uri}}}}}"#
            )
        };
        let heard = self.watched.iter().find_map(|(watched, public)| heard_as(watched, public, changed));
        if let Some(public) = heard {
            // One of several says it all.
            let class = Class::ListChanged(public.as_str().into());
            effects.to_client(To::Session, class, line(&public, "").as_bytes());
        }
        for (id, call) in self.calls.iter() {
            let Awaited::Changes(filter) = &call.awaited else { continue };
            if let Some(public) = filter.hears_of(changed) {
                let id = id.to_json();
                let class = Class::ListChanged(format!("{public} {id}").into());
                let line = line(&public, &format!(r#""_meta":{{"{SUBSCRIPTION}":{id}}},"#));
                effects.to_client(To::Beside(call.way.stream), class, line.as_bytes());
            }
        }
    }

    /// There may be other tools of ours later, of which clients are to hear.
    pub fn tools_may_change(&mut self) {
        self.tools_change = true;
    }

    /// There are other tools of ours.
    pub fn tools_changed(
        &mut self,
        now: Duration,
        tools: Arc<[Definition]>,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if *self.tools != *tools {
            self.tools = tools;
            self.tell_of_list(0, effects);
        }
    }

    /// What is known of the servers has changed: whoever wants to hear of it does.
    pub(super) fn tell_of_changes(&self, before: &KnownServers, effects: &mut impl SessionEffects) {
        let Some(known) = &self.servers else { return };
        for (place, (list, ..)) in LISTS.iter().enumerate() {
            if before.catalog.list(*list, Era::Modern) != known.catalog.list(*list, Era::Modern) {
                self.tell_of_list(place, effects);
            }
        }
    }

    /// The list at this place of [`LISTS`] has changed.
    pub(super) fn tell_of_list(&self, place: usize, effects: &mut impl SessionEffects) {
        let (_, kind, _) = LISTS[place];
        let line = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"{params}}}"#)
        };
        // A client without a handshake hears of nothing that it has not asked to hear of.
        if self.session.is_some() {
            effects.to_client(To::Session, Class::ListChanged(kind.into()), line("").as_bytes());
        }
        for (id, call) in self.calls.iter() {
            let Awaited::Changes(filter) = &call.awaited else { continue };
            if filter.lists[place] || !stands("subscription-hears-what-it-asked") {
                let id = id.to_json();
                let params = format!(r#","params":{{"_meta":{{"{SUBSCRIPTION}":{id}}}}}"#);
                let class = Class::ListChanged(format!("{kind} {id}").into());
                effects.to_client(To::Beside(call.way.stream), class, line(&params).as_bytes());
            }
        }
    }

    /// Resources that other servers have now are watched there. One that no server has is where it was, in case it comes again.
    pub(super) fn follow_resources(&mut self) {
        let Some(catalog) = self.servers.as_ref().map(|known| Arc::clone(&known.catalog)) else { return };
        let moved = |watched: &Resource, public: &str| {
            catalog
                .resource(public)
                .map(resource)
                .filter(|now| now != watched && stands("watched-resource-is-followed"))
        };
        let mut moves: Vec<(Resource, Resource)> = Vec::new();
        self.watched = std::mem::take(&mut self.watched)
            .into_iter()
            .map(|(watched, public)| match moved(&watched, &public) {
                Some(now) => {
                    moves.push((watched, now.clone()));
                    (now, public)
                }
                None => (watched, public),
            })
            .collect();
        let ids: Vec<Id> = self.calls.iter().map(|(id, _)| id.clone()).collect();
        for id in ids {
            let Some(Awaited::Changes(filter)) = self.calls.get_mut(&id).map(|call| &mut call.awaited) else {
                continue;
            };
            for (watched, public) in &mut filter.resources {
                if let Some(now) = moved(watched, public) {
                    moves.push((std::mem::replace(watched, now.clone()), now));
                }
            }
        }
        moves.sort();
        moves.dedup();
        for (before, now) in moves {
            self.actions.push_back(SessionAction::Unwatch(before));
            // What comes of it nobody waits for.
            let key = self.new_key();
            self.running.insert(key, None);
            self.actions.push_back(SessionAction::Watch { key, resource: now, limit: REQUEST_TIMEOUT });
        }
    }

    /// The client has heard enough: what nobody else in its session wants to hear of is watched no more.
    pub(super) fn unwatch_after(&mut self, ended: &SessionCall) {
        let Awaited::Changes(filter) = &ended.awaited else { return };
        for (resource, _) in &filter.resources {
            let is_same = |call: &SessionCall| match &call.awaited {
                Awaited::Changes(other) => other.resources.iter().any(|(other, _)| other == resource),
                _ => false,
            };
            if !self.watched.contains_key(resource) && !self.calls.iter().any(|(_, call)| is_same(call)) {
                self.actions.push_back(SessionAction::Unwatch(resource.clone()));
            }
        }
    }

    /// A subscription ends by itself, not because its client wants it.
    pub(super) fn end_of_changes(&mut self, id: &Id, call: &SessionCall, effects: &mut impl SessionEffects) {
        let result = format!(
            r#"{{"_meta":{{"{SUBSCRIPTION}":{},"io.modelcontextprotocol/serverInfo":{}}},"resultType":"complete"}}"#,
            id.to_json(),
            implementation()
        );
        self.answers.answer_raw(id, call.way, &result, effects);
    }

    /// Ends all subscriptions: nobody hears them any more.
    pub(super) fn end_all_changes(&mut self, effects: &mut impl SessionEffects) {
        let changes = self.calls.iter().filter(|(_, call)| matches!(call.awaited, Awaited::Changes(_)));
        for id in changes.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            if let Some(call) = self.calls.cancel(&id) {
                self.follow_no_more(&call, effects);
                self.end_of_changes(&id, &call, effects);
            }
        }
    }
}
