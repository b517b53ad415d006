//! **unhang**: the MCP runtime that cannot hang, as a library.
//!
//! A client and a server of the Model Context Protocol talk over pipes. Clients hang if nobody drains a pipe, if a server never answers, or
//! if a process outlives its owner. This crate stands between the two and keeps eight promises (see the README). The binary `unhang` is a
//! thin shell over it.
//!
//! The parts:
//!
//! - [`guard`] is one client and one server; [`front`] is one client and the [`tools`] of unhang; [`doctor`] examines a server.
//! - [`gateway`] puts many servers behind one list, [`sharing`] lets several processes share them, and [`route`] finds the owner of a name.
//! - [`queue`], `fair`, [`breaker`], [`health`], `heartbeat` and [`session`] are the pure parts of these.
//! - [`fault`] words errors and [`job_report`] words jobs.
//! - [`promotion`] decides when a slow call becomes a job, and [`clients`] knows after how long clients give a call up.
//! - [`config`] has every bound, and [`limits`] has those of one server.
//! - [`settings`] reads the configuration file, [`secrets`] keeps its secrets out of all output, and [`oauth`] has the tokens of remote
//!   servers.
//!
//! - With the feature `postgres`, [`jobs`] can be in a database that many machines share, and a `worker` runs them.
//!
//! A server built on any SDK can use three of them: [`jobs`] makes a slow tool a durable job, [`tools`] has the nine tools with which an
//! agent follows jobs, and [`direct`] runs closures that may hang. `examples/rmcp-server` of the repository shows the first two.
//!
//! Invariants: this library touches no terminal, no process environment, no home folder and no global logger, and it never exits. It
//! emits [`tracing`] events, and the program decides what to do with them.

pub mod settings;
pub mod sharing;

pub use unhang_background as promoted;
pub use unhang_core::{
    breaker, clients, config, exit, fault, health, limits, notices, promotion, queue, secrets, session,
    telemetry, units, wording,
};
pub use unhang_doctor as doctor;
pub use unhang_front as front;
pub use unhang_gateway::{self as gateway, route};
pub use unhang_guard as guard;
pub use unhang_jobs as jobs;
pub use unhang_net::oauth;
#[cfg(feature = "postgres")]
pub use unhang_postgres as postgres;
pub use unhang_proc as process;
pub use unhang_tools::{self as tools, direct, job_report};
pub use unhang_upstream::client;
#[cfg(feature = "postgres")]
pub use unhang_worker as worker;

#[cfg(test)]
mod tests;
