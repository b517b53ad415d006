//! Leases: a worker has a job for as long as its heartbeats arrive.
//!
//! Theory of operation. A claim gives a job to a worker with a token, and a lease that ends at a time of the database's clock. Each heartbeat
//! prolongs the lease and counts. When the lease is over, a sweeper may give a repeatable job back to the queue, or end any other job as
//! lost ([`LeaseSweeper`](crate::LeaseSweeper) says when).
//!
//! Invariants
//!
//! - The database's clock decides when a lease is over. No time of a worker or sweeper enters a row.
//! - What is written about a leased job names its token and demands that the job is active. A worker that lost its lease writes nothing.
//! - A job that is not repeatable is never queued again.

use std::time::Duration;

use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};
use unhang_jobs::{
    id::JobId,
    record::JobRecord,
    store::{StoredJob, state_column},
};

use crate::{
    connection::Repetition,
    error::PostgresError,
    store::{COLUMNS, PostgresStore, WorkerClaim, completed_at},
};

/// The length of a lease, unless a setting says otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The longest pause before a job of a lost worker may run again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// The wish of a worker for the next job.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'a> {
    /// The worker, and a token that it has drawn for this request. If the outcome is open, the worker looks for the token.
    pub claimant: &'a WorkerClaim,
    /// The labels of the worker. It gets jobs that demand no other label.
    pub labels: &'a [String],
    /// The most jobs that the worker may have at the same time. Only one connection of a worker asks at a time.
    pub limit: Option<u32>,
    /// The time until the lease is over, unless a heartbeat comes before.
    pub lease: Duration,
}

/// A job that a worker has got.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    /// The job.
    pub job: StoredJob<WorkerClaim>,
    /// The work, as [`SharedOrders::work`](crate::SharedOrders::work) has it.
    pub work: String,
}

/// The answer to the heartbeat of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRenewal {
    /// The job. A job without an answer is not the worker's any more.
    pub id: JobId,
    /// Whether somebody wants the job to be cancelled.
    pub is_cancel_wanted: bool,
}

/// A job whose lease is over by the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredLease {
    /// The job.
    pub id: JobId,
    /// The worker that was silent.
    pub worker: String,
    /// The token of the lease.
    pub token: String,
    /// The number of the last heartbeat.
    pub heartbeat: i64,
    /// The time since that heartbeat, by the database's clock.
    pub silent_for: Duration,
    /// Whether the job may run again: it is repeatable, and was not claimed too often.
    pub may_run_again: bool,
    /// The number of times that the job was claimed.
    pub claims: u32,
}

impl PostgresStore {
    /// Gives the first job of the queue that this worker may run to it, with a lease. Returns `None` if there is none.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write. After [`PostgresError::Unreachable`] and [`PostgresError::TimedOut`] the worker
    /// looks for its token with [`Self::leased`].
    pub fn lease(&mut self, request: &LeaseRequest<'_>) -> Result<Option<LeasedJob>, PostgresError> {
        let sql = format!(
            "UPDATE unhang.jobs
             SET state = 'active', worker = $1, token = $2, claims = claims + 1, revision = revision + 1,
                heartbeat = 0, heard_at = clock_timestamp(), lease_until = clock_timestamp() + $5 * interval '1 ms'
             WHERE sequence = (SELECT unhang.next_job($4)
                WHERE (SELECT count(*) FROM unhang.jobs WHERE state = 'active' AND worker = $1) < $3)
             RETURNING {COLUMNS}, orders"
        );
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&request.claimant.worker, Type::TEXT),
            (&request.claimant.token, Type::TEXT),
            (&request.limit.map_or(i64::MAX, i64::from), Type::INT8),
            (&request.labels, Type::TEXT_ARRAY),
            (&millis(request.lease), Type::FLOAT8),
        ];
        let work = async |client: &mut Client| client.query_typed(&sql, &values).await;
        let rows = self.connection.run("asked for a job", Repetition::Forbidden, &work)?;
        rows.first().map(|row| self.leased_job(row)).transpose()
    }

    /// Returns the active jobs of this worker: those that it got without learning it, and those of an earlier process of the worker.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn leased(&mut self, worker: &str) -> Result<Vec<LeasedJob>, PostgresError> {
        let sql = format!("SELECT {COLUMNS}, orders FROM unhang.jobs WHERE state = 'active' AND worker = $1");
        let rows = self.rows("looked for the jobs of a worker", &sql, &[(&worker, Type::TEXT)])?;
        rows.iter().map(|row| self.leased_job(row)).collect()
    }

    fn leased_job(&self, row: &Row) -> Result<LeasedJob, PostgresError> {
        let work: Option<String> = row.get("orders");
        Ok(LeasedJob { job: self.read(row)?, work: work.unwrap_or_default() })
    }

    /// Prolongs the leases of these jobs, each with its token. Returns those that are still the worker's.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write. No lease counts as prolonged then.
    pub fn renew(
        &mut self,
        jobs: &[(JobId, &str)],
        lease: Duration,
    ) -> Result<Vec<LeaseRenewal>, PostgresError> {
        let ids: Vec<&str> = jobs.iter().map(|(id, _)| id.as_str()).collect();
        let tokens: Vec<&str> = jobs.iter().map(|(_, token)| *token).collect();
        let rows = self.rows(
            "sent a heartbeat",
            "UPDATE unhang.jobs AS job
             SET heartbeat = heartbeat + 1, heard_at = clock_timestamp(),
                lease_until = clock_timestamp() + $3 * interval '1 ms'
             FROM unnest($1, $2) AS held (id, token)
             WHERE job.id = held.id AND job.token = held.token AND job.state = 'active'
             RETURNING job.id, job.is_cancel_wanted",
            &[(&ids, Type::TEXT_ARRAY), (&tokens, Type::TEXT_ARRAY), (&millis(lease), Type::FLOAT8)],
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

    /// Returns the jobs whose lease is over by the database's clock, the longest silence first, at most `limit`.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    pub fn expired(&mut self, limit: u32) -> Result<Vec<ExpiredLease>, PostgresError> {
        let rows = self.rows(
            "looked for lost workers",
            "SELECT id, worker, token, heartbeat, claims, is_repeatable AND claims < max_attempts,
                (extract(epoch FROM clock_timestamp() - heard_at) * 1000)::bigint
             FROM unhang.jobs WHERE state = 'active' AND lease_until < clock_timestamp()
             ORDER BY lease_until LIMIT $1",
            &[(&i64::from(limit), Type::INT8)],
        )?;
        let expired = |row: &Row| {
            Some(ExpiredLease {
                id: row.get::<_, &str>(0).parse().ok()?,
                worker: row.get(1),
                token: row.get(2),
                heartbeat: row.get(3),
                claims: u32::try_from(row.get::<_, i32>(4)).unwrap_or_default(),
                may_run_again: row.get(5),
                silent_for: Duration::from_millis(u64::try_from(row.get::<_, i64>(6)).unwrap_or_default()),
            })
        };
        Ok(rows.iter().filter_map(expired).collect())
    }

    /// Puts a repeatable job of a lost worker back into the queue, after a pause that doubles with each claim. Returns false if a heartbeat or
    /// an end came in between.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn queue_again(&mut self, lease: &ExpiredLease) -> Result<bool, PostgresError> {
        let pause = Duration::from_secs(1 << lease.claims.min(16)).min(LONGEST_PAUSE);
        self.changes(
            "queued the job of a lost worker again",
            "UPDATE unhang.jobs
             SET state = 'queued', worker = NULL, token = NULL, lease_until = NULL, revision = revision + 1,
                not_before = clock_timestamp() + $4 * interval '1 ms'
             WHERE id = $1 AND token = $2 AND heartbeat = $3 AND state = 'active'
                AND lease_until < clock_timestamp() AND is_repeatable AND claims < max_attempts",
            &[
                (&lease.id.as_str(), Type::TEXT),
                (&lease.token, Type::TEXT),
                (&lease.heartbeat, Type::INT8),
                (&millis(pause), Type::FLOAT8),
            ],
        )
    }

    /// Ends a job of a lost worker with this record. Returns false if a heartbeat or an end came in between. The worker may still find the
    /// true end.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn end_lost(&mut self, lease: &ExpiredLease, record: &JobRecord) -> Result<bool, PostgresError> {
        self.changes(
            "ended the job of a lost worker",
            "UPDATE unhang.jobs
             SET state = $4, record = $5, completed_at = $6, revision = revision + 1
             WHERE id = $1 AND token = $2 AND heartbeat = $3 AND state = 'active'
                AND lease_until < clock_timestamp()",
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

/// Returns a length for `interval '1 ms'`. Lengths of leases have no more than milliseconds.
fn millis(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}
