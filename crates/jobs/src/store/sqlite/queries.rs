//! The questions about jobs that the database answers.
//!
//! Invariant: nothing here changes a row.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::row::{self, COLUMNS, JobRow, select};
use crate::{
    id::JobId,
    record::JobState,
    room::Rules,
    store::{JobOwnerFilter, KeptAsAccepted, state_column},
    timestamp::JobTimestamp,
};

/// Returns the rules of the first job of the queue whose files exist; `None` if there is none.
pub(super) fn next_rules(connection: &Connection) -> rusqlite::Result<Option<Rules>> {
    let first = select(
        connection,
        "WHERE state = 'queued' AND 'without ' || id NOT IN (SELECT id FROM boots) ORDER BY sequence LIMIT 1",
        [],
    )?
    .pop();
    Ok(first.map(|job| job.record.rules))
}

/// Returns the jobs whose results were about to reach the named state when their writer died.
pub(super) fn patching(connection: &Connection) -> rusqlite::Result<Vec<JobRow>> {
    select(connection, "INDEXED BY jobs_patching WHERE is_patching ORDER BY sequence", [])
}

/// Returns a job; `None` if it does not exist.
pub(super) fn get(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRow>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1"))?;
    statement.query_row([id], row::read).optional()
}

/// Returns every job that has not ended, in the order of acceptance.
pub(super) fn open_jobs(connection: &Connection) -> rusqlite::Result<Vec<JobRow>> {
    select(connection, "INDEXED BY jobs_open WHERE state IN ('queued', 'active') ORDER BY sequence", [])
}

/// Returns the jobs that have changed since this revision, oldest change first.
pub(super) fn changed_since(connection: &Connection, revision: i64) -> rusqlite::Result<Vec<JobRow>> {
    select(connection, "WHERE revision > ?1 ORDER BY revision", [revision])
}

/// Returns the newest of these jobs, newest first. The table has one state for starting and running jobs.
pub(super) fn newest(
    connection: &Connection,
    state: Option<JobState>,
    whose: &JobOwnerFilter,
    limit: u32,
) -> rusqlite::Result<Vec<JobRow>> {
    let rest = match (state, whose) {
        (None, JobOwnerFilter::Anybodys) => "ORDER BY sequence DESC LIMIT ?3",
        (None, JobOwnerFilter::Of(_)) => "WHERE owner IS ?2 ORDER BY sequence DESC LIMIT ?3",
        (Some(_), JobOwnerFilter::Anybodys) => "WHERE state = ?1 ORDER BY sequence DESC LIMIT ?3",
        (Some(_), JobOwnerFilter::Of(_)) => {
            "WHERE state = ?1 AND owner IS ?2 ORDER BY sequence DESC LIMIT ?3"
        }
    };
    let owner = if let JobOwnerFilter::Of(owner) = whose { owner.as_deref() } else { None };
    select(connection, rest, params![state.map(state_column), owner, limit])
}

/// Returns the jobs that ended before `moment`, oldest first.
pub(super) fn ended_before(
    connection: &Connection,
    moment: JobTimestamp,
    kept: KeptAsAccepted,
    limit: u32,
) -> rusqlite::Result<Vec<JobRow>> {
    let bounded = |moment: JobTimestamp| i64::try_from(moment.millis()).unwrap_or(i64::MAX);
    // A retention without end is longer than any integer, and then a real number here.
    let rest = "WHERE completed_at IS NOT NULL AND completed_at < ?1
        AND (?2 OR completed_at + iif(json_valid(record), coalesce(json_extract(record, '$.rules.retention_ms'), 0), 0) < ?3)
        ORDER BY completed_at LIMIT ?4";
    select(
        connection,
        rest,
        params![bounded(moment), kept == KeptAsAccepted::No, bounded(JobTimestamp::now()), limit],
    )
}

/// Returns how many jobs there are.
pub(super) fn how_many(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
}

/// Returns the jobs whose records have an older format, and whether each has ended.
pub(super) fn of_older_format(connection: &Connection, format: u32) -> rusqlite::Result<Vec<(JobId, bool)>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, completed_at IS NOT NULL FROM jobs
         WHERE iif(json_valid(record), json_extract(record, '$.format'), NULL) < ?1",
    )?;
    let rows = statement.query_map([format], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
    let known = |row: (String, bool)| Some((row.0.parse().ok()?, row.1));
    rows.filter_map(|row| row.map(known).transpose()).collect()
}

/// Returns those of these jobs that do not exist.
pub(super) fn missing(connection: &Connection, ids: &[JobId]) -> rusqlite::Result<HashSet<JobId>> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?;
    let mut missing = HashSet::new();
    for id in ids {
        if !statement.exists([id])? {
            missing.insert(*id);
        }
    }
    Ok(missing)
}

/// Returns the last revision, and how many jobs were ever removed.
pub(super) fn counters(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let read = |name: &str| {
        connection
            .prepare_cached("SELECT value FROM counters WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
    };
    Ok((read("revision")?, read("removals")?))
}
