//! The loop of the deliveries: copies logs, files and ends of jobs to the store.
//!
//! Invariants
//!
//! - The log and the files of a job are in the store before its end is.
//! - A delivery can be repeated. What the store has already is not copied again.
//! - A job is forgotten here only when the store has its end, or when it is not this worker's any more.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use unhang_jobs::{
    engine::{Engine, JobStatus},
    error::JobError,
    folder::ERROR,
    id::JobId,
    large_numbers,
    log::LogStream,
    record::{EndReason, EndRecord, JobEnd, JobRecord, JobState},
    shared_jobs::DocumentName,
    store::JobStore as _,
};
use unhang_postgres::{DocumentChange, PostgresError, PostgresStore, StateDocuments, WorkerClaim};

use crate::{
    held::{HeldJob, HeldJobs},
    link::StoreLink,
    uploads::{self, FileDelivery},
    worker::WorkerState,
};

/// The longest time between two looks at the logs.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// The shortest time between two looks, however often jobs change.
pub(crate) const BREATH: Duration = Duration::from_millis(50);

/// The most bytes of a log that are copied at once.
const PAGE: usize = 256 << 10;

/// The two logs of a job.
pub(crate) const STREAMS: [LogStream; 2] = [LogStream::Stdout, LogStream::Stderr];

/// Copies until it is aborted.
pub(crate) async fn run(state: Arc<WorkerState>) {
    let mut link = StoreLink::new(state.address.clone(), "copy logs and ends to its store");
    let mut changes = state.engine.changes();
    loop {
        changes.mark_unchanged();
        for job in state.held.all() {
            if deliver(&state, &mut link, &job).await.is_err() {
                sleep(link.pause()).await;
                break;
            }
        }
        sleep(BREATH).await;
        let wake = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = state.has_news.notified() => {}
            }
        };
        // Logs grow without a change of the job.
        let _ = timeout(LOOK, wake).await;
    }
}

/// Copies what is new about a job.
async fn deliver(state: &Arc<WorkerState>, link: &mut StoreLink, job: &HeldJob) -> Result<(), PostgresError> {
    let id = job.note.job;
    if job.is_fetching {
        // The engine may know an earlier attempt, and its end is not this one's.
        return Ok(());
    }
    let status = match state.engine.status(id).await {
        Ok(status) => status,
        Err(JobError::NoSuchJob(_) | JobError::Removed(_)) => {
            if job.note.has_begun {
                return end_without_trace(state, link, job).await;
            }
            // The loop of the claims begins a job that the engine has never had, unless another worker has it by now.
            if job.is_revoked {
                state.forget(id).await;
            }
            return Ok(());
        }
        Err(error) => {
            tracing::debug!("the worker cannot look at job {id}: {error}");
            return Ok(());
        }
    };
    let has_ended = status.record.status.is_final();
    for (index, stream) in STREAMS.into_iter().enumerate() {
        copy_log(&state.engine, &state.held, link, job, index, stream, has_ended).await?;
    }
    if has_ended { end(state, link, job, &status).await } else { Ok(()) }
}

/// Copies what is new in a log; all of it if the job has ended.
pub(crate) async fn copy_log(
    engine: &Engine,
    held_jobs: &HeldJobs,
    link: &mut StoreLink,
    job: &HeldJob,
    index: usize,
    stream: LogStream,
    has_ended: bool,
) -> Result<(), PostgresError> {
    let (id, base) = (job.note.job, job.note.log_bases[index]);
    let mut offset = match job.copied[index] {
        Some(offset) => offset,
        None => link.run(move |store| store.log_extent(id, stream)).await?.end.saturating_sub(base),
    };
    loop {
        let page = match engine.raw_logs(id, stream, offset, PAGE).await {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!("the worker cannot read a log of job {id}: {error}");
                return Ok(());
            }
        };
        if page.text.is_empty() {
            break;
        }
        let (next, is_full) = (page.next_offset, page.text.len() == PAGE);
        let token = job.note.token.clone();
        if !link.run(move |store| store.append_log(id, &token, stream, base, &page)).await? {
            // The job is not this worker's any more.
            return Ok(());
        }
        offset = next;
        // Other jobs have their turn; the next look goes on here.
        if !has_ended || !is_full {
            break;
        }
    }
    held_jobs.change(id, &job.note.token, |held| held.copied[index] = Some(offset));
    Ok(())
}

/// Copies the files of a job that has ended, and its end.
async fn end(
    state: &Arc<WorkerState>,
    link: &mut StoreLink,
    job: &HeldJob,
    status: &JobStatus,
) -> Result<(), PostgresError> {
    let Some(ending) = status.record.ending.clone() else { return Ok(()) };
    let is_lost_here = ending.outcome == JobEnd::Lost || ending.reason == Some(EndReason::LeaseOver);
    if is_lost_here {
        return give_back_or_end(state, link, job, ending).await;
    }
    let name = match status.record.status {
        JobState::Completed => status.record.results.clone(),
        _ => Some(ERROR.to_owned()),
    };
    let Some(name) = name else { return finish(state, link, job, &ending, None).await };
    match uploads::deliver(state, link, job, &name).await? {
        FileDelivery::Done(content) => {
            finish(state, link, job, &ending, content.as_deref().map(Vec::as_slice)).await
        }
        FileDelivery::UnderWay => Ok(()),
        FileDelivery::TooLarge(why) => finish(state, link, job, &without_file(ending, &why), None).await,
    }
}

/// Returns the end of a job whose file no store takes. A job that has failed already keeps its reason.
fn without_file(ending: EndRecord, why: &str) -> EndRecord {
    if ending.outcome == JobEnd::Completed {
        return EndRecord { outcome: JobEnd::Failed, ..ending }.because(EndReason::ResultsInvalid, why);
    }
    let detail = match &ending.detail {
        Some(detail) => format!("{detail}; {why}"),
        None => why.to_owned(),
    };
    EndRecord { detail: Some(detail), ..ending }
}

/// Ends a job that the engine has had and knows no more.
async fn end_without_trace(
    state: &WorkerState,
    link: &mut StoreLink,
    job: &HeldJob,
) -> Result<(), PostgresError> {
    let detail = "its record on the worker was removed before the end was told";
    let ending = EndRecord::without_run(JobEnd::Lost).because(EndReason::WorkerLost, detail);
    give_back_or_end(state, link, job, ending).await
}

/// Gives a job back to the queue whose work was broken off here. If it may not run again, it is lost.
async fn give_back_or_end(
    state: &WorkerState,
    link: &mut StoreLink,
    job: &HeldJob,
    ending: EndRecord,
) -> Result<(), PostgresError> {
    let (id, token, claims) = (job.note.job, job.note.token.clone(), job.note.claims);
    if link.run(move |store| store.give_back(id, &token, claims)).await? {
        tracing::warn!("job {id} is queued again: {}", ending.detail.as_deref().unwrap_or("it was lost"));
        state.forget(id).await;
        return Ok(());
    }
    let ending = match ending.reason {
        // Its work is dead, as somebody wanted.
        _ if job.is_cancelled => {
            EndRecord { outcome: JobEnd::Cancelled, reason: None, detail: None, ..ending }
        }
        Some(EndReason::LeaseOver) => {
            EndRecord { outcome: JobEnd::Lost, reason: Some(EndReason::WorkerLost), ..ending }
        }
        _ => ending,
    };
    finish(state, link, job, &ending, None).await
}

/// Notes the end of a job in the store, and changes the named state by its result if that was agreed on.
async fn finish(
    state: &WorkerState,
    link: &mut StoreLink,
    job: &HeldJob,
    ending: &EndRecord,
    result: Option<&[u8]>,
) -> Result<(), PostgresError> {
    let id = job.note.job;
    if let Some(mut record) = record_of(link, job).await? {
        record.end(ending);
        let claimant =
            WorkerClaim { worker: state.identity.name().to_owned(), token: job.note.token.clone() };
        let change = change(&mut record, result);
        let finish = move |store: &mut PostgresStore| match &change {
            Some(change) => StateDocuments(store).finish(&record, &claimant, change),
            None => store.finish(&record, Some(&claimant)),
        };
        if !link.run(finish).await? {
            tracing::warn!("the store does not take the end of job {id}, because another worker has had it");
        }
    }
    state.forget(id).await;
    Ok(())
}

/// Returns the change of the named state by the result of a job that has ended, and notes in the record what becomes of it.
fn change(record: &mut JobRecord, result: Option<&[u8]>) -> Option<DocumentChange> {
    let field = record.patch.as_ref().filter(|_| record.status == JobState::Completed)?.field.clone();
    let read = |name: &str| {
        let Some(bytes) = result else { return Ok(None) };
        large_numbers::check(bytes, name)?;
        serde_json::from_slice(bytes).map(Some).map_err(|error| format!("{name} is not JSON: {error}"))
    };
    let value = record.patched_value(read);
    record.state_applied = Some(value.is_ok());
    match value {
        Ok(value) => {
            let name = DocumentName { owner: record.patched().map(str::to_owned), field };
            Some(DocumentChange { name, text: value.to_string() })
        }
        Err(reason) => {
            record.state_reason = Some(reason);
            None
        }
    }
}

/// Returns the record of a job as the store has it; `None` if the store does not know the job.
async fn record_of(link: &mut StoreLink, job: &HeldJob) -> Result<Option<JobRecord>, PostgresError> {
    if let Some(record) = &job.record {
        return Ok(Some(record.clone()));
    }
    let id: JobId = job.note.job;
    Ok(link.run(move |store| store.get(id)).await?.map(|job| job.record))
}
