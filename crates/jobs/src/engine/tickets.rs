//! Calls whose servers keep the answer: they outlive the process that waits for it, and another process takes them up.
//!
//! Theory of operation. A server may go on with a call under a name of its own, by which every client that it knows can have the answer
//! later. The call's ticket holds everything needed for that. The record has the ticket from the moment at which it is known, so that it is
//! on the disk whenever the waiting process is killed. A process that ends in order notes with the ticket that it lets go
//! ([`HeldCall::leave`]). From then on nobody holds the call. It stays as it is until a process that has the server takes it up, or its
//! time is over:
//!
//! ```text
//! HeldCall ─┬ note: the ticket, in the row (fsync)
//!           ├ process gone ─┐
//!           └ leave ────────┴► nobody's ─┬ take_up, by a process that has its server: row with a new holder ─ HeldCall
//!                                        ├ cancelled: anybody settles it as cancelled
//!                                        └ its time is over: anybody settles it as failed
//! ```
//!
//! Invariants
//!
//! - A call has at most one holder. The holder changes only under the lock of the job's folder, and is checked again under it.
//! - A call that nobody takes up ends at the job's timeout; a call without a timeout is not left to anybody.

use std::sync::Arc;

use unhang_proc::lock::Lock;

use super::{
    CHANGE_LIMIT, EngineState,
    calls::{HeldCall, UnclaimedCall},
};
use crate::{
    error::JobError,
    folder::{CANCEL, Durability, EXIT, FileError, LOCK, RECORD, STDOUT},
    id::JobId,
    judge_call::{CallHolder, left, may_be_taken_up},
    record::{CallRecord, CallTicket, Holder, JobRecord},
    status::JobStatus,
    store::ShimStarter,
};

impl HeldCall {
    /// Keeps the ticket with which the answer can be had, if it becomes known only now or has changed. The ticket is durable when this
    /// returns. The future can outlive the handle: it changes nothing if the call has been settled or let go of meanwhile.
    ///
    /// # Errors
    /// Fails if the disk or the database fails. Then the call ends with this process, as without a ticket.
    pub fn note(&self, ticket: CallTicket) -> impl Future<Output = Result<(), JobError>> + Send + use<> {
        let (engine, id) = (self.engine.clone(), self.id());
        async move { engine.run_write(CHANGE_LIMIT, move |inner| write_ticket(inner, id, ticket)).await }
    }

    /// Notes why the answer is lost if this process goes, as [`CallRecord::lost_with_holder`] has it. Durable and bounded as [`Self::note`]
    /// is.
    ///
    /// # Errors
    /// Fails if the disk or the database fails. Then the end of the call tells of this process alone.
    pub fn note_lost_with_holder(
        &self,
        why: String,
    ) -> impl Future<Output = Result<(), JobError>> + Send + use<> {
        let (engine, id) = (self.engine.clone(), self.id());
        async move { engine.run_write(CHANGE_LIMIT, move |inner| write_loss(inner, id, why)).await }
    }

    /// Lets go of the call without an end: its server has the answer, and the process that takes it up asks for the answer with this
    /// ticket.
    ///
    /// # Errors
    /// Fails as [`Self::note`] does.
    pub async fn leave(self, ticket: CallTicket) -> Result<(), JobError> {
        // The claim is over even if the disk fails or is slow: the server has the answer.
        self.claim.is_over();
        self.log_is_written().await;
        let (engine, claim) = (self.engine, self.claim);
        let ticket = CallTicket { is_free: true, ..ticket };
        engine
            .run_write(CHANGE_LIMIT, move |inner| {
                let written = write_ticket(inner, claim.id, ticket);
                drop(claim);
                written
            })
            .await
    }
}

/// Lists the calls that nobody waits for, and whose answers can still be had.
pub(super) fn left_calls(inner: &EngineState) -> Vec<JobStatus> {
    let mut calls = inner.memory.calls(|job| job.is_active && may_be_taken_up(&job.record));
    calls.retain(|status| {
        let call = status.record.call.as_ref();
        call.is_some_and(|call| left(call, &inner.starter) == CallHolder::Yes)
    });
    calls
}

/// Lists the calls that have not ended and whose answers other processes can have, whoever holds them.
pub(super) fn ticketed_calls(inner: &EngineState) -> Vec<JobStatus> {
    let has_ticket = |record: &JobRecord| record.call.as_ref().is_some_and(CallRecord::has_ticket);
    inner.memory.calls(|job| job.is_active && has_ticket(&job.record))
}

/// Takes up a call that was left. Returns the claim, and the size of its log; `None` if the call has ended, or another process was faster.
pub(super) fn take_up(inner: &Arc<EngineState>, id: JobId) -> Result<Option<(UnclaimedCall, u64)>, JobError> {
    let folder = inner.data.job(id);
    // A power failure may have taken the folder.
    folder.create_if_missing()?;
    let path = folder.file(LOCK);
    let lock = Lock::try_take(&path).map_err(|error| FileError::system("cannot lock", &path, error))?;
    let Some(lock) = lock else { return Ok(None) };
    let is_over = folder.has(EXIT) || folder.has(CANCEL);
    let is_ours = change(inner, id, |record| {
        let may_go_on = may_be_taken_up(record) && !is_over;
        let Some(call) = record.call.as_mut().filter(|_| may_go_on) else { return false };
        if left(call, &inner.starter) != CallHolder::Yes {
            return false;
        }
        call.holder = this_process(inner);
        call.is_passed_on = true;
        if let Some(ticket) = &mut call.ticket {
            ticket.is_free = false;
        }
        true
    })?;
    let logged = folder.file(STDOUT).metadata().map_or(0, |log| log.len());
    Ok(is_ours.then(|| (UnclaimedCall::with_lock(Arc::clone(inner), id, Some(lock)), logged)))
}

fn write_ticket(inner: &EngineState, id: JobId, ticket: CallTicket) -> Result<(), JobError> {
    let is_noted = change(inner, id, |record| {
        let ours = this_process(inner);
        let Some(call) = record.call.as_mut().filter(|call| call.holder == ours) else { return false };
        if call.ticket.as_ref().is_some_and(|known| known.is_free || *known == ticket) {
            return false;
        }
        call.ticket = Some(ticket);
        true
    });
    is_noted.map(drop)
}

fn write_loss(inner: &EngineState, id: JobId, why: String) -> Result<(), JobError> {
    let is_noted = change(inner, id, |record| {
        let ours = this_process(inner);
        let Some(call) = record.call.as_mut().filter(|call| call.holder == ours) else { return false };
        if call.lost_with_holder.as_ref() == Some(&why) {
            return false;
        }
        call.lost_with_holder = Some(why);
        true
    });
    is_noted.map(drop)
}

/// Names this process as the holder of a call.
pub(super) fn this_process(inner: &EngineState) -> Holder {
    let ShimStarter { boot_id, process, .. } = inner.starter.clone();
    Holder { boot_id, process }
}

/// Changes the current record of a call that has not ended. Returns whether it was changed.
pub(super) fn change(
    inner: &EngineState,
    id: JobId,
    change: impl FnOnce(&mut JobRecord) -> bool,
) -> Result<bool, JobError> {
    change_surviving(inner, id, Durability::Disk, change)
}

/// Does the same as [`change`] with a change that survives this event.
pub(super) fn change_surviving(
    inner: &EngineState,
    id: JobId,
    durability: Durability,
    change: impl FnOnce(&mut JobRecord) -> bool,
) -> Result<bool, JobError> {
    let row = inner.store().change_call(id, durability, change)?;
    let Some(row) = row else { return Ok(false) };
    // The copy is for people, and for a database that is made anew. It can be made again from the row.
    if let Err(error) = inner.data.job(id).write_lightly(RECORD, &row.record) {
        tracing::warn!("{error}");
    }
    inner.memory.update([row]);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{
        engine::{Adoption, Engine, EngineOptions},
        judge::JobFinding,
        judge_call::judge_call,
        record::ProcessRecord as Process,
        shims::ShimCommand,
        store::JobStore,
    };

    #[tokio::test]
    async fn whoever_looked_before_a_call_was_taken_up_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let shim = ShimCommand { program: "/nowhere".into(), arguments: Vec::new() };
        let (engine, _) = Engine::open(EngineOptions::new(folder.path().to_owned(), shim)).unwrap();
        let ticket = CallTicket { kept_by: "srv-1".to_owned(), details: json!({}), is_free: false };
        let adoption = Adoption {
            id: JobId::random().unwrap(),
            name: "srv__slow".to_owned(),
            owner: None,
            server: "srv".to_owned(),
            tool: "slow".to_owned(),
            is_repeatable: false,
            arguments: None,
            elapsed: Duration::ZERO,
            timeout: Some(Duration::from_secs(7200)),
            ticket: Some(ticket),
            lost_with_holder: None,
            is_unsent: false,
            lasting_key: None,
        };
        let (mut held, _) = engine.adopt(adoption).await.unwrap();
        // By its row alone, as where the folder could not be locked.
        Arc::get_mut(&mut held.claim).expect("nobody else has it").lock = None;
        let inner = &engine.inner;
        let mut job = inner.store().get(held.id()).unwrap().expect("it is there");
        // As it was when its first holder had gone, and its time was over.
        job.record.timeout_ms = Some(0);
        let call = job.record.call.as_mut().unwrap();
        call.holder.process = Process { pid: u32::MAX >> 1, start: 1 };
        let call = call.clone();
        let found = judge_call(&inner.data, &mut inner.store(), &job, &call, &inner.admission()).unwrap();
        assert!(matches!(found, JobFinding::Alive), "{found:?}");
        assert!(!engine.status(held.id()).await.unwrap().record.status.is_final());
    }
}
