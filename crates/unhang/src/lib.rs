//! **unhang**: the MCP runtime that cannot hang, as a library.
//!
//! A client and a server of the Model Context Protocol talk over pipes. Pipes that nobody drains, servers that never answer
//! and processes that outlive their owner make clients hang. This crate stands between the two and keeps eight promises
//! (see the README). The binary `unhang` is a thin shell over it.
//!
//! Rooms: [`guard`] is one client and one server; [`front`] is one client and the [`tools`] of ours; [`doctor`] examines a
//! server; [`gateway`] is many servers and [`sharing`] lets several processes have them together; [`route`] finds whose a name is; [`queue`], `fair`, [`breaker`], [`health`], `heartbeat` and [`session`] are the pure parts they are made of; [`fault`] is how errors are
//! told, and [`job_report`] how jobs are; [`promotion`] says when a slow call becomes one, and [`clients`] after how long clients give it up; [`config`] has every number that bounds something, [`limits`] those of one server, [`settings`] reads the configuration file, [`secrets`] keeps
//! what is secret in it out of what is shown, and [`oauth`] has the tokens of remote servers.
//!
//! A server of one's own, on whatever SDK, takes what it needs: [`jobs`] makes a slow tool a durable job, [`tools`] has the nine
//! tools with which an agent follows jobs, and [`direct`] runs closures that may hang. `examples/rmcp-server` of the repository
//! shows the first two.
//!
//! Invariants: this library touches no terminal, no process environment, no home folder and no global logger, and it never
//! exits. It emits [`tracing`] events and leaves it to the program what becomes of them.

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
pub use unhang_proc as process;
pub use unhang_tools::{self as tools, direct, job_report};
pub use unhang_upstream::client;

#[cfg(test)]
mod tests;
