//! Moves ended jobs from a data folder to the store of many machines.
//!
//! Theory of operation. The store gets a job with its logs, its result and its own account of a failure in one transaction. Only then the
//! data folder loses the job. A move that was broken off is done again: the store knows the job by its id.
//!
//! Invariants
//!
//! - A job is in the data folder or in the store at every moment, and keeps its id.
//! - A job that has not ended stays: its supervisor or its server belongs to this machine.
//! - A file that the store does not get stays in the data folder, with its job.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::{
    document::{DocumentEntry, Field},
    engine::Engine,
    error::JobError,
    folder::{ARGUMENTS, ERROR, LEASE, RESULT},
    id::JobId,
    log::{LogPage, LogStream, MAX_PAGE},
    record::{CallRecord, JobRecord},
    shared_jobs::{DocumentName, EndedJob, SharedJobs},
};

/// The outcome of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobTransfer {
    /// The store has the job, and the data folder has it no more.
    Moved,
    /// The store has the job. The data folder keeps it, because its work has left these files, which no store takes.
    Copied(BTreeSet<String>),
    /// The job has not ended, and stays.
    Open,
    /// The job is a worker's copy of a job of a store. The worker brings its end.
    OfWorker,
}

/// Moves a job of the data folder of `engine`, which has no store itself, to `store`.
///
/// # Errors
/// Fails if there is no such job, its files cannot be read, the store has another job of this id, or the store cannot be asked. The job
/// is still in the data folder then.
pub async fn transfer_job(
    engine: &Engine,
    store: &Arc<dyn SharedJobs>,
    id: JobId,
) -> Result<JobTransfer, JobError> {
    let record = engine.status(id).await?.record;
    if !record.status.is_final() {
        return Ok(JobTransfer::Open);
    }
    if engine.job_folder(id).join(LEASE).exists() {
        return Ok(JobTransfer::OfWorker);
    }
    let names = file_names(&record);
    let mut files = Vec::new();
    for name in &names {
        if let Some(content) = engine.left_file(id, name).await? {
            files.push((name.clone(), content));
        }
    }
    let mut logs = Vec::new();
    for stream in [LogStream::Stdout, LogStream::Stderr] {
        // The log may be gone, as after a cleaning of the disk; that is no reason to keep the job here.
        logs.extend(log(engine, id, stream).await?.into_iter().map(|page| (stream, page)));
    }
    let work_folder = engine.work_folder(&record);
    let record = JobRecord { call: record.call.as_ref().map(CallRecord::for_other_machines), ..record };
    let ended = EndedJob { record, files, logs };
    let store = Arc::clone(store);
    let taken = spawn_blocking(move || store.take(&ended)).await.map_err(|_| JobError::Closed)?;
    if !taken? {
        return Err(JobError::IdTaken(id));
    }
    let left = spawn_blocking(move || other_files(&work_folder, &names));
    let left = left.await.map_err(|_| JobError::Closed)?;
    if left.is_empty() {
        // Another process may move the same job.
        return match engine.remove(id).await {
            Ok(()) | Err(JobError::NoSuchJob(_)) => Ok(JobTransfer::Moved),
            Err(error) => Err(error),
        };
    }
    Ok(JobTransfer::Copied(left))
}

/// Returns the names of the files that the store takes.
fn file_names(record: &JobRecord) -> BTreeSet<String> {
    let of_call = record.call.is_some().then_some([RESULT, ARGUMENTS]);
    let names = record.results.as_deref().into_iter().chain([ERROR]).chain(of_call.into_iter().flatten());
    names.map(str::to_owned).collect()
}

/// Reads a whole log in pages; nothing if the log is gone.
async fn log(engine: &Engine, id: JobId, stream: LogStream) -> Result<Vec<LogPage<Vec<u8>>>, JobError> {
    let (mut pages, mut offset) = (Vec::new(), 0);
    loop {
        let page = match engine.raw_logs(id, stream, offset, MAX_PAGE).await {
            Err(JobError::LogGone { .. } | JobError::FolderGone { .. }) => return Ok(pages),
            page => page?,
        };
        if page.text.is_empty() {
            return Ok(pages);
        }
        offset = page.next_offset;
        pages.push(page);
    }
}

/// Returns the names of the files in this folder besides these and the arguments, which the record's tool has got.
fn other_files(folder: &Path, taken: &BTreeSet<String>) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != ARGUMENTS && !taken.contains(name)).collect()
}

/// What became of a document of the named state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentTransfer {
    /// The store has it now.
    Copied,
    /// The store had the same value.
    Same,
    /// The store has another value, and keeps it.
    Differs,
}

/// Copies the named state of this owner from the data folder of `engine`, which has no store itself, to `store`. The data folder keeps it.
/// Returns what became of each field.
///
/// # Errors
/// Fails if a document cannot be read, or the store cannot be asked. Some documents may have been copied then.
pub async fn transfer_documents(
    engine: &Engine,
    store: &Arc<dyn SharedJobs>,
    owner: Option<String>,
) -> Result<Vec<(Field, DocumentTransfer)>, JobError> {
    let mut transferred = Vec::new();
    for DocumentEntry { field, .. } in engine.documents_of(owner.clone()).await? {
        let Some(document) = engine.document_of(owner.clone(), field.clone()).await? else { continue };
        let (store, name) = (Arc::clone(store), DocumentName { owner: owner.clone(), field: field.clone() });
        let copy = move || -> Result<DocumentTransfer, JobError> {
            let known = store.documents(std::slice::from_ref(&name))?.pop().flatten();
            match known.map(|known| serde_json::from_str::<Value>(&known.text)) {
                None => {
                    store.set_document(&name, &document.value.to_string())?;
                    Ok(DocumentTransfer::Copied)
                }
                Some(Ok(known)) if known == document.value => Ok(DocumentTransfer::Same),
                Some(_) => Ok(DocumentTransfer::Differs),
            }
        };
        let copied = spawn_blocking(copy).await.map_err(|_| JobError::Closed)?;
        transferred.push((field, copied?));
    }
    Ok(transferred)
}
