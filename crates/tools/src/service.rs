//! The service that runs jobs, as the tools need it: plain questions, answers in the form of [`job_report`](crate::job_report), and one
//! error for people.
//!
//! Invariants: nothing here knows MCP. An implementation answers within its own deadlines, and checks ids and names before they reach a
//! path. Once [`JobService::submit`] has answered, the job reaches a final state that is true (promise 7).

use std::{collections::BTreeMap, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use unhang_jobs::{
    document::Field,
    folder::FileName,
    id::JobId,
    log::LogStream,
    record::{JobState, Patch},
    shared_jobs::{Placement, WorkerSummary},
    timestamp::JobTimestamp,
};

use super::template::TemplateWord;
use crate::job_report::{
    DocumentReport, JobReport, ListReport, ListedReport, LogReport, ResultsReport, SystemReport, ToolNames,
};

/// An answer that is on its way.
pub type JobFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, JobServiceError>> + Send + 'a>>;

/// The caller that asks for jobs. Jobs of one caller are not there for any other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller(Option<Arc<str>>);

impl Caller {
    /// Returns the owner of the data folder. If callers are not told from one another, all of them are the owner.
    #[must_use]
    pub fn owner() -> Self {
        Self(None)
    }

    /// Returns the caller of this name, which stays theirs for as long as there are jobs.
    #[must_use]
    pub fn called(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// Returns the caller's name, or `None` for the owner of the data folder.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// How much of a command's results is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultsExtent {
    /// As much as an answer of a tool has room for; it says where the rest is.
    Bounded,
    /// All results.
    Whole,
}

/// Runs jobs and keeps the named state.
pub trait JobService: Send + Sync + 'static {
    /// Returns the same service for this caller, to whom other callers' jobs are not there.
    fn on_behalf(self: Arc<Self>, caller: &Caller) -> Arc<dyn JobService>;
    /// Takes a job in; it is durable when this answers.
    fn submit(&self, request: SubmitRequest) -> JobFuture<'_, JobReport>;
    /// Returns the status of a job, once the job is in a final state or `wait` is over.
    fn status(&self, id: JobId, wait: Duration) -> JobFuture<'_, JobReport>;
    /// Returns whether there is such a job.
    fn knows(&self, id: JobId) -> JobFuture<'_, bool>;
    /// Returns the outcome of a job as the answer of a tool. For a call, that is the server's answer, or the error that the call's caller
    /// would have had. For a command, it is the [`results`](Self::results) of this extent. Returns `None` if the job has not ended, or if a
    /// call has left neither. A job that has ended counts as read from then on.
    fn answer(&self, id: JobId, extent: ResultsExtent) -> JobFuture<'_, Option<CallAnswer>>;
    /// Returns the results of a job so far.
    fn results(&self, id: JobId) -> JobFuture<'_, Located<ResultsReport>>;
    /// Returns a piece of a job's output.
    fn logs(&self, id: JobId, page: LogRequest) -> JobFuture<'_, LogReport>;
    /// Returns the newest jobs, newest first.
    fn list(&self, filter: Option<JobState>, limit: u32) -> JobFuture<'_, ListReport>;
    /// Ends a job; answers when it has ended. A job that has ended already is an error that says how.
    fn terminate(&self, id: JobId) -> JobFuture<'_, JobReport>;
    /// Returns the names by which callers know the tools.
    fn names(&self) -> ToolNames {
        ToolNames::default()
    }
    /// Returns how long a job is kept after its end, if that is known.
    fn retention(&self) -> Option<Duration> {
        None
    }
    /// Returns the status of the machine and the jobs.
    fn system(&self) -> JobFuture<'_, SystemReport>;
    /// Returns how many jobs there are of each state, in the order of a job's life.
    fn counts(&self) -> JobFuture<'_, Vec<(JobState, u64)>>;
    /// Returns the workers of the store that machines share; none if there is no such store.
    fn workers(&self) -> JobFuture<'_, Vec<WorkerSummary>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// Returns a document of the named state.
    fn get_state(&self, field: Field) -> JobFuture<'_, Located<DocumentReport>>;
    /// Replaces a document of the named state; answers with the time of the change.
    fn set_state(&self, field: Field, value: Value) -> JobFuture<'_, JobTimestamp>;
    /// Returns all documents of the named state, by name.
    fn list_state(&self) -> JobFuture<'_, Vec<ListedReport>>;
}

/// Why a request was not carried out, as a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JobServiceError(pub String);

impl From<unhang_jobs::error::JobError> for JobServiceError {
    fn from(error: unhang_jobs::error::JobError) -> JobServiceError {
        JobServiceError(error.to_string())
    }
}

/// The outcome of a job, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// The result of a `tools/call`; of a call, as its server gave it.
    Result(String),
    /// The error that the call's caller would have had.
    Error(String),
}

/// A job to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitRequest {
    /// The tool that wants the job, which is also the job's name for people.
    pub tool: String,
    /// The command, the program first.
    pub command: Vec<TemplateWord>,
    /// The folder that the command runs in.
    pub folder: PathBuf,
    /// The command's own variables, besides the small inherited set.
    pub environment: BTreeMap<String, String>,
    /// Whether the command gets all of the environment, and not the small set.
    pub inherits_environment: bool,
    /// All arguments of the call, for `input.json`.
    pub arguments: Map<String, Value>,
    /// Files in the job's folder, each with the state field that is written into it. If a field is missing, the request fails and there is
    /// no job.
    pub inputs: Vec<(FileName, Field)>,
    /// The file in the job's folder that holds the results as JSON.
    pub results: Option<FileName>,
    /// The field of the named state that takes the results when the job completes.
    pub state: Option<Patch>,
    /// The time that the command may run.
    pub timeout: Option<Duration>,
    /// The most bytes that are kept of each output stream.
    pub log_limit: u64,
    /// The demands of the job on the worker that runs it, if machines share their jobs.
    pub placement: Placement,
}

/// A report on something that lies in a file or a folder, with the path. There the reader finds what an answer has no room for.
/// Nothing of what a store of many machines has lies there.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// The report.
    pub report: T,
    /// The path of the file or the folder; `None` if a store of many machines has it.
    pub path: Option<PathBuf>,
}

/// The piece of a log that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// The stream.
    pub stream: LogStream,
    /// The first byte, counted over all that was ever printed.
    pub offset: u64,
    /// The most bytes.
    pub max_bytes: usize,
}
