//! The front: one MCP session over two pipes, in every revision of the protocol, with tools of unhang itself and servers behind it.
//!
//! Two halves, as in the guard. [`mcp_session::McpSession`] is pure: its owner reports events (a line, a tick, the end of a call), and it
//! answers with lines and actions. [`run()`] is the thin shell that owns the descriptors, the clock and a task for each call. Behind the
//! tools is a [`Toolbox`](unhang_tools::Toolbox).
//!
//! Invariants
//! - Every request gets exactly one response, or was withdrawn by the client, whatever the tools do (promise 1).
//! - Each call is a task of its own: a call that is slow, stuck or panics delays no other (promise 8).
//! - The queue to a client that does not read is bounded (promise 3).
//! - Nothing in the session waits. The shell awaits reads, clocks and tasks, never a write.

mod answers;
mod asking;
mod call_tasks;
mod call_terms;
mod client_request;
mod effects;
mod followed;
pub mod http;
mod jobs;
mod local_job_server;
pub mod mcp_session;
mod outcomes;
mod owners;
mod parked_calls;
mod promotion;
mod questions;
mod requests;
mod run;
mod session_calls;
mod session_catalog;
mod session_context;
mod session_inbox;
mod session_profile;
mod session_runtime;
mod session_watches;
mod subscriptions;
mod tally;
mod tasks;
mod time;
mod traces;
mod unlisted;
mod urls;
mod window_questions;

#[cfg(test)]
mod tests;

pub use jobs::SessionJobs;
pub use local_job_server::LocalJobServer;
pub use promotion::PromotionReply;
pub use run::{FrontSpec, SessionEndHook, run};
pub use session_catalog::listed;
pub use tasks::job_of;
pub use unhang_core::revision::Revision;
