//! The threads that accept jobs: folder, row and answer are the work of the one, the copy of the record and the shim that of the
//! other, because whoever submits shall wait neither for what only people read nor for the start of a process.
//!
//! Invariants
//!
//! - An id goes out only after the job is on the disk: its row, and what it needs to start, in its folder or beside the row.
//! - Jobs that arrive together share one commit; each has its own outcome.
//! - The queue of submissions is bounded; whoever meets it full waits no longer than a submit may take.

use std::{
    io,
    sync::{Arc, mpsc as threads},
    thread,
};

use tokio::sync::{mpsc, oneshot};
use unhang_proc::identity::ask_for_short_turns;

use super::{
    Inner,
    calls::{Adoption, Claim},
};
use crate::{
    error::JobError,
    folder::RECORD,
    id::JobId,
    record::Record,
    store::{self, Job, Store, StoreError},
    submission::{Prepared, Submission, discard},
};

/// Submissions that wait for the disk.
pub(super) const WAITING: usize = 256;
/// Submissions of one commit (processes.md 3).
const TOGETHER: usize = 32;

/// A submission and where its outcome is awaited.
type Asked = (Submission, oneshot::Sender<Result<JobId, JobError>>);
/// The same for a call.
type AskedCall = (Adoption, oneshot::Sender<Result<Claim, JobError>>);

/// What is to be taken in.
enum New {
    Command(Box<Submission>),
    Call(Box<Adoption>),
}

/// Where the outcome is awaited.
enum Answer {
    Command(oneshot::Sender<Result<JobId, JobError>>),
    Call(oneshot::Sender<Result<Claim, JobError>>),
}

impl Answer {
    /// Says what came of it. Whoever asked may have gone; a call is let go of then.
    fn give(self, inner: &Arc<Inner>, outcome: Result<JobId, JobError>) {
        match self {
            Answer::Command(answer) => drop(answer.send(outcome)),
            Answer::Call(answer) => drop(answer.send(outcome.map(|id| Claim::new(Arc::clone(inner), id)))),
        }
    }
}

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum Request {
    /// Take a job in.
    Submit(Box<Asked>),
    /// Take a call in.
    Adopt(Box<AskedCall>),
    /// Say when everything that was asked for before has been done, the start of shims included.
    SayWhenDone(oneshot::Sender<()>),
}

/// What is left to do for jobs that were accepted.
enum Rest {
    /// Write the copies of their records, and start the shims of those that have a slot.
    Start(Begun),
    /// Say when everything before has been done.
    SayWhenDone(oneshot::Sender<()>),
}

/// Starts the threads. They end when the engine has gone.
pub(super) fn start(
    inner: Arc<Inner>,
    mut store: Store,
    mut requests: mpsc::Receiver<Request>,
) -> io::Result<()> {
    let starts = start_starter(inner.clone())?;
    let rest = move |rest| {
        // It ends only after us, unless it has panicked; then the keeper starts what has a slot.
        let _ = starts.send(rest);
    };
    let write = move || {
        // Whoever submits waits for this thread, while jobs keep the processors busy.
        ask_for_short_turns();
        while let Some(first) = requests.blocking_recv() {
            let (mut batch, mut waiting) = (Vec::new(), Vec::new());
            let mut sort = |request| match request {
                Request::Submit(asked) => {
                    let (submission, answer) = *asked;
                    batch.push((New::Command(Box::new(submission)), Answer::Command(answer)));
                }
                Request::Adopt(asked) => {
                    let (adoption, answer) = *asked;
                    batch.push((New::Call(Box::new(adoption)), Answer::Call(answer)));
                }
                Request::SayWhenDone(done) => waiting.push(done),
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
                rest(Rest::Start(begun));
            }
            waiting.into_iter().map(Rest::SayWhenDone).for_each(&rest);
        }
    };
    thread::Builder::new().name("jobs-writer".into()).spawn(write).map(drop)
}

fn start_starter(inner: Arc<Inner>) -> io::Result<threads::SyncSender<Rest>> {
    let (sender, receiver) = threads::sync_channel(WAITING);
    let start = move || {
        for rest in receiver {
            match rest {
                Rest::Start(begun) => {
                    begun.accepted.iter().for_each(|record| copy(&inner, record));
                    inner.start_shims(&begun.admitted);
                }
                // Whoever asked may have gone.
                Rest::SayWhenDone(done) => drop(done.send(())),
            }
        }
    };
    thread::Builder::new().name("jobs-starter".into()).spawn(start)?;
    Ok(sender)
}

/// Writes `job.json`, which is for people, before the job starts here (J-35). Whoever has started it elsewhere may be ahead.
fn copy(inner: &Inner, record: &Record) {
    let folder = inner.data.job(record.job_id);
    match folder.write_if_missing(RECORD, record) {
        // A job that has ended meanwhile has had its folder tidied up, and has a newer copy.
        Err(error) if error.kind() != Some(io::ErrorKind::NotFound) => tracing::warn!("{error}"),
        _ => {}
    }
}

/// What a batch has led to.
#[derive(Default)]
struct Begun {
    /// The jobs that are new.
    accepted: Vec<Record>,
    /// Those that have a slot now.
    admitted: Vec<JobId>,
}

fn accept(inner: &Arc<Inner>, store: &mut Store, batch: Vec<(New, Answer)>) -> Begun {
    let database = store.replaced();
    let prepared = prepare_all(inner, batch);
    if prepared.is_empty() {
        return Begun::default();
    }
    let jobs: Vec<&Prepared> = prepared.iter().map(|(job, _)| job).collect();
    match commit(inner, store, &jobs) {
        Ok(Accepted { is_new, rows, admitted }) => {
            inner.memory.update(rows);
            // A database that was made anew meanwhile may know our folders already: then the rows are ours.
            let is_anew = store.replaced() != database;
            let mut accepted = Vec::with_capacity(prepared.len());
            for ((job, answer), is_new) in prepared.into_iter().zip(is_new) {
                let id = job.record.job_id;
                let outcome = if is_new || is_anew {
                    accepted.push(job.record);
                    Ok(id)
                } else {
                    discard(&inner.data.job(id));
                    Err(JobError::IdTaken(id))
                };
                answer.give(inner, outcome);
            }
            Begun { accepted, admitted }
        }
        Err(error) => {
            let error = Arc::new(error);
            for (job, answer) in prepared {
                // The row was rolled back, or the commit failed and the next look at the folder finds none. Only a database that
                // was made anew meanwhile may have found it in time.
                if !matches!(*error, StoreError::Replaced { .. }) {
                    discard(&inner.data.job(job.record.job_id));
                }
                answer.give(inner, Err(JobError::Store(error.clone())));
            }
            Begun::default()
        }
    }
}

/// Makes the folders, and answers those whose folder cannot be made.
fn prepare_all(inner: &Arc<Inner>, batch: Vec<(New, Answer)>) -> Vec<(Prepared, Answer)> {
    let mut written = Vec::with_capacity(batch.len());
    for (new, answer) in batch {
        match prepare(inner, &new) {
            Ok(job) => written.push((new, job, answer)),
            Err(error) => answer.give(inner, Err(error)),
        }
    }
    let sync = |(new, job, answer): (New, Prepared, Answer)| {
        let synced = match &new {
            New::Command(submission) if job.files.is_none() => submission.sync(&inner.data),
            // All that there is to know about it is in the row.
            New::Command(_) | New::Call(_) => Ok(()),
        };
        match synced {
            Ok(()) => Some((job, answer)),
            Err(error) => {
                discard(&inner.data.job(job.record.job_id));
                answer.give(inner, Err(error));
                None
            }
        }
    };
    written.into_iter().filter_map(sync).collect()
}

fn prepare(inner: &Inner, new: &New) -> Result<Prepared, JobError> {
    let submission = match new {
        New::Command(submission) => submission,
        // It runs already, whatever there is too little of.
        New::Call(adoption) => return adoption.prepare(inner),
    };
    submission.check()?;
    if let Some(reason) = inner.lack() {
        return Err(JobError::NoRoom { reason, running: inner.running() });
    }
    submission.prepare(&inner.data, inner.options.rules)
}

struct Accepted {
    is_new: Vec<bool>,
    rows: Vec<Job>,
    admitted: Vec<JobId>,
}

fn commit(inner: &Inner, store: &mut Store, jobs: &[&Prepared]) -> Result<Accepted, StoreError> {
    let handover = inner.handover();
    store.write(|transaction| {
        let mut is_new = Vec::with_capacity(jobs.len());
        for job in jobs {
            is_new.push(store::insert(transaction, &job.record, job.files.as_ref())?);
        }
        let admitted = handover.admit(transaction)?;
        let mut rows = Vec::with_capacity(jobs.len());
        let ids = jobs.iter().map(|job| job.record.job_id).chain(admitted.iter().copied());
        for id in ids {
            rows.extend(store::get(transaction, id)?);
        }
        Ok(Accepted { is_new, rows, admitted })
    })
}
