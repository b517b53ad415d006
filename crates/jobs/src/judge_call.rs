//! Finds out the state of a call that is a job, and acts on it.
//!
//! Invariants
//!
//! - A call belongs to its holder as long as the holder lives. Only after that another process may end it or ask for its answer.
//! - A call whose answer can still be had is left for another process to take up, unless its time is over or it was cancelled.

use unhang_proc::{identity::Identity, lock::Lock};

use crate::{
    folder::{CANCEL, DataFolder, EXIT, FileError, LOCK},
    judge::JobFinding,
    record::{CallRecord, EndReason, EndRecord, JobEnd, JobRecord},
    settle::{JobAdmission, settle, write_ending},
    store::{self, JobRow, ShimStarter, Store, StoreError},
    timestamp::JobTimestamp,
};

/// Whether the holder of a call has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallHolder {
    /// The holder waits for the answer.
    No,
    /// The process has gone, or has let go of the call.
    Yes,
}

/// Tells whether this call has been left, as seen from this process.
pub(crate) fn left(call: &CallRecord, starter: &ShimStarter) -> CallHolder {
    let is_free = call.ticket.as_ref().is_some_and(|ticket| ticket.is_free);
    let is_of_this_boot = call.holder.boot_id == starter.boot_id;
    let lives = is_of_this_boot && Identity::from(call.holder.process).is_alive();
    if lives && !is_free { CallHolder::No } else { CallHolder::Yes }
}

/// Returns whether the call has a ticket and there is still time to ask for the answer.
pub(crate) fn may_be_taken_up(record: &JobRecord) -> bool {
    let has_ticket = record.call.as_ref().is_some_and(|call| call.ticket.is_some());
    let since = JobTimestamp::now().since(record.started_at.unwrap_or(record.created_at));
    let has_time = record.timeout().is_some_and(|timeout| since < timeout);
    has_ticket && has_time
}

/// Looks at a call that is not final.
pub(crate) fn judge_call(
    data: &DataFolder,
    store: &mut Store,
    job: &JobRow,
    call: &CallRecord,
    admission: &JobAdmission<'_>,
) -> Result<JobFinding, StoreError> {
    if left(call, admission.starter) == CallHolder::No {
        return Ok(JobFinding::Alive);
    }
    let (id, folder) = (job.record.job_id, data.job(job.record.job_id));
    let is_unwanted = folder.has(CANCEL);
    let may_go_on = may_be_taken_up(&job.record) && !folder.has(EXIT);
    if may_go_on && !is_unwanted {
        return Ok(JobFinding::Alive);
    }
    folder.create_if_missing()?;
    let _lock = match Lock::try_take(&folder.file(LOCK)) {
        Ok(Some(lock)) => lock,
        // Another process does the same.
        Ok(None) => return Ok(JobFinding::Alive),
        Err(error) => return Err(FileError::system("cannot lock", &folder.file(LOCK), error).into()),
    };
    // From here on no other process can take the call up.
    let now = store.read(|connection| store::get(connection, id))?.and_then(|job| job.record.call);
    if now.is_some_and(|call| left(&call, admission.starter) == CallHolder::No) {
        return Ok(JobFinding::Alive);
    }
    let ending = match is_unwanted {
        // Nobody was there to tell the server, but the call was cancelled all the same.
        true => EndRecord::without_run(JobEnd::Cancelled),
        false if call.ticket.is_some() => nobody_came(call),
        false => unhang_ended(Some(call.is_repeatable)),
    };
    let ending = match folder.read::<EndRecord>(EXIT) {
        Ok(Some(written)) => written,
        // A damaged record does not count as an end.
        Ok(None) | Err(FileError::Damaged { .. }) => write_ending(data, id, &ending)?,
        Err(error) => return Err(error.into()),
    };
    settle(data, store, id, &ending, admission).map(JobFinding::Settled)
}

/// Makes the end of a call whose holder has gone, so that nobody waits for the answer.
pub(crate) fn unhang_ended(is_repeatable: Option<bool>) -> EndRecord {
    EndRecord::without_run(JobEnd::Failed).because(
        EndReason::UnhangEnded,
        format!(
            "the unhang process that waited for the answer of the server ended before the answer came{}",
            again(is_repeatable)
        ),
    )
}

/// Makes the end of a call whose server may have the answer, and that no process has taken up in its time.
fn nobody_came(call: &CallRecord) -> EndRecord {
    EndRecord::without_run(JobEnd::Failed).because(
        EndReason::Timeout,
        format!(
            "the unhang process that waited for the answer of `{}` ended before the answer came, and no \
             process with this server asked for it before its time was over{}",
            call.server,
            again(Some(call.is_repeatable))
        ),
    )
}

/// Returns the advice whether to call the tool again.
fn again(is_repeatable: Option<bool>) -> &'static str {
    match is_repeatable {
        Some(true) => "; the server declares that the call is safe to repeat",
        Some(false) => "; the server may have carried out the call, so check before you repeat it",
        None => "",
    }
}
