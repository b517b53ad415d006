//! The binary `unhang`. It parses the command line, runs the command, and maps the outcome to an exit code.
use std::process::ExitCode;

use unhang::process::give_back_large_blocks;

mod arguments;
mod commands;
mod consent;
mod data_folder;
mod diagnostics;
mod job_environment;
mod mathematics;
mod near_misses;
mod own_program;
mod server_name;
mod shared_store;
mod signals;

fn main() -> ExitCode {
    give_back_large_blocks();
    // Lifelines and supervisors come first: they have to stay small, so they touch neither the argument parser nor the runtime.
    if let Some(code) = own_program::small_process() {
        return code;
    }
    diagnostics::report_bugs();
    match arguments::parse() {
        Ok(arguments) => commands::run(arguments),
        Err(error) => commands::first_minute::refuse(&error),
    }
}
