//! Subscriptions of clients: to changes of lists, by `subscriptions/listen` (2026-07-28) or because there is a session, and to changes of
//! resources (protocol.md 3.3, rows 11, 12 and 18).
//!
//! Invariants
//!
//! - A subscription hears first that it exists, then the changes that it asked for, and nothing else. Each message names its subscription.
//! - A subscription has no time limit: it ends if its client wishes, or with unhang, and then with a result.

use std::collections::HashMap;

use serde_json::{Map, Value};
use unhang_bridge::Era;
use unhang_jobs::id::JobId;
use unhang_wire::{Id, Json};

use super::{
    answers::implementation,
    effects::{CallKey, LineTarget, Resource, SessionEffects},
    session_calls::{Awaited, SessionCall, SessionCalls},
};
use unhang_core::{
    config::MAX_SUBSCRIPTIONS, fault::FaultKind, insertion::InsertEach, queue::Class, refusal::ErrorReport,
};
use unhang_gateway::{
    KnownServers,
    route::{catalog::Catalog, names::Owner},
};
use unhang_upstream::client::{LISTEN, ServerList};

/// The requests of a session that begin and end a subscription to a resource.
pub(super) const SUBSCRIBE: &str = "resources/subscribe";
pub(super) const UNSUBSCRIBE: &str = "resources/unsubscribe";

/// The member of `_meta` in every message for a subscription: the id of its request.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The lists whose changes clients hear of, their names, and the members of a filter that ask for them. Resources include templates.
const LISTS: [(ServerList, &str, &str); 3] = [
    (ServerList::Tools, "tools", "toolsListChanged"),
    (ServerList::Prompts, "prompts", "promptsListChanged"),
    (ServerList::Resources, "resources", "resourcesListChanged"),
];

/// The index of the list of tools.
const TOOLS: usize = 0;

/// The changes that a subscription asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    /// Whether each list is wanted, in the order of [`LISTS`].
    lists: [bool; 3],
    /// The resources, with the client's names for them.
    resources: Vec<(Resource, String)>,
    tasks: Vec<JobId>,
    /// The calls that follow the tasks.
    followed: Vec<CallKey>,
}

impl Filter {
    /// Reads the filter from these params. It contains only resources in this catalog, and these tasks.
    pub(super) fn of(params: Option<Json<'_>>, catalog: &Catalog, tasks: Vec<JobId>) -> Filter {
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
        Filter { lists, resources, tasks, followed: Vec::new() }
    }

    /// Returns the tasks that it follows.
    pub(super) fn tasks(&self) -> &[JobId] {
        &self.tasks
    }

    /// Notes the calls that follow its tasks, one for each.
    pub(super) fn follow_by(&mut self, followed: Vec<CallKey>) {
        self.followed = followed;
    }

    /// Returns the calls that follow its tasks.
    pub(super) fn followed(&self) -> &[CallKey] {
        &self.followed
    }

    /// Returns the resources that it watches.
    pub(super) fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().map(|(resource, _)| resource)
    }

    /// Makes the first message to the client, which confirms the subscription of this request id.
    pub(super) fn acknowledgement(&self, id: &Id) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"{SUBSCRIPTION}":{}}},"notifications":{}}}}}"#,
            id.to_json(),
            self.to_json()
        )
    }

    /// Writes the filter for the confirmation. Anything that does not exist is left out.
    fn to_json(&self) -> Value {
        let wanted = LISTS.iter().zip(self.lists).filter(|(_, wanted)| *wanted);
        let mut told: Map<String, Value> =
            wanted.map(|((.., member), _)| ((*member).to_owned(), true.into())).insert_each();
        if !self.resources.is_empty() {
            let uris = self.resources.iter().map(|(_, uri)| uri.as_str());
            told.insert("resourceSubscriptions".to_owned(), uris.collect());
        }
        if !self.tasks.is_empty() {
            told.insert("taskIds".to_owned(), self.tasks.iter().map(|id| id.as_str()).collect());
        }
        told.into()
    }

    /// Returns the client's name for a changed resource that it watches. Returns `None` if the change is not for it.
    fn hears_of(&self, changed: &Resource) -> Option<String> {
        self.resources.iter().find_map(|(watched, public)| heard_as(watched, public, changed))
    }
}

/// Makes the error for a subscription on a stream that ends with the answer.
pub(super) fn not_listening() -> ErrorReport<'static> {
    let happened = format!("`{LISTEN}` came from a client that accepts only an answer");
    ErrorReport { kind: FaultKind::InvalidRequest, summary: happened, hint: "accept text/event-stream" }
}

/// Returns the resource under its server's name.
pub(super) fn resource(owner: Owner) -> Resource {
    (owner.server, owner.name.into())
}

/// Makes the result of a subscription that ends without its client's wish.
pub(super) fn end_of_changes(id: &Id) -> String {
    format!(
        r#"{{"_meta":{{"{SUBSCRIPTION}":{},"io.modelcontextprotocol/serverInfo":{}}},"resultType":"complete"}}"#,
        id.to_json(),
        implementation()
    )
}

/// Returns the client's name for a changed resource, which is the watched one or a part of it. Returns `None` for any other.
fn heard_as(watched: &Resource, public: &str, changed: &Resource) -> Option<String> {
    let part = changed.1.strip_prefix(&*watched.1).filter(|_| watched.0 == changed.0)?;
    (part.is_empty() || part.starts_with('/') || watched.1.ends_with('/')).then(|| format!("{public}{part}"))
}

/// The resources that the client of a session watches, with its names for them.
#[derive(Debug, Default)]
pub(super) struct WatchedResources {
    watched: HashMap<Resource, String>,
}

impl WatchedResources {
    /// Adds a resource under the client's name.
    ///
    /// # Errors
    /// Fails if the session watches as many resources as it may.
    pub(super) fn add(&mut self, resource: Resource, public: String) -> Result<(), ErrorReport<'static>> {
        if self.watched.len() >= MAX_SUBSCRIPTIONS {
            let happened = format!(
                "the session has {} subscriptions to resources, which is the limit",
                self.watched.len()
            );
            let hint = "unsubscribe from some of them";
            return Err(ErrorReport { kind: FaultKind::Overloaded, summary: happened, hint });
        }
        self.watched.insert(resource, public);
        Ok(())
    }

    /// Removes a resource. Returns whether it was watched.
    pub(super) fn remove(&mut self, resource: &Resource) -> bool {
        self.watched.remove(resource).is_some()
    }

    /// Notifies the subscribers of a resource that it has changed.
    pub(super) fn tell_of_update(
        &self,
        changed: &Resource,
        calls: &SessionCalls,
        effects: &mut impl SessionEffects,
    ) {
        let line = |public: &str, meta: &str| {
            let uri = Value::from(public);
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{{meta}"uri":{uri}}}}}"#
            )
        };
        let told_as = self.watched.iter().find_map(|(watched, public)| heard_as(watched, public, changed));
        if let Some(public) = told_as {
            // One of several equal notifications says everything.
            let class = Class::ListChanged(public.as_str().into());
            effects.to_client(LineTarget::Session, class, line(&public, "").as_bytes());
        }
        for (id, call) in calls.iter() {
            let Awaited::Changes(filter) = &call.awaited else { continue };
            if let Some(public) = filter.hears_of(changed) {
                let id = id.to_json();
                let class = Class::ListChanged(format!("{public} {id}").into());
                let line = line(&public, &format!(r#""_meta":{{"{SUBSCRIPTION}":{id}}},"#));
                effects.to_client(LineTarget::Beside(call.route.stream), class, line.as_bytes());
            }
        }
    }

    /// Moves the watches of resources that now belong to other servers. A resource that no server has keeps its place, in case it comes
    /// again. Returns the old and the new place of each that has moved.
    pub(super) fn follow(
        &mut self,
        catalog: &Catalog,
        calls: &mut SessionCalls,
    ) -> Vec<(Resource, Resource)> {
        let moved = |watched: &Resource, public: &str| {
            catalog.resource(public).map(resource).filter(|now| now != watched)
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
        for id in calls.ids_of(|awaited| matches!(awaited, Awaited::Changes(_))) {
            let Some(Awaited::Changes(filter)) = calls.get_mut(&id).map(|call| &mut call.awaited) else {
                continue;
            };
            for (watched, public) in &mut filter.resources {
                if let Some(now) = moved(watched, public) {
                    moves.push((std::mem::replace(watched, now.clone()), now));
                }
            }
        }
        moves.sort_unstable();
        moves.dedup();
        moves
    }

    /// Returns the resources of an ended subscription that no other part of its session watches.
    pub(super) fn unwatched_after<'a>(&self, ended: &'a Filter, calls: &SessionCalls) -> Vec<&'a Resource> {
        let is_watched = |resource: &Resource| {
            let is_same = |call: &SessionCall| match &call.awaited {
                Awaited::Changes(other) => other.resources().any(|other| other == resource),
                _ => false,
            };
            self.watched.contains_key(resource) || calls.iter().any(|(_, call)| is_same(call))
        };
        ended.resources().filter(|resource| !is_watched(resource)).collect()
    }
}

/// Returns the indexes in [`LISTS`] of the lists that differ between the earlier and the current knowledge, or that a server has announced
/// as changed.
fn changed_lists(before: &KnownServers, now: &KnownServers) -> impl Iterator<Item = usize> {
    let is_other = |list: ServerList| {
        before.catalog.list(list, Era::Modern) != now.catalog.list(list, Era::Modern)
            || now.announced.are_news_of(list, &before.announced)
    };
    LISTS.iter().enumerate().filter(move |(_, (list, ..))| is_other(*list)).map(|(list_index, _)| list_index)
}

/// The clients that hear of changed lists.
pub(super) struct ListListeners<'a> {
    /// Whether there was a handshake. A client without one hears only of the changes that it asked for.
    pub has_session: bool,
    pub calls: &'a SessionCalls,
}

impl ListListeners<'_> {
    /// Notifies them of the servers' lists that have changed, also if a server only says so.
    pub(super) fn tell_of_servers(
        &self,
        before: &KnownServers,
        now: &KnownServers,
        effects: &mut impl SessionEffects,
    ) {
        for list_index in changed_lists(before, now) {
            self.tell(list_index, effects);
        }
    }

    /// Notifies them that the tools have changed.
    pub(super) fn tell_of_tools(&self, effects: &mut impl SessionEffects) {
        self.tell(TOOLS, effects);
    }

    /// Notifies them that the list at this index of [`LISTS`] has changed.
    fn tell(&self, list_index: usize, effects: &mut impl SessionEffects) {
        let (_, kind, _) = LISTS[list_index];
        let line = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"{params}}}"#)
        };
        if self.has_session {
            effects.to_client(LineTarget::Session, Class::ListChanged(kind.into()), line("").as_bytes());
        }
        for (id, call) in self.calls.iter() {
            let Awaited::Changes(filter) = &call.awaited else { continue };
            if filter.lists[list_index] {
                let id = id.to_json();
                let params = format!(r#","params":{{"_meta":{{"{SUBSCRIPTION}":{id}}}}}"#);
                let class = Class::ListChanged(format!("{kind} {id}").into());
                effects.to_client(LineTarget::Beside(call.route.stream), class, line(&params).as_bytes());
            }
        }
    }
}
