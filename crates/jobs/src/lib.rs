//! Durable background jobs: a command that answers at once with an id, outlives whoever started it, and is never lost.
//!
//! This room knows nothing of MCP.

pub mod document;
pub mod engine;
pub mod error;
pub mod folder;
pub mod id;
mod judge;
mod launch;
pub mod log;
pub mod moment;
pub mod progress;
pub mod record;
pub mod room;
mod settle;
pub mod shim;
pub mod shims;
pub mod store;
pub mod submission;
pub mod verdict;
mod wait;
