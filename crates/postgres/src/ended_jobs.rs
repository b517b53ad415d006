//! Jobs that ended in a data folder, for the store.
//!
//! Invariant: a job comes with its logs and files in one transaction, so that no reader sees a part of it.

use tokio_postgres::{
    Client, Transaction,
    types::{ToSql, Type},
};
use unhang_jobs::{
    shared_jobs::EndedJob,
    store::{JobStore as _, state_column},
    timestamp::JobTimestamp,
};

use crate::{
    connection::Repetition,
    error::PostgresError,
    files::{PlacedFiles, gone},
    outputs::{BLOCK, blocks, insert_file, number, signed},
    store::{PostgresStore, completed_at, retention, unix_millis},
};

/// The attempt under which the store keeps logs and files of a job that has run elsewhere.
pub(crate) const ATTEMPT: i32 = 1;

/// The number of places for the jobs of one millisecond. A time of this century leaves room for as many.
const PLACES: i64 = 1 << 21;

/// Returns the place of a job that ended elsewhere, before all jobs of the store: by the time of its submission. The last digits keep two of the same
/// moment apart.
fn sequence(submitted: JobTimestamp) -> i64 {
    let random = i64::from(getrandom::u32().unwrap_or_default()) % PLACES;
    (unix_millis(submitted).saturating_mul(PLACES) + random).saturating_add(i64::MIN)
}

const INSERT: &str =
    "INSERT INTO unhang.jobs (sequence, id, state, owner, retention_ms, record, labels, is_repeatable,
        max_attempts, claims, started_at, completed_at)
     OVERRIDING SYSTEM VALUE VALUES ($9, $1, $2, $3, $4, $5, '{}', false, 1, $6, $7, $8)
     ON CONFLICT (id) DO NOTHING RETURNING sequence";

/// The store, as it takes ended jobs.
#[derive(Debug)]
pub(crate) struct EndedJobs<'a>(pub(crate) &'a mut PostgresStore);

impl EndedJobs<'_> {
    /// Takes a job, whose large files are in their places already. Returns false if another job has the id, or the same job with another end.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub(crate) fn take(&mut self, job: &EndedJob, files: &PlacedFiles<'_>) -> Result<bool, PostgresError> {
        let record = &job.record;
        let json = self.0.to_json(record)?;
        let work = async |client: &mut Client| {
            let transaction = client.transaction().await?;
            let values: [(&(dyn ToSql + Sync), Type); 9] = [
                (&record.job_id.as_str(), Type::TEXT),
                (&state_column(record.status), Type::TEXT),
                (&record.owner, Type::TEXT),
                (&retention(record), Type::INT8),
                (&json, Type::TEXT),
                (&ATTEMPT, Type::INT4),
                (&record.started_at.map(unix_millis), Type::INT8),
                (&completed_at(record), Type::INT8),
                (&sequence(record.created_at), Type::INT8),
            ];
            let inserted = transaction.query_typed(INSERT, &values).await?;
            let Some(row) = inserted.first() else { return Ok(Some(false)) };
            add_outputs(&transaction, row.get(0), job, files).await?;
            if !files.take_objects(&transaction, record.job_id, ATTEMPT.unsigned_abs()).await? {
                // Without a commit, nothing was done.
                return Ok(None);
            }
            transaction.commit().await?;
            Ok(Some(true))
        };
        let taken = self.0.connection.run("took an ended job", Repetition::Allowed, &work)?;
        if taken.ok_or_else(|| gone(self.0))? {
            return Ok(true);
        }
        let known = self.0.get(record.job_id)?.map(|job| job.record);
        Ok(known.is_some_and(|known| known.is_same_submission(record) && known.status == record.status))
    }
}

/// Adds logs and files to a job that the transaction has inserted.
async fn add_outputs(
    transaction: &Transaction<'_>,
    sequence: i64,
    job: &EndedJob,
    files: &PlacedFiles<'_>,
) -> Result<(), tokio_postgres::Error> {
    let log = "INSERT INTO unhang.log_blocks AS known (job, attempt, stream, block, first, bytes)
         SELECT $1, $2, $3, block, first, bytes FROM unnest($4, $5, $6) AS page (block, first, bytes)
         ON CONFLICT (job, attempt, stream, block) DO UPDATE SET bytes = known.bytes || excluded.bytes";
    for (stream, page) in &job.logs {
        let blocks = blocks(page.offset, &page.text);
        let numbers: Vec<i64> = blocks.iter().map(|(first, _)| signed(first / BLOCK)).collect();
        let firsts: Vec<i64> = blocks.iter().map(|(first, _)| signed(*first)).collect();
        let bytes: Vec<&[u8]> = blocks.iter().map(|(_, bytes)| *bytes).collect();
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&sequence, Type::INT8),
            (&ATTEMPT, Type::INT4),
            (&number(*stream), Type::INT2),
            (&numbers, Type::INT8_ARRAY),
            (&firsts, Type::INT8_ARRAY),
            (&bytes, Type::BYTEA_ARRAY),
        ];
        transaction.execute_typed(log, &values).await?;
    }
    for (name, content) in &files.pieces {
        insert_file(transaction, job.record.job_id, ATTEMPT, name, content).await?;
    }
    Ok(())
}
