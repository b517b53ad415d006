//! Leases: a worker has a job for as long as its heartbeats arrive.
//!
//! Theory of operation. A claim gives a job to a worker with a token, and a lease that ends at a time of the database's clock. Each heartbeat
//! prolongs the lease and counts. When the lease is over, a sweeper may give a repeatable job back to the queue, or end any other job as
//! lost ([`LeaseSweeper`](crate::LeaseSweeper) says when).
//!
//! Invariants
//!
//! - The database's clock decides when a lease is over, unless it was set back. No time of a worker or sweeper enters a row, but as something
//!   that people read.
//! - What is written about a leased job names its token and demands that the job is active. A worker that lost its lease writes nothing.
//! - A job that is not repeatable is never queued again.

use std::time::Duration;

use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};
use unhang_jobs::{
    id::JobId,
    progress::JobProgress,
    record::JobRecord,
    store::{StoredJob, report_unreadable, state_column},
    timestamp::JobTimestamp,
};

use crate::{
    connection::Repetition,
    error::PostgresError,
    store::{COLUMNS, PostgresStore, WorkerClaim, completed_at, read, unix_millis},
};

/// The longest pause before a job of a lost worker may run again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// The most jobs that one claim puts aside because their records cannot be read.
const MOST_UNREADABLE: u32 = 100;

/// The share of its lease after which a worker without a heartbeat counts as silent. Heartbeats come six times in a lease.
pub(crate) const SILENT_SHARE: u32 = 3;

/// The lengths of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLengths {
    /// The lease of a job that may run again.
    pub repeatable: Duration,
    /// The lease of any other job. It is long, so that an outage of the database ends no such job.
    pub others: Duration,
}

impl Default for LeaseLengths {
    fn default() -> Self {
        Self { repeatable: Duration::from_secs(30), others: Duration::from_secs(10 * 60) }
    }
}

/// The wish of a worker for the next job.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'a> {
    /// The worker, and a token that it has drawn for this request. If the outcome is open, the worker looks for the token.
    pub claimant: &'a WorkerClaim,
    /// The labels of the worker. It gets jobs that demand no other label, and one of these if they demand one of several.
    pub labels: &'a [String],
    /// The most jobs that the worker may have at the same time. Only one connection of a worker asks at a time.
    pub limit: Option<u32>,
    /// The times until the lease is over, unless a heartbeat comes before.
    pub lengths: LeaseLengths,
}

/// A job that a worker has got.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    /// The job.
    pub job: StoredJob<WorkerClaim>,
    /// The work, as [`SharedOrders::work`](crate::SharedOrders::work) has it.
    pub work: String,
    /// The time from a heartbeat until the lease is over.
    pub length: Duration,
    /// Whether some of its inputs are in an object store.
    pub has_large_inputs: bool,
}

/// The heartbeat of a job.
#[derive(Clone, Copy, Debug)]
pub struct JobHeartbeat<'a> {
    /// The job.
    pub id: JobId,
    /// The token of its lease.
    pub token: &'a str,
    /// The time when the work began, by the worker's clock, which people read; `None` if it has not begun.
    pub started_at: Option<JobTimestamp>,
    /// The progress that the job has told last.
    pub progress: Option<&'a JobProgress>,
}

/// The answer to the heartbeat of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRenewal {
    /// The job. A job without an answer is not the worker's any more.
    pub id: JobId,
    /// Whether somebody wants the job to be cancelled.
    pub is_cancel_wanted: bool,
}

/// The lease of a worker that is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentLease {
    /// The job.
    pub id: JobId,
    /// The worker that is silent.
    pub worker: String,
    /// The token of the lease.
    pub token: String,
    /// The number of the last heartbeat.
    pub heartbeat: i64,
    /// The time from a heartbeat until the lease is over.
    pub length: Duration,
    /// Whether the lease is over by the database's clock.
    pub is_over: bool,
    /// The time since the last heartbeat, by the database's clock.
    pub silent_for: Duration,
    /// Whether the job may run again: it is repeatable, was not claimed too often, and nobody wants it to be cancelled.
    pub may_run_again: bool,
    /// Whether somebody wants the job to be cancelled, and its work is dead by now: a repeatable job does not outlive its lease.
    pub is_cancelled: bool,
    /// The number of times that the job was claimed.
    pub claims: u32,
    /// The time when the work began, as the worker told it.
    pub started_at: Option<JobTimestamp>,
}

/// The lease of a row is over. A lease that ends later than a whole lease from now does not tell when it ends: the clock of the database was
/// set back since. Then the clock of the sweeper decides alone, which has seen no heartbeat for a whole lease either.
const IS_OVER: &str = "(lease_until < clock_timestamp()
    OR lease_until > clock_timestamp() + lease_ms * interval '1 ms')";

/// The columns that a worker needs besides those of the job. A claim answers all of them, so it needs no further question.
const LEASED_COLUMNS: &str = "orders, lease_ms, EXISTS (
        SELECT FROM unhang.artifacts AS object
        WHERE object.job = jobs.sequence AND object.attempt = 0 AND object.state = 'written'
    ) AS has_large_inputs";

/// Puts a job back into the queue, with a pause of `$3` milliseconds.
const QUEUE_AGAIN: &str = "UPDATE unhang.jobs
    SET state = 'queued', worker = NULL, token = NULL, lease_until = NULL, started_at = NULL, progress = NULL,
        progress_message = NULL, trouble = NULL, revision = revision + 1,
        not_before = clock_timestamp() + $3 * interval '1 ms'
    WHERE id = $1 AND token = $2 AND state = 'active' AND is_repeatable AND claims < max_attempts
        AND NOT is_cancel_wanted";

impl PostgresStore {
    /// Gives the first job of the queue that this worker may run to it, with a lease. Returns `None` if there is none.
    ///
    /// A job whose record cannot be read, as one of a newer unhang, is reported and goes back to the queue for five minutes. It keeps
    /// no other job waiting.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write. After [`PostgresError::Unreachable`] and [`PostgresError::TimedOut`] the worker
    /// looks for its token with [`Self::leased`].
    pub fn lease(&mut self, request: &LeaseRequest<'_>) -> Result<Option<LeasedJob>, PostgresError> {
        for _ in 0..MOST_UNREADABLE {
            let Some(row) = self.lease_row(request)? else { return Ok(None) };
            match read(&row) {
                Ok(job) => return Ok(Some(leased_job(&row, job))),
                Err(error) => {
                    report_unreadable(row.get("id"), &error);
                    self.put_aside(row.get("sequence"), &request.claimant.token)?;
                }
            }
        }
        Ok(None)
    }

    /// Gives the first row of the queue that this worker may run to it.
    fn lease_row(&mut self, request: &LeaseRequest<'_>) -> Result<Option<Row>, PostgresError> {
        let sql = format!(
            "UPDATE unhang.jobs
             SET state = 'active', worker = $1, token = $2, claims = claims + 1, revision = revision + 1,
                heartbeat = 0, heard_at = clock_timestamp(), trouble = NULL,
                lease_ms = CASE WHEN is_repeatable THEN $5 ELSE $6 END,
                lease_until = clock_timestamp() + CASE WHEN is_repeatable THEN $5 ELSE $6 END * interval '1 ms'
             WHERE sequence = (SELECT unhang.next_job($4)
                WHERE (SELECT count(*) FROM unhang.jobs WHERE state = 'active' AND worker = $1) < $3
                    AND NOT EXISTS (SELECT FROM unhang.workers WHERE name = $1 AND is_drain_wanted))
             RETURNING {COLUMNS}, {LEASED_COLUMNS}"
        );
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&request.claimant.worker, Type::TEXT),
            (&request.claimant.token, Type::TEXT),
            (&request.limit.map_or(i64::MAX, i64::from), Type::INT8),
            (&request.labels, Type::TEXT_ARRAY),
            (&millis(request.lengths.repeatable), Type::FLOAT8),
            (&millis(request.lengths.others), Type::FLOAT8),
        ];
        let work = async |client: &mut Client| client.query_typed(&sql, &values).await;
        let mut rows = self.connection.run("asked for a job", Repetition::Forbidden, &work)?;
        Ok(rows.pop())
    }

    /// Puts a job back into the queue whose record this unhang cannot read, with the longest pause. The claim does not count.
    fn put_aside(&mut self, sequence: i64, token: &str) -> Result<bool, PostgresError> {
        self.changes(
            "put a job aside",
            "UPDATE unhang.jobs
             SET state = 'queued', worker = NULL, token = NULL, lease_until = NULL, claims = claims - 1,
                revision = revision + 1, not_before = clock_timestamp() + $3 * interval '1 ms'
             WHERE sequence = $1 AND token = $2 AND state = 'active'",
            &[(&sequence, Type::INT8), (&token, Type::TEXT), (&millis(LONGEST_PAUSE), Type::FLOAT8)],
        )
    }

    /// Puts a job back into the queue that this worker cannot begin for now, with a pause and the reason for people. The claim does not count.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn put_back_for(
        &mut self,
        id: JobId,
        token: &str,
        pause: Duration,
        trouble: &str,
    ) -> Result<bool, PostgresError> {
        self.changes(
            "put a job back",
            "UPDATE unhang.jobs
             SET state = 'queued', worker = NULL, token = NULL, lease_until = NULL, claims = claims - 1,
                revision = revision + 1, not_before = clock_timestamp() + $3 * interval '1 ms', trouble = $4
             WHERE id = $1 AND token = $2 AND state = 'active'",
            &[
                (&id.as_str(), Type::TEXT),
                (&token, Type::TEXT),
                (&millis(pause), Type::FLOAT8),
                (&trouble, Type::TEXT),
            ],
        )
    }

    /// Notes why the end of a job has not arrived yet, for people; `None` if nothing is in its way any more. Returns false if the job is not
    /// the worker's any more.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn note_trouble(
        &mut self,
        id: JobId,
        token: &str,
        trouble: Option<&str>,
    ) -> Result<bool, PostgresError> {
        self.changes(
            "noted trouble",
            "UPDATE unhang.jobs SET trouble = $3, revision = revision + 1
             WHERE id = $1 AND token = $2 AND state IN ('active', 'lost')",
            &[(&id.as_str(), Type::TEXT), (&token, Type::TEXT), (&trouble, Type::TEXT)],
        )
    }

    /// Returns the active jobs of this worker: those that it got without learning it, and those of an earlier process of the worker.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn leased(&mut self, worker: &str) -> Result<Vec<LeasedJob>, PostgresError> {
        let sql = format!(
            "SELECT {COLUMNS}, {LEASED_COLUMNS} FROM unhang.jobs WHERE state = 'active' AND worker = $1"
        );
        let rows = self.rows("looked for the jobs of a worker", &sql, &[(&worker, Type::TEXT)])?;
        // One that cannot be read ends with its lease; the others go on.
        let known = |row: &Row| {
            let job = read(row).inspect_err(|error| report_unreadable(row.get("id"), error)).ok()?;
            Some(leased_job(row, job))
        };
        Ok(rows.iter().filter_map(known).collect())
    }

    /// Prolongs the leases of these jobs. Returns those that are still the worker's.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write. No lease counts as prolonged then.
    pub fn renew(&mut self, jobs: &[JobHeartbeat<'_>]) -> Result<Vec<LeaseRenewal>, PostgresError> {
        let ids: Vec<&str> = jobs.iter().map(|job| job.id.as_str()).collect();
        let tokens: Vec<&str> = jobs.iter().map(|job| job.token).collect();
        let starts: Vec<Option<i64>> = jobs.iter().map(|job| job.started_at.map(unix_millis)).collect();
        let fractions: Vec<Option<f64>> =
            jobs.iter().map(|job| job.progress.and_then(|progress| progress.fraction)).collect();
        let messages: Vec<Option<&str>> =
            jobs.iter().map(|job| job.progress.and_then(|progress| progress.message.as_deref())).collect();
        let rows = self.rows(
            "sent a heartbeat",
            "UPDATE unhang.jobs AS job
             SET heartbeat = heartbeat + 1, heard_at = clock_timestamp(),
                lease_until = clock_timestamp() + lease_ms * interval '1 ms',
                started_at = held.started_at, progress = held.progress, progress_message = held.message
             FROM unnest($1, $2, $3, $4, $5) AS held (id, token, started_at, progress, message)
             WHERE job.id = held.id AND job.token = held.token AND job.state = 'active'
             RETURNING job.id, job.is_cancel_wanted",
            &[
                (&ids, Type::TEXT_ARRAY),
                (&tokens, Type::TEXT_ARRAY),
                (&starts, Type::INT8_ARRAY),
                (&fractions, Type::FLOAT8_ARRAY),
                (&messages, Type::TEXT_ARRAY),
            ],
        )?;
        let renewal = |row: &Row| {
            let id = row.get::<_, &str>(0).parse().ok()?;
            Some(LeaseRenewal { id, is_cancel_wanted: row.get(1) })
        };
        Ok(rows.iter().filter_map(renewal).collect())
    }

    /// Notes that somebody wants an active job to be cancelled. Its worker learns it with the next heartbeat. Returns false if no such job is
    /// active.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn want_cancel(&mut self, id: JobId) -> Result<bool, PostgresError> {
        self.changes(
            "cancelled a job",
            "UPDATE unhang.jobs SET is_cancel_wanted = true, revision = revision + 1
             WHERE id = $1 AND state = 'active'",
            &[(&id.as_str(), Type::TEXT)],
        )
    }

    /// Returns the leases of workers that have missed heartbeats, the longest silence first, at most `limit`.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn silent(&mut self, limit: u32) -> Result<Vec<SilentLease>, PostgresError> {
        let rows = self.rows(
            "looked for lost workers",
            &format!(
                "SELECT id, worker, token, heartbeat, claims,
                    is_repeatable AND claims < max_attempts AND NOT is_cancel_wanted,
                    (extract(epoch FROM clock_timestamp() - heard_at) * 1000)::float8,
                    lease_ms, {IS_OVER}, is_repeatable AND is_cancel_wanted, started_at
                 FROM unhang.jobs
                 WHERE state = 'active' AND (heard_at + lease_ms / $2 * interval '1 ms' < clock_timestamp()
                    OR heard_at > clock_timestamp())
                 ORDER BY heard_at LIMIT $1"
            ),
            &[(&i64::from(limit), Type::INT8), (&f64::from(SILENT_SHARE), Type::FLOAT8)],
        )?;
        let silent = |row: &Row| {
            Some(SilentLease {
                id: row.get::<_, &str>(0).parse().ok()?,
                worker: row.get(1),
                token: row.get(2),
                heartbeat: row.get(3),
                claims: u32::try_from(row.get::<_, i32>(4)).unwrap_or_default(),
                may_run_again: row.get(5),
                silent_for: length(row.get(6)),
                length: length(row.get(7)),
                is_over: row.get(8),
                is_cancelled: row.get(9),
                started_at: row.get::<_, Option<i64>>(10).and_then(of_unix_millis),
            })
        };
        Ok(rows.iter().filter_map(silent).collect())
    }

    /// Puts a repeatable job of a lost worker back into the queue, after a pause that doubles with each claim. Returns false if a heartbeat or
    /// an end came in between.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn queue_again(&mut self, lease: &SilentLease) -> Result<bool, PostgresError> {
        self.changes(
            "queued the job of a lost worker again",
            &format!("{QUEUE_AGAIN} AND heartbeat = $4 AND {IS_OVER}"),
            &[
                (&lease.id.as_str(), Type::TEXT),
                (&lease.token, Type::TEXT),
                (&pause(lease.claims), Type::FLOAT8),
                (&lease.heartbeat, Type::INT8),
            ],
        )
    }

    /// Puts a repeatable job back into the queue whose work does not run any more, as its worker knows. Returns false if the job is not the
    /// worker's any more, or may not run again.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn give_back(&mut self, id: JobId, token: &str, claims: u32) -> Result<bool, PostgresError> {
        self.changes(
            "gave a job back",
            QUEUE_AGAIN,
            &[(&id.as_str(), Type::TEXT), (&token, Type::TEXT), (&pause(claims), Type::FLOAT8)],
        )
    }

    /// Puts a job back into the queue whose work has not begun, as its worker knows. The claim does not count. Returns false if the job is
    /// not the worker's any more.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn put_back(&mut self, id: JobId, token: &str) -> Result<bool, PostgresError> {
        self.changes(
            "put a job back",
            "UPDATE unhang.jobs
             SET state = 'queued', worker = NULL, token = NULL, lease_until = NULL, claims = claims - 1,
                revision = revision + 1
             WHERE id = $1 AND token = $2 AND state = 'active'",
            &[(&id.as_str(), Type::TEXT), (&token, Type::TEXT)],
        )
    }

    /// Ends a job of a lost worker as lost whose record this unhang cannot read. The record stays as it is.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn end_unreadable(&mut self, lease: &SilentLease) -> Result<bool, PostgresError> {
        self.changes(
            "ended the job of a lost worker",
            &format!(
                "UPDATE unhang.jobs
                 SET state = 'lost', revision = revision + 1,
                    completed_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
                 WHERE id = $1 AND token = $2 AND heartbeat = $3 AND state = 'active' AND {IS_OVER}"
            ),
            &[(&lease.id.as_str(), Type::TEXT), (&lease.token, Type::TEXT), (&lease.heartbeat, Type::INT8)],
        )
    }

    /// Ends a job of a lost worker with this record. Returns false if a heartbeat or an end came in between. The worker may still find the
    /// true end.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn end_lost(&mut self, lease: &SilentLease, record: &JobRecord) -> Result<bool, PostgresError> {
        self.changes(
            "ended the job of a lost worker",
            &format!(
                "UPDATE unhang.jobs
                 SET state = $4, record = $5, completed_at = $6, revision = revision + 1
                 WHERE id = $1 AND token = $2 AND heartbeat = $3 AND state = 'active' AND {IS_OVER}"
            ),
            &[
                (&lease.id.as_str(), Type::TEXT),
                (&lease.token, Type::TEXT),
                (&lease.heartbeat, Type::INT8),
                (&state_column(record.status), Type::TEXT),
                (&self.to_json(record)?, Type::TEXT),
                (&completed_at(record), Type::INT8),
            ],
        )
    }
}

/// Makes the job of a row with its orders and its lease.
fn leased_job(row: &Row, job: StoredJob<WorkerClaim>) -> LeasedJob {
    let work: Option<String> = row.get("orders");
    LeasedJob {
        job,
        work: work.unwrap_or_default(),
        length: length(row.get("lease_ms")),
        has_large_inputs: row.get("has_large_inputs"),
    }
}

/// Returns the pause before the next claim of a job, in milliseconds.
fn pause(claims: u32) -> f64 {
    millis(Duration::from_secs(1 << claims.min(16)).min(LONGEST_PAUSE))
}

/// Returns the time of so many milliseconds since 1970; `None` for a time before that.
pub(crate) fn of_unix_millis(millis: i64) -> Option<JobTimestamp> {
    u64::try_from(millis).ok().map(JobTimestamp::from_millis)
}

/// Returns a length for `interval '1 ms'`. Lengths of leases have no more than milliseconds.
pub(crate) fn millis(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}

/// Returns the length of so many milliseconds; zero for a negative number, as after a step of the database's clock.
pub(crate) fn length(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1000.0).unwrap_or_default()
}
