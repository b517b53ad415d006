//! Tools of our own: commands from the configuration file, and the nine with which an agent follows jobs and keeps state.
//!
//! ```text
//! front ─ Table ─ arguments checked ─┬ Declared ─ template filled ─ JobService::submit ─ the id, or the outcome
//!                                    └ Builtin ─ one question to the JobService
//! ```
//!
//! Invariants
//! - Arguments are checked before anything is done with them; no command passes through a shell.
//! - A failure is an answer that says what to do, and never ends the session.
//! - Answers are bounded, and an answer says what is left out of it.

pub mod answer_text;
mod arguments;
mod builtin;
mod declared;
mod definition;
pub mod direct;
pub mod job_report;
mod policy;
mod schemas;
pub mod service;
mod settings;
pub mod template;
mod tool_table;
pub mod toolbox;

#[cfg(test)]
mod tests;

pub use answer_text::handed_over;
pub use arguments::ArgumentSchema;
pub use definition::{Definition, Hints, ToolAnswer, ToolListing};
pub use policy::ModeOverrides;
pub use schemas::started as handed_over_schema;
pub use settings::{Mode, ToolSettings};
pub use template::{CommandTemplate, TemplateWord};
pub use tool_table::{CurrentTable, JobTools, Table};
pub use toolbox::{Cancellation, ToolAnswerFuture, ToolCall, Toolbox};

use self::builtin::Builtin;
use crate::job_report::ToolNames;

/// Returns the tools of ours that the guard lists. They are as few and as short as will do, since each client sends them to its model again
/// and again.
pub fn listed_by_the_guard(names: ToolNames) -> impl Iterator<Item = Definition> {
    Builtin::OF_THE_GUARD.into_iter().map(move |builtin| builtin.in_brief(names))
}

/// Returns whether a tool of ours about jobs has this name. `names` are the names that callers know. The guard answers calls of all of
/// them, listed or not.
pub fn is_about_jobs(name: &str, names: ToolNames) -> bool {
    let own = name.strip_prefix(names.prefix);
    own.is_some_and(|own| Builtin::OF_JOBS.iter().any(|builtin| builtin.name() == own))
}
