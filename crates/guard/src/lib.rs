//! The guard: one client and one stdio server, and nothing that can hang between them.
//!
//! It consists of two halves. [`wrap_session::WrapSession`] is pure: it is told each event (a line from either side, a clock tick, an exit)
//! and answers with lines to write and actions to take. [`run()`] is the thin shell that owns the descriptors, the process and the clock.
//! The session can run without a process, which is how it is fuzzed.
//!
//! Invariants
//! - Every request that the client sends is answered exactly once, or withdrawn by the client (promise 1).
//! - Payload bytes are forwarded as they came, with two exceptions. An id is replaced if it would be ambiguous. The number of a server's
//!   progress is replaced if it would not be higher than that of our heartbeat.
//! - If calls become jobs (`added_capabilities`), our additions stand beside the server's description of itself and of its tools. A task
//!   that a client asks for is then between the client and the guard.
//! - Nothing in the session waits. The shell awaits reads, clocks and events, never a write.

mod added_capabilities;
mod answers;
mod call_report;
mod calls;
mod client_profile;
mod counters;
mod deferred_notifications;
mod effects;
mod from_client;
mod from_server;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod held_input;
mod job_bridge;
mod local_jobs;
mod own_requests;
mod process_effects;
mod progress;
mod promotion;
mod questions;
mod relays;
mod run;
mod server_breaker;
mod session_phase;
mod stray_answers;
mod supervision;
mod tool_list;
mod wrap_request;
pub mod wrap_session;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use job_bridge::{OpenJobs, UnopenedJobs};
pub use run::{GuardSpec, run};
pub use unhang_core::shell::Stop;
