//! What all servers of a gateway have in common: which there are, what is known of them, and what bounds them together.
//!
//! Invariants
//!
//! - What is known never goes back to what was.
//! - A session is told of a change when there is one for all, and works out for itself whether it is one for the session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{
    Capacity,
    backend::Backend,
    busy_poll::BusyPoller,
    instance_limit::InstanceLimit,
    known_servers::KnownServers,
    log_level::RequestedLevel,
    permits::PermitQueue,
    resource_watches::{Updates, updates},
    roster::Roster,
    session_registry::SessionRegistry,
    start_turns::StartTurns,
};
use crate::route::catalog::Catalog;
use unhang_core::notices::Notices;

/// What the tasks of servers need that go on for as long as there are servers. It does not keep those tasks alive.
pub(super) struct GatewayCore {
    roster: Mutex<Roster>,
    pub(super) known: watch::Sender<KnownServers>,
    /// Changes of resources of the servers that all share.
    pub(super) updates: Updates,
    pub(super) start_turns: StartTurns,
    pub(super) sessions: SessionRegistry,
    /// Of the instances that sessions have.
    pub(super) instance_limit: Arc<InstanceLimit>,
    /// From which level on somebody has asked them to log.
    pub(super) level: RequestedLevel,
    /// Requests with all of them together.
    pub(super) all: Arc<PermitQueue>,
    pub(super) busy_poll: Arc<BusyPoller>,
    /// Where it is said that a server cannot be started.
    pub(super) notices: Notices,
}

impl GatewayCore {
    /// Makes one without servers.
    pub(super) fn new(capacity: Capacity, notices: Notices) -> Arc<Self> {
        Arc::new(Self {
            roster: Mutex::default(),
            known: watch::Sender::default(),
            updates: updates(),
            start_turns: StartTurns::default(),
            sessions: SessionRegistry::default(),
            instance_limit: InstanceLimit::new(capacity.instances),
            level: RequestedLevel::default(),
            all: PermitQueue::new(capacity.requests),
            busy_poll: Arc::default(),
            notices,
        })
    }

    /// Bounds what the servers have together from now on. Nobody loses what they have by that.
    pub(super) fn bound(&self, capacity: Capacity) {
        self.all.bound(capacity.requests);
        self.instance_limit.bound(capacity.instances);
    }

    /// Locks the roster. Not to be held over any wait.
    pub(super) fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the servers of the configuration.
    pub(super) fn current(&self) -> Vec<Arc<Backend>> {
        self.roster().current.clone()
    }

    /// Tells everybody what is known now.
    pub(super) fn publish(&self) {
        // One after the other, so that what is known never goes back to what was.
        let is_new = self.known.send_if_modified(|known| {
            let roster = self.roster();
            let listed_backends: Vec<_> =
                roster.current.iter().map(|backend| (backend, backend.offered())).collect();
            let now = KnownServers::of(&roster, &listed_backends, known.was_settled);
            let before = Arc::clone(&known.catalog);
            let is_new = known.become_known(now);
            if is_new {
                tell_clashes(&before, &known.catalog, &roster);
            }
            is_new
        });
        if is_new {
            for session_servers in self.sessions.all() {
                session_servers.publish();
            }
        }
    }
}

/// Tells of names that two would have had, once.
fn tell_clashes(before: &Catalog, now: &Catalog, roster: &Roster) {
    let is_new = |requested_name: &str| before.clashes().all(|clash| clash.requested_name != requested_name);
    for clash in now.clashes().filter(|clash| is_new(&clash.requested_name)) {
        let of = |server: usize| match server.checked_sub(1).and_then(|server| roster.current.get(server)) {
            Some(backend) => format!("`{}`", backend.name()),
            None => "unhang itself".to_owned(),
        };
        tracing::warn!(
            "{} and {} would both have `{}`; that of the latter is called `{}`; give it another prefix to choose its name",
            of(clash.first.server),
            of(clash.second.server),
            clash.requested_name,
            clash.given
        );
    }
}
