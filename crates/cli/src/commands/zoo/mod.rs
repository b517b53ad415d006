//! `unhang zoo`: the bundled programs that misbehave, and the corpus that drives wrappers through them. Hidden, but
//! documented in `docs/reference/zoo.md` and `docs/reference/score.md`.

mod report;
mod run;

use std::process::ExitCode;

use crate::arguments::{self, Zoo};
use crate::output;

/// Runs the animal, runs the corpus, or lists the animals.
pub(crate) fn run(zoo: &Zoo) -> ExitCode {
    match zoo.words.first().map(String::as_str) {
        None => unhang_zoo::command(&["--list".to_owned()]),
        Some("run") => match arguments::parse_zoo_run(&zoo.words) {
            Ok(arguments) => run::run(&arguments),
            Err(error) => output::usage_error(&error, "unhang zoo run"),
        },
        Some(_) => unhang_zoo::command(&zoo.words),
    }
}
