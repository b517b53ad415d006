//! The loop that finds new calls, and notes a token for each.
//!
//! Invariant: this loop never waits for the store. So a call that ends at once has its note, and its row comes later.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::sleep;
use unhang_jobs::id::JobId;

use super::MirrorState;
use crate::{claims::token, held::HeldJob, notes::LeaseNote};

/// The shortest time between two looks, however often jobs change.
const BREATH: Duration = Duration::from_millis(20);

/// The pause after a call that could not be noted.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// Finds calls until it is aborted.
pub(super) async fn run(state: Arc<MirrorState>) {
    let mut changes = state.engine.changes();
    let mut known: HashSet<JobId> = HashSet::new();
    loop {
        changes.mark_unchanged();
        let calls: HashSet<JobId> = state.engine.own_calls().into_iter().collect();
        let mut have_failed = false;
        for id in calls.iter().filter(|id| !known.contains(id)) {
            match find(&state, *id) {
                Ok(()) => {}
                Err(why) => {
                    have_failed = true;
                    tracing::warn!("job {id} is not shown in the job store yet: {why}");
                }
            }
        }
        known = calls;
        if have_failed {
            known.clear();
            sleep(FAILURE_PAUSE).await;
            continue;
        }
        sleep(BREATH).await;
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Notes a call that is neither noted nor in the store.
fn find(state: &MirrorState, id: JobId) -> Result<(), String> {
    if state.held.get(id).is_some() || state.mark(id).exists() {
        return Ok(());
    }
    let note = LeaseNote {
        job: id,
        token: token().map_err(|error| format!("no token can be drawn: {error}"))?,
        claims: 1,
        length_ms: u64::try_from(state.lease.as_millis()).unwrap_or(u64::MAX),
        has_begun: false,
        log_bases: [0; 2],
    };
    state.notes.write(&note).map_err(|error| error.to_string())?;
    state.hold(HeldJob::new(note, None, Duration::MAX));
    Ok(())
}
