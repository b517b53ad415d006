//! The rows of the jobs, as they are read and written.
//!
//! Invariant: a record that cannot be read is passed over and reported if it is one of many.

use rusqlite::{Connection, Row, ToSql, types::ToSqlOutput};
use serde::{Deserialize, Serialize};

use crate::{
    id::JobId,
    record::ProcessRecord,
    store::{StoredJob, report_unreadable},
    timestamp::JobTimestamp,
};

/// The process that is to start a job's supervisor, and the time since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShimStarter {
    pub(crate) boot_id: String,
    pub(crate) process: ProcessRecord,
    pub(crate) since: JobTimestamp,
}

/// A job in this database. Its revision grows with every change of any job.
pub(crate) type JobRow = StoredJob<ShimStarter>;

pub(super) const COLUMNS: &str = "sequence, revision, state = 'active', starter, starts, record, id";

/// Reads a row with these columns.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let starter: Option<String> = row.get(3)?;
    let record: String = row.get(5)?;
    Ok(StoredJob {
        sequence: row.get(0)?,
        revision: row.get(1)?,
        is_active: row.get(2)?,
        claimant: starter.as_deref().map(from_json).transpose()?,
        claims: row.get(4)?,
        record: from_json(&record)?,
    })
}

fn from_json<'a, T: Deserialize<'a>>(text: &'a str) -> rusqlite::Result<T> {
    let text_type = rusqlite::types::Type::Text;
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, text_type, Box::new(error)))
}

pub(super) fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// Reads the rows that the rest of a query chooses.
pub(super) fn select(
    connection: &Connection,
    rest: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Vec<JobRow>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs {rest}"))?;
    let mut rows = statement.query(values)?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        match read(row) {
            // The row is one of many, and the others are not affected.
            Err(error @ rusqlite::Error::FromSqlConversionFailure(..)) => {
                report_unreadable(&row.get::<_, String>("id").unwrap_or_default(), &error);
            }
            read => jobs.push(read?),
        }
    }
    Ok(jobs)
}

impl ToSql for JobId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}
