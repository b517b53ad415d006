//! Tools of our own: commands from the configuration file, and the nine with which an agent follows jobs and keeps state.
//!
//! ```text
//! front ─ Table ─ arguments checked ─┬ Declared ─ template filled ─ JobService::submit ─ the id, or the outcome
//!                                    └ Builtin ─ one question to the JobService
//! ```
//!
//! Invariants
//! - Arguments are checked before anything is done with them; no command passes through a shell.
//! - Whatever goes wrong is an answer that says what to do, and never ends the session.
//! - Answers are bounded, and what is left out of one is said.

mod arguments;
mod builtin;
mod declared;
mod definition;
mod engine;
mod policy;
mod schemas;
pub mod service;
mod table;
mod telling;
pub(crate) mod template;

#[cfg(test)]
mod tests;

pub use arguments::ArgumentSchema;
pub use definition::{Definition, Hints, ToolAnswer};
pub use engine::EngineService;
pub use policy::ModeOverrides;
pub(crate) use schemas::started as handed_over_schema;
pub use table::{CurrentTable, Table};
pub(crate) use telling::handed_over;
pub use template::{Template, Word};
