//! What one session has of the servers: those that all share, and of each server that keeps state of one client an instance of its own.
//!
//! ```text
//! session ─ Servers::for_session ─ SessionServers ──────┬ a server that all share ─ Backend (roster)
//!                                                       └ its own instance ─ Backend (here), made when it is first asked something
//! session ◄─ KnownServers (watched) ◄─ SessionServers ◄─┬ what is known of all
//!                                                       └ the lists of its own instances, kept by one task each
//! ```
//!
//! # Theory of operation
//!
//! A server of [`Scope::Session`] has an index in the roster, as every other. What stands there is asked for its lists and for nothing
//! else: it is started to say what it offers, and stopped when it has. What sessions ask goes to instances, each made from that one
//! when its session first wants something, with a process or a connection, limits, a breaker and an idle time of its own. They are
//! counted under the name of the server, so that what is told of it is told of all of them together.
//!
//! Windows that share servers through a leader have no sessions there that anything could be kept for: they see what everybody shares,
//! and have the rest in their own process.
//!
//! # Invariants
//!
//! - An instance is reached from its own session alone, and so is what it says.
//! - It ends with its session, or when the configuration has it no more; until then it is one and the same, or is started anew.
//! - What one session makes of its instance changes nothing for any other: neither what is listed nor what is remembered.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
};

use tokio::{
    runtime::Handle,
    sync::{broadcast, watch},
    task::JoinSet,
};
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;

use super::{
    KnownServers, Level, MayRead, Scope, Servers, SessionKey,
    backend::{Backend, SessionInstance},
    gateway_core::GatewayCore,
    log_level::RequestedLevel,
    owners::marked,
    resource_watches::{ResourceUpdate, Updates, updates},
};
use crate::route::catalog::ListedItems;
use unhang_core::{config::DISPOSE_LIMIT, fair::FairnessKey};

/// Who asks the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SessionKind {
    /// A session; who has it, where that is told from others.
    Session(Option<FairnessKey>),
    /// Windows that share what everybody may share.
    Windows,
}

/// What one session has of the servers.
pub(super) struct SessionServers {
    core: Arc<GatewayCore>,
    /// By which the registry knows it.
    number: u64,
    kind: SessionKind,
    /// Whether what shared servers write is for whoever asks.
    may_read: MayRead,
    known: watch::Sender<KnownServers>,
    /// Changes of the resources of its own instances, once there are any.
    updates: OnceLock<Updates>,
    /// From which level on it wants its own instances to log.
    level: RequestedLevel,
    /// By the index of their servers.
    instances: Mutex<HashMap<usize, Instance>>,
}

/// An instance of the session's own.
struct Instance {
    backend: Arc<Backend>,
    /// What keeps its lists, and what stops it when nobody wants it.
    tasks: JoinSet<()>,
}

/// What changes of the resources that are watched.
pub struct WatchChanges {
    of_all: broadcast::Receiver<ResourceUpdate>,
    own: Option<broadcast::Receiver<ResourceUpdate>>,
}

impl WatchChanges {
    /// The next one. Cancel-safe.
    ///
    /// # Errors
    /// Some came too fast to be told, or there are no servers any more.
    pub async fn recv(&mut self) -> Result<ResourceUpdate, broadcast::error::RecvError> {
        let Some(own) = &mut self.own else { return self.of_all.recv().await };
        tokio::select! {
            updated = own.recv() => updated,
            updated = self.of_all.recv() => updated,
        }
    }
}

impl Servers {
    /// The same servers for a session that begins now, with instances of its own of those that are not shared; they end when all clones
    /// of this have gone. `owner` is whose it is, where that is told from others by more than the session. Must be called in a runtime.
    #[must_use]
    pub fn for_session(&self, owner: Option<FairnessKey>) -> Servers {
        self.for_session_of(owner, MayRead::default())
    }

    /// The same for somebody who may read what shared servers write, or may not.
    #[must_use]
    pub fn for_session_of(&self, owner: Option<FairnessKey>, may_read: MayRead) -> Servers {
        match self.session_servers.as_deref() {
            // Windows are all the same here.
            Some(SessionServers { kind: SessionKind::Windows, .. }) => self.clone(),
            _ => self.seen_by(SessionKind::Session(owner), may_read),
        }
    }

    /// What of these servers windows share.
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
            updates: OnceLock::new(),
            level: RequestedLevel::default(),
            instances: Mutex::default(),
        });
        session_servers.publish();
        Servers { session_servers: Some(session_servers), ..self.clone() }
    }

    /// Whether the session has instances of its own.
    pub fn has_instances(&self) -> bool {
        self.session_servers.as_ref().is_some_and(|session_servers| !session_servers.instances().is_empty())
    }

    /// Whether whoever asks here may read what shared servers write.
    pub(super) fn may_read(&self) -> MayRead {
        self.session_servers
            .as_ref()
            .map(|session_servers| session_servers.may_read.clone())
            .unwrap_or_default()
    }

    /// The server at this index, as far as it is for whoever asks here.
    pub(super) fn at(&self, server_index: usize) -> Option<Arc<Backend>> {
        let of_all = || self.core.roster().at(server_index);
        match &self.session_servers {
            Some(session_servers) => session_servers.at(server_index),
            None => of_all().filter(|backend| backend.scope() != Scope::Session),
        }
    }

    /// What is known of them, now and from now on.
    #[must_use]
    pub fn known(&self) -> watch::Receiver<KnownServers> {
        match &self.session_servers {
            Some(session_servers) => session_servers.known.subscribe(),
            None => self.core.known.subscribe(),
        }
    }

    /// What changes of the resources that are watched, from now on.
    #[must_use]
    pub fn updates(&self) -> WatchChanges {
        let own = self.session_servers.as_ref().map(|session_servers| session_servers.updates().subscribe());
        WatchChanges { of_all: self.core.updates.subscribe(), own }
    }

    /// Has servers log from this level on, of those that somebody has asked for the one that says most. What is the session's own has
    /// heard of nobody else.
    pub fn log_from(&self, level: Level) {
        self.core.level.lower_to(level);
        let shared = self.core.current().into_iter().filter(|backend| backend.scope() != Scope::Session);
        let own = self
            .session_servers
            .as_ref()
            .map(|session_servers| session_servers.log_from(level))
            .unwrap_or_default();
        for backend in shared.chain(own) {
            if backend.level.lower_to(level) {
                tokio::spawn(async move { backend.set_level().await });
            }
        }
    }
}

impl SessionServers {
    fn instances(&self) -> MutexGuard<'_, HashMap<usize, Instance>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn updates(&self) -> &Updates {
        self.updates.get_or_init(updates)
    }

    /// Its own instances, from which it wants to hear from this level on.
    fn log_from(&self, level: Level) -> Vec<Arc<Backend>> {
        self.level.set(level);
        self.instances().values().map(|instance| Arc::clone(&instance.backend)).collect()
    }

    fn sees(&self, backend: &Backend) -> bool {
        match self.kind {
            SessionKind::Session(_) => true,
            SessionKind::Windows => {
                backend.scope() == Scope::Everybody || !stands("windows-see-what-all-share")
            }
        }
    }

    /// The server at this index: the one that all share, or the session's own instance, made now where there is none.
    fn at(self: &Arc<Self>, server_index: usize) -> Option<Arc<Backend>> {
        let mut instances = self.instances();
        if let Some(instance) = instances.get(&server_index) {
            return Some(Arc::clone(&instance.backend));
        }
        let mut roster = self.core.roster();
        let found = roster.at(server_index).filter(|backend| self.sees(backend))?;
        let SessionKind::Session(owner) = &self.kind else { return Some(found) };
        if found.scope() != Scope::Session || !stands("session-has-its-own-instance") {
            return Some(found);
        }
        // Of one that goes nothing new is made.
        if roster.is_closed() || !roster.current.iter().any(|backend| backend.server_index() == server_index)
        {
            return None;
        }
        let own = SessionInstance {
            owner: owner.clone(),
            instance_limit: Arc::clone(&self.core.instance_limit),
            start_turns: self.core.start_turns.clone(),
            key: SessionKey::drawn(),
        };
        let backend = Arc::new(found.instance(self.updates().clone(), own));
        if let Some(level) = self.level.get() {
            backend.level.lower_to(level);
        }
        roster.instances.push(Arc::clone(&backend));
        drop(roster);
        let mut tasks = JoinSet::new();
        tasks.spawn(keep(Arc::downgrade(self), Arc::clone(&backend)));
        if let Some(idle) = backend.idle_timeout() {
            tasks.spawn(Arc::clone(&backend).rest_after(idle));
        }
        instances.insert(server_index, Instance { backend: Arc::clone(&backend), tasks });
        Some(backend)
    }

    /// Tells the session what is known now.
    pub(super) fn publish(&self) {
        self.known.send_if_modified(|known| {
            let of_all = self.core.known.borrow().clone();
            let now = match self.kind {
                SessionKind::Session(_) => self.known_with_own(of_all),
                SessionKind::Windows => {
                    let roster = self.core.roster();
                    let seen = roster.current.iter().filter(|backend| self.sees(backend));
                    let marked = |backend: &Backend| Arc::new(marked(backend.name(), &backend.offered()));
                    let listed_backends: Vec<_> = seen.map(|backend| (backend, marked(backend))).collect();
                    KnownServers::of(&roster, &listed_backends, known.was_settled)
                }
            };
            known.become_known(now)
        });
    }

    /// What is known of all, and of its own instances what they have said themselves.
    fn known_with_own(&self, of_all: KnownServers) -> KnownServers {
        let instances = self.instances();
        let listed = instances.values().filter(|instance| instance.backend.lists.was_listed());
        let own: HashMap<usize, Arc<ListedItems>> =
            listed.map(|instance| (instance.backend.server_index(), instance.backend.offered())).collect();
        drop(instances);
        let of_all = match self.may_read.now() {
            true => of_all,
            false => self.without_words(of_all),
        };
        if own.is_empty() {
            return of_all;
        }
        let roster = self.core.roster();
        let current = roster.current.iter();
        let listed_backends = current.map(|backend| {
            let own = own.get(&backend.server_index()).cloned();
            (backend, own.unwrap_or_else(|| backend.offered()))
        });
        let listed_backends: Vec<_> = listed_backends.collect();
        let KnownServers { catalog, timeouts, .. } =
            KnownServers::of(&roster, &listed_backends, of_all.was_settled);
        // Of what all have it is up to all whether it is known.
        KnownServers { catalog, timeouts, ..of_all }
    }

    /// The same without what servers wrote that are not there.
    fn without_words(&self, of_all: KnownServers) -> KnownServers {
        if of_all.absent.is_empty() {
            return of_all;
        }
        let roster = self.core.roster();
        let absent = roster.current.iter().filter_map(|backend| backend.absent(&roster.style, false));
        KnownServers { absent: Arc::new(absent.collect()), ..of_all }
    }

    /// Its instances of these servers end, once they have answered what they were asked.
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

/// An instance ends with its session, at once and with all that it has started.
impl Drop for SessionServers {
    fn drop(&mut self) {
        self.core.sessions.leave(self.number);
        let instances = std::mem::take(&mut *self.instances());
        // Without a runtime there is no server any more either.
        let Ok(runtime) = Handle::try_current() else { return };
        for Instance { backend, .. } in instances.into_values() {
            let core = Arc::clone(&self.core);
            if stands("instance-ends-with-its-session") {
                runtime.spawn(async move { end(&core, &backend).await });
            }
        }
    }
}

/// Ends an instance, and forgets it.
async fn end(core: &GatewayCore, backend: &Arc<Backend>) {
    backend.close(Deadline::after(DISPOSE_LIMIT)).await;
    core.roster().instances.retain(|other| !Arc::ptr_eq(other, backend));
}

/// Keeps the lists of one instance, while it is there.
async fn keep(session_servers: Weak<SessionServers>, backend: Arc<Backend>) {
    let mut was_listed = true;
    loop {
        backend.until_changed(was_listed).await;
        if !backend.runs() {
            // It is listed when somebody has started it.
            was_listed = true;
            continue;
        }
        let listed = backend.list().await;
        if let Err(error) = &listed {
            tracing::warn!("`{}` of one session cannot be listed: {error}", backend.name());
        }
        was_listed = listed.is_ok();
        let Some(session_servers) = session_servers.upgrade() else { return };
        session_servers.publish();
    }
}

#[cfg(test)]
mod tests;
