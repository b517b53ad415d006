//! `unhang job move`: brings the ended jobs and the named state of this data folder to a database that machines share.
//!
//! Invariant: of several jobs each is tried, whatever becomes of the others. The exit code is that of the first failure.

use std::{collections::BTreeSet, fmt::Write, path::PathBuf, sync::Arc};

use serde::Serialize;
use unhang::{
    exit,
    jobs::{
        document::Field,
        engine::{Engine, EngineOptions},
        error::JobError,
        id::JobId,
        shared_jobs::SharedJobs,
        store::JobOwnerFilter,
        transfer::{DocumentTransfer, JobTransfer, transfer_documents, transfer_job},
    },
};
use unhang_terminal::{failure::CommandFailure, text::escaped};

use crate::{
    arguments::jobs::JobMove,
    commands::engine::{CommandOutcome, JobContext, counted, failure},
    shared_store,
};

/// The report about a move.
#[derive(Default, Serialize)]
struct Transfer {
    moved: Vec<JobId>,
    /// The jobs that the database has and that stay here all the same, with the files that their work has left.
    copied: Vec<CopiedJob>,
    open: Vec<JobId>,
    state: TransferredState,
}

/// A job that stays because of its files.
#[derive(Serialize)]
struct CopiedJob {
    job_id: JobId,
    work_folder: PathBuf,
    files: BTreeSet<String>,
}

/// The fields of the named state.
#[derive(Default, Serialize)]
struct TransferredState {
    copied: Vec<Field>,
    /// The fields of which the database has another value.
    kept: Vec<Field>,
}

pub(super) async fn run(context: &JobContext, arguments: &JobMove) -> CommandOutcome {
    let store = match &arguments.to {
        Some(url) => Some(shared_store::jobs(url, std::slice::from_ref(&context.of_file))?),
        None => context.options.shared.clone(),
    };
    let store = store.ok_or_else(|| {
        let hint = "name it by --to, --store, UNHANG_JOBS_STORE or `store` in [jobs] of unhang.toml";
        CommandFailure::usage("there is no database to which jobs could move".to_owned(), Some(hint))
    })?;
    // A wrong address is told even if there is nothing to move.
    let asked = Arc::clone(&store);
    context.blocking("be asked about its store", move || asked.counts()).await?;
    // The jobs of this folder alone.
    let options = EngineOptions { shared: None, ..context.options.clone() };
    let (engine, _) = context.blocking("be opened", move || Engine::open(options)).await?;
    let engine = context.keep(engine);
    let jobs =
        engine.list(None, JobOwnerFilter::Anybodys, u32::MAX).await.map_err(|error| failure(&error))?;
    let owners: BTreeSet<Option<String>> =
        jobs.iter().map(|job| job.record.owner.clone()).chain([None]).collect();
    let mut report = Transfer::default();
    let mut code = exit::DONE;
    // The oldest comes first, so that they have the same order there.
    for job in jobs.iter().rev() {
        let id = job.record.job_id;
        match transfer_job(&engine, &store, id).await {
            Ok(JobTransfer::Moved) => report.moved.push(id),
            Ok(JobTransfer::Copied(files)) => {
                let work_folder = engine.work_folder(&job.record);
                report.copied.push(CopiedJob { job_id: id, work_folder, files });
            }
            Ok(JobTransfer::Open) => report.open.push(id),
            // Another process moves the same jobs.
            Ok(JobTransfer::OfWorker) | Err(JobError::NoSuchJob(_)) => {}
            Err(error) => {
                let failure = failure(&error);
                let message = format!("job {id} stays on this machine: {}", failure.message);
                // The hints are about other commands.
                context.complain(&CommandFailure { message, hint: None, ..failure });
                code = if code == exit::DONE { exit::FAILED } else { code };
            }
        }
    }
    report.state = state(&engine, &store, owners).await?;
    let printed = context.report(&report, || text(&report));
    Ok(if code == exit::DONE { printed } else { code })
}

/// Copies the named state of these owners.
async fn state(
    engine: &Engine,
    store: &Arc<dyn SharedJobs>,
    owners: BTreeSet<Option<String>>,
) -> Result<TransferredState, CommandFailure> {
    let mut state = TransferredState::default();
    for owner in owners {
        let fields = transfer_documents(engine, store, owner).await.map_err(|error| failure(&error))?;
        for (field, transfer) in fields {
            match transfer {
                DocumentTransfer::Copied => state.copied.push(field),
                DocumentTransfer::Same => {}
                DocumentTransfer::Differs => state.kept.push(field),
            }
        }
    }
    Ok(state)
}

fn text(report: &Transfer) -> String {
    let mut text = format!("Moved {}.\n", counted(report.moved.len(), "job"));
    // Writing to a text cannot fail.
    for CopiedJob { job_id, work_folder, files } in &report.copied {
        let files = files.iter().map(|file| escaped(file)).collect::<Vec<_>>().join(", ");
        let folder = escaped(&work_folder.to_string_lossy());
        let _infallible =
            writeln!(text, "Copied {job_id}. It stays here as well: {folder} has more files: {files}");
    }
    if !report.open.is_empty() {
        let open: Vec<&str> = report.open.iter().map(JobId::as_str).collect();
        let _infallible =
            writeln!(text, "Not ended, so still here: {}. Run this again when they have.", open.join(", "));
    }
    if !report.state.copied.is_empty() {
        let _infallible = writeln!(text, "Copied the state: {}.", names(&report.state.copied));
    }
    if !report.state.kept.is_empty() {
        let _infallible =
            writeln!(text, "The database has another value of {}, and keeps it.", names(&report.state.kept));
    }
    text
}

fn names(fields: &[Field]) -> String {
    fields.iter().map(Field::as_str).collect::<Vec<_>>().join(", ")
}
