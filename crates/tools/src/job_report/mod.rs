//! Reports of jobs, their results, their logs and the named state: the one form that tools answer with and that the command line prints as
//! JSON.
//!
//! Invariants
//!
//! - The names of the members are part of the public contract (design 7). A member that means nothing yet is absent.
//! - The meaning of a status does not depend on the reader. The next steps do, since an agent has tools and a person has commands.
//! - The steps of an agent name tools that exist, with the arguments to call them with, and never ask for busy waiting (J-83).

mod system;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use unhang_jobs::{
    document::{Document, DocumentEntry, Field},
    engine::{Engine, JobStatus, Results},
    error::JobError,
    id::JobId,
    log::LogPage,
    record::{EndReason, JobRecord, JobState},
    timestamp::JobTimestamp,
};

pub use system::{MachineReport, SystemReport};

/// The name of the tool that returns the results of a job.
const GET_JOB_RESULTS: &str = "get_job_results";

/// The reader of the next steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportReader {
    /// An agent, which has the tools under these names.
    Agent(ToolNames),
    /// A person, who has the command line.
    Person,
}

/// The names of the tools about jobs: their own names, with a prefix if a server may have tools of the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolNames {
    /// The text before each name.
    pub prefix: &'static str,
}

impl ToolNames {
    /// Returns whether callers have all of these tools in their list. The guard lists three of them if their names have a prefix.
    pub(crate) fn lists_all(self) -> bool {
        self.prefix.is_empty()
    }

    /// Says where callers find the ids of jobs.
    #[must_use]
    pub fn source_of_ids(self) -> String {
        if self.lists_all() {
            format!("{}list_jobs lists all jobs", self.prefix)
        } else {
            "the answer to the call has the id of its job".to_owned()
        }
    }

    /// Returns the name under which callers know the tool of ours with the name `own`.
    pub(crate) fn of(self, own: &str) -> String {
        format!("{}{own}", self.prefix)
    }
}

/// The answer to a submission (J-23).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accepted {
    /// The job's id.
    pub job_id: JobId,
    /// The job's status.
    pub status: JobState,
    /// The meaning of the status, as a sentence.
    pub message: String,
    /// The next steps.
    pub next_steps: Vec<String>,
}

/// The kind of a job that is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A call of a server's tool.
    Call,
}

/// The activity of a call at the time at which it becomes a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallActivity {
    /// The server works on the call.
    #[default]
    Works,
    /// The server has not been asked yet. The text, the end of a sentence, says what the call waits for.
    Waits(&'static str),
    /// The window that leads has the call, and knows which of the two holds.
    Either,
}

/// The status of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// The job's id.
    pub job_id: JobId,
    /// The name that people know it by.
    pub name: String,
    /// The kind of the job, if it is not a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<JobKind>,
    /// The server of a call, by its name in the configuration.
    #[serde(skip)]
    pub server: Option<String>,
    /// The state that the job is in.
    pub status: JobState,
    /// The activity of a call at the time at which it becomes a job.
    #[serde(skip)]
    pub does: CallActivity,
    /// The time at which it was accepted.
    pub created_at: JobTimestamp,
    /// The time at which it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<JobTimestamp>,
    /// The time at which it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<JobTimestamp>,
    /// The time that it has been running, or ran; of a queued job, the time that it has waited.
    pub elapsed_time_seconds: f64,
    /// The part that is done, 0 to 1, as the job says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// The current activity, as the job says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_message: Option<String>,
    /// The number of jobs that start before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// The number of questions that the call waits with, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_questions: Option<usize>,
    /// Why it is not started although a slot is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_reason: Option<String>,
    /// The worker that has it, if workers of many machines share the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The exit code of its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that its work died of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it ended as it did, if the exit code does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// The same for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether its result has reached the named state; absent if nothing was agreed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_applied: Option<bool>,
    /// Why the result has not reached the named state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
    /// The next steps.
    pub next_steps: Vec<String>,
}

/// Some of the jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListReport {
    /// The jobs, newest first.
    pub jobs: Vec<JobReport>,
    /// The number of jobs that may run at the same time.
    pub max_concurrent: u32,
}

/// The results of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultsReport {
    /// The status of the job.
    #[serde(flatten)]
    pub job: JobReport,
    /// The content of its result file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Value>,
    /// The name of its result file in the folder of its work, if one was agreed on.
    #[serde(skip)]
    pub results_name: Option<String>,
    /// The job's own account of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The end of its stdout.
    pub stdout_tail: String,
    /// The end of its stderr.
    pub stderr_tail: String,
    /// Files of the job that were there, and are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<PathBuf>,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogReport {
    /// The text.
    pub text: String,
    /// The offset at which the piece begins.
    pub offset: u64,
    /// The offset at which the next piece begins.
    pub next_offset: u64,
    /// Whether nothing will come any more.
    pub eof: bool,
    /// The offset before which the log has been dropped.
    pub dropped_before: u64,
}

/// A document of the named state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DocumentReport {
    /// The document's name.
    pub field: Field,
    /// The document's value.
    pub value: Value,
    /// The time at which it was last replaced.
    pub updated_at: JobTimestamp,
}

/// An entry in the list of documents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedReport {
    /// The document's name.
    pub field: Field,
    /// The size of its file, in bytes.
    pub bytes: u64,
    /// The time at which it was last replaced.
    pub updated_at: JobTimestamp,
}

impl Accepted {
    /// Makes the answer to the submission of this job.
    #[must_use]
    pub fn new(job: &JobReport) -> Self {
        let id = job.job_id;
        let message = match job.queue_position {
            None => format!("job {id} is being started"),
            Some(0) => format!("job {id} is queued and starts next"),
            Some(before) => format!("job {id} is queued with {before} ahead of it"),
        };
        Self { job_id: id, status: job.status, message, next_steps: job.next_steps.clone() }
    }
}

impl JobReport {
    /// Makes the report of a job.
    #[must_use]
    pub fn new(status: &JobStatus, reader: ReportReader) -> Self {
        let JobStatus { record, queue_position, progress, wait_reason, shared } = status;
        let ending = record.ending.as_ref();
        // The last progress of a completed job would look like a contradiction.
        let progress = progress.as_ref().filter(|_| record.status != JobState::Completed);
        // The records have milliseconds.
        let elapsed = (status.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        Self {
            job_id: record.job_id,
            name: record.name.clone(),
            kind: record.call.is_some().then_some(JobKind::Call),
            server: record.call.as_ref().map(|call| call.server.clone()),
            status: record.status,
            does: CallActivity::Works,
            created_at: record.created_at,
            started_at: record.started_at,
            completed_at: ending.map(|ending| ending.completed_at),
            elapsed_time_seconds: elapsed,
            progress: progress.and_then(|progress| progress.fraction),
            progress_message: progress.and_then(|progress| progress.message.clone()),
            queue_position: *queue_position,
            open_questions: None,
            wait_reason: wait_reason.clone(),
            worker: shared.as_ref().and_then(|sight| sight.worker.clone()),
            exit_code: ending.and_then(|ending| ending.exit_code),
            signal: ending.and_then(|ending| ending.signal),
            reason: ending.and_then(|ending| ending.reason),
            detail: ending.and_then(|ending| ending.detail.clone()),
            state_applied: record.state_applied,
            state_reason: record.state_reason.clone(),
            next_steps: next_steps(record, reader),
        }
    }

    /// Adds the number of questions that the call waits with. If they cannot be read, the report goes without it.
    #[must_use]
    pub async fn with_open_questions(mut self, engine: &Engine) -> Self {
        if self.kind.is_some() && !self.status.is_final() {
            let open = engine.questions(self.job_id).await.map_or(0, |questions| questions.len());
            self.open_questions = (open > 0).then_some(open);
        }
        self
    }

    /// Returns the part of a sentence about the questions that the call waits with.
    #[must_use]
    pub fn awaited_answer(&self) -> Option<String> {
        let count = self.open_questions?;
        let noun = if count == 1 { "question" } else { "questions" };
        Some(format!("waits for an answer: {count} open {noun}; a client that follows the task can answer"))
    }

    /// Returns how the job ended, or the state that it is in, in a few words: `failed: exit code 3`.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.cause() {
            Some(cause) => format!("{}: {cause}", self.status),
            None => self.status.to_string(),
        }
    }

    /// Returns the reason for the job's state, or `None` if the state says it all.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        // A completed job has exit code 0, and a cancelled one has its signal: both go without saying.
        if matches!(self.status, JobState::Completed | JobState::Cancelled) {
            return None;
        }
        match (&self.detail, self.exit_code, self.signal) {
            (Some(detail), ..) => Some(detail.clone()),
            (None, _, Some(signal)) => Some(format!("signal {signal}")),
            (None, Some(code), None) => Some(format!("exit code {code}")),
            (None, None, None) => self.wait_reason.clone(),
        }
    }
}

/// Returns the next steps with a job, for this reader.
fn next_steps(record: &JobRecord, reader: ReportReader) -> Vec<String> {
    let id = record.job_id;
    match reader {
        ReportReader::Agent(names) if record.call.is_some() => names.steps_after_a_call(id, record.status),
        ReportReader::Agent(names) => names.steps_of_an_agent(id, record.status),
        ReportReader::Person => commands_of_a_person(id, record),
    }
}

impl ToolNames {
    /// Returns the next steps with a call of a server's tool, which leaves its answer and nothing else.
    fn steps_after_a_call(self, id: JobId, status: JobState) -> Vec<String> {
        let Self { prefix } = self;
        let left = match status {
            JobState::Completed => "the tool's answer",
            JobState::Failed | JobState::Lost => "the reason why there is no answer",
            // Whoever cancelled it knows the reason.
            JobState::Cancelled => return Vec::new(),
            JobState::Queued | JobState::Starting | JobState::Running => return self.steps_while_it_runs(id),
        };
        vec![format!("{prefix}{GET_JOB_RESULTS}(job_id=\"{id}\") has {left}")]
    }

    fn steps_while_it_runs(self, id: JobId) -> Vec<String> {
        let Self { prefix } = self;
        vec![
            format!(
                "{prefix}get_job_status(job_id=\"{id}\") in 5 to 10 seconds, with other work in between; wait_seconds=25 waits \
                 for the end instead of asking again and again"
            ),
            format!("{prefix}{GET_JOB_RESULTS}(job_id=\"{id}\") once the status is completed"),
        ]
    }

    fn steps_of_an_agent(self, id: JobId, status: JobState) -> Vec<String> {
        let mut steps = self.all_steps_of_an_agent(id, status);
        // An agent cannot call a tool that is not in its list.
        steps.retain(|step| self.lists_all() || !step.contains("get_job_logs"));
        steps
    }

    fn all_steps_of_an_agent(self, id: JobId, status: JobState) -> Vec<String> {
        let Self { prefix } = self;
        match status {
            JobState::Queued | JobState::Starting | JobState::Running => self.steps_while_it_runs(id),
            JobState::Completed => vec![
                format!("{prefix}{GET_JOB_RESULTS}(job_id=\"{id}\") has its results"),
                format!("{prefix}get_job_logs(job_id=\"{id}\") has its whole output"),
            ],
            JobState::Failed | JobState::Cancelled | JobState::Lost => vec![
                format!("{prefix}{GET_JOB_RESULTS}(job_id=\"{id}\") has the error and the end of the output"),
                format!("{prefix}get_job_logs(job_id=\"{id}\", stream=\"stderr\") has all of stderr"),
                "start it again once the cause is clear; unhang does not start it again by itself".to_owned(),
            ],
        }
    }
}

fn commands_of_a_person(id: JobId, record: &JobRecord) -> Vec<String> {
    let steps = match record.status {
        JobState::Queued | JobState::Starting | JobState::Running => {
            [format!("unhang job wait {id}"), format!("unhang job logs -f {id}")]
        }
        JobState::Completed if record.results.is_none() => {
            [format!("unhang job logs {id}"), format!("unhang job remove {id}")]
        }
        JobState::Completed => [format!("unhang job result {id}"), format!("unhang job logs {id}")],
        // The job left an answer all the same.
        _ if record.ending.as_ref().is_some_and(|ending| ending.reason == Some(EndReason::ToolError)) => {
            [format!("unhang job result {id}"), format!("unhang job logs {id}")]
        }
        // The server has a log of its own.
        _ if record.call.is_some() => [format!("unhang job show {id}"), format!("unhang job logs {id}")],
        JobState::Failed | JobState::Cancelled | JobState::Lost => {
            [format!("unhang job logs --stderr {id}"), format!("unhang job logs {id}")]
        }
    };
    steps.into()
}

impl ResultsReport {
    /// Makes the report of a job's results.
    #[must_use]
    pub fn new(results: Results, reader: ReportReader) -> Self {
        let Results { status, results, error, stdout_tail, stderr_tail, gone } = results;
        let results_name = status.record.results.clone();
        let is_call = status.record.call.is_some();
        let results = results.map(|results| if is_call { without_protocol(results) } else { results });
        let mut job = JobReport::new(&status, reader);
        if job.status.is_final() {
            // The reader has the results.
            job.next_steps.retain(|step| !step.contains(GET_JOB_RESULTS));
        }
        Self { job, results, results_name, error, stdout_tail, stderr_tail, gone }
    }
}

/// Returns the answer of a call without the members that 2026-07-28 adds to a result. The window that leads adds them for windows that
/// follow, and the reader here is the client of neither.
fn without_protocol(mut answer: Value) -> Value {
    let Some(members) = answer.as_object_mut() else { return answer };
    members.remove("resultType");
    let meta = members.get_mut("_meta").and_then(Value::as_object_mut);
    let is_empty = meta.is_some_and(|meta| {
        let named = meta.remove("io.modelcontextprotocol/serverInfo");
        named.is_some() && meta.is_empty()
    });
    if is_empty {
        members.remove("_meta");
    }
    answer
}

impl From<LogPage> for LogReport {
    fn from(page: LogPage) -> Self {
        let LogPage { text, offset, next_offset, eof, dropped_before } = page;
        Self { text, offset, next_offset, eof, dropped_before }
    }
}

impl From<Document> for DocumentReport {
    fn from(document: Document) -> Self {
        let Document { field, value, updated_at } = document;
        Self { field, value, updated_at }
    }
}

impl From<DocumentEntry> for ListedReport {
    fn from(listed: DocumentEntry) -> Self {
        let DocumentEntry { field, bytes, updated_at } = listed;
        Self { field, bytes, updated_at }
    }
}

/// Returns the kind of an error, for programs.
#[must_use]
pub fn kind(error: &JobError) -> &'static str {
    match error {
        JobError::NoSuchJob(_) | JobError::Removed(_) => "no_such_job",
        JobError::IdTaken(_) => "id_taken",
        JobError::HasEnded { .. } => "has_ended",
        JobError::HasNotEnded { .. } | JobError::NotInStore(_) => "has_not_ended",
        JobError::NoRoom { .. } | JobError::EndUnwritten { .. } => "no_room",
        JobError::MissingState(_) => "missing_state",
        JobError::Serialization(_) | JobError::InputTooLarge { .. } => "serialization",
        JobError::NoCommand | JobError::ArgumentsTaken | JobError::Command(_) => "bad_command",
        JobError::Uncertain { .. }
        | JobError::Unconfirmed { .. }
        | JobError::Late { .. }
        | JobError::CancelWaits { .. }
        | JobError::StillEnding { .. } => "deadline",
        JobError::SharedUncertain { .. } => "deadline",
        JobError::Shared { .. } => "store_unavailable",
        JobError::NotShared(_) => "not_shared",
        JobError::FileLimit { .. } => "file_limit",
        JobError::LogGone { .. } | JobError::FolderGone { .. } | JobError::DataFolderGone { .. } => "gone",
        JobError::Closed => "shutting_down",
        // Files, the database, and any variant that is added later.
        _ => "storage",
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
