//! Servers that many sessions share: each started once, or once for each session, fenced off from the others, and asked by whoever wants
//! something of it.
//!
//! ```text
//! front ─ Asked ─ Servers (SessionServers) ─ Backend ─┬ Breaker   whether it may be started
//!                                            └ Client ─ upstream
//! front ◄─ ServerAnswer ─────────────────────────┘
//! front ◄─ KnownServers (watched) ◄─ Catalog ◄─ lists of all ◄─ one task a server, which asks again when they change
//! ```
//!
//! Invariants
//!
//! - One process or connection a server, however many sessions ask it; of one that keeps state of its client, one for each session.
//! - A server that cannot be started, hangs or dies costs those who ask it an error, and nobody else anything.
//! - What was listed stays listed while a server is away: it comes back when it is asked.

mod admission_limits;
mod backend;
mod busy_poll;
mod connection;
mod idle;
mod instance_limit;
mod known;
mod lasting;
mod lifecycle;
mod line;
mod list_store;
mod lists;
mod log_level;
mod notification_listener;
mod owners;
mod patience;
mod permits;
mod put;
mod resource_watches;
mod roster;
pub mod route;
mod session_servers;
mod status;
pub(crate) mod tally;
mod tasks;
mod together;
mod told;
mod verdicts;

use std::{
    collections::HashMap,
    future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, broadcast, mpsc, watch},
    task::JoinSet,
    time::timeout,
};
use unhang_bridge::{Era, params::Signature, tools::is_repeatable};
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;
use unhang_wire::{Json, text_member};

use self::{
    backend::Backend,
    busy_poll::Vigil,
    instance_limit::InstanceLimit,
    log_level::RequestedLevel,
    permits::PermitQueue,
    put::put,
    roster::Roster,
    session_servers::{SessionServers, Visits},
    tally::{CountedRequest, Tally},
    told::tell_absence,
};
pub use self::{
    known::{Absent, KnownServers},
    list_store::ListStore,
    log_level::Level,
    owners::{Behind, BehindOne},
    patience::{Joining, RequestPatience},
    resource_watches::{Updated, Watch},
    roster::Change,
    session_servers::Changes,
    status::{BreakerState, BreakerStatus, ServerState, ServerStatus},
    told::MayRead,
};
pub use self::{
    lasting::{KnownTask, ServerTask, TaskNews, has_room},
    owners::leader_lost,
};
use crate::route::{names::Style, rules::ToolRules};
use unhang_core::{
    clients::Clocks,
    config::{DISPOSE_LIMIT, LIST_PATIENCE, MAX_IN_FLIGHT_OF_ALL, MAX_INSTANCES, MAX_WAITING_OF_ALL},
    notices::Notices,
    secrets::Secrets,
    telemetry::{Subject, Trace},
};
use unhang_upstream::client::{ClientSpec, Error};

/// Servers that start at the same time. Each keeps a processor busy, and all at once are late together.
const STARTS: usize = 4;
/// Changes of resources that a session may not have heard of yet; older ones it misses.
const UPDATES: usize = 1024;
/// For how long others are kept from starting by one that does.
const START_TURN: Duration = Duration::from_secs(3);

/// One server of a gateway.
#[derive(Clone)]
pub struct ServerEntry {
    /// How it is reached. Its listener is replaced.
    pub spec: ClientSpec,
    /// Who has it.
    pub scope: Scope,
    /// What the names of its tools and prompts begin with.
    pub prefix: String,
    /// Which of its tools are offered, and how.
    pub tool_rules: ToolRules,
    /// After how long without a request it is stopped until the next one; it stays where this says nothing.
    pub idle_timeout: Option<Duration>,
    /// What is not to be shown of what it writes.
    pub secrets: Secrets,
    /// What all of this was made from, in any words: while they stay the same in a new configuration the server goes on as it is.
    pub made_from: String,
    /// Where it is kept what it offers, for the next run; nowhere where this says nothing.
    pub memory: Option<ListStore>,
    /// How long those are waited for that are behind it, where it is a gateway that says whose its tools are.
    pub behind: Option<Arc<Behind>>,
}

/// Who has a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Everybody together, windows that share servers included.
    #[default]
    Everybody,
    /// Whoever this process serves, together: where that is one client, it is the client's own.
    Process,
    /// Each session has an instance of its own.
    Session,
}

/// What the servers have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Requests with all of them, and those that wait for that.
    pub requests: Bounds,
    /// Instances of those of which each session has its own, of all sessions.
    pub instances: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        let requests = Bounds { places: MAX_IN_FLIGHT_OF_ALL, room: MAX_WAITING_OF_ALL };
        Self { requests, instances: MAX_INSTANCES }
    }
}

/// The servers that there are to be.
#[derive(Clone, Default)]
pub struct Lineup {
    /// In the order of the configuration.
    pub entries: Vec<ServerEntry>,
    /// How names are made.
    pub style: Style,
    /// The names of tools of ours, which no server's tool can have.
    pub own: Vec<String>,
    /// What they have together.
    pub capacity: Capacity,
    /// The clocks of those who ask them.
    pub clocks: Clocks,
    /// Where it is said that a server cannot be started.
    pub notices: Notices,
}

impl Lineup {
    /// Has what these servers offered in the last run read from the disk, so that those that are started find it. Waits for a moment at
    /// most; what was not read by then is not known.
    pub async fn read_ahead(&self) {
        list_store::read_ahead(self.entries.iter().filter_map(|entry| entry.memory.clone()).collect()).await;
    }
}

impl From<Vec<ServerEntry>> for Lineup {
    fn from(entries: Vec<ServerEntry>) -> Self {
        Lineup { entries, ..Lineup::default() }
    }
}

/// What a server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRequest {
    /// Its place.
    pub server: usize,
    /// The method.
    pub method: &'static str,
    /// What it is asked with, an object as JSON, in the server's own names and the client's era.
    pub params: Arc<str>,
    /// The client's era.
    pub client: Era,
    /// What the client has said of itself at the beginning of its session, where it has one.
    pub signature: Option<Arc<Signature>>,
    /// Whether progress is to be told.
    pub wants_progress: bool,
    /// The tool that is called, as the server calls it.
    pub tool: Option<String>,
    /// Its caller can wait for as long as that, so that the server may go on with it as a task.
    pub may_wait: bool,
    /// How long it may take, from when it came.
    pub limit: Duration,
    /// For how long it has waited already.
    pub waited: Duration,
    /// The URI that it is about, as JSON.
    pub asked_for: Option<String>,
    /// Who asks, where others want their turn as well.
    pub fairness_key: FairnessKey,
    /// The session that asks, where it is one.
    pub session: Option<OfSession>,
    /// The trace that it belongs to, where somebody wants to see it.
    pub trace: Option<Trace>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct ServerAnswer {
    /// The server's era.
    pub era: Era,
    /// What the server calls itself, as JSON, where a result has to say it that does not.
    pub server_info: Option<String>,
    /// The result as received, or why there is none.
    pub outcome: Result<Box<RawValue>, Error>,
    /// The URI that it was about, as JSON.
    pub asked_for: Option<String>,
}

pub use unhang_core::fair::{Bounds, FairnessKey};
pub use unhang_upstream::question::{OfSession, OpenServerQuestion, Replied, SessionKey, SideMessage};

/// The newest progress of a request.
pub type Progress = watch::Sender<Option<Box<RawValue>>>;

/// The servers behind a gateway. Clones are the same servers; when all have gone, so have the servers.
#[derive(Clone)]
pub struct Servers {
    shared: Arc<Shared>,
    /// For each server, by its place: one that keeps its lists, and one that stops it when nobody wants it, where that is wanted.
    keepers: Arc<Mutex<HashMap<usize, JoinSet<()>>>>,
    /// Who asks, where it is not whoever looks after them.
    session_servers: Option<Arc<SessionServers>>,
}

/// A server whose tool is called.
pub struct CalledServer(Arc<Backend>);

impl CalledServer {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// What tells it from what it was before in another configuration, and an instance of one session from those of others.
    pub fn instance(&self) -> [u8; 8] {
        self.0.instance_key()
    }

    /// Whether this tool of its may be called once more without doing anything twice. Goes through all of its tools.
    pub fn is_repeatable(&self, tool: &str) -> bool {
        self.0.offered().tools.iter().any(|raw| {
            let Some(raw) = Json::new(raw.get().as_bytes()) else { return false };
            text_member(raw, "name").is_some_and(|name| name == tool) && is_repeatable(raw)
        })
    }
}

/// What the keepers need. They do not keep themselves alive.
struct Shared {
    roster: Mutex<Roster>,
    known: watch::Sender<KnownServers>,
    updates: broadcast::Sender<Updated>,
    starts: Arc<Semaphore>,
    visits: Mutex<Visits>,
    /// Of the instances that sessions have.
    instance_limit: Arc<InstanceLimit>,
    /// From which level on somebody has asked them to log.
    level: RequestedLevel,
    /// Requests with all of them together.
    all: Arc<PermitQueue>,
    busy_poll: Arc<Vigil>,
    notices: Notices,
}

impl Servers {
    /// Starts all of them and returns at once. Must be called in a runtime. What they offered in the last run they offer at once where it
    /// was read before, by [`Lineup::read_ahead`].
    #[must_use]
    pub fn start(lineup: Lineup) -> Self {
        let (updates, _) = broadcast::channel(UPDATES);
        let shared = Arc::new(Shared {
            roster: Mutex::default(),
            known: watch::Sender::default(),
            updates,
            starts: Arc::new(Semaphore::new(STARTS)),
            visits: Mutex::default(),
            instance_limit: InstanceLimit::new(lineup.capacity.instances),
            level: RequestedLevel::default(),
            all: PermitQueue::new(lineup.capacity.requests),
            busy_poll: Arc::default(),
            notices: lineup.notices.clone(),
        });
        let servers = Self { shared, keepers: Arc::default(), session_servers: None };
        servers.replace(lineup);
        servers
    }

    /// From now on they have so much together. Nobody loses what they have by that.
    fn bound(&self, capacity: Capacity) {
        self.shared.all.bound(capacity.requests);
        self.shared.instance_limit.bound(capacity.instances);
    }

    /// How many requests wait because all of them together have as many as they may.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.all.waiting()
    }

    /// Has a server tell of a resource, for as long as the watch is kept; once, however many want to hear of it.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn watch(&self, server: usize, uri: Arc<str>, limit: Duration) -> Result<Watch, Error> {
        let backend = self.at(server).ok_or(Error::Disposed)?;
        let waited = Arc::clone(&backend);
        let _use = waited.used();
        let watched = Deadline::after(limit).timeout(Watch::begin(backend, uri, limit)).await;
        let watched = watched
            .unwrap_or_else(|_| Err(verdicts::still_starting(waited.name(), "resources/subscribe", limit)));
        waited.told_of_owner(None, watched.map_err(|error| self.may_read().error(&waited, error)))
    }

    /// The server at this place, for whoever wants to know more of it later, whatever the configuration has become by then.
    pub fn whose(&self, place: usize) -> Option<CalledServer> {
        self.at(place).map(CalledServer)
    }

    /// How they are, in their order.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        let (current, instances) = {
            let roster = self.shared.roster();
            (roster.current.clone(), roster.instances.clone())
        };
        let of = |place| -> Vec<Arc<Backend>> {
            instances.iter().filter(|instance| instance.place() == place).map(Arc::clone).collect()
        };
        current.iter().map(|backend| backend.status(&of(backend.place()))).collect()
    }

    /// What came of what clients asked of them, in their order, each with its name.
    pub fn tallies(&self) -> Vec<(String, Arc<Tally>)> {
        let current = self.shared.current().into_iter();
        current.map(|backend| (backend.name().to_owned(), Arc::clone(&backend.tally))).collect()
    }

    /// Asks one of them. Whoever stops waiting withdraws the request.
    pub fn ask(
        &self,
        asked: ServerRequest,
        progress: Option<Progress>,
        asides: Option<mpsc::Sender<SideMessage>>,
    ) -> impl Future<Output = ServerAnswer> + Send + use<> {
        self.ask_and_hear(asked, progress, asides, None)
    }

    /// The same for whoever wants to hear of the task with which a server goes on with a call.
    pub fn ask_and_hear(
        &self,
        asked: ServerRequest,
        progress: Option<Progress>,
        asides: Option<mpsc::Sender<SideMessage>>,
        news: Option<TaskNews>,
    ) -> impl Future<Output = ServerAnswer> + Send + use<> {
        let backend = self.at(asked.server);
        let (all, busy_poll) = (Arc::clone(&self.shared.all), Arc::clone(&self.shared.busy_poll));
        let may_read = self.may_read();
        async move {
            busy_poll.heard();
            let Some(backend) = backend else {
                let ServerRequest { client: era, asked_for, .. } = asked;
                return ServerAnswer { era, server_info: None, outcome: Err(Error::Disposed), asked_for };
            };
            let counted = CountedRequest::begin(Arc::clone(&backend.tally), asked.method);
            let span = asked.trace.as_ref().map(|trace| {
                let subject =
                    Subject { method: asked.method, tool: asked.tool.as_deref(), ..Subject::default() };
                trace.server(backend.name(), &subject)
            });
            let tool = asked.tool.clone().filter(|_| backend.is_gateway());
            let mut answered = put(&backend, &all, asked, progress, asides, news).await;
            answered.outcome = backend.told_of_owner(tool.as_deref(), answered.outcome);
            busy_poll.heard();
            counted.ended(&answered.outcome);
            if let Some(span) = span {
                span.ended(&answered.outcome);
            }
            may_read.told(&backend, answered)
        }
    }

    /// Keeps this thread awake while requests and answers follow one another closely, unless there is one processor only: whoever is
    /// awaited needs it. For a runtime that has one thread. Never ends.
    pub async fn stay_awake(&self) {
        match thread::available_parallelism() {
            Ok(processors) if processors.get() > 1 => self.shared.busy_poll.keep().await,
            _ => future::pending().await,
        }
    }

    /// Ends all of them, and waits for that as long as it may take.
    pub async fn close(&self) {
        let all = self.shared.roster().close();
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let deadline = Deadline::after(DISPOSE_LIMIT);
        let mut ends = JoinSet::new();
        for backend in all {
            ends.spawn(async move { backend.close(deadline).await });
        }
        // One that panics keeps no other from its end.
        while ends.join_next().await.is_some() {}
    }
}

/// Keeps the lists of one server: asks for them when it has started, and again when they change.
async fn keep(shared: Arc<Shared>, backend: Arc<Backend>) {
    let (mut is_told, mut last) = (false, String::new());
    loop {
        // It is never closed.
        let turn = Arc::clone(&shared.starts).acquire_owned().await.ok();
        let mut work = pin!(backend.list());
        let listed = {
            let mut listing = pin!(in_turn(turn, work.as_mut()));
            match backend.lists.are_settled() {
                true => listing.await,
                // Lists that clients ask for wait for it, all of them together for so long.
                false => match timeout(LIST_PATIENCE, listing.as_mut()).await {
                    Ok(listed) => listed,
                    Err(_) => {
                        backend.lists.note_late();
                        shared.publish();
                        listing.await
                    }
                },
            }
        };
        if listed.is_ok() && backend.scope() == Scope::Session && stands("listing-leaves-nothing-running") {
            // It has said what its instances offer.
            backend.rest_now().await;
        }
        // It is tried again and again, and may fail in the same way each time.
        let why = listed.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if !why.is_empty() && why != last {
            tracing::warn!("`{}` cannot be listed: {why}", backend.name());
        }
        last = why;
        is_told = tell_absence(&shared.notices, &backend, listed.as_ref().err(), is_told);
        shared.publish();
        backend.until_changed(listed.is_ok()).await;
    }
}

/// Does what keeps a processor busy, as one of few who may at the same time.
async fn in_turn<T>(turn: Option<OwnedSemaphorePermit>, mut work: Pin<&mut impl Future<Output = T>>) -> T {
    let Some(turn) = turn else { return work.await };
    match timeout(START_TURN, &mut work).await {
        Ok(done) => done,
        // One that hangs keeps no other from its start.
        Err(_) => {
            drop(turn);
            work.await
        }
    }
}

impl Shared {
    /// Those of the configuration.
    fn current(&self) -> Vec<Arc<Backend>> {
        self.roster().current.clone()
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
