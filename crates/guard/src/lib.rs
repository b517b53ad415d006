//! The guard: one client and one stdio server, and nothing that can hang between them.
//!
//! An assembly of two halves. [`wrap_session::WrapSession`] is pure: it is told what happened (a line from either side, a clock
//! tick, an exit) and answers with what is to be written and done. [`run()`] is the thin shell that owns the
//! descriptors, the process and the clock. The session can be driven without a process, which is how it is fuzzed.
//!
//! Invariants
//! - Every request that the client sends is answered exactly once, or withdrawn by the client (promise 1).
//! - Payload bytes are forwarded as they came; only an id is ever replaced, and only where it would be ambiguous, and the number of a
//!   server's progress, where it would be no step forward from a heartbeat of ours. Where calls become jobs (`added_capabilities`), what is ours stands
//!   beside what the server says of itself and of its tools, and a task that a client wants is between the two of us.
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
pub mod wrap_session;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use job_bridge::OpenJobs;
pub use run::{GuardSpec, run};
pub use unhang_core::shell::Stop;
