//! Our own binary, which also is the lifeline of a server and the shim of a job.

use std::process::ExitCode;

use unhang::{
    jobs::{shim, shims::ShimCommand},
    process::{lifeline, lookup::this_program, server::LifelineCommand},
};

/// Lives as one of the small processes, if the arguments say so.
pub(crate) fn small_process() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    match words.next()? {
        word if word == lifeline::ARGUMENT => Some(lifeline::run(words)),
        _ => shim::run_if_asked(&ShimCommand::this_program()),
    }
}

/// As the lifeline of a server.
pub(crate) fn lifeline_command() -> LifelineCommand {
    LifelineCommand { program: this_program(), arguments: vec![lifeline::ARGUMENT.into()] }
}
