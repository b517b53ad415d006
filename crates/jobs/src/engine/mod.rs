//! The engine: accepts jobs, starts them in their order, knows where they are, and forgets them when their time is over.
//!
//! It is a value and not a global: each program makes as many as it likes, also on one data folder, also at the same
//! time as other programs. What they share is on the disk.
//!
//! Theory of operation. Two threads work for an engine. The *writer* accepts submissions, many with one commit. The *maintenance thread*
//! follows what other processes change, looks after the jobs that have a slot, fills free slots, and removes what is too old.
//! Everybody who only looks, looks at the memory that the two keep up to date.
//!
//! Invariants
//!
//! - [`Engine::status`] and [`Engine::wait`] touch neither disk nor writer for a job that is known by heart.
//! - No method of [`Engine`] but [`Engine::open`] touches the disk on the caller's thread: a disk that hangs delays nobody else. What is
//!   done for a caller has a limit, and the threads that wait for the disk have a bound.
//! - Dropping an engine stops its threads and none of its jobs.

mod calls;
mod cancel;
mod clock;
mod disk;
mod journal;
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

use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;

pub use self::{
    calls::{Adoption, CallEnd, HeldCall},
    memory::JobStatus,
    open::{Opened, replace_damaged_database},
    options::EngineOptions,
    outputs::Results,
    quarantine::Quarantined,
    retention::RemovedJobs,
    system::{Machine, System},
};
use self::{maintenance::MaintenanceThread, open::OpenedFolder, state::EngineState};
use crate::{
    document::{Document, DocumentEntry, Documents, Field},
    error::JobError,
    folder::{FileError, JobFolder},
    id::JobId,
    limits::{self, Announced},
    record::{FORMAT, JobRecord, JobState},
    settle::set_document,
    store::{self, JobOwnerFilter, Rebuilt, Store},
    submission::Submission,
    timestamp::JobTimestamp,
};

/// How long a submit may take. With a disk that is well it takes milliseconds.
const SUBMIT_LIMIT: Duration = Duration::from_secs(10);

/// How long a change may take. It may wait for the turn to write the state, and then for the database.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);

/// How long it may take to remove folders, or to read all of them.
const PRUNE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How long the end may take: one round of the maintenance thread.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The engine; see the module. Clones are the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<EngineState>,
    requests: mpsc::Sender<writer::WriterRequest>,
    maintenance: Arc<MaintenanceThread>,
    /// What others hear of our limits, for as long as anybody has this.
    _announced: Option<Arc<Announced>>,
}

impl Engine {
    /// Opens a data folder: brings every job to the state that is true, starts what waits, and goes on doing so. Blocks for
    /// some milliseconds. Jobs whose retention is over are removed meanwhile, beside everything else; where nobody said what it is, those
    /// are kept that the last one who was told would keep.
    ///
    /// # Errors
    /// Where the folder or the database in it cannot be used; each error says what to do.
    pub fn open(options: EngineOptions) -> Result<(Self, Opened), JobError> {
        let OpenedFolder { data, starter, store, opened } = OpenedFolder::open(&options.folder)?;
        let ((writing, _), (keeping, _)) = (Store::open(&data)?, Store::open(&data)?);
        let announced = limits::announce(&data, options.told()).unwrap_or_else(|error| {
            tracing::warn!("others who use this folder do not hear of our limits: {error}");
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

    /// Its options.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// The path of a job's folder, whether it is there or not: our own files about it, and its logs.
    #[must_use]
    pub fn job_folder(&self, id: JobId) -> PathBuf {
        self.folder(id).path().to_owned()
    }

    /// The folder that the work of a new job is told of, whether it is there or not: where its inputs lie and its results go.
    #[must_use]
    pub fn new_work_folder(&self, id: JobId) -> PathBuf {
        self.folder(id).work(FORMAT).path().to_owned()
    }

    /// The same of the job with this record, which an older version of unhang may have written.
    #[must_use]
    pub fn work_folder(&self, record: &JobRecord) -> PathBuf {
        self.folder(record.job_id).work(record.format).path().to_owned()
    }

    fn folder(&self, id: JobId) -> JobFolder {
        self.inner.data.job(id)
    }

    /// Takes a job in. When this returns, the job is on the disk and will reach its end, whoever dies.
    ///
    /// # Errors
    /// Why it was not accepted; then there is no trace of it. Only [`JobError::Uncertain`] and [`JobError::Unconfirmed`] leave that open.
    pub async fn submit(&self, submission: Submission) -> Result<JobStatus, JobError> {
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

    /// Waits until whatever was accepted and has a slot has been given to its shim, which happens just after the submit has
    /// been answered. A program that ends right after a submit calls this first: otherwise the job would wait for the next
    /// process that opens the folder.
    ///
    /// # Errors
    /// Where the disk takes too long.
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

    /// Ends the engine's work and none of its jobs: whatever it has given a slot has a shim when this returns. A program that
    /// ends without it may leave a job with a slot and no shim, until another process opens the folder.
    ///
    /// # Errors
    /// Where the disk takes too long.
    pub async fn close(self) -> Result<(), JobError> {
        self.handed_over().await?;
        let finished = tokio::task::spawn_blocking(move || self.maintenance.finish());
        timeout(CLOSE_LIMIT, finished).await.map_err(|_| JobError::Closed)?.map_err(|_| JobError::Closed)
    }

    /// Where a job is: at once where it is known by heart, and otherwise when the database has been asked.
    ///
    /// # Errors
    /// Where there is no such job, its data folder has gone, or the disk does not say in time.
    pub async fn status(&self, id: JobId) -> Result<JobStatus, JobError> {
        match self.inner.memory.status(id) {
            Some(status) => self.inner.while_followed(status),
            None => self.run_read(move |inner| inner.status(id)).await,
        }
    }

    /// Says that the data folder of this job is not where it was, where that is so: what is known of the job is then old.
    #[must_use]
    pub fn lost_sight_of(&self, id: JobId) -> Option<JobError> {
        self.inner.lost_sight_of(id)
    }

    /// Waits until a job has ended, but not beyond the deadline, and says where it is then.
    ///
    /// # Errors
    /// Where there is no such job, or none any more.
    pub async fn wait(&self, id: JobId, deadline: Deadline) -> Result<JobStatus, JobError> {
        let mut changes = self.inner.memory.changes();
        let mut was_seen = false;
        loop {
            changes.mark_unchanged();
            let status = self.status(id).await;
            let status = if was_seen { status.map_err(JobError::of_known)? } else { status? };
            was_seen = true;
            // A timer would round a wait of no length up to its next millisecond, and a mere look shall not take that.
            let is_over = deadline.is_past() && stands("no-timer-for-a-look");
            if status.record.status.is_final() || is_over {
                return Ok(status);
            }
            match deadline.timeout(changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(JobError::Closed),
                Err(_) => return self.status(id).await.map_err(JobError::of_known),
            }
        }
    }

    /// Wakes up at every change of any job from now on.
    #[must_use]
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.memory.changes()
    }

    /// The newest jobs, newest first.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub async fn list(
        &self,
        state: Option<JobState>,
        whose: JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<JobStatus>, JobError> {
        self.run_read(move |inner| {
            let jobs = inner.store().read(|connection| store::newest(connection, state, &whose, limit))?;
            // A job with a slot is starting or running, which only the memory knows.
            let status = |id| inner.status(id).ok();
            let statuses = jobs.iter().filter_map(|job| status(job.record.job_id));
            Ok(statuses.filter(|status| state.is_none_or(|state| status.record.status == state)).collect())
        })
        .await
    }

    /// Ends a job: a queued one never starts, a running one gets SIGTERM and, after its grace, SIGKILL with everything that it
    /// started. Returns when it has ended.
    ///
    /// # Errors
    /// Where there is no such job, it has ended already, or it does not end in time.
    pub async fn cancel(&self, id: JobId) -> Result<JobStatus, JobError> {
        let limit = cancel::longest(&self.status(id).await?.record) + CHANGE_LIMIT;
        self.run_write(limit, move |inner| cancel::cancel(inner, id)).await
    }

    /// Tells a job to end although [`Engine::open`] failed with `cause`, where a full disk is the reason: an ended job makes room.
    /// Blocks for some milliseconds.
    ///
    /// Returns what came of it, or none where the disk has room or no job has this id.
    #[must_use]
    pub fn cancel_unopened(folder: &Path, id: JobId, cause: &str) -> Option<JobError> {
        cancel::cancel_unopened(folder, id, cause)
    }

    /// Removes a job that has ended, with its folder.
    ///
    /// # Errors
    /// Where there is no such job or it has not ended.
    pub async fn remove(&self, id: JobId) -> Result<(), JobError> {
        self.run_write(PRUNE_LIMIT, move |inner| retention::remove(inner, id)).await
    }

    /// Removes every job that ended longer ago than this.
    ///
    /// # Errors
    /// Where the database or a folder cannot be used.
    pub async fn prune(&self, older_than: Duration) -> Result<RemovedJobs, JobError> {
        self.run_write(PRUNE_LIMIT, move |inner| retention::prune(inner, older_than)).await
    }

    /// Removes every job whose retention is over: that of this engine, and that which the job was accepted with.
    ///
    /// # Errors
    /// Where the database or a folder cannot be used.
    pub async fn prune_expired(&self) -> Result<RemovedJobs, JobError> {
        self.run_write(PRUNE_LIMIT, retention::prune_expired).await
    }

    /// Lists the folders that nobody could understand, and that the retention has put aside. Nothing removes them but a person.
    ///
    /// # Errors
    /// Where the folder of them cannot be read.
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>, JobError> {
        self.run_read(quarantine::list).await
    }

    /// Makes the database anew from the folders.
    ///
    /// # Errors
    /// Where database or folders cannot be used.
    pub async fn rebuild(&self) -> Result<Rebuilt, JobError> {
        self.run_write(PRUNE_LIMIT, |inner| {
            let rebuilt = inner.store().rebuild(&inner.data)?;
            Ok(rebuilt)
        })
        .await
    }

    /// How the machine and the engine do.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub async fn system(&self) -> Result<System, JobError> {
        self.run_read(system::system).await
    }

    /// How many jobs there are of each state, in the order of a job's life.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub async fn counts(&self) -> Result<Vec<(JobState, u64)>, JobError> {
        self.run_read(system::counts).await
    }

    /// A document of the named state, of whoever has the data folder or shared.
    ///
    /// # Errors
    /// Where its file cannot be read or is not JSON.
    pub async fn document(&self, field: Field) -> Result<Option<Document>, JobError> {
        self.document_of(None, field).await
    }

    /// The same of this owner; nobody is whoever has the data folder.
    ///
    /// # Errors
    /// As [`Self::document`].
    pub async fn document_of(
        &self,
        owner: Option<String>,
        field: Field,
    ) -> Result<Option<Document>, JobError> {
        self.run_read(move |inner| Ok(Documents::owned(&inner.data, owner.as_deref()).get(&field)?)).await
    }

    /// Where a document of this owner lies.
    #[must_use]
    pub fn document_path(&self, owner: Option<&str>, field: &Field) -> PathBuf {
        Documents::owned(&self.inner.data, owner).path(field)
    }

    /// Replaces a document of the named state, of whoever has the data folder or shared, and gives the time that it has from then on.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub async fn set_document(&self, field: Field, value: Value) -> Result<JobTimestamp, JobError> {
        self.set_document_of(None, field, value).await
    }

    /// The same of this owner; nobody is whoever has the data folder.
    ///
    /// # Errors
    /// As [`Self::set_document`].
    pub async fn set_document_of(
        &self,
        owner: Option<String>,
        field: Field,
        value: Value,
    ) -> Result<JobTimestamp, JobError> {
        self.run_write(CHANGE_LIMIT, move |inner| {
            Ok(set_document(&inner.data, || inner.store(), owner.as_deref(), &field, &value)?)
        })
        .await
    }

    /// All documents of the named state, by name: those of whoever has the data folder, and those that are shared.
    ///
    /// # Errors
    /// Where their folder cannot be read.
    pub async fn documents(&self) -> Result<Vec<DocumentEntry>, JobError> {
        self.documents_of(None).await
    }

    /// The same of this owner; nobody is whoever has the data folder.
    ///
    /// # Errors
    /// As [`Self::documents`].
    pub async fn documents_of(&self, owner: Option<String>) -> Result<Vec<DocumentEntry>, JobError> {
        self.run_read(move |inner| Ok(Documents::owned(&inner.data, owner.as_deref()).list()?)).await
    }

    /// Looks at the disk where that delays nobody else.
    async fn run_read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&EngineState) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        let inner = self.inner.clone();
        self.inner.disk.look(move || look(&inner)).await
    }

    /// Changes something on the disk where that delays nobody else. What is late may still be done.
    async fn run_write<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&EngineState) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        let inner = self.inner.clone();
        self.inner.disk.change(limit, move || work(&inner)).await
    }
}
