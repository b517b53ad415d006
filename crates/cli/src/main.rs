//! The binary `unhang`. Parse, run, map to an exit code.

use std::process::ExitCode;

mod arguments;
mod commands;
mod data_folder;
mod diagnostics;
mod output;
mod server_name;
mod words;

fn main() -> ExitCode {
    // The lifeline comes first: it has to stay small, so it sees neither the argument parser nor the runtime.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == unhang::process::lifeline::ARGUMENT) {
        return unhang::process::lifeline::run(words);
    }
    diagnostics::report_bugs();
    match arguments::parse() {
        Ok(arguments) => commands::run(arguments),
        Err(error) => output::usage_error(&error),
    }
}
