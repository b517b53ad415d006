//! The loop of the heartbeats: prolongs the leases of the jobs that a worker holds.
//!
//! Invariants
//!
//! - The time of a lease is counted from before the heartbeat was sent.
//! - A job that the store does not confirm is this worker's no longer. Its work is killed at once.
//! - A heartbeat waits for no other loop.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use unhang_jobs::{error::JobError, id::JobId, progress::JobProgress, timestamp::JobTimestamp};
use unhang_postgres::{JobHeartbeat, LeaseRenewal, WorkerList};

use crate::{
    held::HeldJob,
    link::StoreLink,
    worker::{WorkerState, lease_clock},
};

/// The shortest time between two heartbeats, however often jobs change.
pub(crate) const NEWS: Duration = Duration::from_secs(1);

/// A heartbeat with everything that it says, for another thread.
pub(crate) struct OwnedHeartbeat {
    pub(crate) id: JobId,
    pub(crate) token: String,
    pub(crate) started_at: Option<JobTimestamp>,
    pub(crate) progress: Option<JobProgress>,
}

impl OwnedHeartbeat {
    /// Returns the heartbeat as the store takes it.
    pub(crate) fn borrowed(&self) -> JobHeartbeat<'_> {
        JobHeartbeat {
            id: self.id,
            token: &self.token,
            started_at: self.started_at,
            progress: self.progress.as_ref(),
        }
    }
}

/// Sends heartbeats until it is aborted.
pub(crate) async fn run(state: Arc<WorkerState>) {
    let mut link = StoreLink::new(state.address.clone(), "send heartbeats");
    let mut changes = state.engine.changes();
    let mut ends = JoinSet::new();
    let rest = state.settings.heartbeat.min(NEWS);
    loop {
        changes.mark_unchanged();
        beat(&state, &mut link, &mut ends).await;
        while ends.try_join_next().is_some() {}
        sleep(rest).await;
        // A job that begins, or tells its progress, is news for those who look at it elsewhere.
        let wake = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = state.has_wish.notified() => {}
            }
        };
        let _ = timeout(state.settings.heartbeat - rest, wake).await;
    }
}

/// Sends the heartbeats of all jobs, and takes in the answers.
async fn beat(state: &Arc<WorkerState>, link: &mut StoreLink, ends: &mut JoinSet<()>) {
    let held = state.held.all();
    let mut heartbeats = Vec::with_capacity(held.len());
    for job in held.iter().filter(|job| !job.is_revoked) {
        let status = match job.is_fetching {
            // The engine may know an earlier attempt.
            true => None,
            false => state.engine.status(job.note.job).await.ok(),
        };
        heartbeats.push(OwnedHeartbeat {
            id: job.note.job,
            token: job.note.token.clone(),
            started_at: status.as_ref().and_then(|status| status.record.started_at),
            progress: status.and_then(|status| status.progress),
        });
    }
    let sent_at = lease_clock();
    let note = state.note();
    let renewed = link.run(move |store| {
        let borrowed: Vec<JobHeartbeat<'_>> = heartbeats.iter().map(OwnedHeartbeat::borrowed).collect();
        // The leases come first: a job matters more than a list of workers.
        let renewed = if borrowed.is_empty() { Vec::new() } else { store.renew(&borrowed)? };
        Ok((renewed, WorkerList(store).announce(&note)?))
    });
    if let Ok((renewed, is_drain_wanted)) = renewed.await {
        if is_drain_wanted && !state.is_draining() {
            tracing::info!("the worker was drained: it takes no more jobs");
            state.drain();
        }
        for job in held.iter().filter(|job| !job.is_revoked) {
            match renewed.iter().find(|renewal| renewal.id == job.note.job) {
                Some(renewal) => prolong(state, job, *renewal, sent_at, ends).await,
                None => revoke(state, job, "the store has given it to nobody or to another worker", ends),
            }
        }
    }
    let now = lease_clock();
    for job in state.held.all() {
        if now >= job.until && !job.is_revoked {
            revoke(state, &job, "its lease is over", ends);
        }
    }
}

/// Lets the work of a job go on until the new end of its lease, and cancels the job if somebody wants that.
async fn prolong(
    state: &Arc<WorkerState>,
    job: &HeldJob,
    renewal: LeaseRenewal,
    sent_at: Duration,
    ends: &mut JoinSet<()>,
) {
    let (id, until) = (job.note.job, state.until(sent_at, job.note.length()));
    // The engine gets the job, and with it a wish to cancel it, when its inputs are here.
    if job.is_fetching {
        state.held.change(id, &job.note.token, |held| held.until = until);
        return;
    }
    if let Err(error) = state.engine.prolong(id, until).await {
        tracing::debug!("the lease of job {id} cannot be prolonged here: {error}");
        return;
    }
    let cancels = state.held.change(id, &job.note.token, |held| {
        held.until = until;
        renewal.is_cancel_wanted && !std::mem::replace(&mut held.is_cancelled, renewal.is_cancel_wanted)
    });
    if cancels == Some(true) {
        let engine = state.engine.clone();
        ends.spawn(async move {
            if let Err(error) = engine.cancel(id).await {
                tracing::debug!("job {id} was to be cancelled: {error}");
            }
        });
    }
}

/// Kills the work of a job that is not this worker's any more.
fn revoke(state: &Arc<WorkerState>, job: &HeldJob, why: &str, ends: &mut JoinSet<()>) {
    let id = job.note.job;
    // Its end may have been delivered meanwhile, or it was claimed again.
    let is_news =
        state.held.change(id, &job.note.token, |held| !std::mem::replace(&mut held.is_revoked, true));
    if is_news != Some(true) {
        return;
    }
    tracing::warn!("the worker ends job {id}: {why}");
    let (state, token) = (Arc::clone(state), job.note.token.clone());
    ends.spawn(async move {
        match state.engine.revoke(id).await {
            Ok(_) | Err(JobError::HasEnded { .. } | JobError::NoSuchJob(_) | JobError::Removed(_)) => {}
            Err(error) => {
                tracing::warn!("the worker tries again to end job {id}: {error}");
                state.held.change(id, &token, |held| held.is_revoked = false);
            }
        }
        state.has_news.notify_one();
    });
}
