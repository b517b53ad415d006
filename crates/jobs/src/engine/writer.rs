//! The threads that accept jobs: folder, row and answer are the work of the one, the copy of the record and the shim that of the
//! other, because whoever submits shall wait neither for what only people read nor for the start of a process.
//!
//! Invariants
//!
//! - An id goes out only after the job is on the disk: its row, and what it needs to start, in its folder or beside the row.
//! - Jobs that arrive together share one commit; each has its own outcome.
//! - A folder is removed here only with its submitter's mark in hand (`submitting.rs`). Who makes the database anew meanwhile, or puts
//!   another in its place, takes no job from its submitter, nor the other way round.
//! - The queue of submissions is bounded; whoever meets it full waits no longer than a submit may take.

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
    store::{self, JobRow, Store, StoreError},
    submission::{PreparedSubmission, Submission, discard},
    submitting::SubmissionMark,
};

/// Submissions that wait for the disk.
pub(super) const WAITING: usize = 256;
/// Submissions of one commit (processes.md 3).
const TOGETHER: usize = 32;

/// How often a row is noted again where somebody has put another database in the place of the one that has it.
const TRIES: u32 = 5;

/// A submission and where its outcome is awaited.
type QueuedSubmission = (Submission, oneshot::Sender<Result<JobId, JobError>>);
/// The same for a call.
type QueuedAdoption = (Adoption, oneshot::Sender<Result<UnclaimedCall, JobError>>);

/// What is to be taken in.
enum NewJob {
    Command(Box<Submission>),
    Call(Box<Adoption>),
}

/// Where the outcome is awaited.
enum SubmissionReply {
    Command(oneshot::Sender<Result<JobId, JobError>>),
    Call(oneshot::Sender<Result<UnclaimedCall, JobError>>),
}

impl SubmissionReply {
    /// Says what came of it. Whoever asked may have gone; a call is let go of then.
    fn give(self, inner: &Arc<EngineState>, outcome: Result<JobId, JobError>) {
        match self {
            SubmissionReply::Command(answer) => drop(answer.send(outcome)),
            SubmissionReply::Call(answer) => {
                drop(answer.send(outcome.map(|id| UnclaimedCall::new(Arc::clone(inner), id))));
            }
        }
    }
}

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum WriterRequest {
    /// Take a job in.
    Submit(Box<QueuedSubmission>),
    /// Take a call in.
    Adopt(Box<QueuedAdoption>),
    /// Say when everything that was asked for before has been done, the start of shims included.
    SayWhenDone(oneshot::Sender<()>),
}

/// What is left to do for jobs that were accepted.
enum FollowUp {
    /// Write the copies of their records, and start the shims of those that have a slot.
    Start(AcceptedBatch),
    /// Say when everything before has been done.
    SayWhenDone(oneshot::Sender<()>),
}

/// Starts the threads. They end when the engine has gone.
pub(super) fn start(
    inner: Arc<EngineState>,
    mut store: Store,
    mut requests: mpsc::Receiver<WriterRequest>,
) -> io::Result<()> {
    let starts = start_starter(inner.clone())?;
    let rest = move |rest| {
        // It ends only after us, unless it has panicked; then the maintenance thread starts what has a slot.
        let _ = starts.send(rest);
    };
    let write = move || {
        // Whoever submits waits for this thread, while jobs keep the processors busy.
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
                // Whoever asked may have gone.
                FollowUp::SayWhenDone(done) => drop(done.send(())),
            }
        }
    };
    thread::Builder::new().name("jobs-starter".into()).spawn(start)?;
    Ok(sender)
}

/// Writes `job.json`, which is for people, before the job starts here (J-35). Whoever has started it elsewhere may be ahead.
fn copy(inner: &EngineState, record: &JobRecord) {
    let folder = inner.data.job(record.job_id);
    match folder.write_if_missing(RECORD, record) {
        // A job that has ended meanwhile has had its folder tidied up, and has a newer copy.
        Err(error) if error.kind() != Some(io::ErrorKind::NotFound) => tracing::warn!("{error}"),
        _ => {}
    }
}

/// What a batch has led to.
#[derive(Default)]
struct AcceptedBatch {
    /// The jobs that are new.
    accepted: Vec<JobRecord>,
    /// Those that have a slot now.
    admitted: Vec<JobId>,
}

fn accept(
    inner: &Arc<EngineState>,
    store: &mut Store,
    batch: Vec<(NewJob, SubmissionReply)>,
) -> AcceptedBatch {
    let prepared = prepare_all(inner, batch);
    if prepared.is_empty() { AcceptedBatch::default() } else { take_in(inner, store, prepared) }
}

/// Gives jobs their rows, and answers.
fn take_in(
    inner: &Arc<EngineState>,
    store: &mut Store,
    mut prepared: Vec<(PreparedSubmission, SubmissionReply)>,
) -> AcceptedBatch {
    match note(inner, store, &mut prepared) {
        Ok(BatchOutcome { is_ours, rows, admitted }) => {
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
                // The row was rolled back, or the commit failed and the next look at the folder finds none.
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

/// Removes the folder of a job that is not accepted. False where it may be another's by now.
fn refuse(inner: &EngineState, job: &PreparedSubmission) -> bool {
    // Nobody takes the folder of a call for a job's before it has its record, which comes later.
    let is_ours = job.mark.is_some() || job.record.call.is_some();
    if is_ours {
        discard(&inner.data.job(job.record.job_id));
    }
    is_ours
}

/// Commits the rows to the database that is in its place when this returns, and takes the marks from the folders of what is in it.
fn note(
    inner: &EngineState,
    store: &mut Store,
    prepared: &mut [(PreparedSubmission, SubmissionReply)],
) -> Result<BatchOutcome, StoreError> {
    for _ in 0..TRIES {
        let jobs: Vec<&PreparedSubmission> = prepared.iter().map(|(job, _)| job).collect();
        match commit(inner, store, &jobs) {
            Ok(accepted) => {
                let ours = prepared.iter_mut().zip(&accepted.is_ours).filter(|(_, is_ours)| **is_ours);
                ours.filter_map(|((job, _), _)| job.mark.take()).for_each(SubmissionMark::remove);
                // Whoever makes a database of the folders from now on finds these jobs. One that was made before may lack them.
                if store.is_in_place() {
                    return Ok(accepted);
                }
            }
            // It may have been made without them, for their folders were marked.
            Err(StoreError::Replaced { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Replaced { path: inner.data.database() })
}

/// Makes the folders, and answers those whose folder cannot be made.
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
        // It runs already, whatever there is too little of.
        NewJob::Call(adoption) => return adoption.prepare(inner),
    };
    submission.check()?;
    if let Some(reason) = inner.lack() {
        return Err(JobError::NoRoom { reason, running: inner.running() });
    }
    submission.prepare(&inner.data, inner.options.rules, &inner.starter.boot_id)
}

struct BatchOutcome {
    /// Whether the row of each is its own, and not that of another job with its id.
    is_ours: Vec<bool>,
    rows: Vec<JobRow>,
    admitted: Vec<JobId>,
}

/// Whether two records are of one submission, however far the job has come.
fn is_same<'a>(one: &'a JobRecord, other: &'a JobRecord) -> bool {
    let identity = |record: &'a JobRecord| {
        (record.job_id, record.created_at, &record.command, &record.folder, &record.name, &record.owner)
    };
    identity(one) == identity(other)
}

fn commit(
    inner: &EngineState,
    store: &mut Store,
    jobs: &[&PreparedSubmission],
) -> Result<BatchOutcome, StoreError> {
    let admission = inner.admission();
    store.write(|transaction| {
        let mut is_ours = Vec::with_capacity(jobs.len());
        for job in jobs {
            let is_new = store::insert(transaction, &job.record, job.files.as_ref())?;
            // Whoever made the table anew may have found the folder.
            let is_known = || -> rusqlite::Result<bool> {
                let row = store::get(transaction, job.record.job_id)?;
                Ok(row.is_some_and(|row| is_same(&row.record, &job.record)))
            };
            is_ours.push(is_new || is_known()?);
        }
        let admitted = admission.admit(transaction)?;
        let mut rows = Vec::with_capacity(jobs.len());
        let ids = jobs.iter().map(|job| job.record.job_id).chain(admitted.iter().copied());
        for id in ids {
            rows.extend(store::get(transaction, id)?);
        }
        Ok(BatchOutcome { is_ours, rows, admitted })
    })
}

#[cfg(test)]
mod tests;
