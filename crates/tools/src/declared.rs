//! The tools of the configuration file: a command that runs as a job (J-07, J-16 to J-23).
//!
//! Invariants
//! - In mode `job` the id goes out as soon as the job is durable.
//! - In mode `child` the answer comes when the command has ended. A command that nobody waits for any more is ended.
//! - A submission that fails is an answer, and leaves no job (J-137).

use std::time::Duration;

use serde_json::{Map, Value};
use unhang_jobs::record::JobState;

use super::{
    Cancellation, Definition, Hints, Mode, ToolAnswer, ToolListing, ToolSettings, answer_text, schemas,
    service::{JobService, JobServiceError},
};
use crate::job_report::JobReport;

/// The time of one wait for the end of a command; the wait is repeated until the command has ended.
const WAIT: Duration = Duration::from_secs(25);

/// A tool of the file, with the mode in which it is answered.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub settings: ToolSettings,
    pub mode: Mode,
}

impl Declared {
    pub(super) fn definition(&self) -> Definition {
        let ToolSettings { name, description, input_schema, .. } = &self.settings;
        let what =
            description.clone().unwrap_or_else(|| format!("Runs {}.", self.settings.command.program()));
        let (how, output_schema) = match self.mode {
            Mode::Job => (
                " Answers at once with a job_id; the work continues in the background: follow it with \
                 get_job_status.",
                schemas::started(),
            ),
            Mode::Child => ("", schemas::results()),
        };
        Definition {
            name: name.clone(),
            description: Some(what + how),
            input_schema: input_schema.schema().clone(),
            output_schema: Some(output_schema),
            // Nothing is known of a command.
            hints: Hints { destructive: true, open_world: true, ..Hints::default() },
            is_job: self.mode == Mode::Job,
            listing: ToolListing::First,
        }
    }

    pub(super) async fn call(
        &self,
        service: &dyn JobService,
        arguments: Map<String, Value>,
        cancellation: Cancellation,
    ) -> ToolAnswer {
        let job = match self.submit(service, arguments).await {
            Ok(job) => job,
            Err(why) => return ToolAnswer::error(format!("Job submission failed: {why}")),
        };
        match self.mode {
            Mode::Job => {
                ToolAnswer { job: Some(Box::new(job.clone())), ..answer_text::started(&job).answer(false) }
            }
            Mode::Child => outcome(service, job, cancellation)
                .await
                .unwrap_or_else(|JobServiceError(why)| ToolAnswer::error(why)),
        }
    }

    async fn submit(
        &self,
        service: &dyn JobService,
        arguments: Map<String, Value>,
    ) -> Result<JobReport, String> {
        let request = self.settings.request(arguments)?;
        service.submit(request).await.map_err(|JobServiceError(why)| why)
    }
}

/// Waits for the end of a job, and ends it if nobody waits for it any more.
async fn outcome(
    service: &dyn JobService,
    mut job: JobReport,
    mut cancellation: Cancellation,
) -> Result<ToolAnswer, JobServiceError> {
    let id = job.job_id;
    while !job.status.is_final() {
        let cancelled = tokio::select! {
            waited = service.status(id, WAIT) => {
                job = waited?;
                false
            }
            () = cancellation.cancelled() => true,
        };
        if cancelled {
            job = service.terminate(id).await?;
        }
    }
    let is_error = job.status != JobState::Completed;
    let results = service.results(id).await.map_err(|JobServiceError(why)| {
        JobServiceError(format!("job {id} has ended ({}), and its results cannot be read: {why}", job.status))
    })?;
    Ok(answer_text::results(results, service.names()).answer(is_error))
}
