//! Ends a job because somebody wants it to end.
//!
//! Theory of operation. The wish is written into the job's folder first. Whoever has the job's lock next sees it: the shim,
//! before it starts the work and as soon as the wish is there, or we ourselves, if no shim has the job. So it does not matter
//! how far the job has come, nor who dies meanwhile, nor in which container the shim is.
//!
//! The wish is an empty file, for which a full disk has room as a rule. Where it has none, the signal says it all the same to a shim
//! that can be signalled from here.
//!
//! Invariants
//!
//! - The work is never signalled by us, but by its shim, which is its parent; a shim that does not do it in time is killed, and
//!   what it leaves is ended like that of any killed shim.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use unhang_proc::{
    identity::{Identity, boot_id},
    pressure::free_disk,
};
use unhang_switches::stands;

use super::{EngineState, memory::JobStatus};
use crate::{
    error::JobError,
    folder::{CANCEL, DataFolder, FileError, JobFolder, RECORD, RUN},
    id::JobId,
    judge::{JobFinding, judge},
    record::{JobRecord, JobState, RunRecord},
    store::{self, Store, StoreError},
    wait::{WaitLimit, pause},
};

/// What a shim may take beyond the job's own grace: the sweep of two seconds, and the disk.
const SHIM_LIMIT: Duration = Duration::from_secs(5);

/// What the end may take after the shim itself was killed.
const FORCE_LIMIT: Duration = Duration::from_secs(5);

/// How long the end of work that has gone may stay unwritten before a full disk is taken for the cause: a sweep takes two seconds.
const UNWRITTEN: Duration = Duration::from_secs(3);

/// Bytes that a disk without room has free at most.
const NO_ROOM: u64 = 64 << 10;

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The longest time that the end of this job may take.
pub(super) fn longest(record: &JobRecord) -> Duration {
    record.stop_grace() + SHIM_LIMIT + FORCE_LIMIT
}

pub(super) fn cancel(inner: &EngineState, id: JobId) -> Result<JobStatus, JobError> {
    let status = inner.status(id)?;
    if status.record.status.is_final() {
        return Err(JobError::HasEnded { id, status: status.record.status });
    }
    let folder = inner.data.job(id);
    // Where something else lies in its place, nobody is there to read the wish.
    if !folder.is_something_else() {
        // Of a call, a power failure may have taken it.
        folder.create_if_missing()?;
        leave_wish(&folder)?;
    }
    let wait_limit = WaitLimit::after(status.record.stop_grace() + SHIM_LIMIT);
    let end = WaitLimit::after(longest(&status.record));
    let (mut was_told, mut was_killed, mut gone) = (false, false, None);
    // One of our own: to settle a job may take as long as others hold the state, and whoever only looks is not to wait for that.
    let (mut store, _) = Store::open(&inner.data)?;
    loop {
        let job = store.read(|connection| store::get(connection, id))?.ok_or(JobError::NoSuchJob(id))?;
        if job.record.status.is_final() {
            inner.memory.update([job]);
            let status = inner.status(id)?;
            return match status.record.status {
                JobState::Cancelled => Ok(status),
                // It was quicker.
                status => Err(JobError::HasEnded { id, status }),
            };
        }
        let judged = judge(&inner.data, &mut store, &job, &inner.admission());
        match judged.map_err(|error| without_room(inner, id, error))? {
            JobFinding::Settled(settled) => inner.start_shims(&settled.admitted),
            JobFinding::StartIt => {}
            JobFinding::Alive if job.record.call.is_some() => {
                // Where another process holds it, that finds the wish in the folder.
                inner.calls.tell(id);
            }
            JobFinding::Alive => {
                was_told = was_told || signal_shim(&folder, Signal::TERM);
                if has_gone(&folder) {
                    // To kill the shim would lose what it alone knows.
                    let gone = gone.get_or_insert_with(|| WaitLimit::after(UNWRITTEN));
                    if gone.is_over() && is_full(inner.data.path()) {
                        let cause = "its work has ended, and the disk is full".to_owned();
                        return Err(JobError::EndUnwritten { id, cause });
                    }
                } else if wait_limit.is_over() && !was_killed && stands("deaf-shim-killed") {
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

/// Tells a job to end where `cause` kept the database closed because the disk is full. Its files of shared memory need room there.
///
/// Returns what the person is to know, or none where the disk has room or no job has this folder.
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

/// Leaves the wish in the job's folder. Where the disk has no room even for that, the signal says it.
fn leave_wish(folder: &JobFolder) -> Result<(), FileError> {
    match folder.make_if_missing(CANCEL) {
        Err(error) if error.is_for_lack_of_room() && signal_shim(folder, Signal::TERM) => {
            tracing::warn!("{error}; its supervisor was told by a signal alone");
            Ok(())
        }
        made => made,
    }
}

/// Whether the work of this job has begun and has gone.
fn has_gone(folder: &JobFolder) -> bool {
    let run: Option<RunRecord> = folder.read(RUN).ok().flatten();
    run.filter(is_of_here).and_then(|run| run.work).is_some_and(|work| !Identity::from(work).is_alive())
}

fn is_full(data: &Path) -> bool {
    free_disk(data).is_ok_and(|free| free < NO_ROOM)
}

/// What a full disk means for a job that was told to end.
fn without_room(inner: &EngineState, id: JobId, error: StoreError) -> JobError {
    match is_full(inner.data.path()) {
        true => JobError::EndUnwritten { id, cause: error.to_string() },
        false => error.into(),
    }
}

/// The numbers of another container are those of strangers.
fn is_of_here(run: &RunRecord) -> bool {
    boot_id().is_ok_and(|own| own == run.boot_id)
}

/// Signals the shim that holds the job. False where there is none to be seen yet.
fn signal_shim(folder: &JobFolder, signal: Signal) -> bool {
    let run: Option<RunRecord> = folder.read(RUN).ok().flatten();
    run.filter(is_of_here).is_some_and(|run| Identity::from(run.shim).signal(signal))
}
