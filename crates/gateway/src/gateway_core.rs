//! State that all servers of a gateway share: the list of servers, what is known of them, and what bounds them together.
//!
//! Invariants
//!
//! - Knowledge of the servers never goes back to an older state.
//! - A session hears of a change when there is one for all sessions, and works out for itself whether that changes anything for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{
    Capacity,
    backend::Backend,
    busy_poll::BusyPoller,
    instance_limit::InstanceLimit,
    known_servers::KnownServers,
    log_level::RequestedLevel,
    open_sessions::OpenSessions,
    permits::PermitQueue,
    resource_watches::{Updates, updates},
    roster::Roster,
    session_registry::SessionRegistry,
    start_turns::StartTurns,
};
use crate::route::catalog::Catalog;
use unhang_core::notices::Notices;

/// State for the tasks that run as long as there are servers. It does not keep those tasks alive.
pub(super) struct GatewayCore {
    roster: Mutex<Roster>,
    pub(super) known: watch::Sender<KnownServers>,
    /// Changes of resources of the servers that everybody shares.
    pub(super) updates: Updates,
    pub(super) start_turns: StartTurns,
    pub(super) sessions: SessionRegistry,
    /// The open sessions, by their eras.
    pub(super) open_sessions: Arc<OpenSessions>,
    /// The bound on instances that sessions have.
    pub(super) instance_limit: Arc<InstanceLimit>,
    /// The log level that somebody has asked the servers for.
    pub(super) level: RequestedLevel,
    /// Permits for requests to all servers together.
    pub(super) all: Arc<PermitQueue>,
    pub(super) busy_poll: Arc<BusyPoller>,
    /// Takes the notice that a server cannot be started.
    pub(super) notices: Notices,
}

impl GatewayCore {
    /// Makes a core without servers.
    pub(super) fn new(capacity: Capacity, notices: Notices) -> Arc<Self> {
        Arc::new(Self {
            roster: Mutex::default(),
            known: watch::Sender::default(),
            updates: updates(),
            start_turns: StartTurns::default(),
            sessions: SessionRegistry::default(),
            open_sessions: Arc::default(),
            instance_limit: InstanceLimit::new(capacity.instances),
            level: RequestedLevel::default(),
            all: PermitQueue::new(capacity.requests),
            busy_poll: Arc::default(),
            notices,
        })
    }

    /// Bounds the servers together from now on. Permits that are held stay valid.
    pub(super) fn bound(&self, capacity: Capacity) {
        self.all.bound(capacity.requests);
        self.instance_limit.bound(capacity.instances);
    }

    /// Locks the roster. The caller must not hold the lock over a wait.
    pub(super) fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the servers of the configuration.
    pub(super) fn current(&self) -> Vec<Arc<Backend>> {
        self.roster().current.clone()
    }

    /// Publishes what is known now to all sessions, if that is new.
    pub(super) fn publish(&self) {
        if self.update_known() {
            self.publish_to_sessions();
        }
    }

    /// Publishes the lists that a server has just changed, which may be those of one era or of one session.
    pub(super) fn publish_changed_list(&self) {
        self.update_known();
        self.publish_to_sessions();
    }

    /// Brings the knowledge of all sessions up to date. Returns whether it has changed.
    fn update_known(&self) -> bool {
        // One publication after the other, so that knowledge never goes back to an older state.
        self.known.send_if_modified(|known| {
            let roster = self.roster();
            let listed_backends: Vec<_> =
                roster.current.iter().map(|backend| (backend, backend.lists.snapshot())).collect();
            let now = KnownServers::of(&roster, &listed_backends, known.was_settled);
            let before = Arc::clone(&known.catalog);
            let is_new = known.become_known(now);
            if is_new {
                tell_clashes(&before, &known.catalog, &roster);
            }
            is_new
        })
    }

    /// Publishes what is known now to all sessions, of which some may see other lists than the rest.
    pub(super) fn publish_to_sessions(&self) {
        for session_servers in self.sessions.all() {
            session_servers.publish();
        }
    }
}

/// Warns once of each name that two items would have had.
fn tell_clashes(before: &Catalog, now: &Catalog, roster: &Roster) {
    let is_new = |requested_name: &str| before.clashes().all(|clash| clash.requested_name != requested_name);
    for clash in now.clashes().filter(|clash| is_new(&clash.requested_name)) {
        let of = |server: usize| match server.checked_sub(1).and_then(|server| roster.current.get(server)) {
            Some(backend) => format!("`{}`", backend.name()),
            None => "unhang itself".to_owned(),
        };
        tracing::warn!(
            "{} and {} would both have `{}`; unhang calls that of the latter `{}`; give the latter \
             another prefix to choose the name",
            of(clash.first.server),
            of(clash.second.server),
            clash.requested_name,
            clash.given
        );
    }
}
