//! Servers that many sessions share. Each is started once, or once for each session, is fenced off from the others, and answers whichever
//! session asks it.
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
//! - A server has one process or connection for each era that its clients speak, however many sessions ask it. A server that keeps state
//!   of its client has one for each session.
//! - A server that cannot be started, hangs or dies costs those who ask it an error, and nobody else anything.
//! - A server that is away stays listed: it comes back when it is asked.

mod admission_limits;
mod backend;
mod busy_poll;
mod caller_errors;
mod connection;
mod dispatch;
mod eras;
mod gateway_core;
mod idle;
mod instance_limit;
mod instances;
mod known_servers;
mod lifecycle;
mod list_announcements;
mod list_fetch;
mod list_keeper;
mod list_refresh;
mod list_rounds;
mod list_store;
mod lists;
mod log_level;
mod notification_listener;
mod open_sessions;
mod owners;
mod permits;
pub(crate) mod request_metrics;
mod request_timeouts;
mod resource_watches;
mod roster;
pub mod route;
mod serial_work;
mod server_task;
mod server_tasks;
mod servers;
mod session_inboxes;
mod session_registry;
mod session_servers;
mod session_turns;
mod start_turns;
mod status;
mod stream_outlook;
mod task_callers;
mod task_fate;
mod task_looks;
mod task_news;
mod task_questions;
mod tasks;
mod verdicts;
mod waiting_requests;
mod window_errors;
mod window_jobs;

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
pub use unhang_bridge::Era;
use unhang_bridge::params::Signature;

pub use self::{
    caller_errors::MayRead,
    eras::EraPolicy,
    known_servers::{KnownServers, UnlistedServer},
    list_announcements::KnownAnnouncements,
    list_store::ListStore,
    log_level::Level,
    owners::{LeaderServer, LeaderServers, leader_lost},
    request_timeouts::{JoinPolicy, RequestTimeouts},
    resource_watches::{ResourceUpdate, Watch},
    roster::RosterChange,
    server_task::{ServerTask, has_room},
    servers::{CalledServer, Servers},
    session_inboxes::OpenWindow,
    session_servers::WatchChanges,
    status::{BreakerState, BreakerStatus, ServerState, ServerStatus},
    stream_outlook::{AnswerOutlook, StreamedCall},
    task_news::{KnownTask, TaskNews},
    window_jobs::{is_leader, job_of_leader},
};
use crate::route::{names::Style, rules::ToolRules};
use unhang_core::{
    clients::Clocks,
    config::{MAX_IN_FLIGHT_OF_ALL, MAX_INSTANCES, MAX_WAITING_OF_ALL},
    notices::Notices,
    secrets::Secrets,
    telemetry::Trace,
};
use unhang_upstream::{
    client::{ClientSpec, Error},
    window_job::WindowCallName,
};

/// One server of a gateway.
#[derive(Clone)]
pub struct ServerEntry {
    /// The way to the server. The gateway puts its own listener in.
    pub spec: ClientSpec,
    /// Who shares the server.
    pub scope: Scope,
    /// The eras in which the server may be asked.
    pub era: EraPolicy,
    /// The beginning of the public names of its tools and prompts.
    pub prefix: String,
    /// Which of its tools are offered, and how.
    pub tool_rules: ToolRules,
    /// The time without a request after which the server is stopped until the next one. The server stays if this is `None`.
    pub idle_timeout: Option<Duration>,
    /// The most instances that all who share the server have of it, for each era. With more than one, each has one request at a time.
    pub instances: usize,
    /// Texts that must not show in anything that the server writes.
    pub secrets: Secrets,
    /// The configuration of this entry, in any words. If the text stays the same in a new configuration, the server goes on as it is.
    pub made_from: String,
    /// The store that keeps the server's lists for the next run. Nothing is kept if this is `None`.
    pub memory: Option<ListStore>,
    /// The servers behind this one with their timeouts, if this is a gateway that names the owners of its tools.
    pub behind: Option<Arc<LeaderServers>>,
}

/// Who shares a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Everybody, windows that share servers included.
    #[default]
    Everybody,
    /// Everybody whom this process serves; if that is one client, the server is its own.
    Process,
    /// Nobody: each session has an instance of its own.
    Session,
}

/// The bounds on all servers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Requests with all servers, and requests that wait for that.
    pub requests: Bounds,
    /// Instances of servers of which each session has its own, of all sessions together.
    pub instances: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        let requests = Bounds { permits: MAX_IN_FLIGHT_OF_ALL, room: MAX_WAITING_OF_ALL };
        Self { requests, instances: MAX_INSTANCES }
    }
}

/// The servers that a gateway is to have.
#[derive(Clone, Default)]
pub struct ServerSet {
    /// The servers, in the order of the configuration.
    pub entries: Vec<ServerEntry>,
    /// The way public names are made.
    pub style: Style,
    /// The names of tools of ours, which no server's tool can have.
    pub own: Vec<String>,
    /// The bounds on all servers together.
    pub capacity: Capacity,
    /// The clocks of the clients that ask.
    pub clocks: Clocks,
    /// Takes the notice that a server cannot be started.
    pub notices: Notices,
    /// Whether a client is about to begin a session, in whose era servers behind pipes can be greeted.
    pub awaits_client: bool,
}

impl ServerSet {
    /// Reads from the disk the lists that these servers had in the last run, so that the servers start with them. Waits for a moment at
    /// most; lists that were not read by then are not known.
    pub async fn read_ahead(&self) {
        list_store::read_ahead(self.entries.iter().filter_map(|entry| entry.memory.clone()).collect()).await;
    }
}

impl From<Vec<ServerEntry>> for ServerSet {
    fn from(entries: Vec<ServerEntry>) -> Self {
        ServerSet { entries, ..ServerSet::default() }
    }
}

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRequest {
    /// The index of the server.
    pub server: usize,
    /// The method.
    pub method: &'static str,
    /// The params: an object as JSON, in the server's own names and the client's era.
    pub params: Arc<str>,
    /// The client's era.
    pub client: Era,
    /// The client's own description from the beginning of its session, if it has a session.
    pub signature: Option<Arc<Signature>>,
    /// Whether the client wants progress notifications.
    pub wants_progress: bool,
    /// The tool that is called, by the server's name for it.
    pub tool: Option<String>,
    /// Whether the caller can wait for a task to end, so that the gateway may ask the server for one.
    pub may_wait: bool,
    /// Whether the caller has asked for a task in the way of 2025-11-25, so that the gateway declares tasks for it.
    pub wants_a_task: bool,
    /// The limit on the whole time, from the arrival of the request.
    pub limit: Duration,
    /// The time that the request has waited already.
    pub waited: Duration,
    /// The URI that the request is about, as JSON.
    pub asked_for: Option<String>,
    /// The client that asks, for fairness towards others.
    pub fairness_key: FairnessKey,
    /// The session that asks, if a session does.
    pub session: Option<OfSession>,
    /// The name by which a leading window is told to make a job of the call; `None` if no job may be made of it.
    pub window_call: Option<WindowCallName>,
    /// The order to make a job of the call before its server gets it, as a leading window reads it in a header; `None` if there is none.
    pub job_order: Option<Arc<str>>,
    /// The trace that the request belongs to, if somebody wants to see it.
    pub trace: Option<Trace>,
}

/// The outcome of a [`ServerRequest`].
#[derive(Clone, Debug)]
pub struct ServerAnswer {
    /// The server's era.
    pub era: Era,
    /// The server's name and version as JSON, if the result has to carry them and does not.
    pub server_info: Option<String>,
    /// The result as received, or why there is none.
    pub outcome: Result<Box<RawValue>, Error>,
    /// The URI that the request was about, as JSON.
    pub asked_for: Option<String>,
}

impl ServerAnswer {
    /// Returns whether the server itself has answered, with a result or an error.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        matches!(self.outcome, Ok(_) | Err(Error::Server(_)))
    }
}

pub use unhang_core::fair::{Bounds, FairnessKey};
pub use unhang_upstream::ProgressSender;
pub use unhang_upstream::question::{OfSession, OpenServerQuestion, Replied, SessionKey, SideMessage};

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
