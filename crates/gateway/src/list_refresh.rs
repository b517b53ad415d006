//! Asks servers again for a list that a client wants, so that the client sees what the servers list now.
//!
//! ```text
//! list request of a session ─ Servers::refresh ─┬ refresh ─ ListRefreshes   one question at a time for each list
//!                                               │      └ if the list differs: the task that keeps the lists asks for all of them
//!                                               └ LIST_REFRESH_PATIENCE, then the known lists have to do
//! ```
//!
//! # Theory of operation
//!
//! Without unhang, each list request of a client reaches the server. So a server may change its lists and announce nothing. A server that
//! announces its changes is not asked: its lists are known, or about to be. Any other server is asked for the one list that the client
//! wants. Only if that list differs from the known one, all lists are asked for and published as after an announcement.
//!
//! # Invariants
//!
//! - A list request sees every change that the server made before the request came, if the server answers in time.
//! - At most one question for each list is on its way to a server, however many clients want the list.
//! - A server that does not answer in time delays one request, and no other until it has answered.
//! - A refresh starts no server.

use std::sync::Arc;

use tokio::{task::JoinSet, time::timeout};

use super::{backend::Backend, list_rounds::ListRounds};
use unhang_core::{
    config::{LIST_PATIENCE, LIST_REFRESH_PATIENCE},
    list::ServerList,
};
use unhang_upstream::client::{Client, Endpoint, RequestOptions, ServerInfo};

/// The questions for the lists of one server.
#[derive(Default)]
pub(super) struct ListRefreshes([ListRounds; ServerList::ALL.len()]);

impl ListRefreshes {
    fn of(&self, list: ServerList) -> &ListRounds {
        &self.0[list as usize]
    }
}

/// Asks these processes and connections for this list, if they may have changed it. Returns when the changes are published, and after
/// [`LIST_PATIENCE`] at the latest.
pub(super) async fn refresh_all(backends: Vec<Arc<Backend>>, list: ServerList) {
    let mut refreshes = JoinSet::new();
    for backend in backends {
        refreshes.spawn(async move { refresh(&backend, list).await });
    }
    // A panic in one task leaves the list of its server as it is.
    while refreshes.join_next().await.is_some() {}
}

/// Asks the server for this list, if the server may have changed it, and waits for the outcome as long as a client should.
async fn refresh(backend: &Arc<Backend>, list: ServerList) {
    let (questions, listings) = (backend.refreshes.of(list), &backend.lists.rounds);
    if !backend.runs() || questions.are_late() || listings.are_late() {
        return;
    }
    // A gateway behind this one is patient with its own servers first.
    let patience = if backend.is_gateway() { LIST_PATIENCE } else { LIST_REFRESH_PATIENCE };
    if timeout(patience, refreshed(backend, list, questions)).await.is_err() {
        questions.note_late();
        listings.note_late();
        tracing::debug!("`{}` does not answer `{}` in time", backend.name(), list.method());
    }
}

async fn refreshed(backend: &Arc<Backend>, list: ServerList, questions: &ListRounds) {
    let Some(client) = backend.connection().usable_client().cloned() else { return };
    let Ok(session) = client.ready().await else { return };
    let is_listed = backend.lists.has_been_listed();
    if !is_listed || announces(backend, list, &session) && !backend.lists.are_late(list) {
        match !is_listed || backend.listener.has_announced() {
            true => listed_anew(backend).await,
            // Lists that are on their way may be newer than an announcement.
            false => backend.lists.rounds.until_current_ended().await,
        }
        return;
    }
    let (number, is_first) = questions.want();
    if is_first {
        tokio::spawn(ask_while_wanted(Arc::clone(backend), list, client));
    }
    questions.until_ended(number).await;
}

/// Asks for a list, one question after the other, as long as somebody wants that.
async fn ask_while_wanted(backend: Arc<Backend>, list: ServerList, client: Client) {
    while backend.refreshes.of(list).begin_next() {
        match client.list(list, &RequestOptions::default()).await {
            Ok(listed) => {
                let differs = backend.lists.differs(list, listed);
                if differs && timeout(backend.request_timeout(), listed_anew(&backend)).await.is_err() {
                    tracing::debug!("`{}` has changed a list and cannot be listed", backend.name());
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

/// Returns whether the server announces changes of this list, on a way that is open.
fn announces(backend: &Backend, list: ServerList, session: &ServerInfo) -> bool {
    let is_open = match backend.endpoint() {
        // The servers behind another gateway may change their lists in silence.
        _ if backend.is_gateway() => false,
        _ if session.revision.is_stateless() => backend.connection().is_subscribed(),
        Endpoint::Stdio(_) => true,
        // A server need not keep a stream for announcements, and some declare them without it.
        Endpoint::Http(_) => false,
    };
    is_open && list.is_announced(&session.capabilities)
}
