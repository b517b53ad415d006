//! The binary `unhang`. It parses the command line, runs the command, and maps the outcome to an exit code.
use std::process::ExitCode;

use clap::CommandFactory as _;
use unhang::exit;
use unhang_terminal::usage::usage_error;

mod arguments;
mod commands;
mod consent;
mod data_folder;
mod diagnostics;
mod job_environment;
mod mathematics;
mod own_program;
mod server_name;
mod signals;

use arguments::Arguments;

fn main() -> ExitCode {
    // Lifelines and supervisors come first: they have to stay small, so they touch neither the argument parser nor the runtime.
    if let Some(code) = own_program::small_process() {
        return code;
    }
    diagnostics::report_bugs();
    match arguments::parse() {
        Ok(arguments) => commands::run(arguments),
        Err(_) if commands::first_minute::shown() => ExitCode::from(exit::USAGE),
        Err(error) => usage_error(&error, &Arguments::command()),
    }
}
