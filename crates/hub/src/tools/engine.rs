//! The [`JobService`] of the real engine.
//!
//! Invariants: a data folder that cannot be used is the answer to every question, and no reason not to serve; a job's environment is what the owner handed in, with the tool's own variables over it, and nothing else; what
//! the engine says of a job is told under the names of design 7.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use serde_json::Value;
use unhang_jobs::{
    self as jobs,
    document::{Field, Listed},
    engine::{Engine, Status},
    id::JobId,
    log::Page,
    moment::Moment,
    record::JobState,
    submission::{Input, STOP_GRACE, Source, Submission},
};
use unhang_proc::deadline::Deadline;

use super::service::{
    JobError, JobList, JobResults, JobService, JobStatus, LogRequest, Pending, StateDocument, SubmitRequest,
    SystemStatus,
};

/// An engine, or why there is none, and what its jobs are given.
#[derive(Clone, Debug)]
pub struct EngineService {
    engine: Result<Engine, JobError>,
    environment: BTreeMap<OsString, OsString>,
}

impl From<jobs::error::JobError> for JobError {
    fn from(error: jobs::error::JobError) -> JobError {
        JobError(error.to_string())
    }
}

impl From<&Status> for JobStatus {
    fn from(status: &Status) -> JobStatus {
        let record = &status.record;
        let ending = record.ending.as_ref();
        let reason = ending.and_then(|ending| ending.reason).map(|reason| reason.to_string());
        let reason = reason.or_else(|| status.wait_reason.clone()).or_else(|| record.state_reason.clone());
        JobStatus {
            job_id: record.job_id,
            name: record.name.clone(),
            status: record.status,
            created_at: record.created_at.to_string(),
            started_at: record.started_at.map(|moment| moment.to_string()),
            completed_at: ending.map(|ending| ending.completed_at.to_string()),
            elapsed: status.elapsed(),
            progress: status.progress.as_ref().map(|progress| progress.fraction),
            progress_message: status.progress.as_ref().and_then(|progress| progress.message.clone()),
            queue_position: status.queue_position,
            exit_code: ending.and_then(|ending| ending.exit_code),
            signal: ending.and_then(|ending| ending.signal),
            reason,
            detail: ending.and_then(|ending| ending.detail.clone()),
            state_applied: record.state_applied,
        }
    }
}

impl EngineService {
    /// A service on this engine, whose jobs get these variables. Where it could not be opened, that is what is answered.
    pub fn new(
        engine: Result<Engine, jobs::error::JobError>,
        environment: BTreeMap<OsString, OsString>,
    ) -> EngineService {
        EngineService { engine: engine.map_err(JobError::from), environment }
    }

    /// Lets what was given a slot be started before the program goes.
    pub async fn close(&self) {
        if let Ok(engine) = &self.engine
            && let Err(error) = engine.clone().close().await
        {
            tracing::warn!("{error}");
        }
    }

    fn engine(&self) -> Result<&Engine, JobError> {
        self.engine.as_ref().map_err(JobError::clone)
    }

    fn submission(&self, request: SubmitRequest) -> Result<Submission, JobError> {
        let id = JobId::random().map_err(|error| JobError(format!("no id could be drawn: {error}")))?;
        let folder = self.engine()?.job_folder(id);
        let mut environment = self.environment.clone();
        environment.extend(request.environment.into_iter().map(|(name, value)| (name.into(), value.into())));
        let input = |(file, field)| Input { file, source: Source::State(field) };
        Ok(Submission {
            id,
            name: request.tool.clone(),
            tool: Some(request.tool),
            command: request.command.iter().map(|word| word.render(&folder, id.as_str())).collect(),
            folder: request.folder,
            environment: environment.into_iter().collect(),
            inputs: request.inputs.into_iter().map(input).collect(),
            arguments: Some(request.arguments.into()),
            results: request.results,
            patch: request.state,
            timeout: request.timeout,
            stop_grace: STOP_GRACE,
            log_limit: request.log_limit,
        })
    }
}

fn all(statuses: &[Status]) -> Vec<JobStatus> {
    statuses.iter().map(JobStatus::from).collect()
}

impl JobService for EngineService {
    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobStatus> {
        Box::pin(async move {
            let submission = self.submission(request)?;
            Ok(JobStatus::from(&self.engine()?.submit(submission).await?))
        })
    }

    fn status(&self, id: JobId, wait: Duration) -> Pending<'_, JobStatus> {
        Box::pin(async move { Ok(JobStatus::from(&self.engine()?.wait(id, Deadline::after(wait)).await?)) })
    }

    fn results(&self, id: JobId) -> Pending<'_, JobResults> {
        Box::pin(async move {
            let results = self.engine()?.results(id).await?;
            let detail = results.status.record.ending.as_ref().and_then(|ending| ending.detail.clone());
            Ok(JobResults {
                status: JobStatus::from(&results.status),
                results: results.results,
                // What the work did not say itself, its end does.
                error: results.error.or_else(|| detail.map(Value::from)),
                stdout_tail: results.stdout_tail,
                stderr_tail: results.stderr_tail,
                folder: self.engine()?.job_folder(id),
            })
        })
    }

    fn logs(&self, id: JobId, page: LogRequest) -> Pending<'_, Page> {
        Box::pin(async move { Ok(self.engine()?.logs(id, page.stream, page.offset, page.max_bytes).await?) })
    }

    fn list(&self, filter: Option<JobState>, limit: u32) -> Pending<'_, JobList> {
        Box::pin(async move {
            let engine = self.engine()?;
            let jobs = all(&engine.list(filter, limit).await?);
            Ok(JobList { jobs, max_concurrent: engine.options().rules.max_concurrent })
        })
    }

    fn terminate(&self, id: JobId) -> Pending<'_, JobStatus> {
        Box::pin(async move { Ok(JobStatus::from(&self.engine()?.cancel(id).await?)) })
    }

    fn system(&self) -> Pending<'_, SystemStatus> {
        Box::pin(async move {
            let system = self.engine()?.system().await?;
            Ok(SystemStatus {
                running_jobs: system.running,
                max_concurrent: system.max_concurrent,
                jobs: all(&system.jobs),
                machine: system.machine,
                reason: system.wait_reason,
            })
        })
    }

    fn get_state(&self, field: Field) -> Pending<'_, StateDocument> {
        Box::pin(async move {
            let path = self.engine()?.options().folder.join("state").join(format!("{field}.json"));
            let document = self.engine()?.document(field.clone()).await?;
            let document = document.ok_or_else(|| {
                JobError(format!("the state field `{field}` was never set; list_state has those that were"))
            })?;
            let updated_at = document.updated_at.to_string();
            Ok(StateDocument { field, value: document.value, updated_at, path })
        })
    }

    fn set_state(&self, field: Field, value: Value) -> Pending<'_, Moment> {
        Box::pin(async move {
            self.engine()?.set_document(field, value).await?;
            Ok(Moment::now())
        })
    }

    fn list_state(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move { Ok(self.engine()?.documents().await?) })
    }
}
