//! The [`JobService`] of the real engine.
//!
//! Invariants: a data folder that cannot be used is the answer to every question, and no reason not to serve; a job's
//! environment is what the owner handed in, with the tool's own variables over it, and nothing else.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use serde_json::Value;
use unhang_jobs::{
    self as jobs,
    document::Field,
    engine::{Engine, Status},
    id::JobId,
    moment::Moment,
    record::JobState,
    submission::{Input, STOP_GRACE, Source, Submission},
};
use unhang_proc::deadline::Deadline;

use super::service::{JobError, JobService, Located, LogRequest, Pending, SubmitRequest};
use crate::job_report::{
    DocumentReport, JobReport, ListReport, ListedReport, LogReport, Reader, ResultsReport, SystemReport,
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
            owner: None,
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

/// What an agent is told of a job.
fn told(status: &Status) -> JobReport {
    JobReport::new(status, Reader::Agent)
}

impl JobService for EngineService {
    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobReport> {
        Box::pin(async move {
            let submission = self.submission(request)?;
            Ok(told(&self.engine()?.submit(submission).await?))
        })
    }

    fn status(&self, id: JobId, wait: Duration) -> Pending<'_, JobReport> {
        Box::pin(async move { Ok(told(&self.engine()?.wait(id, Deadline::after(wait)).await?)) })
    }

    fn results(&self, id: JobId) -> Pending<'_, Located<ResultsReport>> {
        Box::pin(async move {
            let engine = self.engine()?;
            let report = ResultsReport::new(engine.results(id).await?, Reader::Agent);
            Ok(Located { report, path: engine.job_folder(id) })
        })
    }

    fn logs(&self, id: JobId, page: LogRequest) -> Pending<'_, LogReport> {
        Box::pin(async move {
            Ok(self.engine()?.logs(id, page.stream, page.offset, page.max_bytes).await?.into())
        })
    }

    fn list(&self, filter: Option<JobState>, limit: u32) -> Pending<'_, ListReport> {
        Box::pin(async move {
            let engine = self.engine()?;
            let jobs = engine.list(filter, limit).await?.iter().map(told).collect();
            Ok(ListReport { jobs, max_concurrent: engine.options().rules.max_concurrent })
        })
    }

    fn terminate(&self, id: JobId) -> Pending<'_, JobReport> {
        Box::pin(async move { Ok(told(&self.engine()?.cancel(id).await?)) })
    }

    fn system(&self) -> Pending<'_, SystemReport> {
        Box::pin(async move { Ok(SystemReport::new(self.engine()?.system().await?, Reader::Agent)) })
    }

    fn counts(&self) -> Pending<'_, Vec<(JobState, u64)>> {
        Box::pin(async move { Ok(self.engine()?.counts().await?) })
    }

    fn get_state(&self, field: Field) -> Pending<'_, Located<DocumentReport>> {
        Box::pin(async move {
            let engine = self.engine()?;
            let path = engine.options().folder.join("state").join(format!("{field}.json"));
            let document = engine.document(field.clone()).await?.ok_or_else(|| {
                JobError(format!("the state field `{field}` was never set; list_state has those that were"))
            })?;
            Ok(Located { report: document.into(), path })
        })
    }

    fn set_state(&self, field: Field, value: Value) -> Pending<'_, Moment> {
        Box::pin(async move {
            self.engine()?.set_document(field, value).await?;
            Ok(Moment::now())
        })
    }

    fn list_state(&self) -> Pending<'_, Vec<ListedReport>> {
        Box::pin(async move {
            Ok(self.engine()?.documents().await?.into_iter().map(ListedReport::from).collect())
        })
    }
}
