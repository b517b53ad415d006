//! Calls that the same call of a later session joins, because the process that made them has gone.
//!
//! Invariants
//!
//! - A call whose maker still waits for it is not among them: only its own session joins it.
//! - A call whose result a client has read is not among them any more, in no process.

use super::EngineState;
use crate::{
    error::JobError,
    id::JobId,
    judge_call::{CallHolder, left},
    record::{JobRecord, JobState},
    store::{JobOwnerFilter, JobStore},
};

/// The most jobs in which [`recall_ended`] looks for calls.
const RECALLED: u32 = 1000;

/// Brings the newest calls into memory that ended well and that a later session may join.
pub(super) fn recall_ended(inner: &EngineState) -> Result<(), JobError> {
    let whose = JobOwnerFilter::Anybodys;
    let ended = inner.store().newest(Some(JobState::Completed), &whose, RECALLED)?;
    let rows = ended.into_iter().filter(|job| {
        job.record.call.as_ref().is_some_and(|call| call.is_passed_on && call.lasting_key.is_some())
    });
    inner.memory.update(rows);
    Ok(())
}

/// Returns the lasting key of a call whose maker has gone.
pub(super) fn passed_on_key<'a>(inner: &EngineState, record: &'a JobRecord) -> Option<&'a str> {
    let key = record.call.as_ref()?.lasting_key.as_deref()?;
    is_passed_on(inner, record).then_some(key)
}

/// Returns whether the job is a call whose maker has gone.
pub(super) fn is_passed_on(inner: &EngineState, record: &JobRecord) -> bool {
    record.call.as_ref().is_some_and(|call| {
        let is_left = || !record.status.is_final() && left(call, &inner.starter) != CallHolder::No;
        call.is_passed_on || is_left()
    })
}

/// Takes the lasting key out of the record of a call that has ended.
pub(super) fn end_joining(inner: &EngineState, id: JobId) -> Result<(), JobError> {
    let row = inner
        .store()
        .change_ended(id, |record| record.call.as_mut().and_then(|call| call.lasting_key.take()).is_some())?;
    inner.memory.update(row);
    Ok(())
}
