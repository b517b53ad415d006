//! Asks the store of many machines on behalf of an engine.
//!
//! Invariants
//!
//! - A store that is away delays nobody who asks for something else: it has threads of its own, and their number is limited.
//! - A submission that fails says whether anything was accepted.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::{Value, value::RawValue};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use unhang_proc::deadline::Deadline;

use super::{
    EngineState,
    outputs::{Results, TAIL},
    system::System,
};
use crate::{
    document::{Document, DocumentEntry, Field},
    error::JobError,
    folder::{DataFolder, ERROR, IN_STORE, RESULT},
    id::JobId,
    large_numbers,
    log::{LogPage, LogStream},
    record::{JobRecord, JobState},
    room::Rules,
    shared_jobs::{DocumentName, SharedDocument, SharedJobs, WorkerSummary},
    status::{JobStatus, SharedSight},
    store::{JobOwnerFilter, KeptAsAccepted},
    submission::Submission,
    timestamp::JobTimestamp,
};

/// The time that a question may take. The store itself has a shorter limit for each operation.
const LIMIT: Duration = Duration::from_secs(30);

/// The time that each file of a job may take besides. An object store has a shorter limit for each object.
const FILE_LIMIT: Duration = Duration::from_secs(90);

/// The most questions at the same time.
const MOST: usize = 16;

/// The pauses between two looks at a job that somebody waits for: the first, and the longest.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// The time beyond its grace within which a job has to end that was cancelled: a heartbeat, and the sweep.
const CANCEL_SLACK: Duration = Duration::from_secs(30);

/// The time that the end of a call may take on its way to the store before somebody who removes the call is told.
const DELIVERY: Duration = Duration::from_secs(3);

/// The time for which a silent worker may carry out the wish to cancel a job before that is told.
const SILENT_CANCEL: Duration = Duration::from_secs(3);

/// The time for which those who wait for a job wait for a store that is away.
const AWAY: Duration = Duration::from_secs(60);

/// The most running jobs of the store that are shown with its state, and the most waiting ones.
const MOST_SHOWN: u32 = 100;

/// The number of jobs that are removed with one look.
const AT_ONCE: u32 = 200;

/// The store of many machines, as an engine has it.
#[derive(Clone, Debug)]
pub(super) struct SharedAccess {
    jobs: Arc<dyn SharedJobs>,
    permits: Arc<Semaphore>,
}

impl SharedAccess {
    pub(super) fn new(jobs: Arc<dyn SharedJobs>) -> Self {
        Self { jobs, permits: Arc::new(Semaphore::new(MOST)) }
    }

    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn SharedJobs) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        self.ask_for(LIMIT, work).await
    }

    async fn ask_for<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&dyn SharedJobs) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        let (jobs, permits) = (Arc::clone(&self.jobs), Arc::clone(&self.permits));
        let asked = Box::pin(async move {
            // The semaphore is never closed.
            let permit = permits.acquire_owned().await.map_err(|_| JobError::Closed)?;
            let done = spawn_blocking(move || {
                let _until_the_store_answers = permit;
                work(&*jobs)
            });
            done.await.map_err(|_| JobError::Closed)?
        });
        let late = |_| JobError::Shared {
            message: format!("the job store has not answered for {} s; ask again", limit.as_secs()),
        };
        timeout(limit, asked).await.map_err(late)?
    }

    /// Submits a job, and returns its status.
    pub(super) async fn submit(
        &self,
        submission: Submission,
        data: DataFolder,
        rules: Rules,
    ) -> Result<JobStatus, JobError> {
        let files = u32::try_from(submission.inputs.len()).unwrap_or(u32::MAX);
        self.ask_for(LIMIT.saturating_add(FILE_LIMIT.saturating_mul(files)), move |jobs| {
            let job = submission.to_shared(&data, rules, jobs)?;
            let record = &job.record;
            match jobs.submit(&job)? {
                // A worker may have it already, and the store may be away by now: the job was accepted all the same.
                true => Ok(JobStatus::in_store(record.clone())),
                false => Err(JobError::IdTaken(record.job_id)),
            }
        })
        .await
    }

    pub(super) async fn status(&self, id: JobId) -> Result<Option<JobStatus>, JobError> {
        self.ask(move |jobs| jobs.status(id)).await
    }

    pub(super) async fn newest(
        &self,
        state: Option<JobState>,
        whose: JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<JobStatus>, JobError> {
        self.ask(move |jobs| jobs.newest(state, &whose, limit)).await
    }

    /// Waits until a job has ended that the store knows, but not beyond the deadline. Returns `None` if the store does not know the job.
    pub(super) async fn wait(&self, id: JobId, deadline: Deadline) -> Result<Option<JobStatus>, JobError> {
        // The time until which the store may be away.
        let mut patience: Option<Deadline> = None;
        let mut pause = LOOKS.0;
        loop {
            let status = match self.status(id).await {
                // Whoever has seen the job waits for a store that is away, but not for ever.
                Err(error @ JobError::Shared { .. }) => {
                    if patience.is_none_or(|limit| limit.is_past()) || deadline.is_past() {
                        return Err(error);
                    }
                    let _ = deadline.timeout(sleep(LOOKS.1)).await;
                    continue;
                }
                status => status?,
            };
            patience = Some(Deadline::after(AWAY));
            let Some(status) = status else { return Ok(None) };
            if status.record.status.is_final() || deadline.is_past() {
                return Ok(Some(status));
            }
            // The deadline is looked at above.
            let _ = deadline.timeout(sleep(pause)).await;
            pause = (pause * 2).min(LOOKS.1);
        }
    }

    /// Cancels a job that the store knows, and waits for its end.
    pub(super) async fn cancel(&self, id: JobId, status: JobStatus) -> Result<JobStatus, JobError> {
        let before = status.record.status;
        if before.is_final() {
            return Err(JobError::HasEnded { id, status: before });
        }
        self.ask(move |jobs| jobs.cancel(id)).await?;
        let is_silent =
            |status: &JobStatus| status.shared.as_ref().is_some_and(|sight| sight.silent_for.is_some());
        let waited = match is_silent(&status) {
            true => SILENT_CANCEL,
            false => status.record.stop_grace() + CANCEL_SLACK,
        };
        let ended = self.wait(id, Deadline::after(waited)).await?.ok_or(JobError::Removed(id))?;
        match ended.record.status {
            JobState::Cancelled => Ok(ended),
            status if status.is_final() => Err(JobError::HasEnded { id, status }),
            _ => match ended.shared {
                Some(SharedSight { worker: Some(worker), silent_for: Some(silent_for) }) => {
                    Err(JobError::CancelWaits { id, worker, silent_for })
                }
                _ => Err(JobError::StillEnding { id, waited }),
            },
        }
    }

    /// Reads a page of a log, with the bytes as they were written.
    pub(super) async fn log_page(
        &self,
        id: JobId,
        stream: LogStream,
        offset: u64,
        max_bytes: usize,
        has_ended: bool,
    ) -> Result<LogPage<Vec<u8>>, JobError> {
        self.ask(move |jobs| jobs.log_page(id, stream, offset, max_bytes, has_ended)).await
    }

    /// Reads the results of a job, and the ends of its logs.
    pub(super) async fn results(&self, status: JobStatus) -> Result<Results, JobError> {
        self.ask_for(LIMIT + FILE_LIMIT, move |jobs| {
            let (id, record) = (status.record.job_id, &status.record);
            let has_ended = record.status.is_final();
            let read = |name: &str| -> Result<Option<Value>, JobError> {
                let bytes = jobs.file(id, name)?;
                Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
            };
            let results = match &record.results {
                // A call may also have an answer that says that it failed.
                Some(name) if record.call.is_some() && has_ended => match jobs.file(id, name)? {
                    Some(bytes) => answer_of(&bytes),
                    None => None,
                },
                Some(name) if record.status == JobState::Completed => read(name)?,
                _ => None,
            };
            let error = if has_ended && record.status != JobState::Completed { read(ERROR)? } else { None };
            let tail = |stream| -> Result<String, JobError> {
                let end = jobs.log_end(id, stream)?;
                let wanted = u64::try_from(TAIL).unwrap_or(u64::MAX);
                let page = jobs.log_page(id, stream, end.saturating_sub(wanted), TAIL, true)?;
                Ok(page.between_characters(true).text)
            };
            let (stdout_tail, stderr_tail) = (tail(LogStream::Stdout)?, tail(LogStream::Stderr)?);
            Ok(Results { results, error, stdout_tail, stderr_tail, gone: Vec::new(), status })
        })
        .await
    }

    /// Reads a file of a call that has ended, as text; `None` if the store does not have it.
    pub(super) async fn call_file(&self, id: JobId, name: &'static str) -> Result<Option<String>, JobError> {
        let Some(bytes) = self.ask(move |jobs| jobs.file(id, name)).await? else { return Ok(None) };
        let text = String::from_utf8(bytes).map_err(|error| JobError::Shared {
            message: format!("{name} of job {id} in the job store is not text: {error}"),
        });
        text.map(Some)
    }

    /// Reads a document of the named state.
    pub(super) async fn document(
        &self,
        owner: Option<String>,
        field: Field,
    ) -> Result<Option<Document>, JobError> {
        let name = DocumentName { owner, field };
        self.ask(move |jobs| {
            let found = jobs.documents(std::slice::from_ref(&name))?.pop().flatten();
            let read = |document: SharedDocument| {
                let value = serde_json::from_str(&document.text).map_err(|error| JobError::Shared {
                    message: format!(
                        "the state field `{}` in the job store is not JSON: {error}",
                        name.field
                    ),
                })?;
                Ok(Document { field: name.field, value, updated_at: document.updated_at })
            };
            found.map(read).transpose()
        })
        .await
    }

    /// Replaces a document of the named state.
    pub(super) async fn set_document(
        &self,
        owner: Option<String>,
        field: Field,
        value: Value,
    ) -> Result<JobTimestamp, JobError> {
        let name = DocumentName { owner, field };
        self.ask(move |jobs| jobs.set_document(&name, &value.to_string())).await
    }

    /// Lists the documents of the named state.
    pub(super) async fn list_documents(&self, owner: Option<String>) -> Result<Vec<DocumentEntry>, JobError> {
        self.ask(move |jobs| jobs.list_documents(owner.as_deref())).await
    }

    /// Removes a job that the store knows.
    pub(super) async fn remove(&self, id: JobId, status: JobState) -> Result<(), JobError> {
        if !status.is_final() {
            return Err(JobError::HasNotEnded { id, status });
        }
        match self.ask(move |jobs| jobs.remove(id)).await? {
            true => Ok(()),
            false => Err(JobError::NoSuchJob(id)),
        }
    }

    /// Removes what the store has of a call of this data folder that is about to be removed here. Does nothing if the call has not ended
    /// here, or the store has nothing. Fails if the store does not have its end yet.
    pub(super) async fn remove_copy(&self, call: &JobRecord) -> Result<(), JobError> {
        if !call.status.is_final() {
            return Ok(());
        }
        // Its end may be on the way.
        let in_store = self.wait(call.job_id, Deadline::after(DELIVERY)).await?;
        let Some(in_store) = in_store else { return Ok(()) };
        match self.remove(call.job_id, in_store.record.status).await {
            Err(JobError::HasNotEnded { id, .. }) => Err(JobError::NotInStore(id)),
            Err(JobError::NoSuchJob(_)) => Ok(()),
            removed => removed,
        }
    }

    /// Removes the jobs that ended before this moment.
    pub(super) async fn prune(
        &self,
        before: JobTimestamp,
        kept: KeptAsAccepted,
    ) -> Result<Vec<JobId>, JobError> {
        let mut removed = Vec::new();
        loop {
            let batch = self.ask(move |jobs| {
                let old = jobs.ended_before(before, kept, AT_ONCE)?;
                old.into_iter()
                    .filter_map(|id| jobs.remove(id).map(|is_removed| is_removed.then_some(id)).transpose())
                    .collect::<Result<Vec<_>, _>>()
            });
            let batch = batch.await?;
            if batch.is_empty() {
                return Ok(removed);
            }
            removed.extend(batch);
        }
    }

    /// Adds the jobs of the store to the counts of jobs that it does not have.
    pub(super) async fn with_counts(
        &self,
        mut own: Vec<(JobState, u64)>,
    ) -> Result<Vec<(JobState, u64)>, JobError> {
        for (state, count) in self.ask(|jobs| jobs.counts()).await? {
            own.iter_mut().filter(|(known, _)| *known == state).for_each(|(_, known)| *known += count);
        }
        Ok(own)
    }

    /// Returns all workers.
    pub(super) async fn workers(&self) -> Result<Vec<WorkerSummary>, JobError> {
        self.ask(|jobs| jobs.workers()).await
    }

    /// Adds workers and open jobs of the store to the state of a machine. The slots are those of all workers that live.
    pub(super) async fn with_system(&self, own: System) -> Result<System, JobError> {
        let in_store = self.ask(|jobs| {
            let open = |state| jobs.newest(Some(state), &JobOwnerFilter::Anybodys, MOST_SHOWN);
            Ok((open(JobState::Running)?, open(JobState::Queued)?, jobs.workers()?))
        });
        let (active, queued, workers) = in_store.await?;
        let mut jobs = merged(own.jobs.into_iter(), active.into_iter().chain(queued), u32::MAX);
        jobs.reverse();
        let running: u64 = workers.iter().map(|worker| worker.running).sum();
        let living = workers.iter().filter(|worker| !worker.is_silent);
        Ok(System {
            jobs,
            running: u32::try_from(running).unwrap_or(u32::MAX),
            max_concurrent: living.map(|worker| worker.slots).fold(0, u32::saturating_add),
            wait_reason: None,
            workers,
            ..own
        })
    }
}

/// Reads the answer of a call. One that a [`Value`] cannot have is JSON in a text, as in a data folder.
fn answer_of(bytes: &[u8]) -> Option<Value> {
    if large_numbers::check(bytes, RESULT).is_ok()
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return Some(value);
    }
    let json: Box<RawValue> = serde_json::from_slice(bytes).ok()?;
    Some(Value::from(json.get()))
}

/// Returns these jobs of the store, with the calls of this data folder as they are here.
pub(super) fn as_here(inner: &EngineState, jobs: Vec<JobStatus>) -> Vec<JobStatus> {
    let here = |job: JobStatus| {
        let own = job.record.call.as_ref().and_then(|_| inner.status(job.record.job_id).ok());
        own.filter(|own| own.record.call.is_some()).unwrap_or(job)
    };
    jobs.into_iter().map(here).collect()
}

/// Leaves out the calls of this data folder that have ended here, which the store may not know yet.
pub(super) fn open_here(inner: &EngineState, system: System) -> System {
    let mut jobs = as_here(inner, system.jobs);
    jobs.retain(|job| !job.record.status.is_final());
    System { jobs, ..system }
}

/// Counts the calls in memory that the store does not have, by state.
pub(super) fn calls_here_alone(inner: &EngineState) -> Result<Vec<(JobState, u64)>, JobError> {
    let alone = inner.memory.calls(|job| job.record.call.is_some());
    let alone = alone.iter().filter(|status| !inner.data.job(status.record.job_id).has(IN_STORE));
    let states: Vec<JobState> = alone.map(|status| status.record.status).collect();
    let count = |state| states.iter().filter(|known| **known == state).count();
    Ok(JobState::ALL.into_iter().map(|state| (state, count(state) as u64)).collect())
}

/// Merges the jobs of a data folder and those of the store, newest first, at most `limit`. Commands of the data folder are a worker's copies
/// of jobs that the store has. A call of the data folder is shown as it is there, and once.
pub(super) fn merged(
    own: impl Iterator<Item = JobStatus>,
    in_store: impl Iterator<Item = JobStatus>,
    limit: u32,
) -> Vec<JobStatus> {
    let mut all: Vec<_> = own.filter(|status| status.record.call.is_some()).collect();
    let own: HashSet<JobId> = all.iter().map(|status| status.record.job_id).collect();
    all.extend(in_store.filter(|status| !own.contains(&status.record.job_id)));
    all.sort_by_key(|status| std::cmp::Reverse(status.record.created_at));
    all.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    all
}
