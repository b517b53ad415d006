//! Moves the folders of jobs that ended under an older unhang, whose work's files lay beside unhang's own: once, beside everything else
//! (F-02).
//!
//! Invariants: a folder whose lock is held is left for the next process; a folder that cannot be moved stays readable as it is.

use unhang_proc::lock::Lock;

use super::EngineState;
use crate::{
    error::JobError,
    folder::{JobFolder, LOCK},
    record::FORMAT,
    store::SqliteStore,
    wait::WaitLimit,
};

/// The number of jobs from which they are not looked through at every opening.
const MANY: u32 = 1000;

/// Moves folders until all are done or the limit is reached. Returns true if nothing is left to do in this process.
pub(super) fn round(
    inner: &EngineState,
    store: &mut SqliteStore,
    limit: WaitLimit,
) -> Result<bool, JobError> {
    let layout = i64::from(FORMAT);
    if store.layout()? == Some(layout) {
        return Ok(true);
    }
    let old = store.of_older_format(FORMAT)?;
    // Another look costs little as long as there are few jobs, and writes nothing.
    let mut is_all = !old.is_empty() || store.how_many()? >= MANY;
    for (id, has_ended) in old {
        if limit.is_over() {
            return Ok(false);
        }
        is_all &= has_ended && is_done(&inner.data.job(id));
    }
    if is_all {
        store.keep_layout(layout)?;
    }
    Ok(true)
}

/// Moves the folder of an ended job if it can be locked. Returns whether nothing is left to do about it.
fn is_done(folder: &JobFolder) -> bool {
    if !folder.is_there() || folder.is_moved() {
        return true;
    }
    let Ok(Some(_lock)) = Lock::try_take(&folder.file(LOCK)) else { return false };
    match folder.move_work() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("unhang cannot move the files of an older job: {error}");
            false
        }
    }
}
