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

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::{
        record::{CallTicket, ProcessRecord},
        testing::{NOBODY, TestFolder, before_now, call, ticket},
    };

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_call_is_left_if_its_holder_has_gone_or_has_let_go_of_it() {
        let starter = crate::shims::this_process().unwrap();
        let (here, own) = (starter.boot_id.as_str(), starter.process);
        for (boot_id, process, ticket, expected) in [
            (here, own, None, CallHolder::No),
            (here, own, Some(ticket(false)), CallHolder::No),
            (here, own, Some(ticket(true)), CallHolder::Yes),
            (here, NOBODY, None, CallHolder::Yes),
            (here, NOBODY, Some(ticket(false)), CallHolder::Yes),
            ("0000-1", own, None, CallHolder::Yes),
            ("0000-1", NOBODY, Some(ticket(true)), CallHolder::Yes),
        ] {
            let call = call(boot_id, process, ticket).call.unwrap();
            assert_eq!(left(&call, &starter), expected, "{call:?}");
        }
    }

    #[test]
    fn a_call_with_a_ticket_can_be_taken_up_until_its_time_is_over() {
        let now = JobTimestamp::now();
        let later = JobTimestamp::from_millis(now.millis() + 3_600_000);
        let earlier = before_now(HOUR);
        for (has_ticket, created_at, started_at, timeout_ms, expected) in [
            (true, now, None, Some(60_000), true),
            (true, earlier, None, Some(60_000), false),
            (true, earlier, None, Some(7_200_000), true),
            (true, earlier, Some(now), Some(60_000), true),
            (true, now, Some(earlier), Some(60_000), false),
            // No time has passed, and there was none.
            (true, later, None, Some(0), false),
            (true, later, None, Some(1), true),
            (true, now, None, None, false),
            (false, now, None, Some(60_000), false),
            (false, earlier, None, Some(60_000), false),
        ] {
            let ticket = has_ticket.then(|| ticket(false));
            let record = JobRecord { created_at, started_at, timeout_ms, ..call("boot", NOBODY, ticket) };
            assert_eq!(may_be_taken_up(&record), expected, "{record:?}");
        }
        assert!(!may_be_taken_up(&crate::testing::command()), "a command is no call");
    }

    /// The state of a call with this holder, as the next look leaves it, and the words about its end.
    fn state(
        (process, ticket, timeout_ms, is_repeatable): (Option<ProcessRecord>, Option<CallTicket>, u64, bool),
        prepare: fn(&crate::folder::JobFolder),
    ) -> (String, String) {
        let mut test = TestFolder::new();
        let process = process.unwrap_or(test.starter.process);
        let mut record = call(&test.starter.boot_id, process, ticket);
        (record.timeout_ms, record.created_at) = (Some(timeout_ms), before_now(HOUR));
        let call = record.call.as_mut().unwrap();
        call.is_repeatable = is_repeatable;
        let call = call.clone();
        let job = test.accept(&record);
        prepare(&test.data.job(record.job_id));
        let admission = JobAdmission { starter: &test.starter, limit: None, is_open: false };
        let found = judge_call(&test.data, &mut test.store, &job, &call, &admission).unwrap();
        let row = test.get(record.job_id);
        match found {
            JobFinding::Alive => {
                assert_eq!(row, job, "nothing was changed");
                ("alive".to_owned(), String::new())
            }
            _ => {
                let ending = row.record.ending.unwrap();
                let reason = ending.reason.map_or("-".to_owned(), |reason| reason.to_string());
                (format!("{} {reason}", row.record.status), ending.detail.unwrap_or_default())
            }
        }
    }

    #[test]
    fn a_left_call_ends_unless_somebody_can_still_take_it_up() {
        const LONG: u64 = 7_200_000;
        let (gone, lives) = (Some(NOBODY), None);
        let kept = || Some(ticket(false));
        let nothing: fn(&crate::folder::JobFolder) = |_| {};
        let cancel: fn(&crate::folder::JobFolder) = |folder| fs::write(folder.file(CANCEL), "").unwrap();
        let end: fn(&crate::folder::JobFolder) =
            |folder| folder.write(EXIT, &EndRecord::without_run(JobEnd::Completed)).unwrap();
        let damage: fn(&crate::folder::JobFolder) = |folder| fs::write(folder.file(EXIT), "{").unwrap();
        let no_folder: fn(&crate::folder::JobFolder) = |folder| fs::remove_dir_all(folder.path()).unwrap();
        for (call, prepare, expected, words) in [
            ((lives, None, 0, false), cancel, "alive", ""),
            ((lives, Some(ticket(true)), LONG, false), nothing, "alive", ""),
            ((lives, Some(ticket(true)), 0, false), nothing, "failed timeout", "the answer of `srv` ended"),
            ((gone, kept(), LONG, false), nothing, "alive", ""),
            ((gone, kept(), LONG, false), cancel, "cancelled -", ""),
            ((gone, kept(), LONG, false), end, "completed -", ""),
            ((gone, kept(), 0, false), nothing, "failed timeout", "check before you repeat it"),
            ((gone, kept(), 0, true), nothing, "failed timeout", "is safe to repeat"),
            ((gone, None, LONG, false), nothing, "failed unhang_ended", "check before you repeat it"),
            ((gone, None, LONG, true), nothing, "failed unhang_ended", "is safe to repeat"),
            ((gone, None, 0, false), cancel, "cancelled -", ""),
            ((gone, None, 0, false), end, "completed -", ""),
            ((gone, None, 0, false), damage, "failed unhang_ended", "ended before the answer came"),
            ((gone, None, 0, false), no_folder, "failed unhang_ended", "ended before the answer came"),
        ] {
            let case = format!("{call:?}, expected {expected}");
            let (found, detail) = state(call, prepare);
            assert_eq!(found, expected, "{case}: {detail}");
            assert!(detail.contains(words), "{case}: {detail}");
        }
        let untold = unhang_ended(None).detail.unwrap();
        assert!(
            untold.ends_with("before the answer came"),
            "nobody knows whether it can be repeated: {untold}"
        );
    }

    #[test]
    fn a_left_call_whose_lock_another_process_holds_is_left_to_that_process() {
        let mut test = TestFolder::new();
        let record = call(&test.starter.boot_id, NOBODY, None);
        let job = test.accept(&record);
        let _held = Lock::try_take(&test.data.job(record.job_id).file(LOCK)).unwrap().unwrap();
        let admission = JobAdmission { starter: &test.starter, limit: None, is_open: false };
        let call = record.call.as_ref().unwrap();
        let found = judge_call(&test.data, &mut test.store, &job, call, &admission).unwrap();
        assert!(matches!(found, JobFinding::Alive), "{found:?}");
        assert_eq!(test.get(record.job_id), job);
    }
}
