//! Calls of servers' tools that have become jobs: no command of ours works on them, and what there is to keep is that somebody waits.
//!
//! Theory of operation. Whoever waits for the answer has the call taken in ([`Engine::adopt`]), which is durable like every submission,
//! and holds it from then on ([`HeldCall`]): tells how far it is, and at last how it ended. The record names the process that does. Nobody
//! else can ever have the answer, so a call whose process has gone has failed, and whoever finds it says so; unless its server keeps the
//! answer and there is a ticket for it ([`super::tickets`]).
//!
//! ```text
//! adopt ─ row, `active` (fsync) ─ id goes out ─ HeldCall ─┬ settled: results.json or error.json ─ exit.json ─ row: final
//!                                                        ├ let go (dropped, a panic): the maintenance thread settles it as failed
//!                                                        └ process gone: the next look of any engine settles it as failed,
//!                                                          or leaves it to whoever can take it up
//! ```
//!
//! Invariants
//!
//! - A call takes no slot: the work is the server's, and runs already.
//! - What is settled as completed has its result on the disk first.
//! - While its holder lives, nobody else says how a call ended; whoever wants it to end tells the holder. It holds the lock of the job's
//!   folder, for those who cannot see its process.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};
use unhang_proc::lock::Lock;
use unhang_switches::stands;

use super::{
    CHANGE_LIMIT, Engine, EngineState, SUBMIT_LIMIT,
    journal::{Journal, LogWriter},
    memory::JobStatus,
    tickets, writer,
};
use crate::{
    error::JobError,
    folder::{ARGUMENTS, DataFolder, ERROR, FileError, LOCK, RESULT, STDOUT, WorkFolder},
    id::JobId,
    judge_call::unhang_ended,
    progress::JobProgress,
    record::{CallRecord, CallTicket, EndReason, EndRecord, FORMAT, Holder, JobEnd, JobRecord, JobState},
    settle::{settle, write_ending},
    store::{self, ShimStarter, Store, StoreError},
    submission::{LOG_LIMIT, PreparedSubmission, STOP_GRACE, discard, millis},
    timestamp::JobTimestamp,
};

/// How long what was logged may take to the disk before the end is written without it.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// A call that is to become a job.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// Its id, from [`JobId::random`].
    pub id: JobId,
    /// What people call it.
    pub name: String,
    /// Whose it is, where those who start jobs are told from one another.
    pub owner: Option<String>,
    /// The server, as the configuration calls it.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
    /// Whether it may be called once more without doing anything twice.
    pub is_repeatable: bool,
    /// What it was called with, as JSON.
    pub arguments: Option<String>,
    /// For how long it has been worked on.
    pub elapsed: Duration,
    /// How long it may take in all.
    pub timeout: Option<Duration>,
    /// What its answer can be had with by others, where its server keeps it.
    pub ticket: Option<CallTicket>,
}

impl Adoption {
    /// Makes the folder. Whoever calls it has to remove it if the call is not taken in after all.
    pub(super) fn prepare(&self, inner: &EngineState) -> Result<PreparedSubmission, JobError> {
        let folder = inner.data.job(self.id);
        match folder.create() {
            Err(error) if error.kind() == Some(io::ErrorKind::AlreadyExists) => {
                return Err(JobError::IdTaken(self.id));
            }
            made => made?,
        }
        let work = folder.work(FORMAT);
        let fill = || {
            work.create_if_missing()?;
            let text = self.arguments.as_ref().map(|arguments| format!("{arguments}\n"));
            text.map_or(Ok(()), |text| work.add(ARGUMENTS, text.as_bytes()))
        };
        if let Err(error) = fill() {
            discard(&folder);
            return Err(JobError::Serialization(error));
        }
        // Without orders and record nobody takes the folder for a job's.
        Ok(PreparedSubmission::without_files(self.record(inner)))
    }

    fn record(&self, inner: &EngineState) -> JobRecord {
        let ShimStarter { boot_id, process, .. } = inner.starter.clone();
        let now = JobTimestamp::now();
        JobRecord {
            format: FORMAT,
            job_id: self.id,
            name: self.name.clone(),
            tool: None,
            owner: self.owner.clone(),
            call: Some(CallRecord {
                server: self.server.clone(),
                tool: self.tool.clone(),
                is_repeatable: self.is_repeatable,
                holder: Holder { boot_id, process },
                ticket: self.ticket.clone(),
            }),
            command: Vec::new(),
            folder: inner.data.job(self.id).path().to_owned(),
            variables: Vec::new(),
            results: Some(RESULT.to_owned()),
            patch: None,
            timeout_ms: self.timeout.map(millis),
            stop_grace_ms: millis(STOP_GRACE),
            log_limit: LOG_LIMIT,
            rules: inner.options.rules,
            status: JobState::Running,
            created_at: now,
            started_at: Some(JobTimestamp::from_millis(now.millis().saturating_sub(millis(self.elapsed)))),
            ending: None,
            state_applied: None,
            state_reason: None,
        }
    }
}

/// How a call came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The tool answered.
    Answered {
        /// The result, as JSON.
        result: String,
        /// The tool says that it failed.
        is_error: bool,
    },
    /// There is no answer.
    Failed {
        /// Why.
        reason: EndReason,
        /// The same for a person.
        detail: String,
        /// The error that its caller would have had, as JSON.
        error: Option<String>,
    },
    /// Somebody wanted it to end.
    Cancelled,
}

impl CallEnd {
    /// Leaves in the folder what came of it, durably, and says how it ended.
    fn write(&self, work: &WorkFolder) -> Result<EndRecord, FileError> {
        // A power failure may have taken what was accepted a moment ago.
        work.create_if_missing()?;
        Ok(match self {
            CallEnd::Answered { result, is_error } => {
                work.replace(RESULT, result.as_bytes())?;
                match is_error {
                    false => EndRecord::without_run(JobEnd::Completed),
                    true => EndRecord::without_run(JobEnd::Failed)
                        .because(EndReason::ToolError, "the tool says that it failed; its answer says why"),
                }
            }
            CallEnd::Failed { reason, detail, error } => {
                if let Some(error) = error {
                    work.replace(ERROR, error.as_bytes())?;
                }
                EndRecord::without_run(JobEnd::Failed).because(*reason, detail.clone())
            }
            CallEnd::Cancelled => EndRecord::without_run(JobEnd::Cancelled),
        })
    }
}

/// The calls that this engine's owners hold.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Each is told when somebody wants it to end.
    held: Mutex<HashMap<JobId, watch::Sender<bool>>>,
    /// Those that were let go of without an end.
    let_go: Mutex<Vec<JobId>>,
    journal: OnceLock<Option<Journal>>,
}

impl Calls {
    fn held(&self) -> MutexGuard<'_, HashMap<JobId, watch::Sender<bool>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn let_go(&self) -> MutexGuard<'_, Vec<JobId>> {
        self.let_go.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is held here.
    pub(super) fn holds(&self, id: JobId) -> bool {
        self.held().contains_key(&id)
    }

    /// Tells whoever holds it that it is to end. False where nobody here does.
    pub(super) fn tell(&self, id: JobId) -> bool {
        self.held().get(&id).is_some_and(|cancel| {
            cancel.send_replace(true);
            true
        })
    }

    /// Where what is logged about it goes; nowhere where there is no thread to be had.
    fn pen(&self, data: &DataFolder, id: JobId, logged: u64) -> Option<LogWriter> {
        let journal = self.journal.get_or_init(Journal::start).as_ref()?;
        Some(journal.pen(data.job(id).file(STDOUT), LOG_LIMIT.saturating_sub(logged)))
    }
}

impl EngineState {
    /// Settles the calls that nobody holds any more although we live.
    pub(super) fn settle_let_go(&self, store: &mut Store) -> Result<(), JobError> {
        for id in std::mem::take(&mut *self.calls.let_go()) {
            let known = self.memory.status(id).and_then(|status| status.record.call);
            let ending = unhang_ended(known.map(|call| call.is_repeatable));
            let settled = write_ending(&self.data, id, &ending)
                .map_err(StoreError::from)
                .and_then(|ending| settle(&self.data, store, id, &ending, &self.admission()));
            if settled.is_err() {
                // It is tried again with the next round.
                self.calls.let_go().push(id);
            }
            self.tell_trouble(id, settled.map(drop).map_err(JobError::from))?;
        }
        Ok(())
    }
}

/// A call that was taken in, and that somebody who has not been told yet is to hold.
#[derive(Debug)]
pub(super) struct UnclaimedCall {
    inner: Arc<EngineState>,
    pub(super) id: JobId,
    cancelled: watch::Receiver<bool>,
    is_settled: AtomicBool,
    /// Tells those who cannot see this process, as from another container, that it lives (F-04).
    #[cfg_attr(not(test), expect(dead_code, reason = "it is held, not read"))]
    pub(super) lock: Option<Lock>,
}

impl UnclaimedCall {
    /// From now on it may be dropped.
    pub(super) fn is_over(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// One of a call that nobody else holds. It touches the disk.
    pub(super) fn new(inner: Arc<EngineState>, id: JobId) -> Self {
        let path = inner.data.job(id).file(LOCK);
        let lock = Lock::try_take(&path).unwrap_or_else(|error| {
            tracing::debug!("{} cannot be locked: {error}", path.display());
            None
        });
        Self::with_lock(inner, id, lock)
    }

    pub(super) fn with_lock(inner: Arc<EngineState>, id: JobId, lock: Option<Lock>) -> Self {
        let (cancel, cancelled) = watch::channel(false);
        inner.calls.held().insert(id, cancel);
        Self { inner, id, cancelled, is_settled: AtomicBool::default(), lock }
    }
}

impl Drop for UnclaimedCall {
    fn drop(&mut self) {
        self.inner.calls.held().remove(&self.id);
        if !self.is_settled.load(Ordering::Relaxed) && stands("call-let-go-is-settled") {
            self.inner.calls.let_go().push(self.id);
        }
    }
}

/// A call that we wait for. One that is dropped before it was settled has failed.
#[derive(Debug)]
pub struct HeldCall {
    pub(super) claim: UnclaimedCall,
    pub(super) engine: Engine,
    pen: Option<LogWriter>,
}

impl HeldCall {
    /// One whose log has so many bytes already.
    pub(super) fn new(claim: UnclaimedCall, engine: Engine, logged: u64) -> Self {
        let pen = engine.inner.calls.pen(&engine.inner.data, claim.id, logged);
        Self { claim, engine, pen }
    }

    /// Waits until what was logged is on the disk, for as long as that may take.
    pub(super) async fn log_is_written(&mut self) {
        if let Some(pen) = self.pen.take() {
            let _late = timeout(LOG_PATIENCE, pen.finish()).await;
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.claim.id
    }

    /// Waits until somebody wants it to end. Cancel-safe.
    pub async fn cancelled(&mut self) {
        // We hold what it comes from.
        let _told = self.claim.cancelled.wait_for(|cancelled| *cancelled).await;
    }

    /// Notes how far it is, where that is known, and what it is doing. Never waits.
    pub fn progress(&mut self, progress: Option<JobProgress>, line: &str) {
        let memory = &self.claim.inner.memory;
        if progress.is_some() {
            memory.observe(self.claim.id, JobState::Running, None, progress);
        }
        self.log(line);
    }

    /// Adds a line to its log. Never waits; what the disk does not take in time is lost, and that is said.
    pub fn log(&mut self, line: &str) {
        if let Some(pen) = &mut self.pen {
            pen.line(line);
        }
    }

    /// Notes how it ended; on the disk when this returns. What it answers is where the call is: it may have ended otherwise before.
    ///
    /// # Errors
    /// Where the disk or the database says no. The maintenance thread then settles it as failed as soon as they can be used again.
    pub async fn settle(mut self, end: CallEnd) -> Result<JobStatus, JobError> {
        // Without an answer the end is more urgent than what was logged before it.
        self.log_is_written().await;
        let id = self.claim.id;
        let engine = self.engine.clone();
        let claim = self.claim;
        engine
            .run_write(CHANGE_LIMIT, move |inner| {
                let format = inner.status(id)?.record.format;
                let ending = end.write(&inner.data.job(id).work(format))?;
                let ending = write_ending(&inner.data, id, &ending)?;
                let settled = settle(&inner.data, &mut inner.store(), id, &ending, &inner.admission())?;
                claim.is_over();
                drop(claim);
                inner.start_shims(&settled.admitted);
                let job = inner.store().read(|connection| store::get(connection, id))?;
                inner.memory.update(job);
                inner.status(id)
            })
            .await
    }
}

impl Engine {
    /// Takes in a call that is being worked on. When this returns it is on the disk, and reaches a final state, whoever dies.
    ///
    /// # Errors
    /// Why it was not taken in; then there is no trace of it. What [`JobError::Uncertain`] leaves open is settled as failed.
    pub async fn adopt(&self, adoption: Adoption) -> Result<(HeldCall, JobStatus), JobError> {
        let id = adoption.id;
        let (answer, outcome) = oneshot::channel();
        let adopt = async {
            let request = writer::WriterRequest::Adopt(Box::new((adoption, answer)));
            self.requests.send(request).await.map_err(|_| JobError::Closed)?;
            outcome.await.map_err(|_| JobError::Closed)?
        };
        let adopted = timeout(SUBMIT_LIMIT, adopt).await;
        let claim = adopted.map_err(|_| JobError::Uncertain { id, waited: SUBMIT_LIMIT })??;
        Ok((HeldCall::new(claim, self.clone(), 0), self.status(id).await?))
    }

    /// Calls that nobody waits for, and whose answers can still be had.
    #[must_use]
    pub fn left_calls(&self) -> Vec<JobStatus> {
        tickets::left_calls(&self.inner)
    }

    /// Takes up a call that was left; from then on it is held here. None where it has an end, or somebody else was faster.
    ///
    /// # Errors
    /// Where the disk or the database says no.
    pub async fn take_up(&self, id: JobId) -> Result<Option<(HeldCall, JobStatus)>, JobError> {
        let inner = Arc::clone(&self.inner);
        let claim = self.run_write(CHANGE_LIMIT, move |_| tickets::take_up(&inner, id)).await?;
        let Some((claim, logged)) = claim else { return Ok(None) };
        Ok(Some((HeldCall::new(claim, self.clone(), logged), self.status(id).await?)))
    }

    /// The result of a call that has ended with one, as JSON, as its server gave it.
    ///
    /// # Errors
    /// Where there is no such job, or its files cannot be read.
    pub async fn call_result(&self, id: JobId) -> Result<Option<String>, JobError> {
        self.text_of(id, RESULT).await
    }

    /// The error that the caller of a failed call would have had, as JSON.
    ///
    /// # Errors
    /// As [`Self::call_result`].
    pub async fn call_error(&self, id: JobId) -> Result<Option<String>, JobError> {
        self.text_of(id, ERROR).await
    }

    async fn text_of(&self, id: JobId, name: &'static str) -> Result<Option<String>, JobError> {
        self.run_read(move |inner| {
            let status = inner.status(id)?;
            let is_call = status.record.call.is_some() && status.record.status.is_final();
            if !is_call {
                return Ok(None);
            }
            let work = inner.data.job(id).work(status.record.format);
            let bytes = work.read(name, crate::document::MAX_DOCUMENT)?;
            let text = bytes.map(|bytes| {
                String::from_utf8(bytes).map_err(|error| FileError::damaged(&work.file(name), error).into())
            });
            text.transpose()
        })
        .await
    }
}
