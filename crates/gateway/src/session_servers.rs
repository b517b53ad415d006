//! The servers as one session sees them: the servers that all share, and an instance of its own of each server that keeps state of one
//! client.
//!
//! ```text
//! session ─ Servers::for_session ─ SessionServers ──────┬ a server that all share ─ Backend (roster)
//!                                                       └ its own instance ─ Backend (here), made when it is first asked something
//! session ◄─ KnownServers (watched) ◄─ SessionServers ◄─┬ the knowledge of all servers
//!                                                       └ the lists of its own instances, kept by one task each
//! ```
//!
//! # Theory of operation
//!
//! A server of [`Scope::Session`] has an index in the roster, as every other. The backend that stands there is asked for its lists and for
//! nothing else: it is started to give its lists, and stopped when it has. Requests of sessions go to instances. Each is made from that
//! backend when its session first wants something. It has a process or a connection, limits, a breaker and an idle time of its own.
//! Instances are counted under the name of the server, so that reports on it are about all of them together.
//!
//! Windows that share servers through a leader have no sessions there that an instance could be kept for. They see the servers that
//! everybody shares, and have the rest in their own process.
//!
//! # Invariants
//!
//! - An instance is reached from its own session alone, and so is its output.
//! - An instance ends with its session, or when the configuration has the server no more. Until then it is one and the same, or is started
//!   anew.
//! - A change that one session makes in its instance changes nothing for any other session: neither its lists nor those kept for the next
//!   run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use tokio::{
    runtime::Handle,
    sync::{broadcast, mpsc, watch},
    task::JoinSet,
};
use unhang_bridge::Era;
use unhang_proc::deadline::Deadline;

use super::{
    KnownServers, Level, MayRead, OpenWindow, Scope, Servers, SessionKey, SideMessage,
    backend::{Backend, SessionInstance},
    eras::EraChoice,
    gateway_core::GatewayCore,
    list_keeper::keep_lists_while_running,
    lists::ListSnapshot,
    log_level::RequestedLevel,
    open_sessions::OpenSession,
    owners::marked,
    resource_watches::{ResourceUpdate, Updates, updates},
};
use crate::route::catalog::Catalog;
use unhang_core::{config::DISPOSE_LIMIT, fair::FairnessKey};

/// The kind of caller that asks the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SessionKind {
    /// A session, with its owner, if owners are told from each other.
    Session(Option<FairnessKey>),
    /// Windows that share what everybody may share.
    Windows,
}

/// The servers as one session sees them.
pub(super) struct SessionServers {
    core: Arc<GatewayCore>,
    /// The number of the session in the registry.
    number: u64,
    kind: SessionKind,
    /// Whether the session may read the output of shared servers.
    may_read: MayRead,
    known: watch::Sender<KnownServers>,
    /// The session among those of its era, once the client's era is known.
    of_era: OnceLock<(Era, OpenSession)>,
    /// Changes of the resources of its own instances, once there are any.
    updates: OnceLock<Updates>,
    /// The log level that the session wants from its own instances.
    level: RequestedLevel,
    /// The session's own instances, by the index of their servers.
    instances: Mutex<HashMap<usize, Instance>>,
}

/// An instance of the session's own.
struct Instance {
    backend: Arc<Backend>,
    /// The tasks that keep its lists, and stop it when nobody wants it.
    tasks: JoinSet<()>,
}

/// Changes of the resources that are watched.
pub struct WatchChanges {
    of_all: broadcast::Receiver<ResourceUpdate>,
    own: Option<broadcast::Receiver<ResourceUpdate>>,
}

impl WatchChanges {
    /// Waits for the next change. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`RecvError::Lagged`](broadcast::error::RecvError::Lagged) if some changes came too fast to be told, and with
    /// [`RecvError::Closed`](broadcast::error::RecvError::Closed) if there are no servers any more.
    pub async fn recv(&mut self) -> Result<ResourceUpdate, broadcast::error::RecvError> {
        let Some(own) = &mut self.own else { return self.of_all.recv().await };
        tokio::select! {
            updated = own.recv() => updated,
            updated = self.of_all.recv() => updated,
        }
    }
}

impl Servers {
    /// Returns the same servers for a session that begins now, with instances of its own of servers that are not shared. The instances end
    /// when all clones of the result have gone. `owner` is the session's owner, if owners are told from each other by more than the
    /// session. Must be called in a runtime.
    #[must_use]
    pub fn for_session(&self, owner: Option<FairnessKey>) -> Servers {
        self.for_session_of(owner, MayRead::default())
    }

    /// Returns the same as [`for_session`](Self::for_session), for a session that may read the output of shared servers only if `may_read`
    /// says so.
    #[must_use]
    pub fn for_session_of(&self, owner: Option<FairnessKey>, may_read: MayRead) -> Servers {
        match self.session_servers.as_deref() {
            // All windows see the same servers here.
            Some(SessionServers { kind: SessionKind::Windows, .. }) => self.clone(),
            _ => self.seen_by(SessionKind::Session(owner), may_read),
        }
    }

    /// Returns the part of these servers that windows share.
    #[must_use]
    pub fn for_windows(&self) -> Servers {
        self.seen_by(SessionKind::Windows, MayRead::default())
    }

    fn seen_by(&self, kind: SessionKind, may_read: MayRead) -> Servers {
        let session_servers = Arc::new_cyclic(|session_servers: &Weak<SessionServers>| SessionServers {
            core: Arc::clone(&self.core),
            number: self.core.sessions.enter(Weak::clone(session_servers)),
            kind,
            may_read,
            known: watch::Sender::default(),
            of_era: OnceLock::new(),
            updates: OnceLock::new(),
            level: RequestedLevel::default(),
            instances: Mutex::default(),
        });
        session_servers.publish();
        Servers { session_servers: Some(session_servers), ..self.clone() }
    }

    /// Notes the capabilities of the session's client, as JSON, before its era.
    pub fn client_declares(&self, capabilities: &str) {
        self.core.open_sessions.note_declared(capabilities);
    }

    /// Notes that a client waits for what the servers declare: their first start waits no longer for the era of a client.
    pub fn client_probes(&self) {
        self.core.open_sessions.note_begun();
    }

    /// Notes the era of the session's client. From then on the session sees the lists that servers give in this era. Must be called in a
    /// runtime.
    pub fn client_speaks(&self, era: Era) {
        let session_servers = self.session_servers.as_ref();
        // The clients of windows are of any era.
        let Some(session_servers) = session_servers.filter(|it| it.kind != SessionKind::Windows) else {
            return;
        };
        let mut is_first = false;
        session_servers.of_era.get_or_init(|| {
            is_first = true;
            (era, self.core.open_sessions.enter(era, session_servers.number))
        });
        if is_first {
            for backend in self.core.current() {
                EraChoice(&backend).open_for(era, &self.core);
            }
            session_servers.publish();
        }
    }

    /// Notes that the session's client has ended its handshake and listens: what servers say outside calls goes this way from now on.
    /// The calls of the session have this key.
    pub fn client_hears(&self, way: mpsc::Sender<SideMessage>, key: SessionKey) {
        if let Some(session_servers) = &self.session_servers {
            self.core.open_sessions.inboxes.open(session_servers.number, way, key);
        }
    }

    /// Counts a request of a window until the result is dropped. There are several clients then.
    #[must_use]
    pub fn window_comes(&self) -> OpenWindow {
        self.core.open_sessions.inboxes.window_comes();
        OpenWindow(Arc::clone(&self.core.open_sessions))
    }

    /// Tells servers that the roots of the session's client have changed: its own instances and, if no other session is open, those that
    /// all share.
    pub fn roots_changed(&self) {
        let Some(session_servers) = &self.session_servers else { return };
        for instance in session_servers.instances().values() {
            instance.backend.tell_of_roots();
        }
        if self.core.open_sessions.inboxes.is_only(session_servers.number) {
            let shared = self.core.current().into_iter().filter(|backend| backend.scope() != Scope::Session);
            for backend in shared {
                backend.tell_of_roots();
                backend.siblings().iter().for_each(|sibling| sibling.tell_of_roots());
            }
        }
    }

    /// Returns the era of the session's client.
    pub(super) fn era(&self) -> Era {
        self.session_servers.as_ref().map_or(Era::Modern, |session_servers| session_servers.era())
    }

    /// Returns whether the session has instances of its own.
    pub fn has_instances(&self) -> bool {
        self.session_servers.as_ref().is_some_and(|session_servers| !session_servers.instances().is_empty())
    }

    /// Returns whether the caller may read the output of shared servers.
    pub(super) fn may_read(&self) -> MayRead {
        self.session_servers
            .as_ref()
            .map(|session_servers| session_servers.may_read.clone())
            .unwrap_or_default()
    }

    /// Returns the server at this index, if the caller may ask it.
    pub(super) fn at(&self, server_index: usize) -> Option<Arc<Backend>> {
        let of_all = || self.core.roster().at(server_index);
        match &self.session_servers {
            Some(session_servers) => session_servers.at(server_index),
            None => of_all().filter(|backend| backend.scope() != Scope::Session),
        }
    }

    /// Returns the processes or connections whose lists the caller sees.
    pub(super) fn listed_backends(&self) -> Vec<Arc<Backend>> {
        let current = self.core.current();
        match &self.session_servers {
            None => current,
            Some(session_servers) => {
                let seen = current.into_iter().filter(|backend| session_servers.sees(backend));
                seen.map(|backend| session_servers.listed_in_place_of(backend)).collect()
            }
        }
    }

    /// Returns the knowledge of the servers, now and from now on.
    #[must_use]
    pub fn known(&self) -> watch::Receiver<KnownServers> {
        match &self.session_servers {
            Some(session_servers) => session_servers.known.subscribe(),
            None => self.core.known.subscribe(),
        }
    }

    /// Returns the changes of the resources that are watched, from now on.
    #[must_use]
    pub fn updates(&self) -> WatchChanges {
        let own = self.session_servers.as_ref().map(|session_servers| session_servers.updates().subscribe());
        WatchChanges { of_all: self.core.updates.subscribe(), own }
    }

    /// Tells the servers to log from this level on. Of the levels that sessions have asked a shared server for, the lowest counts. The
    /// session's own instances hear of no other session's level.
    pub fn log_from(&self, level: Level) {
        self.core.level.lower_to(level);
        let shared = self.core.current().into_iter().filter(|backend| backend.scope() != Scope::Session);
        let own = self
            .session_servers
            .as_ref()
            .map(|session_servers| session_servers.log_from(level))
            .unwrap_or_default();
        let shared: Vec<_> = shared.collect();
        let siblings: Vec<_> = shared.iter().flat_map(|backend| backend.siblings()).collect();
        for backend in shared.into_iter().chain(siblings).chain(own) {
            if backend.level.lower_to(level) {
                tokio::spawn(async move { backend.set_level().await });
            }
        }
    }
}

impl SessionServers {
    /// Returns what the session sees of the servers now.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.known.borrow().catalog)
    }

    fn instances(&self) -> MutexGuard<'_, HashMap<usize, Instance>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the era of the client, which is the stateless one until the client has begun a handshake.
    fn era(&self) -> Era {
        self.of_era.get().map_or(Era::Modern, |(era, _)| *era)
    }

    fn updates(&self) -> &Updates {
        self.updates.get_or_init(updates)
    }

    /// Sets the level from which the session's own instances log, and returns those instances.
    fn log_from(&self, level: Level) -> Vec<Arc<Backend>> {
        self.level.set(level);
        self.instances().values().map(|instance| Arc::clone(&instance.backend)).collect()
    }

    /// Returns the process or connection whose lists the session sees for this server, or will see once it has been listed.
    fn listed_in_place_of(&self, backend: Arc<Backend>) -> Arc<Backend> {
        if self.kind == SessionKind::Windows {
            return backend;
        }
        let instances = self.instances();
        let own = instances.get(&backend.server_index()).map(|instance| &instance.backend);
        let own = own.filter(|own| own.lists.was_listed() || own.runs());
        let other = || backend.eras.counterpart_listed_in(self.era());
        Arc::clone(own.or_else(other).unwrap_or(&backend))
    }

    fn sees(&self, backend: &Backend) -> bool {
        match self.kind {
            SessionKind::Session(_) => true,
            SessionKind::Windows => backend.scope() == Scope::Everybody,
        }
    }

    /// Returns the server at this index: the shared one, or the session's own instance, which is made now if there is none.
    fn at(self: &Arc<Self>, server_index: usize) -> Option<Arc<Backend>> {
        let mut instances = self.instances();
        if let Some(instance) = instances.get(&server_index) {
            return Some(Arc::clone(&instance.backend));
        }
        let mut roster = self.core.roster();
        let found = roster.at(server_index).filter(|backend| self.sees(backend))?;
        let SessionKind::Session(owner) = &self.kind else { return Some(found) };
        if found.scope() != Scope::Session {
            return Some(found);
        }
        // No new instance is made of a server that leaves.
        if roster.is_closed() || !roster.current.iter().any(|backend| backend.server_index() == server_index)
        {
            return None;
        }
        let own = SessionInstance {
            owner: owner.clone(),
            instance_limit: Arc::clone(&self.core.instance_limit),
            start_turns: self.core.start_turns.clone(),
            key: SessionKey::drawn(),
            session: self.number,
        };
        let backend = Arc::new(found.instance(self.updates().clone(), self.era(), own));
        if let Some(level) = self.level.get() {
            backend.level.lower_to(level);
        }
        roster.instances.push(Arc::clone(&backend));
        drop(roster);
        let mut tasks = JoinSet::new();
        let session_servers = Arc::downgrade(self);
        tasks.spawn(keep_lists_while_running(
            Arc::clone(&backend),
            " of one session".to_owned(),
            move || session_servers.upgrade().map(|session_servers| session_servers.publish()).is_some(),
        ));
        if let Some(idle) = backend.idle_timeout() {
            tasks.spawn(Arc::clone(&backend).rest_after(idle));
        }
        instances.insert(server_index, Instance { backend: Arc::clone(&backend), tasks });
        Some(backend)
    }

    /// Publishes to the session what is known now.
    pub(super) fn publish(&self) {
        self.known.send_if_modified(|known| {
            let of_all = self.core.known.borrow().clone();
            let now = match self.kind {
                SessionKind::Session(_) => self.known_with_own(of_all),
                SessionKind::Windows => {
                    let roster = self.core.roster();
                    let seen = roster.current.iter().filter(|backend| self.sees(backend));
                    let snapshot = |backend: &Backend| {
                        let snapshot = backend.lists.snapshot();
                        let offered = Arc::new(marked(backend.name(), &snapshot.offered));
                        ListSnapshot { offered, ..snapshot }
                    };
                    let listed_backends: Vec<_> = seen.map(|backend| (backend, snapshot(backend))).collect();
                    let mut now = KnownServers::of(&roster, &listed_backends, known.was_settled);
                    // The calls of windows go to counterparts too, so clients hear what counterparts announce.
                    for (backend, _) in listed_backends {
                        if let Some(other) = backend.eras.counterpart() {
                            let ListSnapshot { origin, announced, .. } = other.lists.snapshot();
                            now.announced.add(other.server_index(), origin, announced);
                        }
                    }
                    now
                }
            };
            known.become_known(now)
        });
    }

    /// Returns the knowledge of all servers. The lists of the session's own instances, and those that servers give in the era of its client,
    /// are in the place of those that all have.
    fn known_with_own(&self, of_all: KnownServers) -> KnownServers {
        let instances = self.instances();
        let listed = instances.values().filter(|instance| instance.backend.lists.was_listed());
        let mut own: HashMap<usize, ListSnapshot> = listed
            .map(|instance| (instance.backend.server_index(), instance.backend.lists.snapshot()))
            .collect();
        drop(instances);
        let (era, mut awaits_lists) = (self.era(), false);
        let (current, mut unheard) = (self.core.current(), Vec::new());
        for backend in &current {
            awaits_lists |= EraChoice(backend).awaits_lists_in(era);
            if let Some(other) = backend.eras.counterpart_listed_in(era) {
                own.entry(other.server_index()).or_insert_with(|| other.lists.snapshot());
            }
            unheard.extend([Some(backend), backend.eras.counterpart()].into_iter().flatten());
        }
        let of_all = KnownServers { has_lists: of_all.has_lists && !awaits_lists, ..of_all };
        let of_all = match self.may_read.now() {
            true => of_all,
            false => self.without_words(of_all),
        };
        let mut known = match own.is_empty() {
            true => of_all,
            false => self.known_in_place_of(&own, of_all),
        };
        for backend in unheard {
            let ListSnapshot { origin, announced, .. } = backend.lists.snapshot();
            known.announced.add_unheard(backend.server_index(), origin, announced);
        }
        known
    }

    /// Returns the knowledge of all servers, of which some have given the session these lists instead, by the index of the server.
    fn known_in_place_of(&self, own: &HashMap<usize, ListSnapshot>, of_all: KnownServers) -> KnownServers {
        let roster = self.core.roster();
        let current = roster.current.iter();
        let listed_backends = current.map(|backend| {
            let own = own.get(&backend.server_index()).cloned();
            (backend, own.unwrap_or_else(|| backend.lists.snapshot()))
        });
        let listed_backends: Vec<_> = listed_backends.collect();
        let KnownServers { catalog, announced, timeouts, .. } =
            KnownServers::of(&roster, &listed_backends, of_all.was_settled);
        // Whether the servers are known does not depend on a session's own instances.
        KnownServers { catalog, announced, timeouts, ..of_all }
    }

    /// Returns the same knowledge without the output of servers that are not there.
    fn without_words(&self, of_all: KnownServers) -> KnownServers {
        if of_all.absent.is_empty() {
            return of_all;
        }
        let roster = self.core.roster();
        let absent = roster.current.iter().filter_map(|backend| backend.absent(&roster.style, false));
        KnownServers { absent: Arc::new(absent.collect()), ..of_all }
    }

    /// Ends the session's instances of these servers, once they have answered their requests.
    pub(super) fn part_with(self: &Arc<Self>, server_indexes: &[usize]) {
        let mut instances = self.instances();
        for server_index in server_indexes {
            let Some(instance) = instances.get_mut(server_index) else { continue };
            // Nobody asks for its lists any more.
            instance.tasks = JoinSet::new();
            let (session_servers, server_index, backend) =
                (Arc::downgrade(self), *server_index, Arc::clone(&instance.backend));
            let core = Arc::clone(&self.core);
            tokio::spawn(async move {
                backend.until_unwanted().await;
                end(&core, &backend).await;
                if let Some(session_servers) = session_servers.upgrade() {
                    session_servers.instances().remove(&server_index);
                }
            });
        }
    }
}

/// Ends the instances with their session, at once and with all that they have started.
impl Drop for SessionServers {
    fn drop(&mut self) {
        self.core.sessions.leave(self.number);
        let instances = std::mem::take(&mut *self.instances());
        // Without a runtime there is no server any more either.
        let Ok(runtime) = Handle::try_current() else { return };
        for Instance { backend, .. } in instances.into_values() {
            let core = Arc::clone(&self.core);
            runtime.spawn(async move { end(&core, &backend).await });
        }
    }
}

/// Ends an instance, and forgets it.
async fn end(core: &GatewayCore, backend: &Arc<Backend>) {
    backend.close(Deadline::after(DISPOSE_LIMIT)).await;
    core.roster().instances.retain(|other| !Arc::ptr_eq(other, backend));
}

#[cfg(test)]
mod tests;
