//! The changes of jobs: each is made in the caller's transaction, and gives the row a new revision.
//!
//! Invariants
//!
//! - A slot is taken and given back by the change of the state itself.
//! - A final state stays as it is, but for `lost` if the true end is found after all.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    files,
    row::{ShimStarter, to_json},
};
use crate::{id::JobId, launch::LaunchFiles, record::JobRecord, store::state_column};

/// Adds a job to the end of the queue, with the files that it needs to start if they may not be on the disk. Returns false if its id is
/// taken.
pub(super) fn insert(
    connection: &Connection,
    record: &JobRecord,
    files: Option<&LaunchFiles>,
) -> rusqlite::Result<bool> {
    let added = connection
        .prepare_cached(
            "INSERT INTO jobs (id, state, revision, max_concurrent, completed_at, record, is_call, owner)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            record.job_id,
            state_column(record.status),
            next_revision(connection)?,
            record.rules.max_concurrent,
            completed_at(record),
            to_json(record)?,
            record.call.is_some(),
            record.owner,
        ])?;
    if let Some(files) = files
        && added == 1
    {
        files::keep(connection, files)?;
    }
    Ok(added == 1)
}

fn completed_at(record: &JobRecord) -> Option<i64> {
    record.ending.as_ref().and_then(|ending| i64::try_from(ending.completed_at.millis()).ok())
}

fn next_revision(connection: &Connection) -> rusqlite::Result<i64> {
    count_up(connection, "revision")
}

pub(super) fn count_up(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("UPDATE counters SET value = value + 1 WHERE name = ?1 RETURNING value")?
        .query_row([name], |row| row.get(0))
}

/// Gives a slot to the first job of the queue if there is one and a slot is free. `limit` is that of a server; a supervisor goes by the
/// limit that the job brought with it.
pub(super) fn admit(
    connection: &Connection,
    limit: Option<u32>,
    starter: &ShimStarter,
) -> rusqlite::Result<Option<JobId>> {
    if !files::are_of(connection, &starter.boot_id)? {
        return Ok(None);
    }
    let first = connection
        .prepare_cached(
            "SELECT id, max_concurrent FROM jobs
             WHERE state = 'queued' AND 'without ' || id NOT IN (SELECT id FROM boots) ORDER BY sequence LIMIT 1",
        )?
        .query_row([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)))
        .optional()?;
    let Some((id, own_limit)) = first else { return Ok(None) };
    let (running, strictest): (u32, Option<u32>) = connection
        .prepare_cached(
            "SELECT count(*), min(max_concurrent) FROM jobs WHERE state = 'active' AND NOT is_call",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // Several processes may have different limits here: the strictest holds, and the limits with which the jobs were accepted count too.
    let limits = [limit, Some(own_limit), strictest];
    let limit = limits.into_iter().flatten().min().unwrap_or(own_limit);
    if running >= limit {
        return Ok(None);
    }
    let Ok(id) = id.parse() else { return Ok(None) };
    connection
        .prepare_cached(
            "UPDATE jobs SET state = 'active', starter = ?2, starts = starts + 1, revision = ?3 WHERE id = ?1",
        )?
        .execute(params![id, to_json(starter)?, next_revision(connection)?])?;
    Ok(Some(id))
}

/// Makes `starter` the starter of the supervisor of a job with a slot. Returns false if another process did so meanwhile.
pub(super) fn take_over(
    connection: &Connection,
    id: JobId,
    seen: Option<&ShimStarter>,
    starter: &ShimStarter,
) -> rusqlite::Result<bool> {
    let seen = seen.map(to_json).transpose()?;
    let changed = connection
        .prepare_cached(
            "UPDATE jobs SET starter = ?2, starts = starts + 1, revision = ?3
             WHERE id = ?1 AND state = 'active' AND starter IS ?4",
        )?
        .execute(params![id, to_json(starter)?, next_revision(connection)?, seen])?;
    Ok(changed == 1)
}

/// Brings a job to its final state. Returns false if it has one already, or does not exist.
pub(super) fn finish(connection: &Connection, record: &JobRecord) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE jobs SET state = ?2, record = ?3, completed_at = ?4, revision = ?5, starter = NULL, is_patching = 0
             WHERE id = ?1 AND (state IN ('queued', 'active') OR state = 'lost' AND ?2 <> 'lost')",
        )?
        .execute(params![
            record.job_id,
            state_column(record.status),
            to_json(record)?,
            completed_at(record),
            next_revision(connection)?,
        ])?;
    files::forget(connection, record.job_id)?;
    Ok(changed == 1)
}

/// Notes that the result of this job is about to reach the named state, or that it has (or could not), as the record says.
pub(super) fn note_patch(
    connection: &Connection,
    record: &JobRecord,
    is_patching: bool,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE jobs SET record = ?2, is_patching = ?3, revision = ?4 WHERE id = ?1")?
        .execute(params![record.job_id, to_json(record)?, is_patching, next_revision(connection)?])?;
    Ok(())
}

/// Notes the holder of a call and its ticket. Returns false if the call has ended.
pub(super) fn note_call(connection: &Connection, record: &JobRecord) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached("UPDATE jobs SET record = ?2, revision = ?3 WHERE id = ?1 AND state = 'active'")?
        .execute(params![record.job_id, to_json(record)?, next_revision(connection)?])?;
    Ok(changed == 1)
}

/// Removes a job that has ended. Returns false if it has not ended, or does not exist.
pub(super) fn remove(connection: &Connection, id: JobId) -> rusqlite::Result<bool> {
    let mut sql = String::from("DELETE FROM jobs WHERE id = ?1");
    sql.push_str(" AND state NOT IN ('queued', 'active')");
    let removed = connection.prepare_cached(&sql)?.execute([id])?;
    if removed == 1 {
        count_up(connection, "removals")?;
    }
    Ok(removed == 1)
}
