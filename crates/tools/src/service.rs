//! What the tools need of whoever runs jobs: plain questions, answers in the form of [`job_report`](crate::job_report), and
//! one error for people.
//!
//! Invariants: nothing here knows MCP; an implementation answers within its own deadlines, and checks ids and names before
//! they reach a path; once [`JobService::submit`] has answered, the job reaches a final state that is true (promise 7).

use std::{collections::BTreeMap, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use serde_json::{Map, Value};

use unhang_jobs::{
    document::Field,
    folder::FileName,
    id::JobId,
    log::LogStream,
    record::{JobState, Patch},
    timestamp::JobTimestamp,
};

use super::template::TemplateWord;
use crate::job_report::{
    DocumentReport, JobReport, ListReport, ListedReport, LogReport, ResultsReport, SystemReport, ToolNames,
};

/// An answer that is on its way.
pub type JobFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, JobServiceError>> + Send + 'a>>;

/// Who asks for jobs. What somebody has started is there for nobody else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller(Option<Arc<str>>);

impl Caller {
    /// Whoever has the data folder: where callers are not told from one another, it is theirs.
    #[must_use]
    pub fn owner() -> Self {
        Self(None)
    }

    /// Somebody of this name, which stays theirs for as long as there are jobs.
    #[must_use]
    pub fn called(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// Their name, where they are not whoever has the data folder.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// How much is told of what a command has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultsExtent {
    /// What an answer of a tool has room for; it says where the rest is.
    Bounded,
    /// All of its results.
    Whole,
}

/// Runs jobs and keeps the named state.
pub trait JobService: Send + Sync + 'static {
    /// The same for this caller, to whom other callers' jobs are not there.
    fn on_behalf(self: Arc<Self>, caller: &Caller) -> Arc<dyn JobService>;
    /// Takes a job in; it is durable when this answers.
    fn submit(&self, request: SubmitRequest) -> JobFuture<'_, JobReport>;
    /// Where a job is, once it is in a final state or `wait` is over.
    fn status(&self, id: JobId, wait: Duration) -> JobFuture<'_, JobReport>;
    /// Whether there is such a job.
    fn knows(&self, id: JobId) -> JobFuture<'_, bool>;
    /// What a job has come to as the answer of a tool, once it has ended: of a call what its server answered, or the error that its caller
    /// would have had; of a command what [`results`](Self::results) has, of this extent. Whoever asks has had it.
    fn answer(&self, id: JobId, extent: ResultsExtent) -> JobFuture<'_, Option<CallAnswer>>;
    /// What a job has left so far.
    fn results(&self, id: JobId) -> JobFuture<'_, Located<ResultsReport>>;
    /// A piece of what a job has printed.
    fn logs(&self, id: JobId, page: LogRequest) -> JobFuture<'_, LogReport>;
    /// The newest jobs, newest first.
    fn list(&self, filter: Option<JobState>, limit: u32) -> JobFuture<'_, ListReport>;
    /// Ends a job; answers when it has ended. A job that has ended already is an error that says how.
    fn terminate(&self, id: JobId) -> JobFuture<'_, JobReport>;
    /// What those who ask call the tools.
    fn names(&self) -> ToolNames {
        ToolNames::default()
    }
    /// How long a job is kept after its end, where that is known.
    fn retention(&self) -> Option<Duration> {
        None
    }
    /// How the machine and the jobs are doing.
    fn system(&self) -> JobFuture<'_, SystemReport>;
    /// How many jobs there are of each state, in the order of a job's life.
    fn counts(&self) -> JobFuture<'_, Vec<(JobState, u64)>>;
    /// A document of the named state.
    fn get_state(&self, field: Field) -> JobFuture<'_, Located<DocumentReport>>;
    /// Replaces a document of the named state; answers when.
    fn set_state(&self, field: Field, value: Value) -> JobFuture<'_, JobTimestamp>;
    /// All documents of the named state, by name.
    fn list_state(&self) -> JobFuture<'_, Vec<ListedReport>>;
}

/// Why something was not done, as a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JobServiceError(pub String);

impl From<unhang_jobs::error::JobError> for JobServiceError {
    fn from(error: unhang_jobs::error::JobError) -> JobServiceError {
        JobServiceError(error.to_string())
    }
}

/// What a job has come to, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// The result of a `tools/call`; of a call as its server gave it.
    Result(String),
    /// The error that its caller would have had.
    Error(String),
}

/// A job to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitRequest {
    /// The tool that wants it, which is also what people call the job.
    pub tool: String,
    /// The command, the program first.
    pub command: Vec<TemplateWord>,
    /// Where it runs.
    pub folder: PathBuf,
    /// Its own variables, besides the small inherited set.
    pub environment: BTreeMap<String, String>,
    /// Whether it gets all of the environment, and not the small set.
    pub inherits_environment: bool,
    /// All arguments of the call, for `input.json`.
    pub arguments: Map<String, Value>,
    /// Files in the job's folder, each with the state field that is written into it; a missing one is an error, no job.
    pub inputs: Vec<(FileName, Field)>,
    /// The file in the job's folder that holds the results as JSON.
    pub results: Option<FileName>,
    /// Where the results go when it completes.
    pub state: Option<Patch>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// Bytes that are kept of each output stream.
    pub log_limit: u64,
}

/// What is told of something that lies in a file or a folder, and in which: the place of what an answer has no room for.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// What is told of it.
    pub report: T,
    /// Where it lies.
    pub path: PathBuf,
}

/// Which piece of a log is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Of which stream.
    pub stream: LogStream,
    /// From which byte of all that was ever printed.
    pub offset: u64,
    /// At most so many bytes.
    pub max_bytes: usize,
}
