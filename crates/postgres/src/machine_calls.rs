//! Calls of servers that became jobs of one machine, in the tables of all machines.
//!
//! Theory of operation. Such a call runs already, and stays on its machine. So its row is active from the beginning: it has the token and the
//! lease that the row of a claimed job has, and everything that is written about it later is written as for such a job.
//!
//! Invariants
//!
//! - A call is never in the queue, and no worker claims it. It is not repeatable, so no sweeper queues it either.
//! - A repeated insertion changes nothing.

use std::time::Duration;

use tokio_postgres::types::Type;
use unhang_jobs::record::JobRecord;

use crate::{
    error::PostgresError,
    leases::millis,
    store::{PostgresStore, WorkerClaim, retention, unix_millis},
};

/// The calls of machines, in a store.
#[derive(Debug)]
pub struct MachineCalls<'a>(pub &'a mut PostgresStore);

impl MachineCalls<'_> {
    /// Inserts a call that its machine works on. `claimant` is the machine with the token that it has drawn for the call, and `lease` the time
    /// from a heartbeat until the lease is over. Returns false if another job has the id.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    pub fn insert(
        &mut self,
        record: &JobRecord,
        claimant: &WorkerClaim,
        lease: Duration,
    ) -> Result<bool, PostgresError> {
        let Self(store) = self;
        let text = store.to_json(record)?;
        let is_new = store.changes(
            "noted a slow call",
            "INSERT INTO unhang.jobs (id, state, owner, retention_ms, record, is_repeatable, max_attempts, labels, claims,
                worker, token, heard_at, lease_ms, lease_until, started_at)
             VALUES ($1, 'active', $2, $3, $4, false, 1, '{}', 1, $5, $6, clock_timestamp(), $7,
                clock_timestamp() + $7 * interval '1 ms', $8)
             ON CONFLICT (id) DO NOTHING",
            &[
                (&record.job_id.as_str(), Type::TEXT),
                (&record.owner, Type::TEXT),
                (&retention(record), Type::INT8),
                (&text, Type::TEXT),
                (&claimant.worker, Type::TEXT),
                (&claimant.token, Type::TEXT),
                (&millis(lease), Type::FLOAT8),
                (&record.started_at.map(unix_millis), Type::INT8),
            ],
        )?;
        if is_new {
            return Ok(true);
        }
        let known = store.rows(
            "looked for a slow call",
            "SELECT FROM unhang.jobs WHERE id = $1 AND token = $2",
            &[(&record.job_id.as_str(), Type::TEXT), (&claimant.token, Type::TEXT)],
        )?;
        Ok(!known.is_empty())
    }
}
