//! What the tools need of whoever runs jobs: plain questions, plain answers, and one error for people.
//!
//! Invariants: nothing here knows MCP; an implementation answers within its own deadlines, and checks ids and names before
//! they reach a path; once [`JobService::submit`] has answered, the job reaches a final state that is true (promise 7).

use std::{collections::BTreeMap, path::PathBuf, pin::Pin, time::Duration};

use serde_json::{Map, Value};

use unhang_jobs::{
    document::{Field, Listed},
    engine::Machine,
    folder::FileName,
    id::JobId,
    log::{Page, Stream},
    moment::Moment,
    record::{JobState, Patch},
};

use super::template::Word;

/// An answer that is on its way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, JobError>> + Send + 'a>>;

/// Runs jobs and keeps the named state.
pub trait JobService: Send + Sync + 'static {
    /// Takes a job in; it is durable when this answers.
    fn submit(&self, request: SubmitRequest) -> Pending<'_, JobStatus>;
    /// Where a job is, once it is in a final state or `wait` is over.
    fn status(&self, id: JobId, wait: Duration) -> Pending<'_, JobStatus>;
    /// What a job has left so far.
    fn results(&self, id: JobId) -> Pending<'_, JobResults>;
    /// A piece of what a job has printed.
    fn logs(&self, id: JobId, page: LogRequest) -> Pending<'_, Page>;
    /// The newest jobs, newest first.
    fn list(&self, filter: Option<JobState>, limit: u32) -> Pending<'_, JobList>;
    /// Ends a job; answers when it has ended. A job that has ended already is an error that says how.
    fn terminate(&self, id: JobId) -> Pending<'_, JobStatus>;
    /// How the machine and the jobs are doing.
    fn system(&self) -> Pending<'_, SystemStatus>;
    /// A document of the named state.
    fn get_state(&self, field: Field) -> Pending<'_, StateDocument>;
    /// Replaces a document of the named state; answers when.
    fn set_state(&self, field: Field, value: Value) -> Pending<'_, Moment>;
    /// All documents of the named state, by name.
    fn list_state(&self) -> Pending<'_, Vec<Listed>>;
}

/// Why something was not done, as a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JobError(pub String);

/// A job to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct SubmitRequest {
    /// The tool that wants it, which is also what people call the job.
    pub tool: String,
    /// The command, the program first.
    pub command: Vec<Word>,
    /// Where it runs.
    pub folder: PathBuf,
    /// Its own variables, besides the small inherited set.
    pub environment: BTreeMap<String, String>,
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

/// What can be said of a job at any time. Moments are texts as RFC 3339 has them.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    /// Its id.
    pub job_id: JobId,
    /// What people call it.
    pub name: String,
    /// Where it is.
    pub status: JobState,
    /// When it was taken in.
    pub created_at: String,
    /// When its command was started.
    pub started_at: Option<String>,
    /// When it reached its final state.
    pub completed_at: Option<String>,
    /// How long it has run, or waited where it has not begun.
    pub elapsed: Duration,
    /// What it says it has done of its work, 0 to 1.
    pub progress: Option<f64>,
    /// What it says it is doing.
    pub progress_message: Option<String>,
    /// How many jobs start before it.
    pub queue_position: Option<u32>,
    /// How its command ended.
    pub exit_code: Option<i32>,
    /// The signal that ended its command.
    pub signal: Option<i32>,
    /// Why it is where it is, where that is not plain.
    pub reason: Option<String>,
    /// The same in words, where there are some.
    pub detail: Option<String>,
    /// Whether its results have reached the named state, where they were to.
    pub state_applied: Option<bool>,
}

/// What a job has left.
#[derive(Clone, Debug, PartialEq)]
pub struct JobResults {
    /// Where it is.
    pub status: JobStatus,
    /// Its results, parsed.
    pub results: Option<Value>,
    /// What it says of its failure.
    pub error: Option<Value>,
    /// The end of its stdout.
    pub stdout_tail: String,
    /// The end of its stderr.
    pub stderr_tail: String,
    /// The folder in which all of it lies.
    pub folder: PathBuf,
}

/// Which piece of a log is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Of which stream.
    pub stream: Stream,
    /// From which byte of all that was ever printed.
    pub offset: u64,
    /// At most so many bytes.
    pub max_bytes: usize,
}

/// Some of the jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobList {
    /// Newest first.
    pub jobs: Vec<JobStatus>,
    /// How many may run at the same time.
    pub max_concurrent: u32,
}

/// How the machine and the jobs are doing.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemStatus {
    /// How many jobs run.
    pub running_jobs: u32,
    /// How many may.
    pub max_concurrent: u32,
    /// The jobs that have not ended.
    pub jobs: Vec<JobStatus>,
    /// What the machine does.
    pub machine: Machine,
    /// Why nothing is started at the moment, if nothing is.
    pub reason: Option<String>,
}

/// A document of the named state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDocument {
    /// Its name.
    pub field: Field,
    /// What it holds.
    pub value: Value,
    /// When it was last replaced.
    pub updated_at: String,
    /// Where it lies.
    pub path: PathBuf,
}
