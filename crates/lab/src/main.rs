//! The binary `unhang-lab`: measures `unhang`, ends the processes around its jobs, runs the faulty programs of the zoo, and scores wrappers
//! on the corpus of hangs.
//!
//! Invariant: the lab measures the binary that users run. It starts `unhang` as a process and links none of what it measures, except for
//! single operations of the shared store (`scale`), which no command does alone.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use unhang_terminal::usage::usage_error;

mod arguments;
mod bench;
mod command_words;
mod corpus;
mod product;
mod rounds;
#[cfg(target_os = "linux")]
mod scale;

use arguments::{LabArguments, LabCommand};

fn main() -> ExitCode {
    match LabArguments::try_parse() {
        Ok(LabArguments { command: LabCommand::Bench(bench) }) => bench::run(&bench),
        Ok(LabArguments { command: LabCommand::Rounds(arguments) }) => rounds::run(&arguments),
        #[cfg(target_os = "linux")]
        Ok(LabArguments { command: LabCommand::Scale(arguments) }) => scale::run(&arguments),
        #[cfg(not(target_os = "linux"))]
        Ok(LabArguments { command: LabCommand::Scale(_) }) => {
            unhang_terminal::output::error("only Linux has the namespaces that this needs", None);
            ExitCode::from(unhang::exit::UNREACHABLE)
        }
        Ok(LabArguments { command: LabCommand::Zoo(zoo) }) => corpus::run(&zoo),
        Err(error) => usage_error(&error, &LabArguments::command(), |_, _, _| None),
    }
}
