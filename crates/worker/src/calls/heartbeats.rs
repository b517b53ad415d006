//! The loop of the heartbeats of calls: prolongs their leases, tells their progress, and hears of wishes to cancel.
//!
//! Invariant: a call that the store does not confirm goes on all the same. It stays on this machine, so nobody else can have it.

use std::sync::Arc;

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use unhang_jobs::{error::JobError, id::JobId, progress::JobProgress};

use super::MirrorState;
use crate::{
    heartbeats::{NEWS, OwnedHeartbeat},
    held::HeldJob,
    link::StoreLink,
};

/// Sends heartbeats until it is aborted.
pub(super) async fn run(state: Arc<MirrorState>) {
    let mut link =
        StoreLink::of("unhang", state.address.clone(), "send heartbeats of slow calls to the job store");
    let mut changes = state.engine.changes();
    let mut cancels = JoinSet::new();
    let rest = state.heartbeat().min(NEWS);
    loop {
        changes.mark_unchanged();
        let calls: Vec<HeldJob> = state.held.all().into_iter().filter(|call| call.note.has_begun).collect();
        while cancels.try_join_next().is_some() {}
        if calls.is_empty() {
            state.is_inserted.notified().await;
            continue;
        }
        beat(&state, &mut link, &calls, &mut cancels).await;
        sleep(rest).await;
        // Progress is news for those who look at the call elsewhere.
        let _ = timeout(state.heartbeat() - rest, changes.changed()).await;
    }
}

/// Sends the heartbeats of these calls, and cancels those that somebody wants to be cancelled.
async fn beat(state: &Arc<MirrorState>, link: &mut StoreLink, calls: &[HeldJob], cancels: &mut JoinSet<()>) {
    let mut heartbeats = Vec::with_capacity(calls.len());
    for call in calls {
        heartbeats.extend(heartbeat(state, call).await);
    }
    let renewed = link
        .run(move |store| store.renew(&heartbeats.iter().map(OwnedHeartbeat::borrowed).collect::<Vec<_>>()));
    let Ok(renewed) = renewed.await else { return };
    for renewal in renewed.into_iter().filter(|renewal| renewal.is_cancel_wanted) {
        let Some(call) = calls.iter().find(|call| call.note.job == renewal.id) else { continue };
        let token = call.note.token.clone();
        let is_news =
            state.held.change(renewal.id, &token, |held| !std::mem::replace(&mut held.is_cancelled, true));
        if is_news == Some(true) {
            cancels.spawn(cancel(Arc::clone(state), renewal.id, token));
        }
    }
}

/// Returns the heartbeat of a call; `None` if the call was removed here.
async fn heartbeat(state: &MirrorState, call: &HeldJob) -> Option<OwnedHeartbeat> {
    let (id, token) = (call.note.job, call.note.token.clone());
    let status = state.engine.own_status(id).await.ok()?;
    let open = state.engine.questions(id).await.map_or(0, |questions| questions.len());
    let progress = match open {
        0 => status.progress,
        _ => Some(JobProgress {
            fraction: status.progress.and_then(|progress| progress.fraction),
            message: Some(format!(
                "it waits for an answer from a client, which can be given on its machine {} alone",
                state.identity.host()
            )),
        }),
    };
    // The row of a call always says that the call runs.
    let started_at = status.record.started_at.or(Some(status.record.created_at));
    Some(OwnedHeartbeat { id, token, started_at, progress })
}

/// Cancels a call. If that fails, the next heartbeat tries again.
async fn cancel(state: Arc<MirrorState>, id: JobId, token: String) {
    match state.engine.cancel(id).await {
        Ok(_) | Err(JobError::HasEnded { .. } | JobError::NoSuchJob(_) | JobError::Removed(_)) => {}
        Err(error) => {
            tracing::warn!("job {id} was to be cancelled: {error}; unhang tries again");
            state.held.change(id, &token, |held| held.is_cancelled = false);
        }
    }
}
