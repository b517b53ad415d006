//! Ends a job because somebody wants it to end.
//!
//! Theory of operation. The wish is written into the job's folder first. Whoever has the job's lock next sees it: the shim,
//! before it starts the work and whenever it is signalled, or we ourselves, if no shim has the job. So it does not matter
//! how far the job has come, nor who dies meanwhile.
//!
//! Invariants
//!
//! - The work is never signalled by us, but by its shim, which is its parent; a shim that does not do it in time is killed, and
//!   what it leaves is ended like that of any killed shim.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use unhang_proc::identity::Identity;
use unhang_switches::stands;

use super::{Inner, memory::Status};
use crate::{
    error::JobError,
    folder::{CANCEL, JobFolder, RUN},
    id::JobId,
    judge::{Finding, judge},
    moment::Moment,
    record::{JobState, Record, Run},
    store::{self, Store},
    wait::{Limit, pause},
};

/// What a shim may take beyond the job's own grace: the sweep of two seconds, and the disk.
const SHIM_LIMIT: Duration = Duration::from_secs(5);

/// What the end may take after the shim itself was killed.
const FORCE_LIMIT: Duration = Duration::from_secs(5);

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The longest time that the end of this job may take.
pub(super) fn longest(record: &Record) -> Duration {
    record.stop_grace() + SHIM_LIMIT + FORCE_LIMIT
}

pub(super) fn cancel(inner: &Inner, id: JobId) -> Result<Status, JobError> {
    let status = inner.status(id)?;
    if status.record.status.is_final() {
        return Err(JobError::HasEnded { id, status: status.record.status });
    }
    let folder = inner.data.job(id);
    // Where something else lies in its place, nobody is there to read the wish.
    if !folder.is_something_else() {
        // Of a call, a power failure may have taken it.
        folder.create_if_missing()?;
        if !folder.has(CANCEL) {
            folder.write(CANCEL, &json!({ "requested_at": Moment::now() }))?;
        }
    }
    let patience = Limit::after(status.record.stop_grace() + SHIM_LIMIT);
    let end = Limit::after(longest(&status.record));
    let (mut was_told, mut was_killed) = (false, false);
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
        match judge(&inner.data, &mut store, &job, &inner.handover())? {
            Finding::Settled(settled) => inner.start_shims(&settled.admitted),
            Finding::StartIt => {}
            Finding::Alive if job.record.call.is_some() => {
                // Where another process holds it, that finds the wish in the folder.
                inner.calls.tell(id);
            }
            Finding::Alive => {
                was_told = was_told || signal_shim(&folder, Signal::TERM);
                if patience.is_over() && !was_killed && stands("deaf-shim-killed") {
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

/// Signals the shim that holds the job. False where there is none to be seen yet.
fn signal_shim(folder: &JobFolder, signal: Signal) -> bool {
    let run: Option<Run> = folder.read(RUN).ok().flatten();
    run.is_some_and(|run| Identity::from(run.shim).signal(signal))
}
