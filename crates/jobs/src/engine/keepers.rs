//! Calls with a keeper: they outlive the process that waits for the answer, because another process has the server's pipes as well.
//!
//! Theory of operation. The holder of a call names a keeper ([`HeldCall::kept_by`]): a process that stands by and sees the holder end. Then
//! the keeper starts a process that becomes the new holder ([`Engine::resume`](super::Engine::resume)) and goes on with the call. The job
//! stays the same, with its log, its time and its wish to end. An owner that ends in order lets go of the call
//! ([`HeldCall::leave_to_keeper`]), and so does one that drops it before the answer came.
//!
//! ```text
//! HeldCall ─┬ kept_by: the keeper, in the row
//!           ├ process gone ─────┐
//!           └ leave_to_keeper ──┴► the keeper's ─┬ resume, once the lock is free: row with a new holder ─ HeldCall
//!                                                ├ keeper gone: anybody settles it as failed
//!                                                └ keeper stands still: see `judge_call`
//! ```
//!
//! Invariants
//!
//! - A call has at most one holder. The holder changes only under the lock of the job's folder, and is checked again under it.
//! - A call whose keeper lives is settled by no engine that looks at it, unless one of the clocks of `judge_call` is over.
//! - A call without a timeout has no keeper: nothing would end it if the keeper stood still.
//! - A call whose answer has been read is not left to a keeper: the server does not answer twice.

use std::sync::Arc;

use unhang_proc::lock::Lock;

use super::{
    CHANGE_LIMIT, EngineState,
    calls::{HeldCall, UnclaimedCall},
    tickets::{change, change_surviving, this_process},
};
use crate::{
    error::JobError,
    folder::{Durability, EXIT, FileError, LOCK, STDOUT, UNHELD},
    id::JobId,
    judge_call::{CallHolder, left},
    record::{CallKeeper, CallRecord, CallTicket, EndRecord, Holder},
    store::JobStore,
};

impl HeldCall {
    /// Names the process that has the call resumed when this process has gone. When this returns, every other process knows the keeper; only
    /// a power failure, which ends the keeper, may undo it. Another keeper takes the place of an earlier one. The future can outlive the
    /// handle.
    ///
    /// # Errors
    /// Fails if that process does not live here, the call has no timeout, it has ended or was let go of, or the disk or the database fails.
    /// The call then ends with this process, unless it had a keeper before.
    pub fn kept_by(&self, keeper: Holder) -> impl Future<Output = Result<(), JobError>> + Send + use<> {
        self.engine.name_keeper(self.id(), keeper)
    }

    /// Returns whether the call has a keeper, to which this process can leave it.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        is_kept(&self.engine.inner, self.id())
    }

    /// Returns whether no process of the server had the call when the job began, and none is known to have got it since.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        is_unsent(&self.engine.inner, self.id())
    }

    /// Lets go of the call without an end: its keeper has it resumed.
    ///
    /// # Errors
    /// Fails if the call has no keeper; it has failed then, as a call that is dropped. Fails if the disk or the database does; the call can
    /// be resumed all the same once this process has ended.
    pub async fn leave_to_keeper(self) -> Result<(), JobError> {
        if !is_kept(&self.engine.inner, self.id()) {
            return Err(not_kept(self.id()));
        }
        // The claim is over even if the disk fails or is slow: the keeper has the server.
        self.claim.is_over();
        self.log_is_written().await;
        let (engine, claim) = (self.engine, self.claim);
        engine
            .run_write(CHANGE_LIMIT, move |inner| {
                let is_left = leave(inner, claim.id);
                drop(claim);
                is_left.map(drop)
            })
            .await
    }
}

/// Returns whether no process of the server is known to have got the call.
fn is_unsent(inner: &EngineState, id: JobId) -> bool {
    known_call(inner, id).is_some_and(|call| call.is_unsent)
}

/// Returns the record of the call, as far as the memory knows.
fn known_call(inner: &EngineState, id: JobId) -> Option<CallRecord> {
    inner.memory.status(id)?.record.call
}

/// Returns whether the call has a keeper, as far as the memory knows.
fn is_kept(inner: &EngineState, id: JobId) -> bool {
    known_call(inner, id).is_some_and(|call| call.keeper.is_some())
}

fn not_kept(id: JobId) -> JobError {
    JobError::NotKept { id, keeper: None, other: None }
}

/// Notes that this process has left the call to its keeper. Returns false if the keeper has gone, or there is none.
pub(super) fn leave(inner: &EngineState, id: JobId) -> Result<bool, JobError> {
    change(inner, id, |record| {
        let ours = this_process(inner);
        let Some(call) = record.call.as_mut().filter(|call| call.holder == ours) else { return false };
        match &mut call.keeper {
            Some(keeper) if keeper.identity.lives_in(&ours.boot_id) => {
                keeper.is_free = true;
                true
            }
            _ => false,
        }
    })
}

pub(super) fn write_keeper(inner: &EngineState, id: JobId, keeper: Holder) -> Result<(), JobError> {
    if !keeper.lives_in(&inner.starter.boot_id) {
        return Err(JobError::KeeperGone { id, keeper: keeper.process.pid });
    }
    // No mark of an earlier holder shortens the time of this keeper.
    inner.data.job(id).remove_file(UNHELD)?;
    // A power failure ends keeper and server, so the name need not survive one. But a call must not count as unsent after it.
    let durability = if is_unsent(inner, id) { Durability::Disk } else { Durability::Memory };
    let mut has_limit = true;
    let is_noted = change_surviving(inner, id, durability, |record| {
        has_limit = record.timeout_ms.is_some();
        let ours = this_process(inner);
        let Some(call) = record.call.as_mut().filter(|call| has_limit && call.holder == ours) else {
            return false;
        };
        if call.keeper.as_ref().is_some_and(|known| known.is_free) {
            return false;
        }
        call.keeper = Some(CallKeeper { identity: keeper, is_free: false });
        call.is_unsent = false;
        call.ticket.get_or_insert_with(CallTicket::stand_in);
        true
    })?;
    match (is_noted, has_limit) {
        (true, _) => Ok(()),
        (false, false) => Err(JobError::NoTimeLimit(id)),
        (false, true) => Err(JobError::NotHeld(id)),
    }
}

/// The result of one try to resume a call.
pub(super) enum ResumedCall {
    /// The call is ours, and its log has so many bytes.
    Ours(UnclaimedCall, u64),
    /// This process holds the call.
    HeldBy(u32),
    /// The call has ended.
    Ended,
}

/// Makes this process the holder of a call with this keeper, if its holder has gone.
pub(super) fn resume(inner: &Arc<EngineState>, id: JobId, keeper: &Holder) -> Result<ResumedCall, JobError> {
    inner.check_presence(id)?;
    let job = inner.store().get(id)?;
    let Some(job) = job.filter(|job| job.is_active) else { return Ok(ResumedCall::Ended) };
    let Some(call) = job.record.call else { return Err(not_kept(id)) };
    let other = call.keeper.map(|keeper| keeper.identity);
    if other.as_ref() != Some(keeper) {
        let other = other.map(|other| other.process.pid);
        return Err(JobError::NotKept { id, keeper: Some(keeper.process.pid), other });
    }
    let folder = inner.data.job(id);
    // A power failure may have taken the folder.
    folder.create_if_missing()?;
    let path = folder.file(LOCK);
    let lock = Lock::try_take(&path).map_err(|error| FileError::system("cannot lock", &path, error))?;
    let Some(lock) = lock else { return Ok(ResumedCall::HeldBy(call.holder.process.pid)) };
    match folder.read::<EndRecord>(EXIT) {
        // The next look of any engine brings the end to the row.
        Ok(Some(_)) => return Ok(ResumedCall::Ended),
        // A damaged record does not count as an end.
        Ok(None) | Err(FileError::Damaged { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ours = change(inner, id, |record| {
        let Some(call) = record.call.as_mut() else { return false };
        if left(call, &inner.starter) == CallHolder::No {
            return false;
        }
        let Some(known) = call.keeper.as_mut().filter(|known| known.identity == *keeper) else {
            return false;
        };
        known.is_free = false;
        if let Some(ticket) = &mut call.ticket {
            ticket.is_free = false;
        }
        call.holder = this_process(inner);
        call.is_passed_on = true;
        true
    })?;
    if !is_ours {
        // The next try finds out whether it has ended.
        return Ok(ResumedCall::HeldBy(call.holder.process.pid));
    }
    folder.remove_file(UNHELD)?;
    let logged = folder.file(STDOUT).metadata().map_or(0, |log| log.len());
    let claim = UnclaimedCall::with_lock(Arc::clone(inner), id, Some(lock));
    // A wish that came meanwhile lies in the folder, where the maintenance thread finds it.
    Ok(ResumedCall::Ours(claim, logged))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        engine::tests::TestEngine,
        folder::JobFolder,
        record::JobEnd,
        testing::{NOBODY, call},
    };

    #[test]
    fn a_call_with_an_end_in_its_folder_is_not_resumed() {
        let nothing: fn(&JobFolder) = |_| {};
        let end: fn(&JobFolder) =
            |folder| folder.write(EXIT, &EndRecord::without_run(JobEnd::Completed)).unwrap();
        let damage: fn(&JobFolder) = |folder| fs::write(folder.file(EXIT), "{").unwrap();
        for (prepare, goes_on) in [(nothing, true), (end, false), (damage, true)] {
            let mut test = TestEngine::new(|_| {});
            let keeper = this_process(&test.inner);
            let mut record = call(&keeper.boot_id, NOBODY, Some(CallTicket::stand_in()));
            record.call.as_mut().unwrap().keeper =
                Some(CallKeeper { identity: keeper.clone(), is_free: false });
            let id = test.accept(&record);
            prepare(&test.inner.data.job(id));
            let inner = Arc::new(test.inner);
            let resumed = resume(&inner, id, &keeper).unwrap();
            assert_eq!(matches!(resumed, ResumedCall::Ours(..)), goes_on);
            assert_eq!(matches!(resumed, ResumedCall::Ended), !goes_on);
        }
    }

    #[test]
    fn a_call_whose_holder_lives_is_not_resumed_though_its_lock_is_free() {
        let mut test = TestEngine::new(|_| {});
        let keeper = this_process(&test.inner);
        let mut record = call(&keeper.boot_id, keeper.process, Some(CallTicket::stand_in()));
        record.call.as_mut().unwrap().keeper = Some(CallKeeper { identity: keeper.clone(), is_free: false });
        let id = test.accept(&record);
        let resumed = resume(&Arc::new(test.inner), id, &keeper).unwrap();
        assert!(matches!(resumed, ResumedCall::HeldBy(pid) if pid == keeper.process.pid));
    }
}
