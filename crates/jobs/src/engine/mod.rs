//! The engine: accepts jobs, starts them in their order, knows where they are, and forgets them when their time is over.
//!
//! It is a value and not a global: each program makes as many as it likes, also on one data folder, also at the same
//! time as other programs. What they share is on the disk.
//!
//! Theory of operation. Two threads work for an engine. The *writer* accepts submissions, many with one commit. The *keeper*
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
mod journal;
mod maintenance;
mod memory;
mod migration;
mod outputs;
mod quarantine;
mod retention;
mod sweep;
mod system;
#[cfg(test)]
mod tests;
mod tickets;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::timeout,
};
use unhang_proc::{deadline::Deadline, file_limit};
use unhang_switches::stands;

use self::{calls::Calls, maintenance::MaintenanceThread, memory::Memory};
pub use self::{
    calls::{Adoption, CallEnd, HeldCall},
    memory::Status,
    outputs::Results,
    quarantine::Quarantined,
    retention::RemovedJobs,
    system::{Machine, System},
};
use crate::{
    document::{Document, DocumentEntry, Documents, Field},
    error::JobError,
    folder::{DATABASE, DataFolder, FileError, JobFolder},
    id::JobId,
    limits::{self, Announced, ToldLimits},
    moment::Moment,
    record::{FORMAT, JobRecord, JobState},
    room::{MemoryGauge, Rules},
    settle::{Handover, set_document},
    shims::{self, ShimCommand},
    store::{self, Rebuilt, Starter, Store, Whose},
    submission::Submission,
};

/// How long a submit may take. With a disk that is well it takes milliseconds.
const SUBMIT_LIMIT: Duration = Duration::from_secs(10);

/// How long a look at the disk may take. The database may be held by others for ten seconds.
const LOOK_LIMIT: Duration = Duration::from_secs(15);

/// How long a change may take. It may wait for the turn to write the state, and then for the database.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);

/// How long it may take to remove folders, or to read all of them.
const SWEEP_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Threads that look at the disk at the same time. Where it hangs each of them hangs too.
const MOST_LOOKS: usize = 32;

/// Threads that change something on the disk at the same time. Whoever cancels a job waits for its end.
const MOST_CHANGES: usize = 64;

/// How long the end may take: one round of the keeper.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The least that files must be able to grow to: SQLite empties its log when that has four mebibytes, and not before.
const SMALLEST_FILE_LIMIT: u64 = 8 << 20;

/// How an engine works.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The data folder; it is made where it is missing.
    pub folder: PathBuf,
    /// How our own binary is run as a shim; see [`shim::run_if_asked`](crate::shim::run_if_asked).
    pub shim: ShimCommand,
    /// When a job may start.
    pub rules: Rules,
    /// Whether queued jobs start by the limit that each of them was accepted with, instead of by that in `rules`. For programs
    /// that come and go: one that only looks must not let more run than whoever accepted them wanted.
    pub keeps_recorded_limits: bool,
    /// Whether somebody said how many jobs may run, so that it counts for all who have the folder open meanwhile.
    pub max_concurrent_was_said: bool,
    /// How long an ended job is kept, since its end. Jobs whose own rules say longer stay longer.
    pub retention: Duration,
    /// Whether somebody said how long, so that it counts for all who were not told; see [`Engine::open`].
    pub retention_was_said: bool,
}

impl EngineOptions {
    /// The defaults, with the number of jobs that fits this machine.
    #[must_use]
    pub fn new(folder: PathBuf, shim: ShimCommand) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            folder,
            shim,
            rules: Rules {
                max_concurrent: u32::try_from(processors / 2).unwrap_or(u32::MAX).max(2),
                memory_limit: 90.0,
                disk_reserve: 64 << 20,
                retention_ms: None,
            },
            keeps_recorded_limits: false,
            max_concurrent_was_said: false,
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            retention_was_said: false,
        }
    }
}

impl EngineOptions {
    /// What others hear of these for as long as the folder is open. A program that comes and goes says it with each job.
    fn told(&self) -> ToldLimits {
        let (is_told, millis) = (!self.keeps_recorded_limits, self.retention.as_millis());
        ToldLimits {
            max_concurrent: (is_told && self.max_concurrent_was_said).then_some(self.rules.max_concurrent),
            retention_ms: (is_told && self.retention_was_said)
                .then(|| u64::try_from(millis).unwrap_or(u64::MAX)),
        }
    }
}

/// What an engine needs wherever it works.
#[derive(Debug)]
pub(crate) struct EngineState {
    options: EngineOptions,
    data: DataFolder,
    memory: Memory,
    starter: Starter,
    gauge: MemoryGauge,
    /// Calls that are held here.
    calls: Calls,
    /// For what is asked for seldom; held for one short transaction at a time.
    store: Mutex<Store>,
    /// Places of those who look at the disk, and of those who change something.
    looks: Arc<Semaphore>,
    works: Arc<Semaphore>,
}

impl EngineState {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handover(&self) -> Handover<'_> {
        Handover { starter: &self.starter, limit: self.own_limit(), is_open: self.lack().is_none() }
    }

    /// What there is too little of for another job to start.
    fn lack(&self) -> Option<String> {
        self.options.rules.lack(&self.data, &self.gauge)
    }

    /// By which limit queued jobs start, besides that of each.
    fn own_limit(&self) -> Option<u32> {
        let own = (!self.options.keeps_recorded_limits).then_some(self.options.rules.max_concurrent);
        own.into_iter().chain(limits::of_all(&self.data).max_concurrent).min()
    }

    /// How long ended jobs are kept at least, as those say who have the folder open.
    fn retention_of_others(&self) -> Duration {
        limits::of_all(&self.data).retention()
    }

    /// The jobs that have a slot.
    fn running(&self) -> Vec<JobId> {
        self.memory.with_slot().iter().map(|job| job.record.job_id).collect()
    }

    fn start_shims(&self, admitted: &[JobId]) {
        for &id in admitted {
            if let Err(error) = shims::start(&self.options.shim, &self.data, id) {
                // The keeper sees that nobody has it, and tries again.
                tracing::warn!("the supervisor of job {id} could not be started: {error}");
            }
        }
    }

    /// Takes what is wrong with one job's folder for that job's alone: it is told of with the job, and the others go on.
    fn tell_trouble(&self, id: JobId, looked: Result<(), JobError>) -> Result<(), JobError> {
        let trouble = match looked {
            Err(error) if error.is_of_files() => Some(error.to_string()),
            looked => looked.map(|()| None)?,
        };
        self.note_trouble(id, trouble);
        Ok(())
    }

    /// Notes what is wrong with a job's folder, or that nothing is.
    fn note_trouble(&self, id: JobId, trouble: Option<String>) {
        if self.memory.set_trouble(id, trouble.clone())
            && let Some(trouble) = trouble
        {
            tracing::warn!("job {id} cannot be looked after: {trouble}");
        }
    }

    /// The record of a job, wherever it is known. It may wait for the disk.
    fn status(&self, id: JobId) -> Result<Status, JobError> {
        if let Some(status) = self.memory.status(id) {
            return Ok(status);
        }
        let job = self.store().read(|connection| store::get(connection, id))?;
        let job = job.ok_or(JobError::NoSuchJob(id))?;
        if !job.record.status.is_final() {
            // Another process has accepted it a moment ago; from now on it is followed here too.
            self.memory.update([job]);
            return self.memory.status(id).ok_or(JobError::NoSuchJob(id));
        }
        Ok(Status { record: job.record, queue_position: None, progress: None, wait_reason: None })
    }
}

/// What the opening of a data folder found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The database was missing and was made anew from the folders.
    pub rebuilt: Option<Rebuilt>,
    /// Results that had not reached the named state when their writer died, and now have (J-46).
    pub replayed: usize,
}

/// The engine; see the module. Clones are the same engine.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<EngineState>,
    requests: mpsc::Sender<writer::Request>,
    keeper: Arc<MaintenanceThread>,
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
        check_file_limit(&options.folder)?;
        let data = DataFolder::open(&options.folder)?;
        let starter = shims::this_process()
            .map_err(|error| FileError::system("cannot name this process in", data.path(), error))?;
        let (mut store, rebuilt) = Store::open(&data)?;
        let mut opened = Opened { rebuilt, replayed: 0 };
        Documents::of(&data).remove_unfinished();
        match finish_begun_patches(&data, &mut store) {
            Ok(replayed) => opened.replayed = replayed,
            Err(error) if error.is_of_files() => {
                // Whoever writes to the state next tries again.
                tracing::warn!("results cannot be brought to the state yet: {error}");
            }
            Err(error) => return Err(error),
        }
        if let Err(error) = store.restore_files(&starter.boot_id) {
            // The keeper tries again, and says so of every job that waits.
            tracing::warn!("what queued jobs need cannot be written anew after the boot: {error}");
        }
        let ((writing, _), (keeping, _)) = (Store::open(&data)?, Store::open(&data)?);
        let announced = limits::announce(&data, options.told()).unwrap_or_else(|error| {
            tracing::warn!("others who use this folder do not hear of our limits: {error}");
            None
        });
        let inner = Arc::new(EngineState {
            options,
            data,
            memory: Memory::new(),
            starter,
            gauge: MemoryGauge::default(),
            calls: Calls::default(),
            store: Mutex::new(store),
            looks: Arc::new(Semaphore::new(MOST_LOOKS)),
            works: Arc::new(Semaphore::new(MOST_CHANGES)),
        });
        let keeper = MaintenanceThread::start(&inner, keeping)?;
        let (requests, received) = mpsc::channel(writer::WAITING);
        writer::start(inner.clone(), writing, received)
            .map_err(|error| FileError::system("cannot start a thread for", inner.data.path(), error))?;
        let (keeper, announced) = (Arc::new(keeper), announced.map(Arc::new));
        Ok((Self { inner, requests, keeper, _announced: announced }, opened))
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
    pub async fn submit(&self, submission: Submission) -> Result<Status, JobError> {
        let id = submission.id;
        let (answer, outcome) = oneshot::channel();
        let submit = async {
            let request = writer::Request::Submit(Box::new((submission, answer)));
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
            let request = writer::Request::SayWhenDone(done);
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
        let finished = tokio::task::spawn_blocking(move || self.keeper.finish());
        timeout(CLOSE_LIMIT, finished).await.map_err(|_| JobError::Closed)?.map_err(|_| JobError::Closed)
    }

    /// Where a job is: at once where it is known by heart, and otherwise when the database has been asked.
    ///
    /// # Errors
    /// Where there is no such job, or the disk does not say in time.
    pub async fn status(&self, id: JobId) -> Result<Status, JobError> {
        match self.inner.memory.status(id) {
            Some(status) => Ok(status),
            None => self.looking(move |inner| inner.status(id)).await,
        }
    }

    /// Waits until a job has ended, but not beyond the deadline, and says where it is then.
    ///
    /// # Errors
    /// Where there is no such job, or none any more.
    pub async fn wait(&self, id: JobId, deadline: Deadline) -> Result<Status, JobError> {
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
        whose: Whose,
        limit: u32,
    ) -> Result<Vec<Status>, JobError> {
        self.looking(move |inner| {
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
    pub async fn cancel(&self, id: JobId) -> Result<Status, JobError> {
        let limit = cancel::longest(&self.status(id).await?.record) + CHANGE_LIMIT;
        self.changing(limit, move |inner| cancel::cancel(inner, id)).await
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
        self.changing(SWEEP_LIMIT, move |inner| retention::remove(inner, id)).await
    }

    /// Removes every job that ended longer ago than this.
    ///
    /// # Errors
    /// Where the database or a folder cannot be used.
    pub async fn prune(&self, older_than: Duration) -> Result<RemovedJobs, JobError> {
        self.changing(SWEEP_LIMIT, move |inner| retention::prune(inner, older_than)).await
    }

    /// Removes every job whose retention is over: that of this engine, and that which the job was accepted with.
    ///
    /// # Errors
    /// Where the database or a folder cannot be used.
    pub async fn sweep(&self) -> Result<RemovedJobs, JobError> {
        self.changing(SWEEP_LIMIT, retention::sweep).await
    }

    /// Lists the folders that nobody could understand, and that the retention has put aside. Nothing removes them but a person.
    ///
    /// # Errors
    /// Where the folder of them cannot be read.
    pub async fn quarantined(&self) -> Result<Vec<Quarantined>, JobError> {
        self.looking(quarantine::list).await
    }

    /// Makes the database anew from the folders.
    ///
    /// # Errors
    /// Where database or folders cannot be used.
    pub async fn rebuild(&self) -> Result<Rebuilt, JobError> {
        self.changing(SWEEP_LIMIT, |inner| {
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
        self.looking(system::system).await
    }

    /// How many jobs there are of each state, in the order of a job's life.
    ///
    /// # Errors
    /// Where the database cannot be read.
    pub async fn counts(&self) -> Result<Vec<(JobState, u64)>, JobError> {
        self.looking(system::counts).await
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
        self.looking(move |inner| Ok(Documents::owned(&inner.data, owner.as_deref()).get(&field)?)).await
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
    pub async fn set_document(&self, field: Field, value: Value) -> Result<Moment, JobError> {
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
    ) -> Result<Moment, JobError> {
        self.changing(CHANGE_LIMIT, move |inner| {
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
        self.looking(move |inner| Ok(Documents::owned(&inner.data, owner.as_deref()).list()?)).await
    }

    /// Looks at the disk where that delays nobody else.
    async fn looking<T: Send + 'static>(
        &self,
        look: impl FnOnce(&EngineState) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        self.within(LOOK_LIMIT, &self.inner.looks, look).await
    }

    /// Changes something on the disk where that delays nobody else. What is late may still be done.
    async fn changing<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&EngineState) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        self.within(limit, &self.inner.works, work).await
    }

    async fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        places: &Arc<Semaphore>,
        work: impl FnOnce(&EngineState) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        let (inner, places) = (self.inner.clone(), Arc::clone(places));
        let done = async {
            // Nobody closes it.
            let place = places.acquire_owned().await.map_err(|_| JobError::Closed)?;
            let done = tokio::task::spawn_blocking(move || {
                let _until_the_disk_answers = place;
                work(&inner)
            });
            // A panic in it is a bug, and the runtime's end leaves nobody to answer.
            done.await.map_err(|_| JobError::Closed)?
        };
        let late = |_| JobError::Late { folder: self.inner.data.path().to_owned(), waited: limit };
        timeout(limit, done).await.map_err(late)?
    }
}

/// Refuses to begin what the limit of file sizes would break off, before anything is made.
fn check_file_limit(folder: &Path) -> Result<(), JobError> {
    match (file_limit::file_limit(), file_limit::told()) {
        (Some(bytes), Some(limit)) if bytes < SMALLEST_FILE_LIMIT => {
            let database = folder.join(DATABASE);
            Err(JobError::FileLimit { limit, database, needed: SMALLEST_FILE_LIMIT })
        }
        _ => Ok(()),
    }
}

/// Applies the results whose writers died on the way to the state. How many there were.
fn finish_begun_patches(data: &DataFolder, store: &mut Store) -> Result<usize, JobError> {
    if store.read(store::patching)?.is_empty() {
        return Ok(0);
    }
    let turn = Documents::of(data).turn()?;
    Ok(crate::settle::finish_patches(data, store, &turn)?)
}

/// Makes a new database from the job folders, where the old one is damaged. Returns where the old one lies now.
///
/// # Errors
/// Where files cannot be moved or made.
pub fn replace_damaged_database(folder: &Path) -> Result<(PathBuf, Rebuilt), JobError> {
    check_file_limit(folder)?;
    Ok(Store::replace_damaged(&DataFolder::open(folder)?)?)
}
