//! unhang's own binary, which also is the lifeline of a server and the supervisor of a job.

use std::process::ExitCode;

use unhang::{
    jobs::{shim, shims::ShimCommand},
    process::{lifeline, lookup::this_program, server::LifelineCommand},
};

/// Runs as a lifeline or a supervisor and returns its exit code, if the arguments ask for that. Returns `None` otherwise.
pub(crate) fn small_process() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    match words.next()? {
        word if word == lifeline::ARGUMENT => Some(lifeline::run(words)),
        _ => shim::run_if_asked(&ShimCommand::this_program()),
    }
}

/// Returns the command that runs this binary as the lifeline of a server.
pub(crate) fn lifeline_command() -> LifelineCommand {
    LifelineCommand { program: this_program(), arguments: vec![lifeline::ARGUMENT.into()] }
}
