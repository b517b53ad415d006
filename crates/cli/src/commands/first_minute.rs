//! `unhang` without a command on a terminal of somebody who has not adopted anything: three lines of what to do.
//!
//! Invariant: programs, and people who know unhang, get the whole help as before.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::CommandFactory as _;
use unhang::exit;
use unhang_adopt::AdoptionRecords;
use unhang_terminal::{output::say, usage::usage_error};

use crate::{arguments::Arguments, data_folder::data_folder, near_misses::near_miss};

/// The lines for somebody new.
const FIRST_STEPS: &str = "\
unhang adopt    guards the servers of your MCP clients (--undo takes it back)\n\
unhang demo     shows on servers that misbehave what it does, in half a minute\n\
unhang --help   lists all commands\n";

/// Says why a command line is wrong, or what to do first if there is no command.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    match is_first_minute() {
        true => {
            say(FIRST_STEPS);
            ExitCode::from(exit::USAGE)
        }
        false => usage_error(error, &Arguments::command(), near_miss),
    }
}

/// Returns whether somebody new has typed `unhang` alone.
fn is_first_minute() -> bool {
    let is_bare = std::env::args_os().len() <= 1;
    let is_person = io::stdin().is_terminal() && io::stderr().is_terminal();
    let has_adopted = || {
        data_folder()
            .is_some_and(|folder| AdoptionRecords::in_data_folder(&folder).all() != (Vec::new(), Vec::new()))
    };
    is_bare && is_person && !has_adopted()
}
