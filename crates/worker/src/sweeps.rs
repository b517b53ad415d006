//! The loop of the sweeps: finds the jobs of lost workers, and gives them back to the queue or ends them.
//!
//! Invariant: every worker sweeps, and none has to be special. A change names token and heartbeat, so that one of them makes it.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use unhang_jobs::{
    record::{EndReason, EndRecord, JobEnd},
    store::{JobStore as _, KeptAsAccepted},
    timestamp::JobTimestamp,
};
use unhang_postgres::{LeaseSweeper, PostgresError, PostgresStore, SilentLease, WorkerList};

use crate::{
    link::{StoreLink, jittered},
    worker::{WorkerState, lease_clock},
};

/// The number of looks in the shortest lease. A sweeper needs two.
const LOOKS: u32 = 5;

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The time between two removals of old jobs, and the silence after which a worker is removed from the list.
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of old jobs that are removed with one look.
const AT_ONCE: u32 = 200;

/// The most silent leases that one look takes in.
const MOST_SILENT: u32 = 10_000;

/// Sweeps until it is aborted.
pub(crate) async fn run(state: Arc<WorkerState>) {
    let mut link = StoreLink::new(state.address.clone(), "look for lost workers");
    let mut sweeper = LeaseSweeper::default();
    let pause = (state.settings.lengths.repeatable / LOOKS).min(LONGEST_PAUSE);
    let mut swept_at: Option<Instant> = None;
    loop {
        if swept_at.is_none_or(|at| at.elapsed() >= HOUR) {
            swept_at = Some(Instant::now());
            // The next sweep is in an hour, and other workers sweep too.
            let retention = state.engine.options().retention;
            let _ = link.run(move |store| remove_expired(store, retention)).await;
            sweep_objects(&state, &mut link).await;
        }
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

/// Removes the jobs whose retention is over, and workers that have gone.
fn remove_expired(store: &mut PostgresStore, retention: Duration) -> Result<(), PostgresError> {
    WorkerList(store).remove_silent(DAY)?;
    let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let before = JobTimestamp::from_millis(JobTimestamp::now().millis().saturating_sub(retention));
    loop {
        let old = store.ended_before(before, KeptAsAccepted::AsAccepted, AT_ONCE)?;
        let mut removed = 0;
        for job in &old {
            removed += usize::from(store.remove(job.record.job_id)?);
        }
        if removed == 0 {
            return Ok(());
        }
    }
}

/// Removes the objects of jobs that are gone. An object store that is away does not count as an outage of the database.
async fn sweep_objects(state: &WorkerState, link: &mut StoreLink) {
    let files = state.files.clone();
    let swept = link.run(move |store| match files.sweep(store) {
        Err(error) if error.is_of_artifacts() => Ok(Err(error)),
        done => done.map(Ok),
    });
    if let Ok(Err(error)) = swept.await {
        tracing::warn!("the files of removed jobs stay for an hour: {error}");
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
    let mut record = match store.get(id) {
        Ok(Some(job)) => job.record,
        Ok(None) => return Ok(()),
        Err(error @ PostgresError::UnknownRecord { .. }) => {
            tracing::warn!("job {id} is lost: its worker {worker} was silent for {silent} s, and {error}");
            return store.end_unreadable(lease).map(drop);
        }
        Err(error) => return Err(error),
    };
    let ending = match lease.is_cancelled {
        true => EndRecord::without_run(JobEnd::Cancelled),
        false if record.call.is_some() => lost_call(worker, lease.silent_for),
        false => lost(worker, lease.silent_for, lease.claims),
    };
    record.end(&EndRecord { started_at: lease.started_at, ..ending });
    if store.end_lost(lease, &record)? {
        tracing::warn!("job {id} is lost: its worker {worker} was silent for {silent} s");
    }
    Ok(())
}

/// Returns the end of a call of which its machine tells nothing more.
fn lost_call(machine: &str, silent_for: Duration) -> EndRecord {
    let silent = silent_for.as_secs();
    EndRecord::without_run(JobEnd::Lost).because(
        EndReason::WorkerLost,
        format!(
            "no unhang process of its machine {machine} has told of the call for {silent} s; the next one there \
             tells its true end"
        ),
    )
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
