//! The worker: its settings, its state, and its beginning and end.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use unhang_jobs::engine::Engine;
use unhang_postgres::{LeaseLengths, PostgresError, SharedFiles, StoreAddress, WorkerList, WorkerNote};
use unhang_proc::identity::since_boot;

use crate::{
    claims, deliveries,
    error::WorkerError,
    heartbeats,
    held::HeldJobs,
    hints,
    identity::WorkerIdentity,
    link::{StoreLink, jittered},
    notes::LeaseNotes,
    sweeps, uploads,
    work::WorkResolver,
};

/// The number of heartbeats in a lease, unless a setting says otherwise.
pub(crate) const HEARTBEATS: u32 = 6;

/// The number of pauses between two looks for work that are one, while the store tells of new jobs.
const HINTED_POLL: u32 = 5;

/// The longest time between the death of the work and the end of its lease.
const LONGEST_MARGIN: Duration = Duration::from_secs(5);

/// The settings of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The most jobs that it runs at the same time.
    pub slots: u32,
    /// The labels that people gave it.
    pub labels: Vec<String>,
    /// The lengths of its leases.
    pub lengths: LeaseLengths,
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// The longest pause between two looks for work.
    pub poll: Duration,
}

impl WorkerSettings {
    /// Makes the settings for so many slots, with everything else at its default.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let lengths = LeaseLengths::default();
        Self {
            slots,
            labels: Vec::new(),
            heartbeat: Self::heartbeat_of(lengths.repeatable),
            lengths,
            poll: Duration::from_secs(1),
        }
    }

    /// Returns the usual time between two heartbeats for a lease of this length.
    #[must_use]
    pub fn heartbeat_of(lease: Duration) -> Duration {
        lease / HEARTBEATS
    }
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// It was told to stop. So many jobs go on under their supervisors.
    Stopped {
        /// The number of jobs that it leaves.
        running: usize,
    },
    /// It was drained: it took no more jobs, and the last one has ended.
    Drained,
}

/// A worker on an engine; see the crate.
#[derive(Debug)]
pub struct Worker {
    state: Arc<WorkerState>,
}

/// What the loops of a worker share.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) engine: Engine,
    pub(crate) address: StoreAddress,
    /// The places of files.
    pub(crate) files: SharedFiles,
    /// The right to write a file into an object store.
    pub(crate) uploads: Semaphore,
    pub(crate) settings: WorkerSettings,
    pub(crate) identity: WorkerIdentity,
    pub(crate) resolver: Arc<dyn WorkResolver>,
    pub(crate) notes: LeaseNotes,
    pub(crate) held: HeldJobs,
    /// Wakes the loop of the claims: a slot is free, or the worker is drained.
    pub(crate) slot_is_free: Notify,
    /// Wakes the loop of the claims: the store has a job.
    pub(crate) has_work: Notify,
    /// Wakes the loop of the heartbeats: somebody wants a job to be cancelled.
    pub(crate) has_wish: Notify,
    /// Wakes the loop of the deliveries.
    pub(crate) has_news: Notify,
    is_draining: AtomicBool,
    /// Whether the store tells of news.
    is_hinted: AtomicBool,
}

impl Worker {
    /// Makes a worker on this engine, which is open on the data folder of `identity` and starts `settings.slots` jobs at the same time. Files
    /// of jobs go to the places that `files` names.
    #[must_use]
    pub fn new(
        engine: Engine,
        identity: WorkerIdentity,
        address: StoreAddress,
        files: SharedFiles,
        settings: WorkerSettings,
        resolver: Arc<dyn WorkResolver>,
    ) -> Self {
        let notes = LeaseNotes::at(identity.folder());
        let state = WorkerState {
            engine,
            address,
            files,
            uploads: Semaphore::new(uploads::AT_ONCE),
            settings,
            identity,
            resolver,
            notes,
            held: HeldJobs::default(),
            slot_is_free: Notify::new(),
            has_work: Notify::new(),
            has_wish: Notify::new(),
            has_news: Notify::new(),
            is_draining: AtomicBool::new(false),
            is_hinted: AtomicBool::new(false),
        };
        Self { state: Arc::new(state) }
    }

    /// Runs the worker until `stop` is done, or until it was drained. Its jobs go on under their supervisors.
    ///
    /// # Errors
    /// Fails if the store refuses this worker, or if the notes about earlier jobs cannot be read. A store that cannot be reached is tried
    /// again.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<WorkerEnd, WorkerError> {
        let state = self.state;
        state.adopt()?;
        state.greet().await?;
        let mut loops = JoinSet::new();
        loops.spawn(claims::run(Arc::clone(&state)));
        loops.spawn(heartbeats::run(Arc::clone(&state)));
        loops.spawn(deliveries::run(Arc::clone(&state)));
        loops.spawn(sweeps::run(Arc::clone(&state)));
        loops.spawn(hints::run(Arc::clone(&state)));
        let end = tokio::select! {
            () = stop => WorkerEnd::Stopped { running: state.held.count() },
            () = state.until_drained() => WorkerEnd::Drained,
        };
        // A loop that is in the middle of an operation leaves what the next worker on the folder finds.
        loops.shutdown().await;
        if end == WorkerEnd::Drained {
            state.sign_off().await;
        }
        Ok(end)
    }
}

impl WorkerState {
    /// Takes up the jobs of an earlier worker on this folder.
    fn adopt(&self) -> Result<(), WorkerError> {
        let failed = |error| WorkerError::File { path: PathBuf::from(self.identity.folder()), error };
        for note in self.notes.all().map_err(failed)? {
            // The supervisor has the time at which the work has to be dead; a heartbeat tells the next one.
            self.held.insert(crate::held::HeldJob::new(note, None, Duration::MAX));
        }
        Ok(())
    }

    /// Asks the store for the first time, so that a wrong address or password is told at once.
    async fn greet(&self) -> Result<(), WorkerError> {
        let mut link = StoreLink::new(self.address.clone(), "reach its store");
        let note = self.note();
        match link.run(move |store| WorkerList(store).announce(&note)).await {
            Ok(is_drain_wanted) => {
                // The wish was for an earlier process.
                if is_drain_wanted {
                    let name = self.identity.name().to_owned();
                    link.run(move |store| WorkerList(store).want_drain(&name, false)).await?;
                }
                Ok(())
            }
            Err(PostgresError::Unreachable { .. } | PostgresError::TimedOut { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn sign_off(&self) {
        let mut link = StoreLink::new(self.address.clone(), "sign off");
        let name = self.identity.name().to_owned();
        // The store shows it as silent otherwise.
        let _ = link.run(move |store| WorkerList(store).sign_off(&name)).await;
    }

    /// Returns what the worker tells of itself.
    pub(crate) fn note(&self) -> WorkerNote {
        WorkerNote {
            name: self.identity.name().to_owned(),
            host: self.identity.host().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.labels(),
            slots: self.settings.slots,
            silent_after: self.settings.lengths.repeatable,
        }
    }

    /// Returns all labels of the worker.
    pub(crate) fn labels(&self) -> Vec<String> {
        let own = self.resolver.own_labels().into_iter().chain(self.files.label());
        self.settings.labels.iter().cloned().chain(own).collect()
    }

    /// Takes no more jobs from now on.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.slot_is_free.notify_one();
    }

    /// Notes whether the store tells of news.
    pub(crate) fn set_hinted(&self, is_hinted: bool) {
        self.is_hinted.store(is_hinted, Ordering::Relaxed);
    }

    /// Returns the pause before the next look for work.
    pub(crate) fn poll(&self) -> Duration {
        let share = if self.is_hinted.load(Ordering::Relaxed) { HINTED_POLL } else { 1 };
        jittered(self.settings.poll * share)
    }

    /// Returns whether the worker takes no more jobs.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Waits until the worker takes no more jobs and holds none.
    async fn until_drained(&self) {
        while !(self.is_draining() && self.held.count() == 0) {
            tokio::time::sleep(self.settings.heartbeat.min(Duration::from_secs(1))).await;
        }
    }

    /// Returns the time at which the work has to be dead, for a lease that was asked for at this time of this machine's clock.
    pub(crate) fn until(&self, asked_at: Duration, length: Duration) -> Duration {
        asked_at + length - margin(length)
    }

    /// Forgets a job whose end the store knows, or that is not this worker's any more. The copy in the engine goes, too.
    pub(crate) async fn forget(&self, id: unhang_jobs::id::JobId) {
        self.notes.remove(id);
        self.held.remove(id);
        self.slot_is_free.notify_one();
        if let Err(error) = self.engine.remove_leased(id).await {
            // The retention removes it.
            tracing::debug!("the worker's copy of job {id} stays: {error}");
        }
    }
}

/// Returns the time between the death of the work and the end of its lease.
fn margin(length: Duration) -> Duration {
    (length / HEARTBEATS).min(LONGEST_MARGIN)
}

/// Returns the time of the clock by which leases end on this machine.
pub(crate) fn lease_clock() -> Duration {
    // Without such a clock, every lease is over at once for the supervisor.
    since_boot().unwrap_or_default()
}
