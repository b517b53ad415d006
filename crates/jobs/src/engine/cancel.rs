//! Cancels a job.
//!
//! Theory of operation. The wish is written into the job's folder first. The next holder of the job's lock sees it: the supervisor does,
//! before it starts the work and as soon as the wish is there. If no supervisor has the job, this process does. So it does not matter how
//! far the job has come, nor which process dies meanwhile, nor in which container the supervisor is.
//!
//! The holder of a call finds the wish in the folder, in whichever process it is. So does the process that resumes a call whose first holder
//! has gone: until then the wish waits, for a time ([`crate::judge_call`]).
//!
//! The wish is an empty file, for which a full disk has room as a rule. If it has no room, a signal tells a supervisor that can be
//! signalled from here.
//!
//! Invariants
//!
//! - The work is signalled by its supervisor, which is its parent, and by no other process. A supervisor that does not do it in time is
//!   killed, and its rest is ended like that of any killed supervisor.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use unhang_proc::identity::{Identity, boot_id};

use super::EngineState;
use crate::{
    error::JobError,
    folder::{CANCEL, DataFolder, FileError, JobFolder, RECORD, RUN},
    id::JobId,
    judge::{JobFinding, judge},
    record::{JobRecord, JobState, RunRecord},
    room::is_full,
    status::JobStatus,
    store::{JobStore, SqliteStore, StoreError},
    wait::{WaitLimit, pause},
    work_lease::WorkLease,
};

/// The time that a supervisor may take beyond the job's own grace: the sweep of two seconds, and the disk.
const SHIM_LIMIT: Duration = Duration::from_secs(5);

/// The time that the end may take after the supervisor itself was killed.
const FORCE_LIMIT: Duration = Duration::from_secs(5);

/// The time for which the end of work that has gone may stay unwritten before a full disk is taken for the cause. A sweep takes two
/// seconds.
const UNWRITTEN: Duration = Duration::from_secs(3);

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Returns the longest time that the end of this job may take.
pub(super) fn longest(record: &JobRecord) -> Duration {
    record.stop_grace() + SHIM_LIMIT + FORCE_LIMIT
}

/// Cancels a job, and waits for its end.
pub(super) fn cancel(inner: &EngineState, id: JobId) -> Result<JobStatus, JobError> {
    let record = open_job(inner, id)?;
    let folder = inner.data.job(id);
    // If something else lies in the folder's place, nobody is there to read the wish.
    if !folder.is_something_else() {
        // A power failure may have taken the folder of a call.
        folder.create_if_missing()?;
        leave_wish(&folder)?;
    }
    let status = until_ended(inner, id, Some(record.stop_grace() + SHIM_LIMIT))?;
    match status.record.status {
        JobState::Cancelled => Ok(status),
        // The job ended before the wish reached it.
        status => Err(JobError::HasEnded { id, status }),
    }
}

/// Ends the lease of a job at once, and waits for the end of the job: work that runs is killed, and work that has not begun never begins.
pub(super) fn revoke(inner: &EngineState, id: JobId) -> Result<JobStatus, JobError> {
    open_job(inner, id)?;
    WorkLease::replace(&inner.data.job(id), &inner.starter.boot_id, Duration::ZERO)?;
    until_ended(inner, id, None)
}

/// Returns the record of a job that has not ended.
fn open_job(inner: &EngineState, id: JobId) -> Result<JobRecord, JobError> {
    let record = inner.status(id)?.record;
    if record.status.is_final() {
        return Err(JobError::HasEnded { id, status: record.status });
    }
    Ok(record)
}

/// Waits until a job has ended. Tells its supervisor to end it, and kills the supervisor if that takes longer than `patience`. Without
/// `patience` the supervisor is killed at once.
fn until_ended(inner: &EngineState, id: JobId, patience: Option<Duration>) -> Result<JobStatus, JobError> {
    let folder = inner.data.job(id);
    let wait_limit = WaitLimit::after(patience.unwrap_or_default());
    let end = WaitLimit::after(patience.unwrap_or_default() + FORCE_LIMIT);
    let (mut was_told, mut was_killed, mut gone) = (patience.is_none(), false, None);
    // A connection of its own: settling may wait for others that hold the state, and readers are not to wait for that.
    let (mut store, _) = SqliteStore::open(&inner.data)?;
    loop {
        let job = store.get(id)?.ok_or(JobError::NoSuchJob(id))?;
        if job.record.status.is_final() {
            inner.memory.update([job]);
            return inner.status(id);
        }
        let judged = judge(&inner.data, &mut store, &job, &inner.admission());
        match judged.map_err(|error| without_room(inner, id, error))? {
            JobFinding::Settled(settled) => inner.start_shims(&settled.admitted),
            JobFinding::StartIt => {}
            JobFinding::Alive if job.record.call.is_some() => {
                // If another process holds the call, it finds the wish in the folder.
                inner.calls.tell(id);
            }
            JobFinding::Alive => {
                was_told = was_told || signal_shim(&folder, Signal::TERM);
                if has_gone(&folder) {
                    // A killed supervisor would lose the end that it alone knows.
                    let gone = gone.get_or_insert_with(|| WaitLimit::after(UNWRITTEN));
                    if gone.is_over() && is_full(inner.data.path()) {
                        let cause = "its work has ended, and the disk is full".to_owned();
                        return Err(JobError::EndUnwritten { id, cause });
                    }
                } else if wait_limit.is_over() && !was_killed {
                    was_killed = signal_shim(&folder, Signal::KILL);
                }
            }
        }
        if end.is_over() {
            return Err(JobError::StillEnding { id, waited: end.elapsed() });
        }
        pause(LOOK);
    }
}

/// Tells a job to end if the disk is so full that the database could not be opened, for the reason `cause`. The database's files of shared
/// memory need room there.
///
/// Returns the error for the person; `None` if the disk has room or no job has this folder.
pub(super) fn cancel_unopened(root: &Path, id: JobId, cause: &str) -> Option<JobError> {
    let folder = DataFolder::open(root).ok().filter(|_| is_full(root))?.job(id);
    let record: JobRecord = folder.read(RECORD).ok().flatten()?;
    if record.status.is_final() {
        return Some(JobError::HasEnded { id, status: record.status });
    }
    let told = leave_wish(&folder).map(|()| signal_shim(&folder, Signal::TERM));
    Some(match told {
        Ok(_) => JobError::EndUnwritten { id, cause: cause.to_owned() },
        Err(error) => error.into(),
    })
}

/// Writes the wish into the job's folder. If the disk has no room even for that, sends the signal.
fn leave_wish(folder: &JobFolder) -> Result<(), FileError> {
    match folder.make_if_missing(CANCEL) {
        Err(error) if error.is_for_lack_of_room() && signal_shim(folder, Signal::TERM) => {
            tracing::warn!("{error}; unhang told its supervisor by a signal alone");
            Ok(())
        }
        made => made,
    }
}

/// Returns whether the work of this job has begun and has gone.
fn has_gone(folder: &JobFolder) -> bool {
    let run: Option<RunRecord> = folder.read(RUN).ok().flatten();
    run.filter(is_of_here).and_then(|run| run.work).is_some_and(|work| !Identity::from(work).is_alive())
}

/// Returns the error for a job that was told to end; on a full disk, that its end cannot be written.
fn without_room(inner: &EngineState, id: JobId, error: StoreError) -> JobError {
    match is_full(inner.data.path()) {
        true => JobError::EndUnwritten { id, cause: error.to_string() },
        false => error.into(),
    }
}

/// Returns whether the process ids of this record belong to this boot. Ids of another container may belong to other processes here.
fn is_of_here(run: &RunRecord) -> bool {
    boot_id().is_ok_and(|own| own == run.boot_id)
}

/// Signals the supervisor of the job. Returns false if none can be seen yet.
fn signal_shim(folder: &JobFolder, signal: Signal) -> bool {
    let run: Option<RunRecord> = folder.read(RUN).ok().flatten();
    run.filter(is_of_here).is_some_and(|run| Identity::from(run.shim).signal(signal))
}
