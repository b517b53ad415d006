//! The loop that brings calls to the store: first their rows, then their logs, and at last answers and ends.
//!
//! Invariants
//!
//! - The log, the answer and the error of a call are in the store before its end is.
//! - A delivery can be repeated.
//! - A call of which the store refuses something delays no other call.

use std::{fs, sync::Arc};

use tokio::time::{sleep, timeout};
use unhang_jobs::{
    error::JobError,
    folder::{ERROR, RESULT},
    record::{CallRecord, EndReason, EndRecord, JobEnd, JobRecord, JobState},
    store::JobStore as _,
};
use unhang_postgres::{MachineCalls, PostgresError};

use super::MirrorState;
use crate::{
    deliveries::{BREATH, LOOK, STREAMS, copy_log},
    held::HeldJob,
    link::StoreLink,
    notes::LeaseNote,
};

/// Delivers until it is aborted.
pub(super) async fn run(state: Arc<MirrorState>) {
    let mut link = StoreLink::of("unhang", state.address.clone(), "show slow calls in the job store");
    let mut changes = state.engine.changes();
    loop {
        changes.mark_unchanged();
        let mut has_failed = false;
        for call in state.held.all() {
            match deliver(&state, &mut link, &call).await {
                Ok(()) => {}
                Err(PostgresError::Unreachable { .. } | PostgresError::TimedOut { .. }) => {
                    has_failed = true;
                    break;
                }
                Err(error) => {
                    has_failed = true;
                    tracing::debug!("the store does not take job {}: {error}", call.note.job);
                }
            }
        }
        sleep(if has_failed { link.pause() } else { BREATH }).await;
        if state.held.count() == 0 {
            state.is_found.notified().await;
            continue;
        }
        let wake = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = state.is_found.notified() => {}
            }
        };
        // Logs grow without a change of the job.
        let _ = timeout(LOOK, wake).await;
    }
}

/// Brings what is new about a call to the store.
async fn deliver(state: &MirrorState, link: &mut StoreLink, call: &HeldJob) -> Result<(), PostgresError> {
    let id = call.note.job;
    let record = match state.engine.own_status(id).await {
        Ok(status) => elsewhere(status.record),
        Err(JobError::NoSuchJob(_) | JobError::Removed(_)) => return end_removed(state, link, call).await,
        Err(error) => {
            tracing::debug!("the slow call {id} cannot be looked at: {error}");
            return Ok(());
        }
    };
    if !call.note.has_begun && !insert(state, link, call, &record).await? {
        return Ok(());
    }
    let has_ended = record.status.is_final();
    for (index, stream) in STREAMS.into_iter().enumerate() {
        copy_log(&state.engine, &state.held, link, call, index, stream, has_ended).await?;
    }
    if !has_ended {
        return Ok(());
    }
    for name in [RESULT, ERROR] {
        if !copy_file(state, link, call, name).await? {
            return Ok(());
        }
    }
    finish(state, link, call, record).await
}

/// Inserts the row of a call. Returns false if the store has another job with its id.
async fn insert(
    state: &MirrorState,
    link: &mut StoreLink,
    call: &HeldJob,
    record: &JobRecord,
) -> Result<bool, PostgresError> {
    let (id, length) = (call.note.job, call.note.length());
    let claimant = state.claimant(&call.note.token);
    // Its end comes after its log and its answer.
    let open = JobRecord { status: JobState::Running, ending: None, ..record.clone() };
    let is_ours = link.run(move |store| MachineCalls(store).insert(&open, &claimant, length)).await?;
    if let Err(error) = fs::write(state.mark(id), "") {
        tracing::debug!("job {id} cannot be marked as one that the store has: {error}");
    }
    if !is_ours {
        tracing::warn!("job {id} is not shown in the job store, which has another job with this id");
        state.forget(id);
        return Ok(false);
    }
    if let Err(error) = state.notes.write(&LeaseNote { has_begun: true, ..call.note.clone() }) {
        // The next process inserts it again, which changes nothing.
        tracing::debug!("{error}");
    }
    state.held.change(id, &call.note.token, |held| held.note.has_begun = true);
    state.is_inserted.notify_one();
    Ok(true)
}

/// Copies a file that the call has left, if there is one. Returns false if the call is being removed here.
async fn copy_file(
    state: &MirrorState,
    link: &mut StoreLink,
    call: &HeldJob,
    name: &'static str,
) -> Result<bool, PostgresError> {
    let (id, token) = (call.note.job, call.note.token.clone());
    match state.engine.left_file(id, name).await {
        Ok(Some(content)) => {
            link.run(move |store| store.put_file(id, &token, name, &content)).await?;
            Ok(true)
        }
        Ok(None) => Ok(true),
        // The next look finds the job gone, and says so.
        Err(JobError::NoSuchJob(_) | JobError::Removed(_)) => Ok(false),
        Err(error) => {
            tracing::warn!("job {id} ends in the job store without its {name}: {error}");
            Ok(true)
        }
    }
}

/// Notes the end of a call in the store, and forgets the call.
async fn finish(
    state: &MirrorState,
    link: &mut StoreLink,
    call: &HeldJob,
    record: JobRecord,
) -> Result<(), PostgresError> {
    let (id, claimant) = (call.note.job, state.claimant(&call.note.token));
    if !link.run(move |store| store.finish(&record, Some(&claimant))).await? {
        tracing::debug!("the store had the end of job {id} before, or somebody has removed the job there");
    }
    state.forget(id);
    Ok(())
}

/// Ends a call that was removed here before the store had its end.
async fn end_removed(state: &MirrorState, link: &mut StoreLink, call: &HeldJob) -> Result<(), PostgresError> {
    let id = call.note.job;
    let known = match call.note.has_begun {
        true => link.run(move |store| store.get(id)).await?,
        false => None,
    };
    let Some(known) = known else {
        state.forget(id);
        return Ok(());
    };
    let detail = "its record on its machine was removed before the end was told";
    let mut record = known.record;
    record.end(&EndRecord::without_run(JobEnd::Lost).because(EndReason::WorkerLost, detail));
    finish(state, link, call, record).await
}

/// Returns the record of a call as other machines may see it.
fn elsewhere(record: JobRecord) -> JobRecord {
    JobRecord { call: record.call.as_ref().map(CallRecord::for_other_machines), ..record }
}
