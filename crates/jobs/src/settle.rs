//! Brings the end of a job where everybody looks for it: the named state, the database, `job.json`.
//!
//! Theory of operation. `exit.json` is written first, by whoever holds the job's lock; from then on the end is a fact, and
//! everything here can be done again by anybody, after any crash:
//!
//! ```text
//! exit.json ─ turn to write the state ─ row: patching ─ state/<field>.json ─ row: final, slot free, next job admitted ─ job.json
//! ```
//!
//! A crash between "patching" and "final" leaves a row that says so. The next writer of the state, whoever it is, applies that
//! patch before its own, so that a document is never replaced by an older one.
//!
//! Invariants
//!
//! - An end that somebody saw counts for more than that nobody knows it, whichever was noted first.
//! - A result reaches the named state exactly once, and in the order in which the jobs ended.
//! - A document keeps its value where the result cannot be read or the pointer finds nothing; the record says why.
//! - Whoever sees a job as completed finds the state already changed (J-139).

use std::{io, ops::DerefMut};

use serde_json::Value;
use unhang_switches::stands;

use crate::{
    document::{DocumentTurn, Documents, Field, MAX_DOCUMENT},
    folder::{DataFolder, EXIT, FileError, FileName, LAUNCH, RECORD, sync},
    id::JobId,
    record::{EndRecord, JobEnd, JobRecord, JobState},
    store::{self, ShimStarter, Store, StoreError},
    timestamp::JobTimestamp,
};

/// What came of settling a job.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Jobs that have a slot now and whose shims the caller has to start.
    pub(crate) admitted: Vec<JobId>,
}

/// Who asks for the next jobs, and by which limit: a server goes by its own, all by what others who have the folder open
/// were told and by what each job brought with it.
#[derive(Debug)]
pub(crate) struct JobAdmission<'a> {
    pub(crate) starter: &'a ShimStarter,
    pub(crate) limit: Option<u32>,
    /// Whether anything may start now.
    pub(crate) is_open: bool,
}

impl JobAdmission<'_> {
    /// Fills the free slots.
    pub(crate) fn admit(&self, connection: &rusqlite::Connection) -> rusqlite::Result<Vec<JobId>> {
        let mut admitted = Vec::new();
        while self.is_open
            && let Some(id) = store::admit(connection, self.limit, self.starter)?
        {
            admitted.push(id);
        }
        Ok(admitted)
    }
}

/// Notes how a job ended, if that was not noted before. The caller holds the job's lock, or has seen its `exit.json`.
pub(crate) fn settle(
    data: &DataFolder,
    store: &mut Store,
    id: JobId,
    ending: &EndRecord,
    admission: &JobAdmission<'_>,
) -> Result<Settled, StoreError> {
    let Some(job) = store.read(|connection| store::get(connection, id))? else {
        // It was removed, or never accepted.
        return Ok(Settled { admitted: store.write(|transaction| admission.admit(transaction))? });
    };
    let mut record = job.record;
    remove_orders(data, &record);
    let is_found_again = record.status == JobState::Lost && ending.outcome != JobEnd::Lost;
    if record.status.is_final() && !is_found_again {
        return Ok(Settled { admitted: store.write(|transaction| admission.admit(transaction))? });
    }
    record.end(ending);
    // Held until the row is final, so that no other document comes in between.
    let _turn = match &record.patch {
        Some(_) if ending.outcome == JobEnd::Completed => Some(patch(data, store, &mut record)?),
        _ => None,
    };
    let admitted = store.write(|transaction| {
        store::finish(transaction, &record)?;
        admission.admit(transaction)
    })?;
    let folder = data.job(id);
    // A copy for people: it can be made again from the row. Where the folder is gone, or is none, nobody looks for it.
    if folder.is_there()
        && let Err(error) = folder.write_lightly(RECORD, &record)
    {
        tracing::warn!("{error}");
    }
    Ok(Settled { admitted })
}

/// Removes the command and its environment, which may be secret, however the job ended: nobody needs them after its end. Before the
/// row is final, so that whoever is killed here is followed by another who does it.
fn remove_orders(data: &DataFolder, record: &JobRecord) {
    let folder = data.job(record.job_id);
    if !folder.is_there() || !folder.has(LAUNCH) {
        return;
    }
    // Without record and orders a folder is no job's. The copy may not have been made yet, or not anew after a power failure.
    let removed = folder.write_if_missing(RECORD, record).and_then(|()| folder.remove_file(LAUNCH));
    if let Err(error) = removed {
        tracing::warn!("the command of job {} is still on the disk: {error}", record.job_id);
    }
}

/// Applies the result to the named state, and notes in the record what came of it.
fn patch(data: &DataFolder, store: &mut Store, record: &mut JobRecord) -> Result<DocumentTurn, StoreError> {
    let turn = Documents::of(data).turn()?;
    finish_patches(data, store, &turn)?;
    // The one before may have come as far as the document, and no further.
    let current = store.read(|connection| store::get(connection, record.job_id))?;
    let Some(current) = current else { return Ok(turn) };
    if current.record.state_applied.is_some() && stands("patch-applied-once") {
        record.state_applied = current.record.state_applied;
        record.state_reason = current.record.state_reason;
        return Ok(turn);
    }
    let mut open = record.clone();
    // One that was lost stays that until its row says otherwise.
    let was_lost = current.record.status == JobState::Lost;
    open.status = if was_lost { JobState::Lost } else { JobState::Running };
    open.ending = if was_lost { current.record.ending } else { None };
    store.write(|transaction| store::note_patch(transaction, &open, true))?;
    apply(data, &turn, record)?;
    Ok(turn)
}

/// Applies what writers that died on the way had begun.
pub(crate) fn finish_patches(
    data: &DataFolder,
    store: &mut Store,
    turn: &DocumentTurn,
) -> Result<usize, StoreError> {
    if !stands("patches-finished-first") {
        return Ok(0);
    }
    let begun = store.read(store::patching)?;
    for job in &begun {
        let mut record = job.record.clone();
        apply(data, turn, &mut record)?;
        store.write(|transaction| store::note_patch(transaction, &record, false))?;
    }
    Ok(begun.len())
}

/// Replaces the document, or says why not.
fn apply(data: &DataFolder, turn: &DocumentTurn, record: &mut JobRecord) -> Result<(), FileError> {
    let Some(patch) = &record.patch else { return Ok(()) };
    let outcome = match value(data, record) {
        Ok(value) => match turn.write(record.patched(), &patch.field, &value) {
            // It will not go away by itself, and nobody else shall wait for that.
            Err(error) if error.is_of_another_kind() => Some(error.to_string()),
            written => written.map(|()| None)?,
        },
        Err(reason) => Some(reason),
    };
    record.state_applied = Some(outcome.is_none());
    record.state_reason = outcome;
    Ok(())
}

/// What the document becomes, or why it stays.
fn value(data: &DataFolder, record: &JobRecord) -> Result<Value, String> {
    let patch = record.patch.as_ref().ok_or("no state field was agreed on")?;
    let name = record.results.as_deref().ok_or("no result file was agreed on")?;
    let result = read_result(data, record, name).map_err(|error| error.to_string())?;
    let result = result.ok_or_else(|| format!("{name} is not there any more"))?;
    match &patch.pointer {
        None => Ok(result),
        Some(pointer) => {
            let found = pointer.find(&result).cloned();
            found.ok_or_else(|| format!("the pointer `{pointer}` finds nothing in {name}"))
        }
    }
}

/// Reads a job's result; none where there is no file.
pub(crate) fn read_result(
    data: &DataFolder,
    record: &JobRecord,
    name: &str,
) -> Result<Option<Value>, FileError> {
    let work = data.job(record.job_id).work(record.format);
    let path = work.file(name);
    // The name came out of a file.
    FileName::new(name).map_err(|error| FileError::damaged(&path, error))?;
    let Some(bytes) = work.read(name, MAX_DOCUMENT)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| FileError::damaged(&path, error))
}

/// Writes down how a job ended, for good, unless that has been done. The caller holds the job's lock.
pub(crate) fn write_ending(data: &DataFolder, id: JobId, ending: &EndRecord) -> Result<EndRecord, FileError> {
    let folder = data.job(id);
    if stands("unfinished-files-removed") {
        folder.remove_unfinished();
    }
    let earlier = match folder.read::<EndRecord>(EXIT) {
        // Half an end is none, and what is no file has none in it.
        Err(FileError::Damaged { .. }) => folder.put_aside(EXIT).map(|()| None),
        read => read,
    };
    if stands("exit-written-once")
        && let Some(earlier) = earlier?
        // Whoever wrote that took the supervisor for dead, and it has seen the end.
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
    // A small job's folder was accepted before its own name was on the disk.
    sync(&data.jobs())?;
    Ok(ending.clone())
}

/// Replaces a document because somebody said so, and gives the time that it has from then on. The store is asked for when it is our turn, so that nobody waits for it meanwhile.
pub(crate) fn set_document<S: DerefMut<Target = Store>>(
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
