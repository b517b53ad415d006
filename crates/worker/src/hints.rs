//! The loop of the hints: wakes the other loops when the store tells of something new.
//!
//! Invariant: a worker that gets no hints looks for news itself, as often as it does without them.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use unhang_postgres::{ListenerEnd, StoreHint, listen_for_hints};

use crate::{link::jittered, worker::WorkerState};

/// The pause before a connection for hints is made again.
const PAUSE: Duration = Duration::from_secs(10);

/// Listens until it is aborted, or until it is clear that no hints come.
pub(crate) async fn run(state: Arc<WorkerState>) {
    loop {
        let begun = || state.set_hinted(true);
        let hinted = |hint| match hint {
            StoreHint::Job => state.has_work.notify_one(),
            StoreHint::Cancel => state.has_wish.notify_one(),
        };
        let end = listen_for_hints(&state.address, begun, hinted).await;
        state.set_hinted(false);
        match end {
            ListenerEnd::NotPassedOn { .. } => {
                tracing::info!("{end}; the worker looks for jobs by itself");
                return;
            }
            // The other loops tell of a store that is away.
            ListenerEnd::Broken(error) => tracing::debug!("the worker gets no hints: {error}"),
        }
        sleep(jittered(PAUSE)).await;
    }
}
