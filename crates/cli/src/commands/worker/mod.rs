//! `unhang worker`: runs jobs of a database that machines share.
//!
//! Invariants
//!
//! - The worker runs tools of its own file, and functions of the modules that the file names. It runs commands only with `--any-command` or `any-command = true`.
//! - No row of the database makes the worker run anything else.
//! - A signal ends the worker and none of its jobs.

#[cfg(feature = "postgres")]
mod known;
#[cfg(feature = "postgres")]
mod runs;
#[cfg(feature = "postgres")]
mod work;

use std::process::ExitCode;

use super::engine::to_its_end;
use crate::arguments::worker::WorkerArguments;

/// Runs the command.
#[cfg(feature = "postgres")]
pub(super) fn run(arguments: &WorkerArguments, verbose: bool) -> ExitCode {
    to_its_end(arguments.output, verbose, async || match (&arguments.drain, arguments.list) {
        (Some(name), _) => known::drain(arguments, name).await,
        (None, true) => known::list(arguments).await,
        (None, false) => runs::run(arguments).await,
    })
}

/// Fails: this unhang was built without the client of the database.
#[cfg(not(feature = "postgres"))]
pub(super) fn run(arguments: &WorkerArguments, verbose: bool) -> ExitCode {
    to_its_end(arguments.output, verbose, async || Err(crate::shared_store::missing_feature()))
}
