//! Slow calls of servers that became jobs, in the store of many machines.
//!
//! Theory of operation. Such a call stays on its machine: its server works on it, and a process there waits for the answer. So the store gets
//! a copy. A [`CallMirror`] runs beside each engine that lives for a longer time. One of them at a time has the data folder, by a lock, and
//! the others wait for it. It follows the calls of the folder, whichever process there holds them, also those that the call holder went on
//! with. Three loops do the work:
//!
//! ```text
//! finds       engine ─ a new call ─► token, in a note on the disk
//! deliveries  note ─► row, active ─► log ─► answer or error ─► end ─► note removed
//! heartbeats  engine ─ progress ─► store ─ lease prolonged         a wish to cancel ─► engine
//! ```
//!
//! Invariants
//!
//! - No call waits for the store, and no client for this: the loops have a thread of their own.
//! - The note of a call is on the disk before its row is in the store, and until the store has its end. So the next process on the data
//!   folder goes on with the same token.
//! - A call is inserted once. A mark in the job's folder says so, also if somebody has removed the row meanwhile.
//! - The store ends nothing here, unless somebody wants the call to be cancelled. A call that the store takes for lost goes on, and its true
//!   end still gets there.

mod deliveries;
mod finds;
mod heartbeats;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{
    runtime,
    sync::{Notify, watch},
    task::JoinSet,
    time::sleep,
};
use unhang_jobs::{engine::Engine, folder::IN_STORE, id::JobId};
use unhang_postgres::{LeaseLengths, StoreAddress, WorkerClaim};

use crate::{
    held::{HeldJob, HeldJobs},
    identity::WorkerIdentity,
    notes::LeaseNotes,
    worker::HEARTBEATS,
};

/// The longest time between two heartbeats of a call.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The pause between two tries to take the data folder. The process that has it may go without a word.
const TURN_LOOK: Duration = Duration::from_secs(1);

/// Tells a store of the calls of a data folder, as long as this lives; see the module.
#[derive(Debug)]
pub struct CallMirror {
    _alive: watch::Sender<()>,
}

/// What the loops share.
#[derive(Debug)]
struct MirrorState {
    engine: Engine,
    address: StoreAddress,
    lease: Duration,
    identity: WorkerIdentity,
    notes: LeaseNotes,
    held: HeldJobs,
    /// Wakes the loop of the deliveries: there is a new call.
    is_found: Notify,
    /// Wakes the loop of the heartbeats: the store has a new call.
    is_inserted: Notify,
}

impl CallMirror {
    /// Begins to tell the store at this address of the calls of this engine's data folder, with the usual lease.
    ///
    /// # Errors
    /// Fails if the system has no thread for it.
    pub fn start(engine: Engine, address: StoreAddress) -> io::Result<Self> {
        Self::with_lease(engine, address, LeaseLengths::default().others)
    }

    /// Does the same with a lease of this length. A call is lost for the store if nobody on the machine tells of it for longer.
    ///
    /// # Errors
    /// Fails if the system has no thread for it.
    pub fn with_lease(engine: Engine, address: StoreAddress, lease: Duration) -> io::Result<Self> {
        let (alive, end) = watch::channel(());
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            runtime.block_on(until_dropped(end, run(engine, address, lease)));
            // An operation that waits for the store delays nobody.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("call-mirror".to_owned()).spawn(work)?;
        Ok(Self { _alive: alive })
    }
}

async fn until_dropped(mut end: watch::Receiver<()>, work: impl Future<Output = ()>) {
    tokio::select! {
        _ = end.changed() => {}
        () = work => {}
    }
}

/// Waits for the data folder, and runs the loops until it is aborted.
async fn run(engine: Engine, address: StoreAddress, lease: Duration) {
    let identity = turn(&engine.options().folder).await;
    let notes = LeaseNotes::at(identity.folder());
    let state = Arc::new(MirrorState {
        engine,
        address,
        lease,
        notes,
        identity,
        held: HeldJobs::default(),
        is_found: Notify::new(),
        is_inserted: Notify::new(),
    });
    match state.notes.all() {
        Ok(notes) => notes.into_iter().for_each(|note| state.hold(HeldJob::new(note, None, Duration::MAX))),
        Err(error) => tracing::warn!("the notes about slow calls cannot be read: {error}"),
    }
    let mut loops = JoinSet::new();
    loops.spawn(finds::run(Arc::clone(&state)));
    loops.spawn(deliveries::run(Arc::clone(&state)));
    loops.spawn(heartbeats::run(state));
    // A loop ends by a bug alone, and the others go on without it.
    while loops.join_next().await.is_some() {}
}

/// Waits until no other process has the data folder, and this one can use it.
async fn turn(folder: &Path) -> WorkerIdentity {
    let mut is_told = false;
    loop {
        match WorkerIdentity::take_for_calls(folder) {
            Ok(Some(identity)) => return identity,
            Ok(None) => {}
            Err(error) if !std::mem::replace(&mut is_told, true) => {
                tracing::warn!("slow calls are not shown in the job store until this is fixed: {error}");
            }
            Err(_) => {}
        }
        sleep(TURN_LOOK).await;
    }
}

impl MirrorState {
    /// Takes up a call that has a note.
    fn hold(&self, call: HeldJob) {
        self.held.insert(call);
        self.is_found.notify_one();
    }

    /// Returns who writes about a call with this token.
    fn claimant(&self, token: &str) -> WorkerClaim {
        WorkerClaim { worker: self.identity.name().to_owned(), token: token.to_owned() }
    }

    /// Returns the path of the mark of a call that the store has, or has had.
    fn mark(&self, id: JobId) -> PathBuf {
        self.engine.job_folder(id).join(IN_STORE)
    }

    /// Returns the time between two heartbeats.
    fn heartbeat(&self) -> Duration {
        HEARTBEAT.min(self.lease / HEARTBEATS)
    }

    /// Forgets a call about which there is nothing to tell any more.
    fn forget(&self, id: JobId) {
        self.notes.remove(id);
        self.held.remove(id);
    }
}
