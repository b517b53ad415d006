//! The nine tools with which an agent follows jobs and keeps state (J-73 to J-77, design 7).
//!
//! Invariants: arguments have been checked against the tool's schema when [`Builtin::call`] sees them; each call is one question to the
//! [`JobService`] and one answer.

use std::time::Duration;

use serde_json::{Map, Value};
use unhang_jobs::{
    document::{Field, NotAField},
    id::{JobId, NotAJobId},
    log::LogStream,
    record::JobState,
};

use super::{
    Definition, Hints, ToolAnswer, ToolListing,
    answer_text::{self, AnswerText},
    schemas::{self, DEFAULT_JOBS, DEFAULT_LOG_BYTES, MAX_LOG_BYTES, MAX_WAIT_SECONDS},
    service::{JobService, JobServiceError, LogRequest, ResultsExtent},
};
use crate::job_report::{JobKind, ToolNames};
use unhang_core::wording::shortened;

/// The part of a call's time that is left for its answer after the wait for the end of a job. Of a short call it is half.
const ANSWER_MARGIN: Duration = Duration::from_secs(1);

/// One of the nine tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Builtin {
    JobStatus,
    JobResults,
    JobLogs,
    ListJobs,
    TerminateJob,
    SystemStatus,
    GetState,
    SetState,
    ListState,
}

use Builtin::*;

impl Builtin {
    /// The tools about jobs.
    pub(super) const OF_JOBS: [Builtin; 6] =
        [JobStatus, JobResults, JobLogs, ListJobs, TerminateJob, SystemStatus];

    pub(super) const ALL: [Builtin; 9] =
        [JobStatus, JobResults, JobLogs, ListJobs, TerminateJob, SystemStatus, GetState, SetState, ListState];

    /// The tools that the guard lists.
    pub(super) const OF_THE_GUARD: [Builtin; 3] = [JobStatus, JobResults, TerminateJob];

    /// Returns whether the tool is about the named state.
    pub(super) fn is_about_state(self) -> bool {
        matches!(self, GetState | SetState | ListState)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            JobStatus => "get_job_status",
            JobResults => "get_job_results",
            JobLogs => "get_job_logs",
            ListJobs => "list_jobs",
            TerminateJob => "terminate_job",
            SystemStatus => "get_system_status",
            GetState => "get_state",
            SetState => "set_state",
            ListState => "list_state",
        }
    }

    fn description(self) -> &'static str {
        match self {
            JobStatus => {
                "Returns the status of a background job. Call it every 5 to 10 seconds and do other work \
                 in between, or give wait_seconds to wait for the end of the job."
            }
            JobResults => {
                "Returns the parsed results of a background job, its error, and the end of its output. A \
                 long answer comes in parts: continue at next_offset."
            }
            JobLogs => {
                "Returns a part of the output of a background job, also while the job runs. Continue at \
                 next_offset until eof is true."
            }
            ListJobs => "Lists the newest background jobs, newest first.",
            TerminateJob => "Ends a background job and everything that it started.",
            SystemStatus => {
                "Returns how many background jobs run, how many may run, and how busy the machine is."
            }
            GetState => "Returns the value of a named state field, as a job or set_state stored it.",
            SetState => "Replaces the value of a named state field, from which jobs can start.",
            ListState => "Lists the names of all state fields, with the time of their last change.",
        }
    }

    fn input_schema(self) -> Value {
        match self {
            JobStatus => schemas::job_and_wait(),
            JobResults => schemas::job_and_offset(),
            TerminateJob => schemas::job(),
            JobLogs => schemas::job_and_page(),
            ListJobs => schemas::filter_and_limit(),
            SystemStatus | ListState => schemas::nothing(),
            GetState => schemas::state_field(),
            SetState => schemas::state_field_and_value(),
        }
    }

    fn output_schema(self) -> Value {
        match self {
            JobStatus | TerminateJob => schemas::status(),
            JobResults => schemas::results(),
            JobLogs => schemas::logs(),
            ListJobs => schemas::list(),
            SystemStatus => schemas::system(),
            GetState | SetState => schemas::state(),
            ListState => schemas::state_list(),
        }
    }

    fn hints(self) -> Hints {
        let changes = matches!(self, TerminateJob | SetState);
        Hints {
            read_only: !changes,
            destructive: changes,
            idempotent: self != TerminateJob,
            open_world: false,
        }
    }

    /// Returns the definition of the tool for callers that know it by these names.
    pub(super) fn definition(self, names: ToolNames) -> Definition {
        Definition {
            name: names.of(self.name()),
            description: Some(self.description().to_owned()),
            input_schema: self.input_schema(),
            output_schema: Some(self.output_schema()),
            hints: self.hints(),
            is_job: false,
            listing: ToolListing::Last,
        }
    }

    /// Returns the definition in as few words as will do, for a list that is otherwise a server's own.
    pub(super) fn in_brief(self, names: ToolNames) -> Definition {
        let description = match self {
            JobStatus => {
                "Returns the status of a call that continues in the background. wait_seconds waits for \
                 its end."
            }
            JobResults => {
                "Returns the answer of a call that continued in the background. A long one comes in \
                 parts: continue at next_offset."
            }
            TerminateJob => "Cancels a call that continues in the background.",
            other => other.description(),
        };
        Definition {
            description: Some(description.to_owned()),
            input_schema: schemas::in_brief(self.input_schema()),
            output_schema: Some(schemas::id_and_status()),
            ..self.definition(names)
        }
    }

    /// Asks the service for a caller that waits for `limit`. A refusal of the service is an answer as well.
    pub(super) async fn call(
        self,
        service: &dyn JobService,
        arguments: Map<String, Value>,
        limit: Duration,
    ) -> ToolAnswer {
        match self.told(service, arguments, limit).await {
            Ok(told) => told.answer(false),
            Err(JobServiceError(why)) => ToolAnswer::error(why),
        }
    }

    async fn told(
        self,
        service: &dyn JobService,
        mut arguments: Map<String, Value>,
        limit: Duration,
    ) -> Result<AnswerText, JobServiceError> {
        let (given, names) = (CheckedArguments(&arguments, service.names()), service.names());
        Ok(match self {
            JobStatus => answer_text::status(&service.status(given.job()?, given.wait(limit)).await?),
            JobResults => {
                let id = given.job()?;
                let found = service.results(id).await?;
                match found.report.job.kind {
                    Some(JobKind::Call) => answer_text::call_results(
                        found,
                        service.answer(id, ResultsExtent::Bounded).await?,
                        given.offset(),
                        names,
                    ),
                    None => answer_text::results_from(found, given.offset(), names),
                }
            }
            JobLogs => {
                let id = given.job()?;
                answer_text::logs(id, service.logs(id, given.page()).await?)
            }
            ListJobs => answer_text::list(service.list(given.state(), given.limit()).await?, names),
            TerminateJob => answer_text::status(&service.terminate(given.job()?).await?),
            SystemStatus => answer_text::system(service.system().await?, names),
            GetState => answer_text::state(&service.get_state(given.field()?).await?),
            SetState => {
                let field = given.field()?;
                let value = arguments.remove("value").unwrap_or_default();
                answer_text::state_set(&field, service.set_state(field.clone(), value).await?)
            }
            ListState => answer_text::state_list(&service.list_state().await?),
        })
    }
}

/// Arguments that fit their schema.
struct CheckedArguments<'a>(&'a Map<String, Value>, ToolNames);

impl<'a> CheckedArguments<'a> {
    fn text(&self, name: &str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn job(&self) -> Result<JobId, JobServiceError> {
        let text = self.text("job_id");
        text.parse().map_err(|error: NotAJobId| {
            let id = shortened(text, 40);
            JobServiceError(format!("there is no job `{id}`: {error}; {}", self.1.source_of_ids()))
        })
    }

    fn field(&self) -> Result<Field, JobServiceError> {
        self.text("field").parse().map_err(|error: NotAField| JobServiceError(error.to_string()))
    }

    /// Returns a whole number; for JSON schema, `2.0` is one.
    fn number(&self, name: &str) -> Option<u64> {
        let number = self.0.get(name)?;
        // The fraction is zero, and a number that is too large saturates.
        number.as_u64().or_else(|| number.as_f64().map(|number| number as u64))
    }

    /// Returns how long to wait for the end of the job: never so long that the call itself is over first.
    fn wait(&self, limit: Duration) -> Duration {
        let seconds = self.0.get("wait_seconds").and_then(Value::as_f64).unwrap_or_default();
        let longest = Duration::from_secs(MAX_WAIT_SECONDS);
        let in_time = limit.saturating_sub(ANSWER_MARGIN.min(limit / 2));
        Duration::try_from_secs_f64(seconds).unwrap_or(longest).min(longest).min(in_time)
    }

    fn page(&self) -> LogRequest {
        let bytes = self.number("max_bytes").and_then(|bytes| usize::try_from(bytes).ok());
        LogRequest {
            stream: if self.text("stream") == "stderr" { LogStream::Stderr } else { LogStream::Stdout },
            offset: self.number("offset").unwrap_or_default(),
            max_bytes: bytes.unwrap_or(DEFAULT_LOG_BYTES).min(MAX_LOG_BYTES),
        }
    }

    /// Returns the offset in the text of the results at which the answer is to begin, if the caller has given one.
    fn offset(&self) -> Option<usize> {
        Some(usize::try_from(self.number("offset")?).unwrap_or(usize::MAX))
    }

    fn state(&self) -> Option<JobState> {
        self.text("status_filter").parse().ok()
    }

    fn limit(&self) -> u32 {
        self.number("limit").and_then(|limit| u32::try_from(limit).ok()).unwrap_or(DEFAULT_JOBS)
    }
}
