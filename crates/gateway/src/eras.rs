//! The eras of a server that all share: which of its processes or connections gets the requests of which clients.
//!
//! ```text
//! request of a client ─ EraChoice::speaking ─┬ the backend itself     greeted in one era, and found to speak it
//!                                            └ its counterpart        made on the first demand, greeted in the other era
//! ```
//!
//! # Theory of operation
//!
//! A server can ask a client of the handshake era in the middle of a call, and a client of 2026-07-28 by the result of the call. Neither
//! can be translated for a server that speaks both eras and uses the other way. So a request goes to the server in the era of its client,
//! if the server speaks that era, and is translated only if it does not. A process behind a pipe speaks one era for its whole life, and so
//! does a connection. The second one is the counterpart. It is a backend of its own, with lists, permits, subscriptions and a breaker.
//!
//! `server/discover` does not say which older revisions a server speaks. So the counterpart is greeted in its era, and the answer decides.
//! A refusal is remembered until the server starts anew.
//!
//! A process that no client of its era uses is stopped when its counterpart is ready. So clients of one era alone cost one process.
//!
//! # Invariants
//!
//! - A backend has one counterpart at most, and a counterpart has none.
//! - A counterpart that cannot be started costs a client its translation and nothing else.
//! - The counterpart ends with its backend.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use unhang_bridge::Era;

use super::{
    Scope, ServerEntry, backend::Backend, gateway_core::GatewayCore, lifecycle::StartReason,
    list_keeper::keep_lists_while_running, open_sessions::OpenSessions,
};
use unhang_core::config::LIST_PATIENCE;
use unhang_upstream::client::Endpoint;

/// The eras in which a server may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraPolicy {
    /// Each client's own, as far as the server speaks it.
    #[default]
    OfClient,
    /// One era, in one process or connection; requests of other clients are translated.
    Only(Era),
}

/// The eras of one backend.
pub(super) struct BackendEras {
    /// Whether the server is asked in the era of each client.
    follows_clients: bool,
    /// The only era in which it is asked, if there is one.
    only: Option<Era>,
    /// Whether the backend is greeted in an era that is decided elsewhere: it is a counterpart, or the instance of a session.
    has_given_era: bool,
    /// Whether the server is a process behind a pipe, which speaks one era for its whole life.
    is_piped: bool,
    open_sessions: Arc<OpenSessions>,
    /// The era in which its processes or connections are greeted first, once that is decided.
    greeting: OnceLock<Era>,
    /// The era of the last handshake, if there was one.
    spoken: Mutex<Option<Era>>,
    /// A client of that era has asked the backend.
    was_asked: AtomicBool,
    counterpart: OnceLock<Counterpart>,
    /// Why the counterpart is not used.
    setback: Mutex<Setback>,
    is_told: AtomicBool,
    /// The counterpart is being opened for sessions.
    is_opening: AtomicBool,
}

/// The backend of the same server in the other era, and the tasks that keep its lists and stop it when nobody wants it.
struct Counterpart {
    backend: Arc<Backend>,
    tasks: Mutex<JoinSet<()>>,
}

/// Why a counterpart is not used.
#[derive(Clone, Copy, Debug, Default)]
enum Setback {
    #[default]
    None,
    /// The server refused the era. The number is that of the backend's start at the time.
    Refused(u64),
    /// The counterpart could not be started, and is not tried again before this.
    Failed(Instant),
}

impl BackendEras {
    /// Makes the eras of a backend. `greeting` is the era in which it is greeted first, if that is decided: it has no counterpart then.
    pub(super) fn new(entry: &ServerEntry, greeting: Option<Era>, open_sessions: Arc<OpenSessions>) -> Self {
        let (is_piped, is_gateway) = match &entry.spec.endpoint {
            Endpoint::Stdio(_) => (true, false),
            Endpoint::Http(server) => (false, server.address.socket.is_some()),
        };
        // A gateway like us hears the client's era with each request. The backend that stands for instances of sessions gives lists alone.
        let is_shared = greeting.is_none() && entry.scope != Scope::Session && !is_gateway;
        Self {
            follows_clients: is_shared && entry.era == EraPolicy::OfClient,
            only: match entry.era {
                EraPolicy::Only(era) => Some(era),
                EraPolicy::OfClient => None,
            },
            has_given_era: greeting.is_some(),
            is_piped,
            open_sessions,
            greeting: greeting.map(OnceLock::from).unwrap_or_default(),
            spoken: Mutex::default(),
            was_asked: AtomicBool::new(false),
            counterpart: OnceLock::new(),
            setback: Mutex::default(),
            is_told: AtomicBool::new(false),
            is_opening: AtomicBool::new(false),
        }
    }

    /// Returns the era in which the server is greeted first. It is decided at the first start: a server behind a pipe is greeted in the era
    /// of the sessions that are open, if they are all of one.
    pub(super) fn greeting(&self) -> Era {
        let open = &self.open_sessions;
        let are_legacy = || self.is_piped && open.has(Era::Legacy) && !open.has(Era::Modern);
        *self.greeting.get_or_init(|| match self.only {
            Some(era) => era,
            None if are_legacy() => Era::Legacy,
            None => Era::Modern,
        })
    }

    /// Returns the sessions that are open.
    pub(super) fn open_sessions(&self) -> Arc<OpenSessions> {
        Arc::clone(&self.open_sessions)
    }

    /// Returns whether the first greeting depends on the sessions that are open.
    pub(super) fn depend_on_sessions(&self) -> bool {
        self.is_piped && self.follows_clients
    }

    /// Notes the era of a handshake.
    pub(super) fn note_spoken(&self, era: Era) {
        *self.spoken.lock().unwrap_or_else(PoisonError::into_inner) = Some(era);
    }

    /// Notes that the server could not be started. A counterpart may have lost its era with that, and its clients are not to wait for it: the
    /// backend finds out anew whether the server speaks the era, and serves them until then.
    pub(super) fn note_failed_start(&self) {
        if self.has_given_era {
            *self.spoken.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Returns the era that the server spoke last; `None` if it has never been ready.
    pub(super) fn spoken(&self) -> Option<Era> {
        *self.spoken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client of the backend's own era asks it.
    pub(super) fn note_asked(&self) {
        self.was_asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether a client of this era, which the backend speaks, uses it.
    fn is_used(&self, era: Era) -> bool {
        self.open_sessions.has(era) || self.was_asked.load(Ordering::Relaxed)
    }

    /// Returns the counterpart, if there is one.
    pub(super) fn counterpart(&self) -> Option<&Arc<Backend>> {
        self.counterpart.get().map(|counterpart| &counterpart.backend)
    }

    /// Returns the counterpart if it speaks this era.
    fn counterpart_speaking(&self, era: Era) -> Option<&Arc<Backend>> {
        self.counterpart().filter(|other| other.eras.spoken() == Some(era))
    }

    /// Returns the counterpart if it has been listed in this era.
    pub(super) fn counterpart_listed_in(&self, era: Era) -> Option<&Arc<Backend>> {
        self.counterpart_speaking(era).filter(|other| other.lists.has_been_listed())
    }

    /// Stops the tasks of the counterpart, which ends with its backend.
    pub(super) fn stop_counterpart_tasks(&self) {
        if let Some(counterpart) = self.counterpart.get() {
            *counterpart.tasks.lock().unwrap_or_else(PoisonError::into_inner) = JoinSet::new();
        }
    }

    fn setback(&self) -> MutexGuard<'_, Setback> {
        self.setback.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the era that is not this one.
fn other(era: Era) -> Era {
    match era {
        Era::Legacy => Era::Modern,
        Era::Modern => Era::Legacy,
    }
}

/// The choice between a backend and its counterpart.
#[derive(Clone, Copy)]
pub(super) struct EraChoice<'a>(pub(super) &'a Arc<Backend>);

impl EraChoice<'_> {
    /// Returns whether clients of this era wait for the first lists of the counterpart.
    pub(super) fn awaits_lists_in(self, era: Era) -> bool {
        let is_awaited = |counterpart: &Arc<Backend>| {
            counterpart.eras.greeting() == era && !self.is_set_back() && !counterpart.lists.are_settled()
        };
        self.0.eras.counterpart().is_some_and(is_awaited)
    }

    /// Returns the backend to which the request of a client of this era goes: the one that speaks this era, or this one if the server does
    /// not speak it. Starts the server if it is not known yet which eras it speaks. The caller has the deadline.
    pub(super) async fn speaking(self, era: Era, core: &Arc<GatewayCore>) -> Arc<Backend> {
        match self.known_choice(era) {
            Some(known) => known,
            // In a box, what few requests need makes the future of all others no larger.
            None => Box::pin(self.in_other_era(era, core, StartReason::Request)).await,
        }
    }

    /// Returns what [`speaking`](Self::speaking) returns, if that is known without asking the server.
    pub(super) fn known_choice(self, era: Era) -> Option<Arc<Backend>> {
        if !self.0.eras.follows_clients {
            return Some(Arc::clone(self.0));
        }
        if self.0.eras.spoken()? == era {
            self.0.eras.note_asked();
            return Some(Arc::clone(self.0));
        }
        if self.has_refused(era) || self.is_set_back() {
            return Some(Arc::clone(self.0));
        }
        self.0.eras.counterpart_speaking(era).map(Arc::clone)
    }

    /// Returns whether the server, which has spoken the other era, does not speak this one: it was greeted in this era first.
    fn has_refused(self, era: Era) -> bool {
        self.0.eras.greeting() == era || self.0.lists.is_known_to_speak_handshakes_alone()
    }

    async fn in_other_era(self, era: Era, core: &Arc<GatewayCore>, reason: StartReason) -> Arc<Backend> {
        if self.0.eras.spoken().is_none() && self.0.ready(reason).await.is_err() {
            // The request finds out for itself why the server is not there.
            return Arc::clone(self.0);
        }
        if self.0.eras.spoken() == Some(era) {
            self.0.eras.note_asked();
            return Arc::clone(self.0);
        }
        let Some(counterpart) = self.counterpart_in(era, core) else { return Arc::clone(self.0) };
        if counterpart.eras.spoken() == Some(era) {
            return counterpart;
        }
        match counterpart.ready(reason).await {
            Ok((_, session)) if session.revision.era() == era => {
                self.retire_unless_used();
                counterpart
            }
            Ok(_) => {
                *self.0.eras.setback() = Setback::Refused(self.0.starts());
                tracing::info!(
                    "`{}` does not speak {}; unhang translates for its clients",
                    self.0.name(),
                    words(era)
                );
                put_away(&counterpart);
                Arc::clone(self.0)
            }
            Err(error) => {
                let pause = self.0.spec.limits.breaker_cooldown;
                *self.0.eras.setback() = Setback::Failed(Instant::now() + pause);
                tracing::warn!(
                    "`{}` cannot be started for {} beside its other clients, so unhang translates for them: {error}",
                    self.0.name(),
                    words(era)
                );
                put_away(&counterpart);
                Arc::clone(self.0)
            }
        }
    }

    /// Returns the counterpart, which speaks this era or has not been asked for it. Makes it if there is none. Returns `None` if the server
    /// does not speak the era, or could not be started a moment ago.
    fn counterpart_in(self, era: Era, core: &Arc<GatewayCore>) -> Option<Arc<Backend>> {
        if self.has_refused(era) || self.is_set_back() {
            return None;
        }
        let counterpart = self.0.eras.counterpart.get_or_init(|| {
            let backend = Arc::new(Backend::counterpart_of(self.0, era, core.updates.clone()));
            if let Some(level) = core.level.get() {
                backend.level.lower_to(level);
            }
            let mut tasks = JoinSet::new();
            let (core, whose) = (Arc::downgrade(core), format!(" for {}", words(era)));
            tasks.spawn(keep_lists_while_running(Arc::clone(&backend), whose, move || {
                core.upgrade().map(|core| core.publish_to_sessions()).is_some()
            }));
            if let Some(idle) = backend.idle_timeout() {
                tasks.spawn(Arc::clone(&backend).rest_after(idle));
            }
            Counterpart { backend, tasks: Mutex::new(tasks) }
        });
        if self.0.connection().is_closed() {
            // The backend may have been closed before it had a counterpart.
            let _not_started = counterpart.backend.connection().close();
            return None;
        }
        Some(Arc::clone(&counterpart.backend))
    }

    fn is_set_back(self) -> bool {
        match *self.0.eras.setback() {
            Setback::None => false,
            Setback::Refused(start) => self.0.starts() == start,
            Setback::Failed(until) => Instant::now() < until,
        }
    }

    /// Opens the counterpart for sessions of this era, if the server is known to speak the other one. Returns at once.
    pub(super) fn open_for(self, era: Era, core: &Arc<GatewayCore>) {
        let speaks_other = self.0.eras.spoken() == Some(other(era));
        if !self.0.eras.follows_clients || !speaks_other || self.0.eras.counterpart_speaking(era).is_some() {
            return;
        }
        if self.0.eras.is_piped && self.0.eras.is_used(other(era)) {
            // A second process is for somebody who calls.
            return;
        }
        let Some(counterpart) = self.counterpart_in(era, core) else { return };
        if self.0.eras.is_opening.swap(true, Ordering::Relaxed) {
            return;
        }
        let (backend, core) = (Arc::clone(self.0), Arc::clone(core));
        tokio::spawn(async move {
            let mut opening = pin!(EraChoice(&backend).list_in(era, &core));
            if timeout(LIST_PATIENCE, opening.as_mut()).await.is_err() {
                counterpart.lists.note_late();
                core.publish_to_sessions();
                opening.await;
            }
            backend.eras.is_opening.store(false, Ordering::Relaxed);
            core.publish_to_sessions();
        });
    }

    /// Starts the counterpart and asks it for its lists.
    async fn list_in(self, era: Era, core: &Arc<GatewayCore>) {
        let speaking = self.in_other_era(era, core, StartReason::Listing).await;
        if !Arc::ptr_eq(self.0, &speaking)
            && let Err(error) = speaking.list().await
        {
            tracing::warn!("`{}` cannot be listed for {}: {error}", self.0.name(), words(era));
        }
    }

    /// Stops the process if no client of its era uses it, now that the counterpart is ready. Otherwise says once that there are two.
    fn retire_unless_used(self) {
        let Some(spoken) = self.0.eras.spoken().filter(|_| self.0.eras.is_piped) else {
            return;
        };
        if self.0.eras.is_used(spoken) {
            if !self.0.eras.is_told.swap(true, Ordering::Relaxed) {
                tracing::info!(
                    "`{}` runs in two processes from now on, one for clients of each era; set `era` to keep it to one",
                    self.0.name()
                );
            }
            return;
        }
        let backend = Arc::clone(self.0);
        tokio::spawn(async move { backend.rest_once_unwanted().await });
    }
}

/// Ends the process or connection of a counterpart that is not used. It starts again when it is asked.
fn put_away(counterpart: &Arc<Backend>) {
    let counterpart = Arc::clone(counterpart);
    tokio::spawn(async move { counterpart.rest_now().await });
}

/// Returns the word for an era in the configuration and in the status.
pub(super) fn word(era: Era) -> &'static str {
    match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

/// Names an era for people.
fn words(era: Era) -> &'static str {
    match era {
        Era::Legacy => "clients of 2025-11-25 and before",
        Era::Modern => "clients of 2026-07-28",
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, time::Duration};

    use tokio::sync::watch;
    use unhang_proc::{
        server::{LifelineCommand, ServerSpec},
        spawn::Environment,
    };

    use super::{
        super::{KnownServers, Servers, testing::mute},
        *,
    };
    use crate::route::catalog::ListedItems;
    use unhang_core::list::ServerList;
    use unhang_upstream::client::ServerListener;

    /// Makes the eras of a server behind a pipe, or over HTTP.
    fn eras(is_piped: bool, era: EraPolicy, open: &Arc<OpenSessions>) -> BackendEras {
        let (_mute, mut entry) = mute();
        entry.era = era;
        if is_piped {
            entry.spec.endpoint = Endpoint::Stdio(ServerSpec {
                program: OsString::from("false"),
                arguments: Vec::new(),
                environment: Environment::Exactly(Vec::new()),
                folder: None,
                grace: Duration::ZERO,
                stop_limit: Duration::ZERO,
                lifeline: LifelineCommand { program: "false".into(), arguments: Vec::new() },
            });
        }
        BackendEras::new(&entry, None, Arc::clone(open))
    }

    #[test]
    fn a_server_behind_a_pipe_is_greeted_in_the_era_of_the_sessions_if_they_are_of_one() {
        let of_client = EraPolicy::OfClient;
        for (is_piped, policy, sessions, greeting) in [
            (true, of_client, &[][..], Era::Modern),
            (true, of_client, &[Era::Legacy], Era::Legacy),
            (true, of_client, &[Era::Modern], Era::Modern),
            (true, of_client, &[Era::Legacy, Era::Modern], Era::Modern),
            (false, of_client, &[Era::Legacy], Era::Modern),
            (true, EraPolicy::Only(Era::Modern), &[Era::Legacy], Era::Modern),
            (false, EraPolicy::Only(Era::Legacy), &[Era::Modern], Era::Legacy),
        ] {
            let open = Arc::default();
            let entered: Vec<_> = sessions.iter().map(|era| OpenSessions::enter(&open, *era, 0)).collect();
            let eras = eras(is_piped, policy, &open);
            assert_eq!(eras.greeting(), greeting, "{is_piped} {policy:?} {sessions:?}");
            // It stays the same, whoever comes and goes.
            drop(entered);
            let _others = [Era::Legacy, Era::Modern].map(|era| open.enter(era, 0));
            assert_eq!(eras.greeting(), greeting);
        }
    }

    #[test]
    fn an_era_is_used_while_a_session_of_it_is_open_and_once_it_was_asked_in() {
        let open = Arc::default();
        let eras = eras(true, EraPolicy::OfClient, &open);
        assert!(!eras.is_used(Era::Modern));
        let session = open.enter(Era::Modern, 1);
        assert!(eras.is_used(Era::Modern) && !eras.is_used(Era::Legacy));
        drop(session);
        assert!(!eras.is_used(Era::Modern));
        eras.note_asked();
        assert!(eras.is_used(Era::Modern));
    }

    #[test]
    fn only_a_shared_server_is_asked_in_the_era_of_each_client() {
        let (_mute, entry) = mute();
        let follows =
            |entry: &ServerEntry, greeting| BackendEras::new(entry, greeting, Arc::default()).follows_clients;
        assert!(follows(&entry, None));
        assert!(!follows(&entry, Some(Era::Legacy)), "the instance of a session, and a counterpart");
        let per_session = ServerEntry { scope: Scope::Session, ..entry.clone() };
        let of_one_era = ServerEntry { era: EraPolicy::Only(Era::Modern), ..entry.clone() };
        assert!(!follows(&per_session, None) && !follows(&of_one_era, None));
        let mut leader = entry;
        if let Endpoint::Http(server) = &mut leader.spec.endpoint {
            server.address.socket = Some("/nowhere".into());
        }
        assert!(!follows(&leader, None), "it hears the era of each request");
    }

    #[tokio::test]
    async fn what_the_counterpart_announces_is_told_to_clients_of_its_era_and_to_windows() {
        let (_mute, entry) = mute();
        let servers = Servers::start(vec![entry].into());
        let backend = servers.core.roster().at(0).expect("it is there");
        backend.eras.note_spoken(Era::Modern);
        let counterpart = EraChoice(&backend).counterpart_in(Era::Legacy, &servers.core).expect("it is made");
        counterpart.eras.note_spoken(Era::Legacy);
        let announces = || {
            counterpart.listener.notified("notifications/tools/list_changed", None);
            let announced = counterpart.listener.take_announced();
            counterpart.lists.accept(ListedItems::default(), announced);
            servers.core.publish_to_sessions();
        };
        let [legacy, modern] = [Era::Legacy, Era::Modern].map(|era| {
            let session = servers.for_session(None);
            session.client_speaks(era);
            session
        });
        let windows = servers.for_windows();
        let mut known = [&legacy, &modern, &windows].map(Servers::known);
        let before = known.each_mut().map(|known| known.borrow_and_update().clone());
        announces();
        let hears = |known: &watch::Receiver<KnownServers>, before: &KnownServers| {
            known.borrow().announced.are_news_of(ServerList::Tools, &before.announced)
        };
        let heard: Vec<bool> =
            known.iter().zip(&before).map(|(known, before)| hears(known, before)).collect();
        assert_eq!(heard, [true, false, true], "its own clients hear of it at once, and others nothing");
        assert!(!known[1].has_changed().expect("it is there"), "nobody else is woken");
        // A session is not told of announcements that are older than the session, whichever lists it gets later.
        let late = servers.for_session(None);
        let (known, before) = (late.known(), late.known().borrow().clone());
        late.client_speaks(Era::Legacy);
        assert!(!hears(&known, &before));
        servers.close().await;
    }

    #[tokio::test]
    async fn the_first_session_is_waited_for_and_not_for_ever() {
        let open: Arc<OpenSessions> = Arc::default();
        open.until_first(Duration::from_millis(1)).await;
        let _session = open.enter(Era::Legacy, 2);
        timeout(Duration::from_secs(10), open.until_first(Duration::MAX)).await.expect("it is there");
    }
}
