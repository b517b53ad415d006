//! The loop of the sweeps: finds the jobs of lost workers, and gives them back to the queue or ends them.
//!
//! Invariant: every worker sweeps, and none has to be special. A change names token and heartbeat, so that one of them makes it.

use std::{sync::Arc, time::Duration};

use unhang_jobs::{
    record::{EndReason, EndRecord, JobEnd},
    store::JobStore as _,
};
use unhang_postgres::{LeaseSweeper, PostgresError, PostgresStore, SilentLease};

use crate::{
    link::{StoreLink, jittered},
    worker::{WorkerState, lease_clock},
};

/// The number of looks in the shortest lease. A sweeper needs two.
const LOOKS: u32 = 5;

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The most silent leases that one look takes in.
const MOST_SILENT: u32 = 10_000;

/// Sweeps until it is aborted.
pub(crate) async fn run(state: Arc<WorkerState>) {
    let mut link = StoreLink::new(state.address.clone(), "look for lost workers");
    let mut sweeper = LeaseSweeper::default();
    let pause = (state.settings.lengths.repeatable / LOOKS).min(LONGEST_PAUSE);
    loop {
        match link.run(|store| store.silent(MOST_SILENT)).await {
            Ok(silent) => {
                for lease in sweeper.look(silent, lease_clock()) {
                    // A failed change is made by the next look, or by another worker.
                    let _ = link.run(move |store| settle(store, &lease)).await;
                }
            }
            Err(_) => sweeper.begin_anew(),
        }
        tokio::time::sleep(jittered(pause)).await;
    }
}

/// Gives the job of a lost worker back to the queue, or ends it.
fn settle(store: &mut PostgresStore, lease: &SilentLease) -> Result<(), PostgresError> {
    let (id, worker, silent) = (lease.id, &lease.worker, lease.silent_for.as_secs());
    if lease.may_run_again {
        if store.queue_again(lease)? {
            tracing::warn!("job {id} is queued again: its worker {worker} was silent for {silent} s");
        }
        return Ok(());
    }
    let Some(job) = store.get(id)? else { return Ok(()) };
    let mut record = job.record;
    record.end(&lost(worker, lease.silent_for, lease.claims));
    if store.end_lost(lease, &record)? {
        tracing::warn!("job {id} is lost: its worker {worker} was silent for {silent} s");
    }
    Ok(())
}

/// Returns the end of a job whose worker is lost.
fn lost(worker: &str, silent_for: Duration, claims: u32) -> EndRecord {
    let silent = silent_for.as_secs();
    let tries = if claims > 1 { format!(" It was claimed {claims} times.") } else { String::new() };
    EndRecord::without_run(JobEnd::Lost).because(
        EndReason::WorkerLost,
        format!("its worker {worker} was silent for {silent} s; nobody knows how the job ended.{tries}"),
    )
}
