//! `unhang` without a command on a terminal of somebody who has not adopted anything: three lines of what to do.
//!
//! Invariant: programs, and people who know unhang, get the whole help as before.

use std::io::{self, IsTerminal};

use unhang_adopt::AdoptionRecords;
use unhang_terminal::output::say;

use crate::data_folder::data_folder;

/// The lines for somebody new.
const FIRST_STEPS: &str = "\
unhang adopt    guards the servers of your MCP clients (--undo takes it back)\n\
unhang demo     shows on servers that misbehave what it does, in half a minute\n\
unhang --help   lists all commands\n";

/// Prints the first steps if nobody has typed a command. Returns false if the whole help is in place.
pub(crate) fn shown() -> bool {
    let is_bare = std::env::args_os().len() <= 1;
    let is_person = io::stdin().is_terminal() && io::stderr().is_terminal();
    let has_adopted =
        || data_folder().is_some_and(|folder| !AdoptionRecords::in_data_folder(&folder).all().is_empty());
    if !is_bare || !is_person || has_adopted() {
        return false;
    }
    say(FIRST_STEPS);
    true
}
