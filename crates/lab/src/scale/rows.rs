//! Jobs for measurements of the store alone, in the shape that `unhang job run` gives them.

use unhang::{
    jobs::{
        id::JobId,
        record::{EndRecord, JobEnd, JobRecord},
        store::{JobEntry, JobStore as _},
    },
    postgres::{LeaseLengths, LeaseRequest, PostgresStore, SharedOrders, WorkerClaim},
};

use super::{failure::ScaleFailure, sql::SqlClient, stage::ScaleStage};

/// The arguments of a job, in bytes.
const ARGUMENTS: usize = 1024;

/// A job that was really submitted, of which others are made.
pub(super) struct JobTemplate {
    record: JobRecord,
    pub(super) orders: SharedOrders,
}

impl JobTemplate {
    /// Submits a job with `unhang job run` to a stage without workers, and takes its row away again.
    pub(super) fn take(stage: &ScaleStage) -> Result<Self, ScaleFailure> {
        let id = JobId::random().map_err(ScaleFailure::of("draw an id"))?;
        let script = format!("exit 0 # {}", "x".repeat(ARGUMENTS));
        if !stage.submit(id, &[], &["sh", "-c", &script])? {
            return Err(ScaleFailure::new("a job was not accepted"));
        }
        let job = stage.store()?.get(id).map_err(ScaleFailure::of("look at a job"))?;
        let record = job.ok_or_else(|| ScaleFailure::new("an accepted job is unknown"))?.record;
        let sql = SqlClient::connect(&stage.database.url())?;
        let rows = sql.rows("DELETE FROM unhang.jobs RETURNING labels, max_attempts, orders", &[])?;
        let row = rows.first().ok_or_else(|| ScaleFailure::new("an accepted job has no row"))?;
        let orders = SharedOrders {
            labels: row.get(0),
            any_label: Vec::new(),
            is_repeatable: false,
            max_attempts: u32::try_from(row.get::<_, i32>(1)).unwrap_or_default(),
            work: row.get::<_, Option<String>>(2).unwrap_or_default(),
        };
        Ok(Self { record, orders })
    }

    /// Makes the record of another job.
    pub(super) fn record(&self) -> Result<JobRecord, ScaleFailure> {
        let job_id = JobId::random().map_err(ScaleFailure::of("draw an id"))?;
        Ok(JobRecord { job_id, ..self.record.clone() })
    }

    /// Has the store accept a job with this record.
    pub(super) fn accept(&self, store: &mut PostgresStore, record: &JobRecord) -> Result<(), ScaleFailure> {
        let accepted = store.accept(&[JobEntry { record, orders: Some(&self.orders) }]);
        match accepted.map_err(ScaleFailure::of("submit a job"))?.first() {
            Some(true) => Ok(()),
            _ => Err(ScaleFailure::new("a job was not accepted")),
        }
    }

    /// Claims the next job for a worker. Returns its record, or `None` if there is no job.
    pub(super) fn claim(
        &self,
        store: &mut PostgresStore,
        claimant: &WorkerClaim,
    ) -> Result<Option<JobRecord>, ScaleFailure> {
        let request = LeaseRequest {
            claimant,
            labels: &self.orders.labels,
            limit: Some(1_000),
            lengths: LeaseLengths::default(),
        };
        let leased = store.lease(&request).map_err(ScaleFailure::of("claim a job"))?;
        Ok(leased.map(|leased| leased.job.record))
    }

    /// Makes so many rows like that of one new job that waits.
    pub(super) fn fill_queue(
        &self,
        store: &mut PostgresStore,
        sql: &SqlClient,
        count: u64,
    ) -> Result<(), ScaleFailure> {
        let record = self.record()?;
        self.accept(store, &record)?;
        multiply(sql, record.job_id, count)
    }

    /// Makes so many rows like that of one new job that has ended.
    pub(super) fn fill_finished(
        &self,
        store: &mut PostgresStore,
        sql: &SqlClient,
        count: u64,
    ) -> Result<(), ScaleFailure> {
        let record = self.record()?;
        self.accept(store, &record)?;
        self.finish_next(store)?;
        multiply(sql, record.job_id, count)
    }

    /// Claims the next job and ends it.
    pub(super) fn finish_next(&self, store: &mut PostgresStore) -> Result<(), ScaleFailure> {
        let claimant = claimant("worker", "token");
        let record =
            self.claim(store, &claimant)?.ok_or_else(|| ScaleFailure::new("there is no job to claim"))?;
        finish(store, record, &claimant)
    }
}

/// Ends a job well.
pub(super) fn finish(
    store: &mut PostgresStore,
    mut record: JobRecord,
    claimant: &WorkerClaim,
) -> Result<(), ScaleFailure> {
    record.end(&EndRecord { exit_code: Some(0), ..EndRecord::without_run(JobEnd::Completed) });
    match store.finish(&record, Some(claimant)).map_err(ScaleFailure::of("end a job"))? {
        true => Ok(()),
        false => Err(ScaleFailure::new("the end of a job was not taken")),
    }
}

/// Returns a claim with this name and token.
pub(super) fn claimant(worker: &str, token: &str) -> WorkerClaim {
    WorkerClaim { worker: worker.to_owned(), token: token.to_owned() }
}

/// Makes rows like that of a job, with ids of their own.
fn multiply(sql: &SqlClient, id: JobId, count: u64) -> Result<(), ScaleFailure> {
    let columns =
        "state, revision, owner, labels, is_repeatable, max_attempts, claims, worker, token, heartbeat,
        heard_at, lease_ms, lease_until, started_at, completed_at, retention_ms, orders";
    // An id has 12 of 32 letters. The digits of a hash stand for 16 of them.
    sql.execute(&format!(
        "INSERT INTO unhang.jobs (id, record, {columns})
         SELECT made.id, replace(record, '{id}', made.id), {columns}
         FROM unhang.jobs AS job, (
            SELECT translate(substr(md5('{id}' || number), 1, 12), '0189', 'wxyz') AS id
            FROM generate_series(1, {count}) AS number
         ) AS made
         WHERE job.id = '{id}' ON CONFLICT (id) DO NOTHING"
    ))
}
