//! The jobs in the tables of the database.
//!
//! Invariants
//!
//! - Every operation is one statement, or one that only reads besides. A repeated operation finds what the first try has done, but for a
//!   claim: that one is not repeated, and the worker looks for its token.
//! - The row of an active job has the token of its claim. Each write about the job names the token, so a former claimant changes nothing.
//! - The orders of a job go with its end.

use std::collections::HashSet;

use serde::de::Error as _;
use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};
use unhang_jobs::{
    id::JobId,
    record::{FORMAT, JobRecord, JobState},
    store::{
        JobEntry, JobOwnerFilter, JobStore, KeptAsAccepted, StoredJob, report_unreadable, state_column,
        state_of_column,
    },
    timestamp::JobTimestamp,
};

use crate::{
    address::StoreAddress,
    connection::{DatabaseConnection, Repetition},
    error::PostgresError,
    files::{PlacedFiles, gone},
    leases::{LeaseLengths, LeaseRequest},
    outputs::insert_file,
};

/// The columns that [`PostgresStore::read`] reads.
pub(crate) const COLUMNS: &str = "id, sequence, revision, state, worker, token, claims, record";
/// The longest retention that the tables hold, in milliseconds: more than a hundred million years.
const LONGEST_RETENTION: u64 = 1 << 62;

/// Inserts jobs, and returns the ids of those that nobody had.
const INSERT: &str =
    "INSERT INTO unhang.jobs (id, state, owner, retention_ms, record, orders, is_repeatable, max_attempts, labels,
        any_label)
     SELECT id, state, owner, retention_ms, record, orders, is_repeatable, max_attempts, labels::text[],
        any_label::text[]
     FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) WITH ORDINALITY
        AS job (id, state, owner, retention_ms, record, orders, is_repeatable, max_attempts, labels, any_label,
            place)
     ORDER BY place ON CONFLICT (id) DO NOTHING RETURNING id";

/// Notes the end of a job. `$1` is its id, `$2` to `$4` are state, record and time of the end, and `$5` is the token of its claimant, if it
/// has one. A lost job may still get another end.
pub(crate) const FINISH: &str = "UPDATE unhang.jobs
     SET state = $2, record = $3, completed_at = $4, orders = NULL, revision = revision + 1
     WHERE id = $1 AND token IS NOT DISTINCT FROM $5
        AND (state IN ('queued', 'active') OR state = 'lost' AND $2 <> 'lost')";

/// A connection to the store that many machines share. Its methods block, and must not run on a thread that drives asynchronous tasks.
#[derive(Debug)]
pub struct PostgresStore {
    pub(crate) connection: DatabaseConnection,
}

/// The claim of a worker on a job.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkerClaim {
    /// The worker, by a name that no other machine has.
    pub worker: String,
    /// A text that nobody can guess. Only its holder writes about the job.
    pub token: String,
}

/// Leaves out the token.
impl std::fmt::Debug for WorkerClaim {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WorkerClaim").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// The facts that a worker needs to run a job, besides its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedOrders {
    /// The labels that a worker must have to get the job.
    pub labels: Vec<String>,
    /// The labels of which a worker must have one to get the job, besides all of `labels`; empty if it needs none of them.
    pub any_label: Vec<String>,
    /// Whether the job may run again if its worker is lost.
    pub is_repeatable: bool,
    /// The most times that the job may be claimed.
    pub max_attempts: u32,
    /// The work, in words of those who submit and run it. The store does not look into it. Values of the environment do not belong here.
    pub work: String,
}

impl PostgresStore {
    /// Connects to the store. Makes its tables if they are missing, and brings older ones up to date.
    ///
    /// # Errors
    /// Fails if the database cannot be reached or refuses the user, or if its tables are those of a newer unhang that does not allow this
    /// one.
    pub fn open(address: StoreAddress) -> Result<Self, PostgresError> {
        Ok(Self { connection: DatabaseConnection::open(address)? })
    }

    pub(crate) fn rows(
        &mut self,
        doing: &'static str,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, PostgresError> {
        let work = async |client: &mut Client| client.query_typed(sql, values).await;
        self.connection.run(doing, Repetition::Allowed, &work)
    }

    /// Runs a statement, and returns whether it changed a row.
    pub(crate) fn changes(
        &mut self,
        doing: &'static str,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<bool, PostgresError> {
        let work = async |client: &mut Client| client.execute_typed(sql, values).await;
        Ok(self.connection.run(doing, Repetition::Allowed, &work)? > 0)
    }

    /// Reads a row with [`COLUMNS`].
    pub(crate) fn read(&self, row: &Row) -> Result<StoredJob<WorkerClaim>, PostgresError> {
        read(row).map_err(|error| PostgresError::UnknownRecord {
            store: self.connection.shown().to_owned(),
            detail: format!("that of job {}: {error}", row.get::<_, &str>("id")),
        })
    }

    /// Writes a record as JSON.
    pub(crate) fn to_json(&self, record: &JobRecord) -> Result<String, PostgresError> {
        serde_json::to_string(record).map_err(|error| PostgresError::Unstorable {
            store: self.connection.shown().to_owned(),
            id: record.job_id,
            detail: error.to_string(),
        })
    }

    /// Reads many jobs. One that cannot be read is reported and left out: the others are not affected.
    fn jobs(
        &mut self,
        doing: &'static str,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<StoredJob<WorkerClaim>>, PostgresError> {
        let rows = self.rows(doing, sql, values)?;
        let job = |row: &Row| read(row).inspect_err(|error| report_unreadable(row.get("id"), error)).ok();
        Ok(rows.iter().filter_map(job).collect())
    }

    /// Accepts a job with the files that are in the work's folder before it starts, all in one transaction. Returns false if another job has
    /// the id.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub(crate) fn accept_with_inputs(
        &mut self,
        job: JobEntry<'_, SharedOrders>,
        inputs: &PlacedFiles<'_>,
    ) -> Result<bool, PostgresError> {
        let record = job.record;
        let rows = JobRows::new(self, &[job])?;
        let work = async |client: &mut Client| {
            let transaction = client.transaction().await?;
            let inserted = transaction.query_typed(INSERT, &rows.values()).await?;
            let is_new = !inserted.is_empty();
            for (name, content) in inputs.pieces.iter().filter(|_| is_new) {
                insert_file(&transaction, record.job_id, 0, name, content).await?;
            }
            if is_new && !inputs.take_objects(&transaction, record.job_id, 0).await? {
                // Without a commit, nothing was done.
                return Ok(None);
            }
            transaction.commit().await?;
            Ok(Some(inserted.iter().map(|row| row.get(0)).collect()))
        };
        let inserted = self.connection.run("submitted a job", Repetition::Allowed, &work)?;
        let inserted = inserted.ok_or_else(|| gone(self))?;
        let accepted = self.accepted(&[JobEntry { record, orders: None }], &inserted)?;
        Ok(accepted.first() == Some(&true))
    }

    /// Returns those of these submissions that were accepted, now or before.
    fn accepted(
        &mut self,
        jobs: &[JobEntry<'_, SharedOrders>],
        inserted: &HashSet<String>,
    ) -> Result<Vec<bool>, PostgresError> {
        let is_known = |store: &mut Self, record: &JobRecord| match store.get(record.job_id)? {
            Some(job) => Ok(job.record.is_same_submission(record)),
            // It has ended and was removed meanwhile, and so was another job.
            None => Ok(false),
        };
        jobs.iter()
            .map(|job| Ok(inserted.contains(job.record.job_id.as_str()) || is_known(self, job.record)?))
            .collect()
    }
}

/// The rows of jobs that are about to be accepted, column by column.
struct JobRows<'a> {
    ids: Vec<&'a str>,
    states: Vec<&'a str>,
    owners: Vec<Option<&'a str>>,
    retentions: Vec<i64>,
    records: Vec<String>,
    work: Vec<&'a str>,
    are_repeatable: Vec<bool>,
    attempts: Vec<i32>,
    /// An array of arrays must not have rows of different lengths, so the labels are texts.
    labels: Vec<String>,
    any_label: Vec<Option<String>>,
}

impl<'a> JobRows<'a> {
    fn new(store: &PostgresStore, jobs: &[JobEntry<'a, SharedOrders>]) -> Result<Self, PostgresError> {
        let mut rows = JobRows {
            ids: Vec::new(),
            states: Vec::new(),
            owners: Vec::new(),
            retentions: Vec::new(),
            records: Vec::new(),
            work: Vec::new(),
            are_repeatable: Vec::new(),
            attempts: Vec::new(),
            labels: Vec::new(),
            any_label: Vec::new(),
        };
        for JobEntry { record, orders } in jobs {
            rows.ids.push(record.job_id.as_str());
            rows.states.push(state_column(record.status));
            rows.owners.push(record.owner.as_deref());
            rows.retentions.push(retention(record));
            rows.records.push(store.to_json(record)?);
            rows.work.push(orders.map_or("", |orders| &orders.work));
            rows.are_repeatable.push(orders.is_some_and(|orders| orders.is_repeatable));
            let attempts = orders.map_or(0, |orders| orders.max_attempts);
            rows.attempts.push(i32::try_from(attempts).unwrap_or(i32::MAX));
            rows.labels.push(array(orders.map_or(&[], |orders| &orders.labels)));
            let any_label = orders.map_or(&[][..], |orders| &orders.any_label);
            rows.any_label.push((!any_label.is_empty()).then(|| array(any_label)));
        }
        Ok(rows)
    }

    /// Returns the values of [`INSERT`].
    fn values(&self) -> [(&(dyn ToSql + Sync), Type); 10] {
        [
            (&self.ids, Type::TEXT_ARRAY),
            (&self.states, Type::TEXT_ARRAY),
            (&self.owners, Type::TEXT_ARRAY),
            (&self.retentions, Type::INT8_ARRAY),
            (&self.records, Type::TEXT_ARRAY),
            (&self.work, Type::TEXT_ARRAY),
            (&self.are_repeatable, Type::BOOL_ARRAY),
            (&self.attempts, Type::INT4_ARRAY),
            (&self.labels, Type::TEXT_ARRAY),
            (&self.any_label, Type::TEXT_ARRAY),
        ]
    }
}

impl JobStore for PostgresStore {
    type Claimant = WorkerClaim;
    type Orders = SharedOrders;
    type Error = PostgresError;

    fn accept(&mut self, jobs: &[JobEntry<'_, SharedOrders>]) -> Result<Vec<bool>, PostgresError> {
        let rows = JobRows::new(self, jobs)?;
        let inserted = self.rows("submitted a job", INSERT, &rows.values())?;
        self.accepted(jobs, &inserted.iter().map(|row| row.get(0)).collect())
    }

    /// Gives out jobs without labels, with the usual leases.
    fn claim(&mut self, claimant: &WorkerClaim, limit: Option<u32>) -> Result<Option<JobId>, PostgresError> {
        let lengths = LeaseLengths::default();
        let claimed = self.lease(&LeaseRequest { claimant, labels: &[], limit, lengths })?;
        Ok(claimed.map(|claimed| claimed.job.record.job_id))
    }

    fn finish(&mut self, record: &JobRecord, claimant: Option<&WorkerClaim>) -> Result<bool, PostgresError> {
        self.changes(
            "noted the end of a job",
            FINISH,
            &[
                (&record.job_id.as_str(), Type::TEXT),
                (&state_column(record.status), Type::TEXT),
                (&self.to_json(record)?, Type::TEXT),
                (&completed_at(record), Type::INT8),
                (&claimant.map(|claimant| claimant.token.as_str()), Type::TEXT),
            ],
        )
    }

    fn get(&mut self, id: JobId) -> Result<Option<StoredJob<WorkerClaim>>, PostgresError> {
        let sql = format!("SELECT {COLUMNS} FROM unhang.jobs WHERE id = $1");
        let rows = self.rows("looked for a job", &sql, &[(&id.as_str(), Type::TEXT)])?;
        rows.first().map(|row| self.read(row)).transpose()
    }

    fn newest(
        &mut self,
        state: Option<JobState>,
        whose: &JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<StoredJob<WorkerClaim>>, PostgresError> {
        let (is_anybodys, owner) = match whose {
            JobOwnerFilter::Anybodys => (true, None),
            JobOwnerFilter::Of(owner) => (false, owner.as_deref()),
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM unhang.jobs
             WHERE ($1::text IS NULL OR state = $1) AND ($2 OR owner IS NOT DISTINCT FROM $3)
             ORDER BY sequence DESC LIMIT $4"
        );
        self.jobs(
            "listed jobs",
            &sql,
            &[
                (&state.map(state_column), Type::TEXT),
                (&is_anybodys, Type::BOOL),
                (&owner, Type::TEXT),
                (&i64::from(limit), Type::INT8),
            ],
        )
    }

    fn ended_before(
        &mut self,
        moment: JobTimestamp,
        kept: KeptAsAccepted,
        limit: u32,
    ) -> Result<Vec<StoredJob<WorkerClaim>>, PostgresError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM unhang.jobs
             WHERE completed_at IS NOT NULL AND completed_at < $1
                AND ($2 OR completed_at::numeric + retention_ms < extract(epoch FROM clock_timestamp()) * 1000)
             ORDER BY completed_at, sequence LIMIT $3"
        );
        self.jobs(
            "looked for ended jobs",
            &sql,
            &[
                (&unix_millis(moment), Type::INT8),
                (&(kept == KeptAsAccepted::No), Type::BOOL),
                (&i64::from(limit), Type::INT8),
            ],
        )
    }

    fn counts(&mut self) -> Result<Vec<(JobState, u64)>, PostgresError> {
        let rows =
            self.rows("counted jobs", "SELECT state, count(*) FROM unhang.jobs GROUP BY state", &[])?;
        let count = |row: &Row| {
            let (state, count): (&str, i64) = (row.get(0), row.get(1));
            (state_of_column(state), u64::try_from(count).unwrap_or_default())
        };
        Ok(rows.iter().map(count).collect())
    }

    fn remove(&mut self, id: JobId) -> Result<bool, PostgresError> {
        self.changes(
            "removed a job",
            "DELETE FROM unhang.jobs WHERE id = $1 AND state NOT IN ('queued', 'active')",
            &[(&id.as_str(), Type::TEXT)],
        )
    }
}

/// Reads a row with [`COLUMNS`].
///
/// # Errors
/// Fails if the record is not JSON of a known form, or not that of the row's job.
pub(crate) fn read(row: &Row) -> Result<StoredJob<WorkerClaim>, serde_json::Error> {
    let (state, record): (&str, &str) = (row.get(3), row.get(7));
    let is_active = state == state_column(JobState::Running);
    // The token of a job that has ended stays in its row, for the worker that finds a lost end.
    let claim: (Option<String>, Option<String>) = (row.get(4), row.get(5));
    let claimant = claim.0.zip(claim.1).filter(|_| is_active);
    let record: JobRecord = serde_json::from_str(record)?;
    if record.job_id.as_str() != row.get::<_, &str>(0) {
        return Err(serde_json::Error::custom(format!("it is the record of job {}", record.job_id)));
    }
    if record.format > FORMAT {
        return Err(serde_json::Error::custom(format!("its format {} is of a newer unhang", record.format)));
    }
    Ok(StoredJob {
        sequence: row.get(1),
        revision: row.get(2),
        is_active,
        claimant: claimant.map(|(worker, token)| WorkerClaim { worker, token }),
        claims: u32::try_from(row.get::<_, i32>(6)).unwrap_or_default(),
        record,
    })
}

/// Returns the time of the end of a job, in milliseconds since 1970; `None` if it has not ended.
pub(crate) fn completed_at(record: &JobRecord) -> Option<i64> {
    record.ending.as_ref().map(|ending| unix_millis(ending.completed_at))
}

/// Returns a time in milliseconds since 1970.
pub(crate) fn unix_millis(moment: JobTimestamp) -> i64 {
    i64::try_from(moment.millis()).unwrap_or(i64::MAX)
}

/// Returns the retention with which a job was accepted, in milliseconds.
pub(crate) fn retention(record: &JobRecord) -> i64 {
    let told = record.rules.retention_ms.unwrap_or_default().min(LONGEST_RETENTION);
    i64::try_from(told).unwrap_or(i64::MAX)
}

/// Writes texts as an array of the database.
fn array(texts: &[String]) -> String {
    let quoted = texts.iter().map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}
