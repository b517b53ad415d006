//! `unhang job cancel`, `remove` and `prune`: the commands that end jobs and that remove them.
//!
//! Invariant: of several jobs each is tried, whatever becomes of the others. The exit code is that of the first failure.

use std::path::PathBuf;

use serde::Serialize;
use unhang::{
    exit,
    job_report::{JobReport, ReportReader},
    jobs::{engine::Engine, error::JobError, id::JobId},
    units::in_words,
};
use unhang_terminal::{failure::CommandFailure, output, text::escaped};

use super::{quarantine, run::distinct};
use crate::{
    arguments::jobs::{JobPrune, JobReference},
    commands::engine::{CommandOutcome, JobContext, counted, failure},
};

pub(super) async fn cancel(context: &JobContext, references: &[JobReference]) -> CommandOutcome {
    let cancel = async |engine: Engine, id| {
        let status = engine.cancel(id).await?;
        Ok(JobReport::new(&status, ReportReader::Person))
    };
    let text = |report: &JobReport| format!("{} cancelled ({})\n", report.job_id, escaped(&report.name));
    match context.engine().await {
        Ok(engine) => each(context, engine, references, cancel, text).await,
        Err(failure) => cancel_unopened(context, references, failure).await,
    }
}

/// Tells jobs to end although their database cannot be opened, as on a full disk. Without the database, only a whole id names a job.
async fn cancel_unopened(
    context: &JobContext,
    references: &[JobReference],
    cause: CommandFailure,
) -> CommandOutcome {
    let mut are_all_told = true;
    for reference in references {
        let JobReference::Id(id) = *reference else {
            are_all_told = false;
            continue;
        };
        let (folder, message) = (context.options.folder.clone(), cause.message.clone());
        let came =
            context.blocking("be told", move || Ok(Engine::cancel_unopened(&folder, id, &message))).await?;
        match came {
            Some(error) => context.complain(&failure(&error)),
            None => are_all_told = false,
        }
    }
    if are_all_told {
        return Ok(exit::FAILED);
    }
    let hint = "if the disk is full, make room, or name a job by its whole ID: unhang then tells it to end in \
         any case";
    Err(CommandFailure { hint: cause.hint.or_else(|| Some(hint.to_owned())), ..cause })
}

/// The report about a job that was removed.
#[derive(Serialize)]
struct Removed {
    job_id: JobId,
    removed: bool,
}

pub(super) async fn remove(context: &JobContext, references: &[JobReference]) -> CommandOutcome {
    let remove = async |engine: Engine, id| {
        engine.remove(id).await?;
        Ok(Removed { job_id: id, removed: true })
    };
    each(context, context.engine().await?, references, remove, |removed| {
        format!("{} removed\n", removed.job_id)
    })
    .await
}

/// Works on all jobs at the same time: a job that is slow to end delays no other (promise 8).
async fn each<T: Serialize + Send + 'static, Doing>(
    context: &JobContext,
    engine: Engine,
    references: &[JobReference],
    work: impl Fn(Engine, JobId) -> Doing,
    text: impl Fn(&T) -> String,
) -> CommandOutcome
where
    Doing: Future<Output = Result<T, JobError>> + Send + 'static,
{
    let (ids, code) = context.all_meant(&engine, references).await;
    let tasks: Vec<_> = distinct(&ids).into_iter().map(|id| tokio::spawn(work(engine.clone(), id))).collect();
    let (mut done, mut code) = (Vec::new(), code);
    for task in tasks {
        match task.await.unwrap_or(Err(JobError::Closed)) {
            Ok(report) => done.push(report),
            Err(error) => {
                let failure = failure(&error);
                context.complain(&failure);
                code = if code == exit::DONE { failure.code } else { code };
            }
        }
    }
    let printed = context.report(&done, || done.iter().map(text).collect());
    Ok(if code == exit::DONE { printed } else { code })
}

/// The report about the jobs that were removed.
#[derive(Serialize)]
struct Pruned {
    jobs: Vec<JobId>,
    orphans: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quarantined: Vec<PathBuf>,
}

pub(super) async fn prune(context: &JobContext, arguments: &JobPrune) -> CommandOutcome {
    let engine = context.engine().await?;
    let (age, pruned) = match arguments.older_than {
        Some(age) => (age, engine.prune(age).await),
        None => (context.options.retention, engine.prune_expired().await),
    };
    let pruned = pruned.map_err(|error| failure(&error))?;
    for (folder, reason) in &pruned.left {
        let folder = folder.to_string_lossy();
        output::error(&escaped(&format!("{folder} was left as it is: {reason}")), None);
    }
    quarantine::tell(&engine).await;
    let quarantined = pruned.quarantined.into_iter().map(|found| found.folder).collect();
    let pruned = Pruned { jobs: pruned.jobs, orphans: pruned.orphans, quarantined };
    Ok(context.report(&pruned, || {
        let orphans = match pruned.orphans {
            0 => String::new(),
            count => format!(", and {} of jobs that were never accepted", counted(count, "folder")),
        };
        let jobs = counted(pruned.jobs.len(), "job");
        format!("Removed {jobs} that ended more than {} ago{orphans}.\n", in_words(age))
    }))
}
