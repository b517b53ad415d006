//! Asks servers again for a list that a client wants, so that the client sees what the servers list now.
//!
//! ```text
//! list request of a session ─ Servers::refresh ─┬ refresh ─ ListRefreshes   one question at a time for each list
//!                                               └ LIST_REFRESH_PATIENCE, then the known lists have to do
//! ```
//!
//! # Theory of operation
//!
//! Without unhang, each list request of a client reaches the server. So a server may change its lists and announce nothing, and many that
//! declare announcements do so: the official SDK for Python declares them for every server of 2026-07-28. So each list request asks the
//! server for the one list that the client wants. The same holds for a request about a name that nobody lists. If a server may still have
//! an item of that name, because it does not answer or rests, the request goes to that server, which knows best. A server may also have
//! tools and prompts that it never lists. So a request about an unlisted one goes to the server that the name says, and the server decides.
//!
//! # Invariants
//!
//! - A list request sees every change that the server made before the request came, if the server answers in time.
//! - At most one question for each list is on its way to a server, however many clients want the list.
//! - A server that does not answer in time delays one request, and no other until it has answered.
//! - A refresh starts no process. It connects to a server over HTTP that could not be listed.

use std::sync::Arc;

use tokio::{task::JoinSet, time::timeout};

use super::{backend::Backend, list_rounds::ListRounds, roster::Roster};
use crate::route::names::Owner;
use unhang_core::{
    config::{LIST_PATIENCE, LIST_REFRESH_PATIENCE},
    list::ServerList,
};
use unhang_upstream::client::{Client, Endpoint, RequestOptions};

/// The questions for the lists of one server.
#[derive(Default)]
pub(super) struct ListRefreshes([ListRounds; ServerList::ALL.len()]);

impl ListRefreshes {
    fn of(&self, list: ServerList) -> &ListRounds {
        &self.0[list as usize]
    }
}

/// Asks these processes and connections for this list. Returns when the changes are published, and after [`LIST_PATIENCE`] at the latest.
/// Returns the indexes of the servers that may have items of the list which nobody knows of.
pub(super) async fn refresh_all(
    backends: Vec<Arc<Backend>>,
    list: ServerList,
    publish: impl Fn() + Clone + Send + 'static,
) -> Vec<usize> {
    let mut refreshes = JoinSet::new();
    for backend in backends {
        let publish = publish.clone();
        refreshes.spawn(async move {
            let is_known = refresh(&backend, list, publish).await;
            (backend.server_index(), is_known)
        });
    }
    let mut unknown = Vec::new();
    while let Some(refreshed) = refreshes.join_next().await {
        // A panic in one task leaves the list of its server as it is.
        unknown
            .extend(refreshed.ok().filter(|(_, is_known)| !is_known).map(|(server_index, _)| server_index));
    }
    unknown
}

/// Returns the owner of an item of this public name that nobody lists, if only one server may have it. That is the one server whose names
/// begin like this, or the one of these `unknown` servers, whose lists nobody knows.
pub(super) fn unlisted_owner(
    roster: &Roster,
    list: ServerList,
    public_name: &str,
    unknown: &[usize],
) -> Option<Owner> {
    let is_unknown = |backend: &Backend| unknown.contains(&backend.server_index());
    let begins = |backend: &&Arc<Backend>| {
        // Servers may have tools and prompts that they do not list, and know best which.
        let may_be = matches!(list, ServerList::Tools | ServerList::Prompts);
        let beginning = roster.style.beginning(backend.prefix());
        let rest = public_name.strip_prefix(beginning.as_str()).filter(|name| may_be && !name.is_empty());
        rest.map(|name| (beginning.len(), name))
    };
    let fitting = || roster.current.iter().filter_map(|backend| Some((backend, begins(&backend)?)));
    // The longest beginning says most.
    let longest = fitting().map(|(_, (length, _))| length).max()?;
    let meant = || fitting().filter(|(_, (length, _))| *length == longest);
    let only_unknown = || only(meant().filter(|(backend, _)| is_unknown(backend)));
    let (backend, (_, name)) = only(meant()).or_else(only_unknown)?;
    let is_offered = list != ServerList::Tools || backend.lists.may_offer(name);
    is_offered.then(|| Owner { server: backend.server_index(), name: name.to_owned() })
}

/// Returns the item, if there is exactly one.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}

/// Asks the server for this list, and waits for the outcome as long as a client should. Returns whether its list is surely known.
async fn refresh(backend: &Arc<Backend>, list: ServerList, publish: impl Fn() + Send + 'static) -> bool {
    let (questions, listings) = (backend.refreshes.of(list), &backend.lists.rounds);
    if questions.are_late() || listings.are_late() {
        return false;
    }
    // A gateway behind this one is patient with its own servers first.
    let patience = if backend.is_gateway() { LIST_PATIENCE } else { LIST_REFRESH_PATIENCE };
    let is_known = timeout(patience, refreshed(backend, list, (questions, publish))).await;
    is_known.unwrap_or_else(|_| {
        questions.note_late();
        listings.note_late();
        tracing::debug!("`{}` does not answer `{}` in time", backend.name(), list.method());
        false
    })
}

async fn refreshed(
    backend: &Arc<Backend>,
    list: ServerList,
    (questions, publish): (&ListRounds, impl Fn() + Send + 'static),
) -> bool {
    let client = backend.connection().usable_client().cloned();
    let Some(client) = client else {
        // Such a server may be there by now, and a try costs a connection.
        let is_remote = matches!(backend.endpoint(), Endpoint::Http(_));
        if is_remote && backend.lists.failure_to_list() == Some(true) {
            listed_anew(backend).await;
        }
        return false;
    };
    if client.ready().await.is_err() {
        return false;
    }
    if !backend.lists.has_been_listed() {
        listed_anew(backend).await;
        return backend.lists.has_been_listed();
    }
    let (number, is_first) = questions.want();
    if is_first {
        tokio::spawn(ask_while_wanted(Arc::clone(backend), list, client, publish));
    }
    questions.until_ended(number).await;
    // The lists of a gateway are those of one era, and its servers may have others.
    !backend.is_gateway() && backend.eras.counterpart().is_none()
}

/// Asks for a list, one question after the other, as long as somebody wants that.
async fn ask_while_wanted(
    backend: Arc<Backend>,
    list: ServerList,
    client: Client,
    publish: impl Fn() + Send + 'static,
) {
    while backend.refreshes.of(list).begin_next() {
        match client.list(list, &RequestOptions::default()).await {
            Ok(listed) => {
                if backend.lists.refresh(list, listed) {
                    publish();
                    // The other lists may have changed as well, and all are kept for the next run.
                    backend.listener.lists_may_have_changed();
                }
            }
            Err(error) => tracing::debug!("`{}` cannot be asked for a list: {error}", backend.name()),
        }
    }
}

/// Has all lists asked for from now on, and waits until they are published.
async fn listed_anew(backend: &Backend) {
    let next = backend.lists.rounds.next();
    backend.listener.lists_are_wanted();
    backend.lists.rounds.until_ended(next).await;
}
