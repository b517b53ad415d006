//! The engine: accepts jobs, starts them in their order, knows their states, and removes them when their retention is over.
//!
//! The engine is a value and not a global: each program makes as many as it likes, also on one data folder, also at the same time as
//! other programs. Engines share what is on the disk.
//!
//! Theory of operation. Two threads work for an engine. The *writer* accepts submissions, many with one commit. The *maintenance thread*
//! follows the changes of other processes, looks after the jobs that have a slot, fills free slots, and removes expired jobs. Readers look
//! at the memory that the two threads keep up to date.
//!
//! Invariants
//!
//! - [`Engine::status`] and [`Engine::wait`] touch neither disk nor writer for a job that is in memory.
//! - No method of [`Engine`] but [`Engine::open`] touches the disk on the caller's thread: a disk that hangs delays nobody else. Each
//!   operation has a time limit, and the number of threads that wait for the disk is limited.
//! - Dropping an engine stops its threads and none of its jobs.

mod call_end;
mod call_events;
mod calls;
mod cancel;
mod clock;
mod disk;
mod held_calls;
mod journal;
mod keepers;
mod maintenance;
mod memory;
mod migration;
mod open;
mod options;
mod outputs;
mod presence;
mod prune_schedule;
mod quarantine;
mod retention;
mod same_calls;
mod shared;
mod state;
mod system;
#[cfg(test)]
mod tests;
mod tickets;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use unhang_proc::deadline::Deadline;

pub use self::{
    call_end::{CallEnd, CallResult},
    call_events::FolderLooks,
    calls::{Adoption, HeldCall},
    open::{Opened, replace_damaged_database},
    options::EngineOptions,
    outputs::Results,
    quarantine::Quarantined,
    retention::RemovedJobs,
    system::{MachineLoad, System},
};
use self::{
    call_events::CallEvents, maintenance::MaintenanceThread, open::OpenedFolder, shared::SharedAccess,
    state::EngineState, tickets::this_process,
};
pub use crate::status::JobStatus;
use crate::{
    error::JobError,
    folder::{FileError, JobFolder},
    id::JobId,
    limits::{self, Announced},
    questions::{self, CallQuestion},
    record::{FORMAT, JobRecord, JobState},
    shared_jobs::WorkerSummary,
    store::{JobOwnerFilter, JobStore, KeptAsAccepted, Rebuilt, SqliteStore},
    submission::Submission,
    work_lease::WorkLease,
};

/// The time that a submission may take. With a healthy disk it takes milliseconds.
const SUBMIT_LIMIT: Duration = Duration::from_secs(10);

/// The time that a change may take. It may wait for the turn to write the state, and then for the database.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);

/// The time that removing folders, or reading all of them, may take.
const PRUNE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The time that the end of the engine may take: one round of the maintenance thread.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The engine; see the module. Clones are the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<EngineState>,
    requests: mpsc::Sender<writer::WriterRequest>,
    maintenance: Arc<MaintenanceThread>,
    /// This engine's limits, which other processes can read as long as a clone of the engine exists.
    _announced: Option<Arc<Announced>>,
}

impl Engine {
    /// Opens a data folder: brings every job to its true state, starts waiting jobs, and goes on doing so. Blocks for some milliseconds.
    ///
    /// Jobs whose retention is over are removed meanwhile, beside everything else. If nobody told this engine a retention, it keeps the
    /// jobs that the last engine with a told retention would keep.
    ///
    /// # Errors
    /// Fails if the folder or the database in it cannot be used; each error says what to do.
    pub fn open(options: EngineOptions) -> Result<(Self, Opened), JobError> {
        let OpenedFolder { data, starter, store, opened } = OpenedFolder::open(&options.folder)?;
        let ((writing, _), (keeping, _)) = (SqliteStore::open(&data)?, SqliteStore::open(&data)?);
        let announced = limits::announce(&data, options.told()).unwrap_or_else(|error| {
            tracing::warn!(
                "unhang cannot share its limits with the other processes on this data folder: {error}"
            );
            None
        });
        let inner = Arc::new(EngineState::new(options, data, starter, store));
        let maintenance = MaintenanceThread::start(&inner, keeping)?;
        let (requests, received) = mpsc::channel(writer::WAITING);
        writer::start(inner.clone(), writing, received)
            .map_err(|error| FileError::system("cannot start a thread for", inner.data.path(), error))?;
        let (maintenance, announced) = (Arc::new(maintenance), announced.map(Arc::new));
        Ok((Self { inner, requests, maintenance, _announced: announced }, opened))
    }

    /// Returns the engine's options.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// Returns the path of a job's folder, whether it exists or not. It holds unhang's own files about the job, and its logs.
    #[must_use]
    pub fn job_folder(&self, id: JobId) -> PathBuf {
        self.folder(id).path().to_owned()
    }

    /// Returns the path of the work folder of a new job, whether it exists or not. The job's inputs lie there, and its results go there.
    #[must_use]
    pub fn new_work_folder(&self, id: JobId) -> PathBuf {
        self.folder(id).work(FORMAT).path().to_owned()
    }

    /// Returns the path of the work folder of the job with this record, which an older version of unhang may have written.
    #[must_use]
    pub fn work_folder(&self, record: &JobRecord) -> PathBuf {
        self.folder(record.job_id).work(record.format).path().to_owned()
    }

    fn folder(&self, id: JobId) -> JobFolder {
        self.inner.data.job(id)
    }

    /// Accepts a job. When this returns, the job is on the disk and will reach its end, whichever process dies.
    ///
    /// # Errors
    /// Fails if the submission is not valid, its id is taken, the machine has no room, or the disk or the database fails. No trace of the
    /// job is left then. Only [`JobError::Uncertain`] and [`JobError::Unconfirmed`] leave open whether it was accepted.
    pub async fn submit(&self, submission: Submission) -> Result<JobStatus, JobError> {
        if let Some(shared) = &self.inner.shared {
            return shared.submit(submission, self.inner.data.clone(), self.inner.options.rules).await;
        }
        let id = submission.id;
        let (answer, outcome) = oneshot::channel();
        let submit = async {
            let request = writer::WriterRequest::Submit(Box::new((submission, answer)));
            self.requests.send(request).await.map_err(|_| JobError::Closed)?;
            outcome.await.map_err(|_| JobError::Closed)?
        };
        let accepted = timeout(SUBMIT_LIMIT, submit).await;
        let id = accepted.map_err(|_| JobError::Uncertain { id, waited: SUBMIT_LIMIT })??;
        self.status(id).await
    }

    /// Waits until every accepted job that has a slot has been given to its supervisor, which happens just after the submission has been
    /// answered. A program that ends right after a submission calls this first: otherwise the job would wait for the next process that
    /// opens the folder.
    ///
    /// # Errors
    /// Fails if the disk takes too long.
    pub async fn handed_over(&self) -> Result<(), JobError> {
        let (done, outcome) = oneshot::channel();
        let ask = async {
            let request = writer::WriterRequest::SayWhenDone(done);
            self.requests.send(request).await.map_err(|_| JobError::Closed)?;
            outcome.await.map_err(|_| JobError::Closed)
        };
        let late = || {
            let error = std::io::ErrorKind::TimedOut.into();
            FileError::system("cannot start the jobs of", self.inner.data.path(), error)
        };
        timeout(SUBMIT_LIMIT, ask).await.map_err(|_| late())?
    }

    /// Closes the engine and ends none of its jobs: every job with a slot has a supervisor when this returns. A program that ends without
    /// it may leave a job with a slot and no supervisor, until another process opens the folder.
    ///
    /// # Errors
    /// Fails if the disk takes too long.
    pub async fn close(self) -> Result<(), JobError> {
        self.handed_over().await?;
        let finished = tokio::task::spawn_blocking(move || self.maintenance.finish());
        timeout(CLOSE_LIMIT, finished).await.map_err(|_| JobError::Closed)?.map_err(|_| JobError::Closed)
    }

    /// Returns the status of a job: at once if it is in memory, and otherwise from the database.
    ///
    /// # Errors
    /// Fails if there is no such job, its data folder has gone, or the disk does not answer in time.
    pub async fn status(&self, id: JobId) -> Result<JobStatus, JobError> {
        match self.status_in_store(id).await? {
            Some(status) => Ok(status),
            None => self.own_status(id).await,
        }
    }

    /// Returns the status of a job in the store of many machines. Returns `None` if the engine has no store, or the store has no such job.
    async fn status_in_store(&self, id: JobId) -> Result<Option<JobStatus>, JobError> {
        match self.store_for(id).await {
            Some(shared) => shared.status(id).await,
            None => Ok(None),
        }
    }

    /// Returns the store of many machines, if it says what is true of this job. Of a call of this data folder, the record here is the truth.
    async fn store_for(&self, id: JobId) -> Option<&SharedAccess> {
        let shared = self.inner.shared.as_ref()?;
        let is_own_call = self.own_status(id).await.is_ok_and(|status| status.record.call.is_some());
        (!is_own_call).then_some(shared)
    }

    /// Returns the status of a job of this data folder, without a question to the store of many machines.
    ///
    /// # Errors
    /// Fails as [`Self::status`] does.
    pub async fn own_status(&self, id: JobId) -> Result<JobStatus, JobError> {
        match self.inner.memory.status(id) {
            Some(status) => self.inner.while_followed(status),
            None => self.run_read(move |inner| inner.status(id)).await,
        }
    }

    /// Returns an error if the data folder of this job is not where it was, so that the known status is old; `None` otherwise.
    #[must_use]
    pub fn lost_sight_of(&self, id: JobId) -> Option<JobError> {
        self.inner.lost_sight_of(id)
    }

    /// Returns whether this process holds the call that this job is.
    #[must_use]
    pub fn holds_call(&self, id: JobId) -> bool {
        self.inner.calls.holds(id)
    }

    /// Shows the open questions of a call that this process holds to all processes on the data folder, and takes the replies that they have
    /// left. Returns keys and replies. Questions beyond [`questions::QUESTIONS_LIMIT`] bytes are not shown.
    ///
    /// # Errors
    /// Fails if the disk fails. The caller can try again.
    pub async fn show_questions(
        &self,
        id: JobId,
        questions: Vec<CallQuestion>,
    ) -> Result<Vec<(String, String)>, JobError> {
        self.run_write(CHANGE_LIMIT, move |inner| match inner.calls.holds(id) {
            true => Ok(questions::show(&inner.data.job(id), this_process(inner), questions)?),
            false => Ok(Vec::new()),
        })
        .await
    }

    /// Returns what tells that another process may have left a reply in the folder of a call that this process holds.
    #[must_use]
    pub fn folder_looks(&self) -> FolderLooks {
        FolderLooks(self.inner.calls.events().map(CallEvents::looks))
    }

    /// Waits until a job has ended, but not beyond the deadline, and returns its status.
    ///
    /// # Errors
    /// Fails if there is no such job, or it was removed meanwhile.
    pub async fn wait(&self, id: JobId, deadline: Deadline) -> Result<JobStatus, JobError> {
        if let Some(shared) = self.store_for(id).await
            && let Some(status) = shared.wait(id, deadline).await?
        {
            return Ok(status);
        }
        let mut changes = self.inner.memory.changes();
        let mut was_seen = false;
        loop {
            changes.mark_unchanged();
            let status = self.own_status(id).await;
            let status = if was_seen { status.map_err(JobError::of_known)? } else { status? };
            was_seen = true;
            // A timer would round a wait of no length up to its next millisecond, and a mere look must not take that long.
            let is_over = deadline.is_past();
            if status.record.status.is_final() || is_over {
                return Ok(status);
            }
            match deadline.timeout(changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(JobError::Closed),
                Err(_) => return self.own_status(id).await.map_err(JobError::of_known),
            }
        }
    }

    /// Returns a receiver that wakes up at every change of any job from now on.
    #[must_use]
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.memory.changes()
    }

    /// Returns the newest jobs, newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn list(
        &self,
        state: Option<JobState>,
        whose: JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<JobStatus>, JobError> {
        let in_store = match &self.inner.shared {
            Some(shared) => Some(shared.newest(state, whose.clone(), limit).await?),
            None => None,
        };
        let own = self.run_read(move |inner| {
            let jobs = inner.store().newest(state, &whose, limit)?;
            // A job with a slot is starting or running, which only the memory knows.
            let statuses = jobs.iter().filter_map(|job| inner.status(job.record.job_id).ok());
            Ok((statuses.collect::<Vec<_>>(), in_store.map(|jobs| shared::as_here(inner, jobs))))
        });
        let is_wanted = |status: &JobStatus| state.is_none_or(|state| status.record.status == state);
        let (own, in_store) = own.await?;
        let own = own.into_iter().filter(is_wanted);
        Ok(match in_store {
            Some(in_store) => shared::merged(own, in_store.into_iter().filter(is_wanted), limit),
            None => own.collect(),
        })
    }

    /// Cancels a job: a queued job never starts; a running job gets SIGTERM and, after its grace, SIGKILL with everything that it started.
    /// Returns when the job has ended.
    ///
    /// # Errors
    /// Fails if there is no such job, it has ended already, or it does not end in time.
    pub async fn cancel(&self, id: JobId) -> Result<JobStatus, JobError> {
        if let (Some(shared), Some(status)) = (&self.inner.shared, self.status_in_store(id).await?) {
            return shared.cancel(id, status).await;
        }
        let limit = cancel::longest(&self.own_status(id).await?.record) + CHANGE_LIMIT;
        let inner = Arc::clone(&self.inner);
        self.inner.disk.cancel(limit, move || cancel::cancel(&inner, id)).await
    }

    /// Tells a job to end although [`Engine::open`] failed with `cause`, if a full disk is the reason: an ended job makes room. Blocks for
    /// some milliseconds.
    ///
    /// Returns the outcome as an error; `None` if the disk has room or no job has this id.
    #[must_use]
    pub fn cancel_unopened(folder: &Path, id: JobId, cause: &str) -> Option<JobError> {
        cancel::cancel_unopened(folder, id, cause)
    }

    /// Ends the lease of a job at once: work that runs is killed with everything that it started, and work that has not begun never
    /// begins. Returns when the job has ended.
    ///
    /// # Errors
    /// Fails if there is no such job, it has ended already, or it does not end in time.
    pub async fn revoke(&self, id: JobId) -> Result<JobStatus, JobError> {
        let inner = Arc::clone(&self.inner);
        self.inner.disk.cancel(CHANGE_LIMIT, move || cancel::revoke(&inner, id)).await
    }

    /// Returns the resource of this machine that is too scarce for another job, in words; `None` if there is enough.
    ///
    /// # Errors
    /// Fails if the disk does not answer in time.
    pub async fn shortage(&self) -> Result<Option<String>, JobError> {
        self.run_read(|inner| Ok(inner.lack().map(|lack| lack.to_string()))).await
    }

    /// Lets the work of a job run until a later time of [`since_boot`](unhang_proc::identity::since_boot). Does nothing for a job whose
    /// submission named no lease.
    ///
    /// # Errors
    /// Fails if the job's folder has gone, or cannot be written.
    pub async fn prolong(&self, id: JobId, until: Duration) -> Result<(), JobError> {
        self.run_write(CHANGE_LIMIT, move |inner| {
            Ok(WorkLease::replace(&inner.data.job(id), &inner.starter.boot_id, until)?)
        })
        .await
    }

    /// Removes a job that has ended, with its folder. A worker's copy of a job of a store of many machines is the worker's to remove.
    ///
    /// # Errors
    /// Fails if there is no such job, it has not ended, or it is a worker's copy.
    pub async fn remove(&self, id: JobId) -> Result<(), JobError> {
        if let (Some(shared), Some(status)) = (&self.inner.shared, self.status_in_store(id).await?) {
            return shared.remove(id, status.record.status).await;
        }
        if let Some(shared) = &self.inner.shared {
            shared.remove_copy(&self.own_status(id).await?.record).await?;
        }
        self.run_write(PRUNE_LIMIT, move |inner| retention::remove(inner, id)).await
    }

    /// Removes a job that has ended and had a lease: the worker has told its end.
    ///
    /// # Errors
    /// Fails if there is no such job, or it has not ended.
    pub async fn remove_leased(&self, id: JobId) -> Result<(), JobError> {
        self.run_write(PRUNE_LIMIT, move |inner| retention::remove_leased(inner, id)).await
    }

    /// Removes every job that ended longer ago than this.
    ///
    /// # Errors
    /// Fails if the database or a folder cannot be used.
    pub async fn prune(&self, older_than: Duration) -> Result<RemovedJobs, JobError> {
        let in_store = self.prune_store(older_than, KeptAsAccepted::No).await?;
        let mut removed =
            self.run_write(PRUNE_LIMIT, move |inner| retention::prune(inner, older_than)).await?;
        removed.add(in_store);
        Ok(removed)
    }

    /// Removes the jobs of the store of many machines that ended longer ago than this. Returns none if there is no such store.
    async fn prune_store(&self, age: Duration, kept: KeptAsAccepted) -> Result<Vec<JobId>, JobError> {
        match &self.inner.shared {
            Some(shared) => shared.prune(retention::ended_by(age), kept).await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes every job whose retention is over: both that of this engine and the retention with which the job was accepted.
    ///
    /// # Errors
    /// Fails if the database or a folder cannot be used.
    pub async fn prune_expired(&self) -> Result<RemovedJobs, JobError> {
        let in_store = self.prune_store(self.inner.options.retention, KeptAsAccepted::AsAccepted).await?;
        let mut removed = self.run_write(PRUNE_LIMIT, retention::prune_expired).await?;
        removed.add(in_store);
        Ok(removed)
    }

    /// Lists the folders that nobody could understand, and that the retention has put aside. Only a person removes them.
    ///
    /// # Errors
    /// Fails if the quarantine folder cannot be read.
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>, JobError> {
        self.run_read(quarantine::list).await
    }

    /// Makes the database anew from the folders.
    ///
    /// # Errors
    /// Fails if the database or folders cannot be used.
    pub async fn rebuild(&self) -> Result<Rebuilt, JobError> {
        self.run_write(PRUNE_LIMIT, |inner| {
            let rebuilt = inner.store().rebuild(&inner.data)?;
            Ok(rebuilt)
        })
        .await
    }

    /// Returns the state of the machine and of the engine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn system(&self) -> Result<System, JobError> {
        let own = self.run_read(system::system).await?;
        match &self.inner.shared {
            Some(shared) => {
                let system = shared.with_system(own).await?;
                self.run_read(move |inner| Ok(shared::open_here(inner, system))).await
            }
            None => Ok(own),
        }
    }

    /// Returns how many jobs each state has, in the order of a job's life.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn counts(&self) -> Result<Vec<(JobState, u64)>, JobError> {
        match &self.inner.shared {
            Some(shared) => shared.with_counts(self.run_read(shared::calls_here_alone).await?).await,
            None => self.run_read(system::counts).await,
        }
    }

    /// Returns the workers of the store of many machines; none if there is no such store.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub async fn workers(&self) -> Result<Vec<WorkerSummary>, JobError> {
        match &self.inner.shared {
            Some(shared) => shared.workers().await,
            None => Ok(Vec::new()),
        }
    }

    /// Runs a read of the disk on a thread where it delays nobody else.
    fn run_read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&EngineState) -> Result<T, JobError> + Send + 'static,
    ) -> impl Future<Output = Result<T, JobError>> + Send {
        let inner = self.inner.clone();
        self.inner.disk.look(move || look(&inner))
    }

    /// Runs a change of the disk on a thread where it delays nobody else. A change that is late may still be done.
    fn run_write<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&EngineState) -> Result<T, JobError> + Send + 'static,
    ) -> impl Future<Output = Result<T, JobError>> + Send {
        let inner = self.inner.clone();
        self.inner.disk.change(limit, move || work(&inner))
    }
}
