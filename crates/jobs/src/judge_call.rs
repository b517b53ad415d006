//! Finds out the state of a call that is a job, and acts on it.
//!
//! Theory of operation. A call whose holder has gone may have a keeper, a process that starts the next holder. The keeper may fail to do so
//! and report nothing. So three clocks end a call that would stay open for ever. Each clock begins with an event that is on the disk.
//!
//! | the keeper | the call is settled |
//! |---|---|
//! | lives | when its time and [`KEEPER_SLACK`] are over, as failed |
//! | lives, and somebody wants the call to end | [`WISH_PATIENCE`] after the wish, as cancelled |
//! | is in another container, where nobody here can see it | [`UNSEEN_LIMIT`] after the first look without a holder, as failed |
//! | has gone | at once, as failed |
//!
//! Invariants
//!
//! - A call belongs to its holder as long as the holder lives. Only after that another process may end it or ask for its answer.
//! - A call with a living keeper is left to the process that resumes it, unless one of the clocks says otherwise.
//! - A call whose answer can still be had is left for another process to take up, unless its time is over or it was cancelled.
//! - Whoever settles a call has looked at its row under the lock of its folder.

use std::{io::BufReader, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use unhang_proc::{identity::is_same_boot, lock::Lock};

use crate::{
    folder::{CANCEL, DataFolder, EXIT, FileError, JobFolder, LOCK, RESULT, UNHELD, WorkFolder, open_file},
    judge::JobFinding,
    record::{CallRecord, EndReason, EndRecord, JobEnd, JobRecord, repeat_advice},
    settle::{settle, write_ending},
    store::{JobAdmission, JobRow, JobStore, ShimStarter, SqliteStore, StoreError},
    timestamp::JobTimestamp,
};

/// The time that a keeper has beyond the job's own. The process that resumes a call ends it when its time is over, and must not be
/// overtaken.
const KEEPER_SLACK: Duration = Duration::from_secs(60);

/// The time that a keeper has to have a call resumed that somebody wants to end. It is shorter than the wait of a cancellation.
const WISH_PATIENCE: Duration = Duration::from_secs(10);

/// The time that a keeper in another container has. A call is resumed within a second or two.
const UNSEEN_LIMIT: Duration = Duration::from_secs(30);

/// Whether the holder of a call has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallHolder {
    /// The holder waits for the answer.
    No,
    /// The process has gone, or has let go of the call.
    Yes,
    /// The same, and the keeper lives.
    ToKeeper,
    /// The same, and the keeper is a process of another container.
    ToUnseenKeeper,
}

/// Tells whether this call has been left, as seen from this process.
pub(crate) fn left(call: &CallRecord, starter: &ShimStarter) -> CallHolder {
    let here = starter.boot_id.as_str();
    let is_free = call.ticket.as_ref().is_some_and(|ticket| ticket.is_free)
        || call.keeper.as_ref().is_some_and(|keeper| keeper.is_free);
    if !is_free && call.holder.lives_in(here) {
        return CallHolder::No;
    }
    match call.keeper.as_ref().map(|keeper| &keeper.identity) {
        Some(keeper) if keeper.lives_in(here) => CallHolder::ToKeeper,
        Some(keeper) if keeper.boot_id != here && is_same_boot(&keeper.boot_id, here) => {
            CallHolder::ToUnseenKeeper
        }
        _ => CallHolder::Yes,
    }
}

/// Returns whether the call has a ticket and there is still time to ask for the answer.
pub(crate) fn may_be_taken_up(record: &JobRecord) -> bool {
    let has_ticket = record.call.as_ref().is_some_and(CallRecord::has_ticket);
    has_ticket && record.time_left(JobTimestamp::now()).is_some_and(|left| !left.is_zero())
}

/// Looks at a call that is not final.
pub(crate) fn judge_call(
    data: &DataFolder,
    store: &mut SqliteStore,
    job: &JobRow,
    call: &CallRecord,
    admission: &JobAdmission<'_>,
) -> Result<JobFinding, StoreError> {
    let (id, folder) = (job.record.job_id, data.job(job.record.job_id));
    let goes_on = match left(call, admission.starter) {
        CallHolder::No => true,
        // Only the lock tells whether its holder lives.
        CallHolder::ToUnseenKeeper => false,
        holder => end_of_left(&folder, &job.record, call, holder)?.is_none(),
    };
    if goes_on {
        return Ok(JobFinding::Alive);
    }
    folder.create_if_missing()?;
    let _lock = match Lock::try_take(&folder.file(LOCK)) {
        Ok(Some(lock)) => lock,
        // Another process does the same.
        Ok(None) => return Ok(JobFinding::Alive),
        Err(error) => return Err(FileError::system("cannot lock", &folder.file(LOCK), error).into()),
    };
    // From here on no other process can take the call up. One may have done so before, or have become its keeper.
    let now = store.get(id)?.map(|job| job.record);
    let record = now.filter(|now| now.call.is_some()).unwrap_or_else(|| job.record.clone());
    let call = record.call.as_ref().unwrap_or(call);
    let holder = left(call, admission.starter);
    let ending = match holder {
        CallHolder::No => None,
        _ => end_of_left(&folder, &record, call, holder)?,
    };
    if ending.is_none() && holder == CallHolder::ToUnseenKeeper {
        folder.make_if_missing(UNHELD)?;
    }
    let Some(ending) = ending else { return Ok(JobFinding::Alive) };
    // The holder may have been killed while it wrote the answer.
    data.job(id).work(record.format).remove_unfinished();
    let ending = write_ending(data, id, &ending)?;
    settle(data, store, id, &ending, admission).map(JobFinding::Settled)
}

/// Returns how a call has ended whose holder has left it; `None` if it goes on.
fn end_of_left(
    folder: &JobFolder,
    record: &JobRecord,
    call: &CallRecord,
    holder: CallHolder,
) -> Result<Option<EndRecord>, FileError> {
    match folder.read::<EndRecord>(EXIT) {
        Ok(Some(written)) => return Ok(Some(written)),
        // A damaged record does not count as an end.
        Ok(None) | Err(FileError::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    // No process could tell the server, but the call was cancelled all the same.
    let cancelled = EndRecord::without_run(JobEnd::Cancelled);
    let is_kept = matches!(holder, CallHolder::ToKeeper | CallHolder::ToUnseenKeeper);
    if is_kept {
        let is_over = |name, limit| folder.age(name).is_some_and(|age| age >= limit);
        let is_unseen = holder == CallHolder::ToUnseenKeeper && is_over(UNHELD, UNSEEN_LIMIT);
        return Ok(if is_over(CANCEL, WISH_PATIENCE) {
            Some(cancelled)
        } else if has_outlived_its_time(record) {
            Some(keeper_stood_still(call))
        } else {
            is_unseen.then(|| keeper_unseen(call))
        });
    }
    Ok(if let Some(answered) = end_with_stored_answer(&folder.work(record.format)) {
        Some(answered)
    } else if folder.has(CANCEL) {
        Some(cancelled)
    } else if may_be_taken_up(record) && !folder.has(EXIT) {
        None
    } else if call.has_ticket() {
        Some(nobody_came(call))
    } else if call.keeper.is_some() {
        Some(keeper_gone(call))
    } else {
        Some(end_without_holder(Some(call)))
    })
}

/// Returns the end of a call whose holder was killed after the whole answer was on the disk; `None` if there is none.
fn end_with_stored_answer(work: &WorkFolder) -> Option<EndRecord> {
    /// The part of an answer that counts here.
    #[derive(Deserialize)]
    struct StoredAnswer {
        #[serde(default, rename = "isError")]
        is_error: Value,
    }
    let file = open_file(&work.file(RESULT)).ok()??;
    let answer: StoredAnswer = serde_json::from_reader(BufReader::new(file)).ok()?;
    // Only `true` marks an error. Other values, which the protocol forbids, count as success, as they do while the server runs.
    Some(EndRecord::of_answer(answer.is_error == true))
}

/// Returns whether the job's time is over, and that of its keeper with it.
fn has_outlived_its_time(record: &JobRecord) -> bool {
    let now = JobTimestamp::now();
    let slack = u64::try_from(KEEPER_SLACK.as_millis()).unwrap_or(u64::MAX);
    let before = JobTimestamp::from_millis(now.millis().saturating_sub(slack));
    record.time_left(before).is_some_and(|left| left.is_zero())
}

/// Makes the end of a call whose holder has gone, and whose answer no other process can have.
pub(crate) fn end_without_holder(call: Option<&CallRecord>) -> EndRecord {
    let lost = call.and_then(lost_with_holder);
    lost.unwrap_or_else(|| unhang_ended(call))
}

/// Makes the end of a call whose holder has gone, so that nobody waits for the answer.
fn unhang_ended(call: Option<&CallRecord>) -> EndRecord {
    EndRecord::without_run(JobEnd::Failed).because(
        EndReason::UnhangEnded,
        format!(
            "the unhang process that waited for the answer of the server ended before the answer came{}",
            call.map_or_else(String::new, again)
        ),
    )
}

/// Makes the end of a call whose answer was lost with its holder; `None` if nothing is known of that.
fn lost_with_holder(call: &CallRecord) -> Option<EndRecord> {
    let why = call.lost_with_holder.as_ref()?;
    let ending = holder_gone(call, EndReason::StreamNotResumable, why);
    Some(EndRecord { outcome: JobEnd::Lost, ..ending })
}

/// Makes the end of a call whose holder has gone. `what_else` continues the sentence.
fn holder_gone(call: &CallRecord, reason: EndReason, what_else: &str) -> EndRecord {
    EndRecord::without_run(JobEnd::Failed).because(
        reason,
        format!(
            "the unhang process that waited for the answer of `{}` ended before the answer came, and \
             {what_else}{}",
            call.server,
            again(call)
        ),
    )
}

/// Makes the end of a call whose server may have the answer, and that no process has taken up in its time.
fn nobody_came(call: &CallRecord) -> EndRecord {
    let what_else = "no process with this server asked for it before its time was over";
    holder_gone(call, EndReason::Timeout, what_else)
}

/// Makes the end of a call whose holder and keeper have both gone.
fn keeper_gone(call: &CallRecord) -> EndRecord {
    holder_gone(call, EndReason::UnhangEnded, "so did the process that stood by for it")
}

/// Makes the end of a call whose keeper lives and has not had it resumed.
fn keeper_stood_still(call: &CallRecord) -> EndRecord {
    let keeper = call.keeper.as_ref();
    let keeper = keeper.map_or(String::new(), |keeper| format!(" (process {})", keeper.identity.process.pid));
    let what_else = format!(
        "the process that stands by for it{keeper} did not go on with the call before its time was over"
    );
    holder_gone(call, EndReason::Timeout, &what_else)
}

/// Makes the end of a call whose keeper is in another container and has not had it resumed.
fn keeper_unseen(call: &CallRecord) -> EndRecord {
    let limit = UNSEEN_LIMIT.as_secs();
    let what_else = format!(
        "the process of another container that stood by for it did not go on with the call within {limit} s"
    );
    holder_gone(call, EndReason::UnhangEnded, &what_else)
}

/// Returns the advice whether to call the tool again, as the rest of a sentence.
fn again(call: &CallRecord) -> String {
    format!("; {}", repeat_advice(call.is_repeatable, call.is_unsent))
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use super::*;
    use crate::{
        folder::RECORD,
        record::{CallKeeper, CallTicket, FORMAT, Holder, ProcessRecord},
        testing::{NOBODY, TestFolder, before_now, call, ticket},
    };

    use unhang_proc::identity::kernel_boot;

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
        let elsewhere = format!("{}-1234567890", kernel_boot(here));
        for (process, keeper_boot, keeper, is_free, expected) in [
            (own, here, own, false, CallHolder::No),
            (own, here, NOBODY, false, CallHolder::No),
            (own, here, own, true, CallHolder::ToKeeper),
            (own, here, NOBODY, true, CallHolder::Yes),
            (NOBODY, here, own, false, CallHolder::ToKeeper),
            (NOBODY, here, NOBODY, false, CallHolder::Yes),
            (NOBODY, elsewhere.as_str(), own, false, CallHolder::ToUnseenKeeper),
            (NOBODY, "0000-1", own, false, CallHolder::Yes),
        ] {
            let mut call = call(here, process, Some(CallTicket::stand_in())).call.unwrap();
            let identity = Holder { boot_id: keeper_boot.to_owned(), process: keeper };
            call.keeper = Some(CallKeeper { identity, is_free });
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
        let stand_in = call("boot", NOBODY, Some(CallTicket::stand_in()));
        assert!(
            !may_be_taken_up(&JobRecord { timeout_ms: Some(60_000), ..stand_in }),
            "no server has the answer"
        );
    }

    /// The state of a call with this holder, as the next look leaves it, and the words about its end.
    fn state(
        (process, ticket, timeout_ms, is_repeatable): (Option<ProcessRecord>, Option<CallTicket>, u64, bool),
        prepare: fn(&JobFolder),
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
        let nothing: fn(&JobFolder) = |_| {};
        let cancel: fn(&JobFolder) = |folder| fs::write(folder.file(CANCEL), "").unwrap();
        let end: fn(&JobFolder) =
            |folder| folder.write(EXIT, &EndRecord::without_run(JobEnd::Completed)).unwrap();
        let damage: fn(&JobFolder) = |folder| fs::write(folder.file(EXIT), "{").unwrap();
        let no_folder: fn(&JobFolder) = |folder| fs::remove_dir_all(folder.path()).unwrap();
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
    fn a_call_whose_answer_is_lost_with_its_holder_says_why() {
        for (process, ticket, expected) in [
            (NOBODY, None, "lost stream_not_resumable"),
            (NOBODY, Some(ticket(false)), "alive"),
            (crate::shims::this_process().unwrap().process, None, "alive"),
        ] {
            let mut test = TestFolder::new();
            let mut record = call(&test.starter.boot_id, process, ticket);
            record.timeout_ms = Some(7_200_000);
            let known = record.call.as_mut().unwrap();
            known.lost_with_holder = Some("`srv` gave its events no ids".to_owned());
            let known = known.clone();
            let job = test.accept(&record);
            let admission = JobAdmission { starter: &test.starter, limit: None, is_open: false };
            judge_call(&test.data, &mut test.store, &job, &known, &admission).unwrap();
            let row = test.get(record.job_id);
            let Some(ending) = row.record.ending else {
                assert_eq!(expected, "alive");
                continue;
            };
            assert_eq!(format!("{} {}", row.record.status, ending.reason.unwrap()), expected);
            let detail = ending.detail.unwrap();
            assert_eq!(
                detail,
                "the unhang process that waited for the answer of `srv` ended before the answer came, and \
                 `srv` gave its events no ids; the server may have carried out the call, so check before \
                 you repeat it"
            );
        }
    }

    /// The state of a call whose holder has gone, with this keeper, as the next look leaves it.
    fn state_of_kept(
        (boot_id, keeper, timeout_ms): (String, ProcessRecord, u64),
        prepare: impl FnOnce(&JobFolder),
    ) -> (String, String) {
        let mut test = TestFolder::new();
        let mut record = call(&test.starter.boot_id, NOBODY, Some(CallTicket::stand_in()));
        (record.timeout_ms, record.created_at) = (Some(timeout_ms), before_now(HOUR));
        let identity = Holder { boot_id, process: keeper };
        record.call.as_mut().unwrap().keeper = Some(CallKeeper { identity, is_free: false });
        let job = test.accept(&record);
        prepare(&test.data.job(record.job_id));
        let admission = JobAdmission { starter: &test.starter, limit: None, is_open: false };
        let call = record.call.as_ref().unwrap();
        judge_call(&test.data, &mut test.store, &job, call, &admission).unwrap();
        let row = test.get(record.job_id);
        assert_eq!(row.is_active, row == job, "an open call stays as it is");
        let Some(ending) = row.record.ending else { return ("alive".to_owned(), String::new()) };
        assert_eq!(row.record.call.unwrap().keeper, None);
        let reason = ending.reason.map_or("-".to_owned(), |reason| reason.to_string());
        (format!("{} {reason}", row.record.status), ending.detail.unwrap_or_default())
    }

    /// Makes a file of the job that was written so many seconds ago.
    fn written(folder: &JobFolder, name: &str, seconds: u64) {
        let file = fs::File::create(folder.file(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn a_left_call_is_its_keepers_until_one_of_the_clocks_is_over() {
        const LONG: u64 = 7_200_000;
        const SHORT: u64 = 3_600_000 - 30_000;
        const OVER: u64 = 3_600_000 - 70_000;
        let starter = crate::shims::this_process().unwrap();
        let (here, own) = (starter.boot_id.clone(), starter.process);
        let elsewhere = format!("{}-1234567890", kernel_boot(&here));
        let lives = |timeout| (here.clone(), own, timeout);
        let gone = |timeout| (here.clone(), NOBODY, timeout);
        let unseen = |timeout| (elsewhere.clone(), own, timeout);
        let earlier = |timeout| ("0000-1".to_owned(), own, timeout);
        let nothing: fn(&JobFolder) = |_| {};
        let wish: fn(&JobFolder) = |folder| written(folder, CANCEL, 5);
        let old_wish: fn(&JobFolder) = |folder| written(folder, CANCEL, 15);
        let mark: fn(&JobFolder) = |folder| written(folder, UNHELD, 20);
        let old_mark: fn(&JobFolder) = |folder| written(folder, UNHELD, 40);
        let end: fn(&JobFolder) =
            |folder| folder.write(EXIT, &EndRecord::without_run(JobEnd::Completed)).unwrap();
        let damage: fn(&JobFolder) = |folder| fs::write(folder.file(EXIT), "{").unwrap();
        for (keeper, prepare, expected, words) in [
            (lives(LONG), nothing, "alive", ""),
            (lives(LONG), old_mark, "alive", ""),
            (lives(LONG), damage, "alive", ""),
            (lives(LONG), end, "completed -", ""),
            (lives(LONG), wish, "alive", ""),
            (lives(LONG), old_wish, "cancelled -", ""),
            (lives(SHORT), nothing, "alive", ""),
            (lives(OVER), nothing, "failed timeout", "stands by for it (process "),
            (lives(OVER), wish, "failed timeout", "check before you repeat it"),
            (gone(LONG), nothing, "failed unhang_ended", "and so did the process that stood by for it"),
            (gone(LONG), wish, "cancelled -", ""),
            (gone(LONG), end, "completed -", ""),
            (earlier(LONG), nothing, "failed unhang_ended", "and so did the process that stood by for it"),
            (unseen(LONG), nothing, "alive", ""),
            (unseen(LONG), mark, "alive", ""),
            (unseen(LONG), old_mark, "failed unhang_ended", "another container that stood by for it"),
            (unseen(LONG), end, "completed -", ""),
        ] {
            let case = format!("{keeper:?}, expected {expected}");
            let (found, detail) = state_of_kept(keeper, prepare);
            assert_eq!(found, expected, "{case}: {detail}");
            assert!(detail.contains(words), "{case}: {detail}");
        }
    }

    #[test]
    fn a_call_without_a_holder_is_marked_for_a_keeper_that_cannot_be_seen() {
        let mut test = TestFolder::new();
        let mut record = call(&test.starter.boot_id, NOBODY, Some(CallTicket::stand_in()));
        record.timeout_ms = Some(60_000);
        let boot_id = format!("{}-1234567890", kernel_boot(&test.starter.boot_id));
        let identity = Holder { boot_id, process: test.starter.process };
        record.call.as_mut().unwrap().keeper = Some(CallKeeper { identity, is_free: false });
        let job = test.accept(&record);
        let folder = test.data.job(record.job_id);
        let admission = JobAdmission { starter: &test.starter, limit: None, is_open: false };
        let call = record.call.as_ref().unwrap();
        let mut look = || judge_call(&test.data, &mut test.store, &job, call, &admission).unwrap();
        let held = Lock::try_take(&folder.file(LOCK)).unwrap().unwrap();
        assert!(matches!(look(), JobFinding::Alive) && !folder.has(UNHELD), "its holder lives in there");
        drop(held);
        assert!(matches!(look(), JobFinding::Alive) && folder.has(UNHELD));
        written(&folder, UNHELD, 40);
        assert!(matches!(look(), JobFinding::Settled(_)));
    }

    /// The holder was killed between the answer and the record of the end.
    #[test]
    fn a_call_whose_whole_answer_is_on_the_disk_has_ended_with_it() {
        let here = crate::shims::this_process().unwrap();
        for (answer, keeper, expected) in [
            (r#"{"content":[],"isError":false}"#, NOBODY, "completed -"),
            (r#"{"content":[],"isError":true}"#, NOBODY, "failed tool_error"),
            (r#"{"content":[],"isError":null}"#, NOBODY, "completed -"),
            (r#"{"content":[{"type":"text","text":"isError"}]}"#, NOBODY, "completed -"),
            ("{", NOBODY, "failed unhang_ended"),
            (r#"{"content":[]}"#, here.process, "alive"),
        ] {
            let keeper = (here.boot_id.clone(), keeper, 7_200_000);
            let (found, detail) = state_of_kept(keeper, |folder| {
                let work = folder.work(FORMAT);
                work.create_if_missing().unwrap();
                work.replace(RESULT, answer.as_bytes()).unwrap();
            });
            assert_eq!(found, expected, "{answer}: {detail}");
        }
    }

    #[test]
    fn what_a_killed_process_has_left_of_the_copy_is_removed_with_the_end() {
        let mut test = TestFolder::new();
        let record = call(&test.starter.boot_id, NOBODY, None);
        let (job, folder) = (test.accept(&record), test.data.job(record.job_id));
        let admission = JobAdmission { starter: &test.starter, limit: None, is_open: false };
        let call = record.call.as_ref().unwrap();
        let forbid = "CREATE TRIGGER forbid BEFORE UPDATE ON jobs BEGIN SELECT RAISE(ABORT, 'no'); END";
        test.store.write(|transaction| transaction.execute_batch(forbid)).unwrap();
        judge_call(&test.data, &mut test.store, &job, call, &admission).unwrap_err();
        let copy = folder.read::<JobRecord>(RECORD).unwrap().unwrap().status;
        assert!(copy.is_final(), "the copy is there before the row is final");
        let unfinished = folder.file(".job.json.abcdefghijkl");
        fs::write(&unfinished, "{").unwrap();
        test.store.write(|transaction| transaction.execute_batch("DROP TRIGGER forbid")).unwrap();
        let found = judge_call(&test.data, &mut test.store, &job, call, &admission).unwrap();
        assert!(!matches!(found, JobFinding::Alive), "{found:?}");
        assert!(test.get(record.job_id).record.status.is_final() && !unfinished.exists());
    }

    #[test]
    fn a_left_call_whose_lock_another_process_holds_is_left_to_that_process() {
        let mut test = TestFolder::new();
        let record = call(&test.starter.boot_id, NOBODY, None);
        let job = test.accept(&record);
        let _held = Lock::try_take(&test.data.job(record.job_id).file(LOCK)).unwrap().unwrap();
        let admission = JobAdmission { starter: &test.starter, limit: None, is_open: false };
        let found = judge_call(&test.data, &mut test.store, &job, &record.call.unwrap(), &admission).unwrap();
        assert!(matches!(found, JobFinding::Alive), "{found:?}");
        assert_eq!(test.get(job.record.job_id), job);
    }
}
