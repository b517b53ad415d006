//! Servers that many sessions share: each started once, or once for each session, fenced off from the others, and asked by whoever wants
//! something of it.
//!
//! ```text
//! front ─ ServerRequest ─ Servers (SessionServers) ─ Backend ─ ServerConnection ─┬ Breaker   whether it may be started
//!                                                                                └ Client ─ upstream
//! front ◄─ ServerAnswer ◄─────────────────────────────────────────────────────────┘
//! front ◄─ KnownServers (watched) ◄─ Catalog ◄─ ServerLists of all ◄─ one task a server, which asks again when they change
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
mod caller_errors;
mod connection;
mod dispatch;
mod gateway_core;
mod idle;
mod instance_limit;
mod known_servers;
mod lifecycle;
mod list_keeper;
mod list_store;
mod lists;
mod log_level;
mod notification_listener;
mod owners;
mod permits;
pub(crate) mod request_metrics;
mod request_timeouts;
mod resource_watches;
mod roster;
pub mod route;
mod server_task;
mod server_tasks;
mod servers;
mod session_registry;
mod session_servers;
mod session_turns;
mod start_turns;
mod status;
mod task_news;
mod tasks;
mod verdicts;
mod waiting_requests;

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use unhang_bridge::{Era, params::Signature};

pub use self::{
    caller_errors::MayRead,
    known_servers::{KnownServers, UnlistedServer},
    list_store::ListStore,
    log_level::Level,
    owners::{LeaderServer, LeaderServers, leader_lost},
    request_timeouts::{JoinPolicy, RequestTimeouts},
    resource_watches::{ResourceUpdate, Watch},
    roster::RosterChange,
    server_task::{ServerTask, has_room},
    servers::{CalledServer, Servers},
    session_servers::WatchChanges,
    status::{BreakerState, BreakerStatus, ServerState, ServerStatus},
    task_news::{KnownTask, TaskNews},
};
use crate::route::{names::Style, rules::ToolRules};
use unhang_core::{
    clients::Clocks,
    config::{MAX_IN_FLIGHT_OF_ALL, MAX_INSTANCES, MAX_WAITING_OF_ALL},
    notices::Notices,
    secrets::Secrets,
    telemetry::Trace,
};
use unhang_upstream::client::{ClientSpec, Error};

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
    pub behind: Option<Arc<LeaderServers>>,
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
        let requests = Bounds { permits: MAX_IN_FLIGHT_OF_ALL, room: MAX_WAITING_OF_ALL };
        Self { requests, instances: MAX_INSTANCES }
    }
}

/// The servers that there are to be.
#[derive(Clone, Default)]
pub struct ServerSet {
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

impl ServerSet {
    /// Has what these servers offered in the last run read from the disk, so that those that are started find it. Waits for a moment at
    /// most; what was not read by then is not known.
    pub async fn read_ahead(&self) {
        list_store::read_ahead(self.entries.iter().filter_map(|entry| entry.memory.clone()).collect()).await;
    }
}

impl From<Vec<ServerEntry>> for ServerSet {
    fn from(entries: Vec<ServerEntry>) -> Self {
        ServerSet { entries, ..ServerSet::default() }
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
pub use unhang_upstream::ProgressSender;
pub use unhang_upstream::question::{OfSession, OpenServerQuestion, Replied, SessionKey, SideMessage};

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
