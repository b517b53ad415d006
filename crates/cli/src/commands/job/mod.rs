//! `unhang job`: durable background jobs without a server. Each verb has its file.

use std::process::ExitCode;

use crate::{
    arguments::jobs::{JobArguments, JobVerb},
    commands::engine,
};

mod list;
mod logs;
mod progress;
mod quarantine;
mod rebuild;
mod reference;
mod removal;
mod result;
mod run;
mod show;
mod transfer;
mod wait;

/// Runs the verb that was typed.
pub(super) fn run(job: JobArguments, verbose: bool) -> ExitCode {
    let JobArguments { common, verb } = job;
    engine::run(&common, verbose, async |context| match verb {
        JobVerb::Run(arguments) => run::run(context, arguments).await,
        JobVerb::List(arguments) => list::run(context, &arguments).await,
        JobVerb::Show(arguments) => show::run(context, &arguments.id).await,
        JobVerb::Logs(arguments) => logs::run(context, &arguments).await,
        JobVerb::Result(arguments) => result::run(context, &arguments.id).await,
        JobVerb::Wait(arguments) => wait::run(context, &arguments).await,
        JobVerb::Cancel(arguments) => removal::cancel(context, &arguments.ids).await,
        JobVerb::Remove(arguments) => removal::remove(context, &arguments.ids).await,
        JobVerb::Prune(arguments) => removal::prune(context, &arguments).await,
        JobVerb::Rebuild => rebuild::run(context).await,
        JobVerb::Move(arguments) => transfer::run(context, &arguments).await,
    })
}
