//! The store for engines: [`SharedJobs`] over a few connections.
//!
//! Invariant: a hint to the workers follows what it is about, and delays no caller.

use std::{sync::Arc, time::Duration};

use tokio_postgres::{Row, types::Type};
use unhang_jobs::{
    document::DocumentEntry,
    error::JobError,
    id::JobId,
    log::{LogPage, LogStream},
    progress::JobProgress,
    record::{EndRecord, JobEnd, JobState},
    shared_function::pattern_of_label,
    shared_jobs::{DocumentName, EndedJob, SharedDocument, SharedJob, SharedJobs, WorkerSummary},
    shared_work::COMMAND_LABEL,
    status::{JobStatus, SharedSight},
    store::{JobEntry, JobOwnerFilter, JobStore as _, KeptAsAccepted, report_unreadable, state_column},
    timestamp::JobTimestamp,
};

use crate::{
    address::StoreAddress,
    connection_pool::ConnectionPool,
    documents::{DocumentChange, StateDocuments},
    ended_jobs::{ATTEMPT, EndedJobs},
    error::PostgresError,
    files::{self, SharedFiles},
    hints::{HintSender, StoreHint},
    leases::{SILENT_SHARE, length, of_unix_millis},
    store::{COLUMNS, PostgresStore, SharedOrders, read},
    workers::{KnownWorker, WorkerList},
};

/// The most jobs before a queued one that are counted.
const MOST_BEFORE: i64 = 10_000;

/// The longest silence of a worker that nobody is told of, however long the lease.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// The columns of a status, besides those of the job.
const STATUS_COLUMNS: &str = "started_at, trouble, progress, progress_message, labels, any_label, lease_ms,
    (extract(epoch FROM clock_timestamp() - heard_at) * 1000)::float8 AS silent_ms,
    CASE WHEN state = 'queued' THEN (
        SELECT count(*) FROM (
            SELECT FROM unhang.jobs AS earlier
            WHERE earlier.state = 'queued' AND earlier.sequence < job.sequence LIMIT $1
        ) AS earlier
    ) END AS before,
    CASE WHEN state = 'queued' THEN EXISTS (
        SELECT FROM unhang.workers AS worker WHERE worker.labels @> job.labels AND NOT is_drain_wanted
            AND (job.any_label IS NULL OR worker.labels && job.any_label)
            AND worker.heard_at + silent_after_ms * interval '1 ms' > clock_timestamp()
    ) END AS has_worker,
    CASE WHEN state = 'queued' THEN ARRAY (
        SELECT label FROM unnest(job.labels) AS label WHERE NOT EXISTS (
            SELECT FROM unhang.workers AS worker WHERE label = ANY (worker.labels) AND NOT is_drain_wanted
                AND worker.heard_at + silent_after_ms * interval '1 ms' > clock_timestamp()
        )
    ) END AS missing_labels,
    CASE WHEN state = 'queued' THEN any_label IS NOT NULL AND NOT EXISTS (
        SELECT FROM unhang.workers AS worker WHERE worker.labels && job.any_label AND NOT is_drain_wanted
            AND worker.heard_at + silent_after_ms * interval '1 ms' > clock_timestamp()
    ) END AS misses_any_label";

/// The store of many machines for an engine.
#[derive(Debug)]
pub struct PostgresJobs {
    connections: Arc<ConnectionPool>,
    files: SharedFiles,
    hints: HintSender,
}

impl PostgresJobs {
    /// Makes the store at this address. It connects with the first operation.
    #[must_use]
    pub fn new(address: StoreAddress) -> Self {
        Self {
            connections: Arc::new(ConnectionPool::new(address)),
            files: SharedFiles::default(),
            hints: HintSender::default(),
        }
    }

    /// Puts files by these rules.
    #[must_use]
    pub fn with_files(self, files: SharedFiles) -> Self {
        Self { files, ..self }
    }

    fn hint(&self, hint: StoreHint) {
        self.hints.send(hint, &self.connections);
    }

    fn ask<T>(
        &self,
        work: impl FnOnce(&mut PostgresStore) -> Result<T, PostgresError>,
    ) -> Result<T, JobError> {
        self.connections.run(work).map_err(|error| JobError::Shared { message: error.to_string() })
    }
}

impl SharedJobs for PostgresJobs {
    fn submit(&self, job: &SharedJob) -> Result<bool, JobError> {
        let id = job.record.job_id;
        let mut labels: Vec<String> =
            job.placement.labels.iter().cloned().chain(job.work.own_label()).collect();
        let submitted = self.connections.run(|store| {
            // The object store comes first: a job that is accepted has its inputs.
            let inputs = self.files.place_all(store, (id, 0), &job.inputs)?;
            // Only a worker with the same object store can begin the job.
            labels.extend(self.files.label().filter(|_| !inputs.objects.is_empty()));
            let orders = SharedOrders {
                labels,
                any_label: job.work.any_label(),
                is_repeatable: job.placement.is_repeatable,
                max_attempts: job.placement.max_attempts,
                work: job.work.to_text(),
            };
            let entry = JobEntry { record: &job.record, orders: Some(&orders) };
            match job.inputs.is_empty() {
                true => Ok(store.accept(&[entry])?.first() == Some(&true)),
                false => store.accept_with_inputs(entry, &inputs),
            }
        });
        if submitted.is_ok() {
            self.hint(StoreHint::Job);
        }
        submitted.map_err(|error| match error.may_be_done() {
            true => JobError::SharedUncertain { id, message: error.to_string() },
            false => JobError::Shared { message: format!("nothing was accepted: {error}") },
        })
    }

    fn status(&self, id: JobId) -> Result<Option<JobStatus>, JobError> {
        let sql = format!("SELECT {COLUMNS}, {STATUS_COLUMNS} FROM unhang.jobs AS job WHERE id = $2");
        let rows = self.ask(|store| {
            let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                [(&MOST_BEFORE, Type::INT8), (&id.as_str(), Type::TEXT)];
            let rows = store.rows("looked at a job", &sql, &values)?;
            rows.first().map(|row| Ok((store.read(row)?.record, row.clone()))).transpose()
        })?;
        Ok(rows.map(|(record, row)| status(record, &row)))
    }

    fn newest(
        &self,
        state: Option<JobState>,
        whose: &JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<JobStatus>, JobError> {
        let (is_anybodys, owner) = match whose {
            JobOwnerFilter::Anybodys => (true, None),
            JobOwnerFilter::Of(owner) => (false, owner.as_deref()),
        };
        let sql = format!(
            "SELECT {COLUMNS}, {STATUS_COLUMNS} FROM unhang.jobs AS job
             WHERE ($2::text IS NULL OR state = $2) AND ($3 OR owner IS NOT DISTINCT FROM $4)
             ORDER BY sequence DESC LIMIT $5"
        );
        let rows = self.ask(|store| {
            store.rows(
                "listed jobs",
                &sql,
                &[
                    (&MOST_BEFORE, Type::INT8),
                    (&state.map(state_column), Type::TEXT),
                    (&is_anybodys, Type::BOOL),
                    (&owner, Type::TEXT),
                    (&i64::from(limit), Type::INT8),
                ],
            )
        })?;
        let known = |row: &Row| match read(row) {
            Ok(job) => Some(status(job.record, row)),
            Err(error) => {
                report_unreadable(row.get("id"), &error);
                None
            }
        };
        Ok(rows.iter().filter_map(known).collect())
    }

    fn cancel(&self, id: JobId) -> Result<(), JobError> {
        self.ask(|store| {
            // A worker may claim the job in between, so the two ways are tried in turn.
            loop {
                if store.want_cancel(id)? {
                    return Ok(());
                }
                let Some(job) = store.get(id)? else { return Ok(()) };
                if job.record.status.is_final() {
                    return Ok(());
                }
                let mut record = job.record;
                record.end(&EndRecord::without_run(JobEnd::Cancelled));
                if store.finish(&record, None)? {
                    return Ok(());
                }
            }
        })?;
        self.hint(StoreHint::Cancel);
        Ok(())
    }

    fn log_page(
        &self,
        id: JobId,
        stream: LogStream,
        offset: u64,
        max_bytes: usize,
        has_ended: bool,
    ) -> Result<LogPage<Vec<u8>>, JobError> {
        self.ask(|store| store.log_page(id, stream, offset, max_bytes, has_ended))
    }

    fn log_end(&self, id: JobId, stream: LogStream) -> Result<u64, JobError> {
        Ok(self.ask(|store| store.log_extent(id, stream))?.end)
    }

    fn file(&self, id: JobId, name: &str) -> Result<Option<Vec<u8>>, JobError> {
        self.ask(|store| self.files.file(store, id, name))
    }

    fn ended_before(
        &self,
        moment: JobTimestamp,
        kept: KeptAsAccepted,
        limit: u32,
    ) -> Result<Vec<JobId>, JobError> {
        let old = self.ask(|store| store.ended_before(moment, kept, limit))?;
        Ok(old.into_iter().map(|job| job.record.job_id).collect())
    }

    fn remove(&self, id: JobId) -> Result<bool, JobError> {
        self.ask(|store| self.files.remove(store, id))
    }

    fn counts(&self) -> Result<Vec<(JobState, u64)>, JobError> {
        self.ask(PostgresStore::counts)
    }

    fn take(&self, job: &EndedJob) -> Result<bool, JobError> {
        self.ask(|store| {
            let id = (job.record.job_id, ATTEMPT.unsigned_abs());
            let files = self.files.place_all(store, id, &job.files)?;
            EndedJobs(store).take(job, &files)
        })
    }

    fn documents(&self, names: &[DocumentName]) -> Result<Vec<Option<SharedDocument>>, JobError> {
        self.ask(|store| StateDocuments(store).get(names))
    }

    fn set_document(&self, name: &DocumentName, text: &str) -> Result<JobTimestamp, JobError> {
        let change = DocumentChange { name: name.clone(), text: text.to_owned() };
        let set_at = self.ask(|store| StateDocuments(store).set(&change))?;
        // The clock of the database is before 1970 otherwise.
        Ok(set_at.unwrap_or_else(|| JobTimestamp::from_millis(0)))
    }

    fn list_documents(&self, owner: Option<&str>) -> Result<Vec<DocumentEntry>, JobError> {
        self.ask(|store| StateDocuments(store).list(owner))
    }

    fn workers(&self) -> Result<Vec<WorkerSummary>, JobError> {
        let workers = self.ask(|store| WorkerList(store).all())?;
        Ok(workers.iter().map(KnownWorker::summary).collect())
    }
}

/// Makes the status of a job from its row with [`STATUS_COLUMNS`].
fn status(mut record: unhang_jobs::record::JobRecord, row: &Row) -> JobStatus {
    let state: &str = row.get("state");
    let worker: Option<String> = row.get("worker");
    let is_active = state == state_column(JobState::Running);
    let mut sight = SharedSight { worker, silent_for: None };
    let mut wait_reason = None;
    if is_active {
        let started_at: Option<i64> = row.get("started_at");
        record.status = if started_at.is_some() { JobState::Running } else { JobState::Starting };
        record.started_at = started_at.and_then(of_unix_millis);
        let silent_for = length(row.get::<_, Option<f64>>("silent_ms").unwrap_or_default());
        let lease = length(row.get::<_, Option<f64>>("lease_ms").unwrap_or_default());
        if silent_for > (lease / SILENT_SHARE).min(LONGEST_SILENCE) {
            sight.silent_for = Some(silent_for);
            let (worker, silent) = (sight.worker.as_deref().unwrap_or_default(), silent_for.as_secs());
            wait_reason = Some(match &record.call {
                Some(_) => format!("no unhang process of its machine {worker} has told of it for {silent} s"),
                None => format!("its worker {worker} has been silent for {silent} s"),
            });
        }
    }
    if row.get::<_, Option<bool>>("has_worker") == Some(false) {
        // Each label may be that of some worker, and no worker have all of them.
        let mut missing: Vec<String> = row.get("missing_labels");
        let any_label: Option<Vec<String>> = row.get("any_label");
        // The last one names the module itself.
        let of_module = any_label.and_then(|mut labels| labels.pop());
        if row.get::<_, Option<bool>>("misses_any_label") == Some(true) {
            missing.extend(of_module.clone());
        }
        if missing.is_empty() {
            missing = row.get("labels");
            missing.extend(of_module);
        }
        wait_reason = Some(no_worker(&missing));
    }
    if !record.status.is_final() || record.status == JobState::Lost {
        let trouble = row.get::<_, Option<String>>("trouble");
        wait_reason = wait_reason.or(trouble);
    }
    let progress = is_active.then(|| {
        JobProgress { fraction: row.get("progress"), message: row.get("progress_message") }.bounded()
    });
    JobStatus {
        queue_position: row
            .get::<_, Option<i64>>("before")
            .map(|before| u32::try_from(before).unwrap_or(u32::MAX)),
        progress: progress.filter(|progress| progress.fraction.is_some() || progress.message.is_some()),
        wait_reason,
        shared: Some(sight),
        record,
    }
}

/// Says that no worker can run a job with these labels, and what to do.
fn no_worker(labels: &[String]) -> String {
    let (own, told): (Vec<&String>, Vec<&String>) = labels.iter().partition(|label| label.contains(':'));
    let mut demands: Vec<String> = own
        .into_iter()
        .map(|label| match (pattern_of_label(label), label.rsplit_once(":tool:"), files::of_label(label)) {
            (Some(module), ..) => {
                format!("allows functions of {module} (`functions` in [worker] of its unhang.toml)")
            }
            (_, _, Some(store)) => format!("has the object store {store} (`artifacts` in [jobs])"),
            (_, Some((_, tool)), _) => format!("has the tool {tool}"),
            _ if label == COMMAND_LABEL => "allows any command (`unhang worker --any-command`)".to_owned(),
            _ => format!("has the label {label}"),
        })
        .collect();
    if !told.is_empty() {
        let noun = if told.len() == 1 { "label" } else { "labels" };
        let told: Vec<&str> = told.into_iter().map(String::as_str).collect();
        demands.push(format!("has the {noun} {}", told.join(", ")));
    }
    format!("no worker {}", demands.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_no_worker_may_run_says_what_is_missing() {
        let said =
            |labels: &[&str]| no_worker(&labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            said(&["gpu", "unhang:command"]),
            "no worker allows any command (`unhang worker --any-command`) and has the label gpu"
        );
        assert_eq!(
            said(&["a", "b", "unhang:tool:simulate"]),
            "no worker has the tool simulate and has the labels a, b"
        );
        assert_eq!(
            said(&["gpu", "unhang:function:models.design"]),
            "no worker allows functions of models.design (`functions` in [worker] of its unhang.toml) and has \
             the label gpu"
        );
    }
}
