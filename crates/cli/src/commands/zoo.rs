//! `unhang zoo`: the bundled programs that misbehave. Hidden, but documented in `docs/reference/zoo.md`.

use std::process::ExitCode;

use crate::arguments::Zoo;

/// Runs the animal, or lists them all.
pub(crate) fn run(zoo: &Zoo) -> ExitCode {
    if zoo.words.is_empty() {
        return unhang_zoo::command(&["--list".to_owned()]);
    }
    unhang_zoo::command(&zoo.words)
}
