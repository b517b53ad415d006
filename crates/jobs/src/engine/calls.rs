//! Calls of servers' tools that have become jobs. No command of unhang works on them: a process waits for the answer and keeps it.
//!
//! Theory of operation. The process that waits for the answer adopts the call ([`Engine::adopt`]), which is durable like every submission.
//! It holds the call from then on ([`HeldCall`]): it tells the progress, and at last the end. The record names this process. No other
//! process can ever have the answer. So a call whose process has gone has failed, and the process that finds it says so. There are two
//! exceptions: its server keeps the answer and there is a ticket for it ([`super::tickets`]), or a process stands by for the call
//! ([`super::keepers`]).
//!
//! ```text
//! adopt ─ row, `active` (fsync) ─ id goes out ─ HeldCall ─┬ settled: results.json or error.json ─ exit.json ─ row: final
//!                                                        ├ let go (dropped, a panic): the maintenance thread settles it as failed,
//!                                                        │ or leaves it to its keeper
//!                                                        └ process gone: the next look of any engine settles it as failed,
//!                                                          or leaves it for another process to take up or resume
//! ```
//!
//! Invariants
//!
//! - A call takes no slot: the server does the work, and runs already.
//! - A call that is settled as completed has its result on the disk first.
//! - An end that the disk does not take stays with the holder, who tries again until the data folder has been gone for too long.
//! - While its holder lives, no other process says how a call ended; a process that wants it to end tells the holder. The holder has the
//!   lock of the job's folder, for processes that cannot see it.

use std::{
    future::pending,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, timeout},
};
use unhang_proc::{deadline::Deadline, lock::Lock};

use super::{
    CHANGE_LIMIT, Engine, EngineState, SUBMIT_LIMIT,
    call_end::CallEnd,
    held_calls::LetGoCall,
    journal::LogWriter,
    keepers::{self, ResumedCall},
    same_calls, tickets, writer,
};
use crate::{
    error::JobError,
    folder::{ARGUMENTS, LOCK, RESULT, presence::AWAY_LIMIT},
    id::JobId,
    progress::JobProgress,
    questions::{self, CallQuestion},
    record::{CallRecord, CallTicket, FORMAT, Holder, JobRecord, JobState},
    room::{ROOM_LOOK, is_full},
    settle::{settle, write_ending},
    status::JobStatus,
    store::{JobStore, ShimStarter},
    submission::{LOG_LIMIT, PreparedSubmission, STOP_GRACE, discard, millis},
    timestamp::JobTimestamp,
};

/// The longest time that lines of the log may take to reach the disk before the end is written without them.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// The pause between two tries to resume a call. The kernel frees the lock of a holder that has gone, and tells nobody.
const RESUME_LOOK: Duration = Duration::from_millis(5);

/// A call that is to become a job.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The job's id, from [`JobId::random`].
    pub id: JobId,
    /// The name that people see.
    pub name: String,
    /// The owner of the job, if those who start jobs are told from one another.
    pub owner: Option<String>,
    /// The server, as the configuration calls it.
    pub server: String,
    /// The tool, as the server calls it.
    pub tool: String,
    /// Whether the tool may be called once more without doing anything twice.
    pub is_repeatable: bool,
    /// The arguments of the call, as JSON.
    pub arguments: Option<String>,
    /// The time for which the server has worked on the call.
    pub elapsed: Duration,
    /// The time that the call may take in all.
    pub timeout: Option<Duration>,
    /// The ticket with which other processes can get the answer, if its server keeps it.
    pub ticket: Option<CallTicket>,
    /// Why the answer is lost with this process, as [`CallRecord::lost_with_holder`] has it.
    pub lost_with_holder: Option<String>,
    /// Whether no process of the server has the call yet, as [`CallRecord::is_unsent`] has it.
    pub is_unsent: bool,
    /// The key that the same call has in a later session, as [`CallRecord::lasting_key`] has it.
    pub lasting_key: Option<String>,
}

impl Adoption {
    /// Makes the folder. The caller has to remove it if the call is not adopted after all.
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
        // A folder without orders and record is not taken for a job's folder.
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
                keeper: None,
                lost_with_holder: self.lost_with_holder.clone(),
                is_unsent: self.is_unsent,
                lasting_key: self.lasting_key.clone(),
                is_passed_on: false,
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

/// An adopted call whose holder has not got it yet.
#[derive(Debug)]
pub(super) struct UnclaimedCall {
    inner: Arc<EngineState>,
    pub(super) id: JobId,
    cancelled: watch::Receiver<bool>,
    is_settled: AtomicBool,
    was_answered: AtomicBool,
    /// The lock tells processes that cannot see this one, as from another container, that it lives (F-04).
    #[cfg_attr(not(test), expect(dead_code, reason = "it is held, not read"))]
    pub(super) lock: Option<Lock>,
}

impl UnclaimedCall {
    /// Notes that the call is settled, so that it may be dropped.
    pub(super) fn is_over(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// Claims a call that nobody else holds. Touches the disk.
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
        inner.calls.changed();
        Self {
            inner,
            id,
            cancelled,
            is_settled: AtomicBool::default(),
            was_answered: AtomicBool::default(),
            lock,
        }
    }
}

impl Drop for UnclaimedCall {
    fn drop(&mut self) {
        self.inner.calls.held().remove(&self.id);
        if !self.is_settled.load(Ordering::Relaxed) {
            let was_answered = self.was_answered.load(Ordering::Relaxed);
            self.inner.calls.let_go().push(LetGoCall { id: self.id, was_answered, since: Instant::now() });
        }
        self.inner.calls.changed();
    }
}

/// A call that this process waits for. A held call that is dropped before it was settled has failed, or is left to its keeper.
#[derive(Debug)]
pub struct HeldCall {
    pub(super) claim: Arc<UnclaimedCall>,
    cancelled: watch::Receiver<bool>,
    pub(super) engine: Engine,
    pen: Option<LogWriter>,
}

impl HeldCall {
    /// Makes the handle of a claimed call. `logged` is the number of bytes that its log has already.
    pub(super) fn new(claim: UnclaimedCall, engine: Engine, logged: u64) -> Self {
        let pen = engine.inner.calls.pen(&engine.inner.data, claim.id, logged);
        Self { cancelled: claim.cancelled.clone(), claim: Arc::new(claim), engine, pen }
    }

    /// Waits until the logged lines are on the disk, up to a limit.
    pub(super) async fn log_is_written(&self) {
        if let Some(pen) = &self.pen {
            let _late = timeout(LOG_PATIENCE, pen.flush()).await;
        }
    }

    /// Returns the job's id.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.claim.id
    }

    /// Waits until somebody cancels the job. Cancel-safe.
    pub async fn cancelled(&mut self) {
        // The wait cannot fail: `claim` keeps the sender alive.
        let _told = self.cancelled.wait_for(|cancelled| *cancelled).await;
    }

    /// Waits until the time of the job is over; for ever, if it has no limit. Cancel-safe.
    pub fn time_is_over(&self) -> impl Future<Output = ()> + Send + use<> {
        let status = self.claim.inner.memory.status(self.id());
        let left = status.and_then(|status| status.time_left(JobTimestamp::now()));
        async move {
            match left {
                Some(left) => sleep(left).await,
                None => pending().await,
            }
        }
    }

    /// Notes the progress of the call, if it is known, and the line that says what it is doing. Never waits.
    pub fn progress(&mut self, progress: Option<JobProgress>, line: &str) {
        let memory = &self.claim.inner.memory;
        if progress.is_some() {
            memory.observe(self.claim.id, JobState::Running, None, progress);
        }
        self.log(line);
    }

    /// Adds a line to the call's log. Never waits. Lines that the disk does not take in time are lost, and the log says so.
    pub fn log(&mut self, line: &str) {
        if let Some(pen) = &mut self.pen {
            pen.line(line);
        }
    }

    /// Notes how the call ended. The end is on the disk when this returns. Returns the status of the job, which may have ended otherwise
    /// before.
    ///
    /// # Errors
    /// Fails if the disk or the database fails. The maintenance thread then settles the call as failed as soon as they can be used again.
    pub async fn settle(mut self, end: CallEnd) -> Result<JobStatus, JobError> {
        self.try_settle(&Arc::new(end)).await
    }

    /// Does the same as [`Self::settle`], and keeps the call if that fails, so that the caller can try again. After a success the call can
    /// only be dropped.
    ///
    /// # Errors
    /// Fails with [`JobError::NoRoomForEnd`] if the disk is full, and otherwise as [`Self::settle`] does.
    pub async fn try_settle(&mut self, end: &Arc<CallEnd>) -> Result<JobStatus, JobError> {
        // If the log is late, the end is more urgent than the lines before it.
        self.log_is_written().await;
        let (claim, end) = (Arc::clone(&self.claim), Arc::clone(end));
        claim.was_answered.store(true, Ordering::Relaxed);
        self.engine
            .run_write(CHANGE_LIMIT, move |inner| {
                write_end(inner, &claim, &end).map_err(|error| without_room(inner, claim.id, error))
            })
            .await
    }

    /// Does the same as [`Self::settle`], and tries again as long as the disk or the database fails: no other process knows the end. The log
    /// of this process says so. If somebody cancels the job meanwhile, it ends as cancelled if that can be stored.
    ///
    /// # Errors
    /// Fails if the job has been unknown for 10 s. In an engine that rests, it also fails if the data folder has been away for so
    /// long: the process has nothing else to do.
    pub async fn settle_in_the_end(mut self, end: CallEnd) -> Result<JobStatus, JobError> {
        let (id, end, cancelled) = (self.id(), Arc::new(end), Arc::new(CallEnd::Cancelled));
        let (mut is_told, mut known_at) = (false, Instant::now());
        loop {
            let error = match self.try_settle(&end).await {
                // Another folder may lie in the place of the data folder for a moment.
                Err(error @ JobError::NoSuchJob(_)) if known_at.elapsed() < AWAY_LIMIT => error,
                Err(error) if error.is_of_the_disk() => {
                    known_at = Instant::now();
                    error
                }
                settled => return settled,
            };
            if *self.cancelled.borrow()
                && let Ok(status) = self.try_settle(&cancelled).await
            {
                return Ok(status);
            }
            // A folder that was moved may come back, and one that was removed does not.
            if self.claim.inner.calls.events().is_some() && self.claim.inner.presence.is_gone() {
                return Err(error);
            }
            // Errors name files by random names, so each is new.
            if !std::mem::replace(&mut is_told, true) {
                tracing::warn!(job = id.as_str(), "{error}; unhang tries again every second");
            }
            sleep(ROOM_LOOK).await;
        }
    }
}

/// Brings the end of a held call to the disk. Touches the disk.
fn write_end(inner: &EngineState, claim: &UnclaimedCall, end: &CallEnd) -> Result<JobStatus, JobError> {
    let id = claim.id;
    inner.check_presence(id)?;
    let format = inner.status(id)?.record.format;
    let work = inner.data.job(id).work(format);
    let ending = match end.write(&work) {
        // Waiting does not help, so the job ends now and says why its answer is lost.
        Err(error) if error.is_over_file_limit() => CallEnd::not_stored(&error).write(&work)?,
        written => written?,
    };
    let ending = write_ending(&inner.data, id, &ending)?;
    let settled = settle(&inner.data, &mut inner.store(), id, &ending, &inner.admission())?;
    claim.is_over();
    inner.start_shims(&settled.admitted);
    let job = inner.store().get(id)?;
    inner.memory.update(job);
    inner.status(id)
}

/// Returns the error for an end that could not be written. On a full disk, it is [`JobError::NoRoomForEnd`].
fn without_room(inner: &EngineState, id: JobId, error: JobError) -> JobError {
    let is_of_the_disk = matches!(error, JobError::File(_) | JobError::Store(_));
    match is_of_the_disk && (error.is_for_lack_of_room() || is_full(inner.data.path())) {
        true => JobError::NoRoomForEnd { id, cause: error.to_string() },
        false => error,
    }
}

impl Engine {
    /// Returns the open questions of a call that another process holds.
    ///
    /// # Errors
    /// Fails if the job does not exist, or if the database cannot be read.
    pub async fn questions(&self, id: JobId) -> Result<Vec<CallQuestion>, JobError> {
        self.run_read(move |inner| questions_of(inner, id)).await
    }

    /// Writes the reply to an open question into the folder of the job, where the holder of the call reads it. The first reply counts.
    /// Returns false if no open question has this key, or if the reply is longer than [`questions::QUESTIONS_LIMIT`].
    ///
    /// # Errors
    /// Fails if the job does not exist, or if the disk or the database fails.
    pub async fn answer_question(&self, id: JobId, key: String, reply: String) -> Result<bool, JobError> {
        self.run_write(CHANGE_LIMIT, move |inner| {
            let folder = inner.data.job(id);
            let is_left = questions::answer(&folder, &questions_of(inner, id)?, &key, &reply)?;
            if inner.status(id)?.record.status.is_final() {
                // The job has ended meanwhile, and nobody else looks for the answer.
                questions::remove_questions(&folder);
            }
            Ok(is_left)
        })
        .await
    }

    /// Adopts a call that its server works on. When this returns, the job is on the disk and reaches a final state, whichever process dies.
    ///
    /// # Errors
    /// Fails if the id is taken, or the disk or the database fails. No trace of the call is left then. A job that [`JobError::Uncertain`]
    /// leaves open is settled as failed.
    pub async fn adopt(&self, adoption: Adoption) -> Result<(HeldCall, JobStatus), JobError> {
        let id = adoption.id;
        let (answer, outcome) = oneshot::channel();
        let request = writer::WriterRequest::Adopt(Box::new((adoption, answer)));
        let adopt = async {
            self.requests.send(request).await.map_err(|_| JobError::Closed)?;
            outcome.await.map_err(|_| JobError::Closed)?
        };
        let adopted = timeout(SUBMIT_LIMIT, adopt).await;
        let claim = adopted.map_err(|_| JobError::Uncertain { id, waited: SUBMIT_LIMIT })??;
        Ok((HeldCall::new(claim, self.clone(), 0), self.status(id).await?))
    }

    /// Returns the calls that nobody waits for and whose answers can still be had.
    #[must_use]
    pub fn left_calls(&self) -> Vec<JobStatus> {
        tickets::left_calls(&self.inner)
    }

    /// Returns the calls that have not ended and have a ticket, whichever process holds them.
    #[must_use]
    pub fn ticketed_calls(&self) -> Vec<JobStatus> {
        tickets::ticketed_calls(&self.inner)
    }

    /// Takes up a call that was left; from then on this process holds it. Returns `None` if the call has ended, or another process was
    /// faster.
    ///
    /// # Errors
    /// Fails if the disk or the database fails.
    pub async fn take_up(&self, id: JobId) -> Result<Option<(HeldCall, JobStatus)>, JobError> {
        let inner = Arc::clone(&self.inner);
        let claim = self.run_write(CHANGE_LIMIT, move |_| tickets::take_up(&inner, id)).await?;
        let Some((claim, logged)) = claim else { return Ok(None) };
        Ok(Some((HeldCall::new(claim, self.clone(), logged), self.status(id).await?)))
    }

    /// Resumes a call with this keeper whose holder has gone; from then on this process holds it. The log and the time of the job go on, and
    /// [`HeldCall::cancelled`] tells of a cancellation that came meanwhile. Waits until the holder has gone, but not beyond the deadline.
    /// Returns `None` if the job has ended. Not cancel-safe: a call that was resumed and not returned goes back to its keeper.
    ///
    /// # Errors
    /// Fails if another keeper or none stands by for the call, its holder does not go in time ([`JobError::StillHeld`]), or the disk or the
    /// database fails.
    pub async fn resume(
        &self,
        id: JobId,
        keeper: &Holder,
        deadline: Deadline,
    ) -> Result<Option<(HeldCall, JobStatus)>, JobError> {
        let begin = Instant::now();
        loop {
            let (inner, keeper) = (Arc::clone(&self.inner), keeper.clone());
            let resumed = self.run_write(CHANGE_LIMIT, move |_| keepers::resume(&inner, id, &keeper)).await?;
            match resumed {
                ResumedCall::Ours(claim, logged) => {
                    return Ok(Some((HeldCall::new(claim, self.clone(), logged), self.status(id).await?)));
                }
                ResumedCall::Ended => return Ok(None),
                ResumedCall::HeldBy(holder) if deadline.is_past() => {
                    return Err(JobError::StillHeld { id, holder, waited: begin.elapsed() });
                }
                ResumedCall::HeldBy(_) => sleep(RESUME_LOOK).await,
            }
        }
    }

    /// Names the keeper of a call that this process holds, as [`HeldCall::kept_by`] does, without the handle.
    ///
    /// # Errors
    /// Fails as [`HeldCall::kept_by`] does.
    pub fn name_keeper(
        &self,
        id: JobId,
        keeper: Holder,
    ) -> impl Future<Output = Result<(), JobError>> + Send + use<> {
        let engine = self.clone();
        async move { engine.run_write(CHANGE_LIMIT, move |inner| keepers::write_keeper(inner, id, keeper)).await }
    }

    /// Brings the calls into memory that ended well before this engine was opened and that a later session may join. Only the newest jobs
    /// are looked at.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn recall_ended_calls(&self) -> Result<(), JobError> {
        self.run_read(same_calls::recall_ended).await
    }

    /// Returns the calls in memory with such a [`lasting_key`](CallRecord::lasting_key) whose maker has gone, ended ones among them.
    #[must_use]
    pub fn passed_on_calls(&self, fits: impl Fn(&str) -> bool) -> Vec<JobStatus> {
        self.inner.memory.calls(|job| self.passed_on_key(&job.record).is_some_and(&fits))
    }

    /// Returns the [`lasting_key`](CallRecord::lasting_key) of a call whose maker has gone.
    #[must_use]
    pub fn passed_on_key<'a>(&self, record: &'a JobRecord) -> Option<&'a str> {
        same_calls::passed_on_key(&self.inner, record)
    }

    /// Returns the calls of this server, as the configuration calls it, that go on although the process that made them has gone. Calls of
    /// this process are not among them.
    #[must_use]
    pub fn passed_on_to_others(&self, server: &str) -> Vec<JobStatus> {
        let mut calls = self.inner.memory.calls(|job| {
            let is_of_server = job.record.call.as_ref().is_some_and(|call| call.server == server);
            is_of_server && job.is_active && same_calls::is_passed_on(&self.inner, &job.record)
        });
        calls.retain(|job| !self.holds_call(job.record.job_id));
        calls
    }

    /// Has the same call join this job no more, in whichever process, because a client has read the result. Does nothing with a job that
    /// has not ended, or that no later session joins.
    ///
    /// # Errors
    /// Fails if the database fails. Then a later session may get the result once more.
    pub async fn end_joining(&self, id: JobId) -> Result<(), JobError> {
        self.run_write(CHANGE_LIMIT, move |inner| same_calls::end_joining(inner, id)).await
    }

    /// Returns the calls of this data folder that are in memory: all that have not ended, and those that ended last.
    #[must_use]
    pub fn own_calls(&self) -> Vec<JobId> {
        self.inner.memory.call_ids()
    }
}

/// Reads the open questions of a call.
fn questions_of(inner: &EngineState, id: JobId) -> Result<Vec<CallQuestion>, JobError> {
    let record = inner.status(id)?.record;
    let call = record.call.filter(|_| !record.status.is_final());
    Ok(call.map_or_else(Vec::new, |call| questions::read(&inner.data.job(id), &call.holder)))
}
