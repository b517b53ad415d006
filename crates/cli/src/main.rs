//! The binary `unhang`. Parse, run, map to an exit code.
use std::process::ExitCode;

mod arguments;
mod command_words;
mod commands;
mod consent;
mod data_folder;
mod diagnostics;
mod job_environment;
mod mathematics;
mod output;
mod own_program;
mod progress;
mod server_name;
mod signals;
mod terminal_text;

fn main() -> ExitCode {
    // They come first: they have to stay small, so they see neither the argument parser nor the runtime.
    if let Some(code) = own_program::small_process() {
        return code;
    }
    diagnostics::report_bugs();
    match arguments::parse() {
        Ok(arguments) => commands::run(arguments),
        Err(error) => output::usage_error(&error, &arguments::meant(std::env::args_os().skip(1))),
    }
}
