//! The threads that accept jobs. The writer makes folder and row, and answers. The starter copies the record and starts the supervisor: a
//! submitter waits neither for a file that only people read nor for the start of a process.
//!
//! Invariants
//!
//! - An id goes out only after the job is on the disk: its row, and everything that it needs to start, in its folder or beside the row.
//! - Jobs that arrive together share one commit; each has its own outcome.
//! - A folder is removed here only while its submitter's mark is held (`submitting.rs`). So a process that makes the database anew
//!   meanwhile, or puts another in its place, takes no job from its submitter, nor the other way round.
//! - The queue of submissions is bounded. If it is full, a submitter waits no longer than a submission may take.

use std::{
    io,
    sync::{Arc, mpsc as threads},
    thread,
};

use tokio::sync::{mpsc, oneshot};
use unhang_proc::identity::ask_for_short_turns;

use super::{
    EngineState,
    calls::{Adoption, UnclaimedCall},
};
use crate::{
    error::JobError,
    folder::RECORD,
    id::JobId,
    record::JobRecord,
    store::{AcceptedRows, JobEntry, SqliteStore, StoreError},
    submission::{PreparedSubmission, Submission, discard},
    submitting::SubmissionMark,
};

/// The most submissions that wait for the disk.
pub(super) const WAITING: usize = 256;
/// The most submissions of one commit (processes.md 3).
const TOGETHER: usize = 32;

/// The number of tries to write a row if another database is put in the place of the one that has the row.
const TRIES: u32 = 5;

/// A submission and the sender for its outcome.
type QueuedSubmission = (Submission, oneshot::Sender<Result<JobId, JobError>>);
/// An adoption and the sender for its outcome.
type QueuedAdoption = (Adoption, oneshot::Sender<Result<UnclaimedCall, JobError>>);

/// A job that is to be accepted.
enum NewJob {
    Command(Box<Submission>),
    Call(Box<Adoption>),
}

/// The sender for the outcome.
enum SubmissionReply {
    Command(oneshot::Sender<Result<JobId, JobError>>),
    Call(oneshot::Sender<Result<UnclaimedCall, JobError>>),
}

impl SubmissionReply {
    /// Sends the outcome. The submitter may have gone; a call is let go of then.
    fn give(self, inner: &Arc<EngineState>, outcome: Result<JobId, JobError>) {
        match self {
            SubmissionReply::Command(answer) => drop(answer.send(outcome)),
            SubmissionReply::Call(answer) => {
                drop(answer.send(outcome.map(|id| UnclaimedCall::new(Arc::clone(inner), id))));
            }
        }
    }
}

/// A request to the writer.
#[derive(Debug)]
pub(super) enum WriterRequest {
    /// Accept a command.
    Submit(Box<QueuedSubmission>),
    /// Accept a call.
    Adopt(Box<QueuedAdoption>),
    /// Answer once all earlier requests are done, the start of supervisors included.
    SayWhenDone(oneshot::Sender<()>),
}

/// The work that is left to do for accepted jobs.
enum FollowUp {
    /// Write the copies of their records, and start the supervisors of those that have a slot.
    Start(AcceptedBatch),
    /// Answer once all earlier work is done.
    SayWhenDone(oneshot::Sender<()>),
}

/// Starts the threads. They end when the engine has gone.
pub(super) fn start(
    inner: Arc<EngineState>,
    mut store: SqliteStore,
    mut requests: mpsc::Receiver<WriterRequest>,
) -> io::Result<()> {
    let starts = start_starter(inner.clone())?;
    let rest = move |rest| {
        // The starter ends only after this thread, unless it has panicked; then the maintenance thread starts the jobs that have a slot.
        let _ = starts.send(rest);
    };
    let write = move || {
        // Submitters wait for this thread, while jobs keep the processors busy.
        ask_for_short_turns();
        while let Some(first) = requests.blocking_recv() {
            let (mut batch, mut waiting) = (Vec::new(), Vec::new());
            let mut sort = |request| match request {
                WriterRequest::Submit(asked) => {
                    let (submission, answer) = *asked;
                    batch.push((NewJob::Command(Box::new(submission)), SubmissionReply::Command(answer)));
                }
                WriterRequest::Adopt(asked) => {
                    let (adoption, answer) = *asked;
                    batch.push((NewJob::Call(Box::new(adoption)), SubmissionReply::Call(answer)));
                }
                WriterRequest::SayWhenDone(done) => waiting.push(done),
            };
            sort(first);
            for _ in 1..TOGETHER {
                match requests.try_recv() {
                    Ok(next) => sort(next),
                    Err(_) => break,
                }
            }
            let begun = accept(&inner, &mut store, batch);
            if !begun.admitted.is_empty() || !begun.accepted.is_empty() {
                rest(FollowUp::Start(begun));
            }
            waiting.into_iter().map(FollowUp::SayWhenDone).for_each(&rest);
        }
    };
    thread::Builder::new().name("jobs-writer".into()).spawn(write).map(drop)
}

fn start_starter(inner: Arc<EngineState>) -> io::Result<threads::SyncSender<FollowUp>> {
    let (sender, receiver) = threads::sync_channel(WAITING);
    let start = move || {
        for rest in receiver {
            match rest {
                FollowUp::Start(begun) => {
                    begun.accepted.iter().for_each(|record| copy(&inner, record));
                    inner.start_shims(&begun.admitted);
                }
                // The submitter may have gone.
                FollowUp::SayWhenDone(done) => drop(done.send(())),
            }
        }
    };
    thread::Builder::new().name("jobs-starter".into()).spawn(start)?;
    Ok(sender)
}

/// Writes `job.json`, which is for people, before the job starts here (J-35). A process that started the job elsewhere may be ahead.
fn copy(inner: &EngineState, record: &JobRecord) {
    let folder = inner.data.job(record.job_id);
    match folder.write_if_missing(RECORD, record) {
        // The folder of a job that has ended meanwhile was tidied up, and has a newer copy.
        Err(error) if error.kind() != Some(io::ErrorKind::NotFound) => tracing::warn!("{error}"),
        _ => {}
    }
}

/// The outcome of a batch.
#[derive(Default)]
struct AcceptedBatch {
    /// The new jobs.
    accepted: Vec<JobRecord>,
    /// The jobs that have a slot now.
    admitted: Vec<JobId>,
}

fn accept(
    inner: &Arc<EngineState>,
    store: &mut SqliteStore,
    batch: Vec<(NewJob, SubmissionReply)>,
) -> AcceptedBatch {
    let prepared = prepare_all(inner, batch);
    if prepared.is_empty() { AcceptedBatch::default() } else { take_in(inner, store, prepared) }
}

/// Writes the rows of the jobs, and answers.
fn take_in(
    inner: &Arc<EngineState>,
    store: &mut SqliteStore,
    mut prepared: Vec<(PreparedSubmission, SubmissionReply)>,
) -> AcceptedBatch {
    match note(inner, store, &mut prepared) {
        Ok(AcceptedRows { is_ours, rows, admitted }) => {
            inner.memory.update(rows);
            let mut accepted = Vec::with_capacity(prepared.len());
            for ((job, answer), is_ours) in prepared.into_iter().zip(is_ours) {
                let id = job.record.job_id;
                let outcome = if is_ours {
                    accepted.push(job.record);
                    Ok(id)
                } else {
                    refuse(inner, &job);
                    Err(JobError::IdTaken(id))
                };
                answer.give(inner, outcome);
            }
            AcceptedBatch { accepted, admitted }
        }
        Err(error) => {
            let error = Arc::new(error);
            for (job, answer) in prepared {
                let id = job.record.job_id;
                // The row was rolled back, or the commit failed and the next look at the folder finds no job.
                let outcome = match refuse(inner, &job) {
                    true => JobError::Store(error.clone()),
                    false => JobError::Unconfirmed { id, cause: error.clone() },
                };
                answer.give(inner, Err(outcome));
            }
            AcceptedBatch::default()
        }
    }
}

/// Removes the folder of a job that is not accepted. Returns false if the folder may belong to another job by now.
fn refuse(inner: &EngineState, job: &PreparedSubmission) -> bool {
    // The folder of a call is not taken for a job's before it has its record, which comes later.
    let is_ours = job.mark.is_some() || job.record.call.is_some();
    if is_ours {
        discard(&inner.data.job(job.record.job_id));
    }
    is_ours
}

/// Commits the rows to the database that is in its place when this returns. Takes the marks from the folders of the jobs in it.
fn note(
    inner: &EngineState,
    store: &mut SqliteStore,
    prepared: &mut [(PreparedSubmission, SubmissionReply)],
) -> Result<AcceptedRows, StoreError> {
    for _ in 0..TRIES {
        let jobs: Vec<&PreparedSubmission> = prepared.iter().map(|(job, _)| job).collect();
        match commit(inner, store, &jobs) {
            Ok(accepted) => {
                let ours = prepared.iter_mut().zip(&accepted.is_ours).filter(|(_, is_ours)| **is_ours);
                ours.filter_map(|((job, _), _)| job.mark.take()).for_each(SubmissionMark::remove);
                // A database that is made of the folders from now on has these jobs. One that was made before may lack them.
                if store.is_in_place() {
                    return Ok(accepted);
                }
            }
            // The new database may have been made without the jobs, since their folders were marked.
            Err(StoreError::Replaced { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Replaced { path: inner.data.database() })
}

/// Makes the folders, and answers the submitters whose folder cannot be made.
fn prepare_all(
    inner: &Arc<EngineState>,
    batch: Vec<(NewJob, SubmissionReply)>,
) -> Vec<(PreparedSubmission, SubmissionReply)> {
    let mut written = Vec::with_capacity(batch.len());
    for (new, answer) in batch {
        match prepare(inner, &new) {
            Ok(job) => written.push((job, answer)),
            Err(error) => answer.give(inner, Err(error)),
        }
    }
    let sync = |(job, answer): (PreparedSubmission, SubmissionReply)| match job.sync() {
        Ok(()) => Some((job, answer)),
        Err(error) => {
            discard(&inner.data.job(job.record.job_id));
            answer.give(inner, Err(error));
            None
        }
    };
    written.into_iter().filter_map(sync).collect()
}

fn prepare(inner: &EngineState, new: &NewJob) -> Result<PreparedSubmission, JobError> {
    let submission = match new {
        NewJob::Command(submission) => submission,
        // The call runs already, even if resources are scarce.
        NewJob::Call(adoption) => return adoption.prepare(inner),
    };
    submission.check()?;
    if let Some(reason) = inner.lack() {
        return Err(JobError::NoRoom { reason, running: inner.running() });
    }
    submission.prepare(&inner.data, inner.options.rules, &inner.starter.boot_id)
}

fn commit(
    inner: &EngineState,
    store: &mut SqliteStore,
    jobs: &[&PreparedSubmission],
) -> Result<AcceptedRows, StoreError> {
    // A call takes no slot and frees none, so nobody measures the resources of the machine for it.
    let has_commands = jobs.iter().any(|job| job.record.call.is_none());
    let admission = has_commands.then(|| inner.admission());
    let entries = jobs.iter().map(|job| JobEntry { record: &job.record, orders: job.files.as_ref() });
    store.accept_and_admit(&entries.collect::<Vec<_>>(), admission.as_ref())
}

#[cfg(test)]
mod tests;
