//! Brings the end of a job to all places where readers look for it: the named state, the database, `job.json`.
//!
//! Theory of operation. The holder of the job's lock writes `exit.json` first. From then on the end is a fact, and any process can do
//! everything here again, after any crash:
//!
//! ```text
//! exit.json ─ turn to write the state ─ row: patching ─ state/<field>.json ─ row: final, slot free, next job admitted ─ job.json
//! ```
//!
//! A crash between "patching" and "final" leaves a row that says so. The next writer of the state, in any process, applies that patch
//! before its own, so that a document is never replaced by an older one.
//!
//! Invariants
//!
//! - An end that a supervisor saw counts for more than an unknown end, whichever was noted first.
//! - A result reaches the named state exactly once, and in the order in which the jobs ended.
//! - A document keeps its value if the result cannot be read or the pointer finds nothing; the record says why.
//! - A reader that sees a job as completed finds the state already changed (J-139).

use std::{io, ops::DerefMut};

use serde_json::Value;

use crate::{
    document::{DocumentTurn, Documents, Field, MAX_DOCUMENT},
    folder::{DataFolder, EXIT, FileError, FileName, LAUNCH, RECORD, sync},
    id::JobId,
    large_numbers,
    questions::remove_questions,
    record::{EndRecord, JobEnd, JobRecord, JobState},
    store::{JobAdmission, JobStore, SqliteStore, StoreError},
    timestamp::JobTimestamp,
};

/// The outcome of settling a job.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// The jobs that have a slot now. The caller has to start their supervisors.
    pub(crate) admitted: Vec<JobId>,
}

/// Notes how a job ended, unless that was noted before. The caller holds the job's lock, or has seen its `exit.json`.
pub(crate) fn settle(
    data: &DataFolder,
    store: &mut SqliteStore,
    id: JobId,
    ending: &EndRecord,
    admission: &JobAdmission<'_>,
) -> Result<Settled, StoreError> {
    let Some(job) = store.get(id)? else {
        // The job was removed, or never accepted.
        return Ok(Settled { admitted: store.admit(admission)? });
    };
    let mut record = job.record;
    remove_orders(data, &record);
    if record.call.is_some() {
        // Nobody answers the questions of a call that has ended.
        remove_questions(&data.job(id));
    }
    let is_found_again = record.status == JobState::Lost && ending.outcome != JobEnd::Lost;
    if record.status.is_final() && !is_found_again {
        return Ok(Settled { admitted: store.admit(admission)? });
    }
    record.end(ending);
    // The turn is held until the row is final, so that no other document comes in between.
    let _turn = match &record.patch {
        Some(_) if ending.outcome == JobEnd::Completed => Some(patch(data, store, &mut record)?),
        _ => None,
    };
    let folder = data.job(id);
    // The copy is for people, and can be made again from the row. If the folder is gone, or is not a folder, nobody looks for the copy.
    // It comes before the row is final: if this process is killed here, the next one removes what is half written.
    if folder.is_there()
        && let Err(error) = folder.write_lightly(RECORD, &record)
    {
        tracing::warn!("{error}");
    }
    Ok(Settled { admitted: store.finish_and_admit(&record, admission)? })
}

/// Removes the command and its environment, which may be secret, however the job ended: nobody needs them after its end. This comes before
/// the row is final, so that another process does it if this one is killed here.
fn remove_orders(data: &DataFolder, record: &JobRecord) {
    let folder = data.job(record.job_id);
    if !folder.is_there() || !folder.has(LAUNCH) {
        return;
    }
    // A folder without record and orders is not a job's. The copy may not have been made yet, or not anew after a power failure.
    let removed = folder.write_if_missing(RECORD, record).and_then(|()| folder.remove_file(LAUNCH));
    if let Err(error) = removed {
        tracing::warn!("unhang cannot remove the command of job {} from the disk: {error}", record.job_id);
    }
}

/// Applies the result to the named state, and notes the outcome in the record.
fn patch(
    data: &DataFolder,
    store: &mut SqliteStore,
    record: &mut JobRecord,
) -> Result<DocumentTurn, StoreError> {
    let turn = Documents::of(data).turn()?;
    finish_patches(data, store, &turn)?;
    // A process that settled the job before may have come as far as the document, and no further.
    let current = store.get(record.job_id)?;
    let Some(current) = current else { return Ok(turn) };
    if current.record.state_applied.is_some() {
        record.state_applied = current.record.state_applied;
        record.state_reason = current.record.state_reason;
        return Ok(turn);
    }
    let mut open = record.clone();
    // A lost job stays lost until its row says otherwise.
    let was_lost = current.record.status == JobState::Lost;
    open.status = if was_lost { JobState::Lost } else { JobState::Running };
    open.ending = if was_lost { current.record.ending } else { None };
    store.note_patch(&open, true)?;
    apply(data, &turn, record)?;
    Ok(turn)
}

/// Applies the patches that dead writers had begun. Returns how many there were.
pub(crate) fn finish_patches(
    data: &DataFolder,
    store: &mut SqliteStore,
    turn: &DocumentTurn,
) -> Result<usize, StoreError> {
    let begun = store.patching()?;
    for job in &begun {
        let mut record = job.record.clone();
        apply(data, turn, &mut record)?;
        store.note_patch(&record, false)?;
    }
    Ok(begun.len())
}

/// Replaces the document, or notes the reason why not.
fn apply(data: &DataFolder, turn: &DocumentTurn, record: &mut JobRecord) -> Result<(), FileError> {
    let Some(patch) = &record.patch else { return Ok(()) };
    let outcome = match value(data, record) {
        Ok(value) => match turn.write(record.patched(), &patch.field, &value) {
            // The trouble will not go away by itself, and nobody else shall wait for that.
            Err(error) if error.is_of_another_kind() || error.is_over_file_limit() => Some(error.to_string()),
            written => written.map(|()| None)?,
        },
        Err(reason) => Some(reason),
    };
    record.state_applied = Some(outcome.is_none());
    record.state_reason = outcome;
    Ok(())
}

/// Returns the new value of the document, or the reason why it stays.
fn value(data: &DataFolder, record: &JobRecord) -> Result<Value, String> {
    record.patched_value(|name| read_result(data, record, name).map_err(|error| error.to_string()))
}

/// Reads a job's result; `None` if there is no file.
pub(crate) fn read_result(
    data: &DataFolder,
    record: &JobRecord,
    name: &str,
) -> Result<Option<Value>, FileError> {
    let work = data.job(record.job_id).work(record.format);
    let path = work.file(name);
    // The name came from a file, so it is checked.
    FileName::new(name).map_err(|error| FileError::damaged(&path, error))?;
    let Some(bytes) = work.read(name, MAX_DOCUMENT)? else { return Ok(None) };
    large_numbers::check(&bytes, name).map_err(|told| FileError::damaged(&path, told))?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| FileError::damaged(&path, error))
}

/// Writes down how a job ended, for good, unless that has been done. The caller holds the job's lock. Returns the end that counts.
pub(crate) fn write_ending(data: &DataFolder, id: JobId, ending: &EndRecord) -> Result<EndRecord, FileError> {
    let folder = data.job(id);
    folder.remove_unfinished();
    let earlier = match folder.read::<EndRecord>(EXIT) {
        // A damaged record does not count as an end, nor does a thing that is not a file.
        Err(FileError::Damaged { .. }) => folder.put_aside(EXIT).map(|()| None),
        read => read,
    };
    if let Some(earlier) = earlier?
        // The process that wrote the earlier end took the supervisor for dead, and the supervisor has seen the end.
        && (earlier.outcome != JobEnd::Lost || ending.outcome == JobEnd::Lost)
    {
        return Ok(earlier);
    }
    match folder.write(EXIT, ending) {
        Err(error) if error.kind() == Some(io::ErrorKind::PermissionDenied) => {
            folder.reclaim();
            folder.write(EXIT, ending)
        }
        written => written,
    }?;
    // A small job was accepted before the name of its folder was on the disk.
    sync(&data.jobs())?;
    Ok(ending.clone())
}

/// Replaces a document for a person or client, and returns the document's new time. Takes the store only once it has the turn, so that
/// nobody waits for the store meanwhile.
pub(crate) fn set_document<S: DerefMut<Target = SqliteStore>>(
    data: &DataFolder,
    store: impl FnOnce() -> S,
    owner: Option<&str>,
    field: &Field,
    value: &Value,
) -> Result<JobTimestamp, StoreError> {
    let turn = Documents::of(data).turn()?;
    finish_patches(data, &mut store(), &turn)?;
    turn.write(owner, field, value)?;
    Ok(turn.changed_at(owner, field)?)
}
