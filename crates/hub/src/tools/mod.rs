//! Tools of our own: commands from the configuration file.
//!
//! Invariants: arguments are checked before anything is done with them; no command passes through a shell.

mod arguments;
mod definition;
mod policy;
pub(crate) mod template;

pub use arguments::ArgumentSchema;
pub use definition::{Definition, Hints, ToolAnswer};
pub use policy::ModeOverrides;
pub use template::{Template, Word};
