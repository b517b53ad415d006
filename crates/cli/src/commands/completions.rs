//! `unhang completions`: what makes a shell complete the commands and flags, from the declaration itself.
//!
//! Invariants: what is hidden is not completed.

use std::process::ExitCode;

use unhang_terminal::output;

use crate::arguments::{self, Completions};

/// Prints the completions.
pub(super) fn run(completions: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut arguments::shown(), "unhang", &mut script);
    ExitCode::from(output::bytes(&script))
}
