//! unhang's own binary, which also is the lifeline of a server, the call holder of a server, and the supervisor of a job.

use std::process::ExitCode;

use unhang::{
    jobs::{shim, shims::ShimCommand},
    process::{
        adopt_orphans, lifeline,
        lookup::this_program,
        server::{HolderCommand, LifelineCommand},
    },
    promoted::call_holder,
};

use crate::diagnostics::Diagnostics;

/// Runs as a lifeline, a call holder or a supervisor and returns its exit code, if the arguments ask for that. Returns `None` otherwise.
pub(crate) fn small_process() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    match words.next()? {
        word if word == lifeline::ARGUMENT => Some(lifeline::run(words)),
        word if word == call_holder::ARGUMENT => {
            Some(call_holder::run(words, ShimCommand::this_program(), |plan| {
                Diagnostics::of_call_holder(&plan.server.name)
            }))
        }
        _ => shim::run_if_asked(&ShimCommand::this_program()),
    }
}

/// Returns the command that runs this binary as the lifeline of a server.
pub(crate) fn lifeline_command() -> LifelineCommand {
    LifelineCommand { program: this_program(), arguments: vec![lifeline::ARGUMENT.into()] }
}

/// Returns the command that runs this binary as the call holder of a server, without its plan. Returns `None` on systems on which a
/// lifeline cannot keep a server: jobs of calls end with this process there.
pub(crate) fn call_holder_command() -> Option<HolderCommand> {
    cfg!(target_os = "linux").then(|| HolderCommand {
        program: this_program(),
        arguments: vec![call_holder::ARGUMENT.into()],
        // It finds the folder of the log as this process did, and starts queued jobs with the environment that they would have had.
        environment: std::env::vars_os().collect(),
        folder: "/".into(),
    })
}

/// Adopts orphans if this is the first process of a container, which is the parent of all orphans there. Elsewhere, another program's
/// lifelines must not come back to it.
pub(crate) fn adopt_orphans_of_container() {
    if std::process::id() == 1
        && let Err(error) = adopt_orphans()
    {
        tracing::debug!("orphans cannot be adopted on this system: {error}");
    }
}
