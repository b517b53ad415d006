//! Our own binary, which also is the lifeline of a server and the shim of a job.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use unhang::{
    jobs::{
        shim,
        shims::{self, ShimCommand},
    },
    process::{lifeline, server::LifelineCommand},
};

/// Lives as one of the small processes, if the arguments say so.
pub(crate) fn small_process(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match words.next()? {
        word if word == lifeline::ARGUMENT => Some(lifeline::run(words)),
        word if word == shims::ARGUMENT => Some(shim::run(&shim_command(), words, &|_| {})),
        _ => None,
    }
}

/// As the lifeline of a server.
pub(crate) fn lifeline_command() -> LifelineCommand {
    LifelineCommand { program: own_program(), arguments: vec![lifeline::ARGUMENT.into()] }
}

/// As the shim of a job.
pub(crate) fn shim_command() -> ShimCommand {
    ShimCommand { program: own_program(), arguments: vec![shims::ARGUMENT.into()] }
}

fn own_program() -> PathBuf {
    // The link still leads to this very program after an upgrade has replaced the file.
    let program = PathBuf::from("/proc/self/exe");
    if program.exists() { program } else { std::env::current_exe().unwrap_or(program) }
}
