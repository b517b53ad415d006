//! What is told of a job, its results, its logs and the named state: the one form that tools answer with and that the command
//! line prints as JSON.
//!
//! Invariants
//!
//! - The names of the members are part of the public contract (design 7); what means nothing yet is absent.
//! - What a status means does not depend on who asks; the next steps do, since an agent has tools and a person commands.
//! - The steps of an agent name tools that exist, with the arguments to call them with, and never ask for busy waiting (J-83).

mod system;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use unhang_jobs::{
    document::{Document, DocumentEntry, Field},
    engine::{JobStatus, Results},
    error::JobError,
    id::JobId,
    log::LogPage,
    record::{EndReason, JobRecord, JobState},
    timestamp::JobTimestamp,
};

pub use system::{MachineReport, SystemReport};

/// Who reads the next steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportReader {
    /// An agent, which has the tools under these names.
    Agent(ToolNames),
    /// A person, who has the command line.
    Person,
}

/// What the tools about jobs are called: their names, with something before them where a server may have tools of the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolNames {
    /// What comes before.
    pub prefix: &'static str,
}

impl ToolNames {
    /// Whether those who ask have all of these tools in their list. The guard, where they have something before their names, lists three.
    pub(crate) fn lists_all(self) -> bool {
        self.prefix.is_empty()
    }

    /// Says where those who ask find the ids of jobs.
    #[must_use]
    pub fn source_of_ids(self) -> String {
        if self.lists_all() {
            format!("{}list_jobs has those that there are", self.prefix)
        } else {
            "the answer that handed the call over has its id".to_owned()
        }
    }

    /// What the tool of ours is called that has this name itself.
    pub(crate) fn of(self, own: &str) -> String {
        format!("{}{own}", self.prefix)
    }
}

/// The answer to a submission (J-23).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accepted {
    /// Its id.
    pub job_id: JobId,
    /// Where it is.
    pub status: JobState,
    /// What that means, as a sentence.
    pub message: String,
    /// What to do now.
    pub next_steps: Vec<String>,
}

/// What a job is that is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A call of a server's tool.
    Call,
}

/// What a call does as it becomes a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallActivity {
    /// Its server works on it.
    #[default]
    Works,
    /// Its server has not been asked yet: it waits for this, as the end of a sentence.
    Waits(&'static str),
    /// The window that leads has it, and knows.
    Either,
}

/// Where a job is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its id.
    pub job_id: JobId,
    /// What people call it.
    pub name: String,
    /// What it is, where it is no command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<JobKind>,
    /// The server of a call, as the configuration calls it.
    #[serde(skip)]
    pub server: Option<String>,
    /// Where it is.
    pub status: JobState,
    /// What a call does as it becomes a job.
    #[serde(skip)]
    pub does: CallActivity,
    /// When it was accepted.
    pub created_at: JobTimestamp,
    /// When it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<JobTimestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<JobTimestamp>,
    /// How long it has been running, or ran; of a queued job, how long it has waited.
    pub elapsed_time_seconds: f64,
    /// The part that is done, 0 to 1, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// What it is doing, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_message: Option<String>,
    /// How many jobs start before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u32>,
    /// Why it is not started although a slot is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_reason: Option<String>,
    /// The exit code of its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that its work died of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it ended as it did, where the exit code does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// The same for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether its result has reached the named state; absent where nothing was agreed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_applied: Option<bool>,
    /// Why it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_reason: Option<String>,
    /// What to do now.
    pub next_steps: Vec<String>,
}

/// Some of the jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListReport {
    /// Newest first.
    pub jobs: Vec<JobReport>,
    /// How many may run at the same time.
    pub max_concurrent: u32,
}

/// What a job has left.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultsReport {
    /// Where it is.
    #[serde(flatten)]
    pub job: JobReport,
    /// Its result file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Value>,
    /// The name of its result file in the folder of its work, where one was agreed on.
    #[serde(skip)]
    pub results_name: Option<String>,
    /// What it says of its failure.
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
    /// Where it begins.
    pub offset: u64,
    /// Where the next piece begins.
    pub next_offset: u64,
    /// Whether nothing will come any more.
    pub eof: bool,
    /// What lies before this offset has been dropped.
    pub dropped_before: u64,
}

/// A document of the named state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DocumentReport {
    /// Its name.
    pub field: Field,
    /// What it holds.
    pub value: Value,
    /// When it was last replaced.
    pub updated_at: JobTimestamp,
}

/// What the list of documents says of one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedReport {
    /// Its name.
    pub field: Field,
    /// Bytes of its file.
    pub bytes: u64,
    /// When it was last replaced.
    pub updated_at: JobTimestamp,
}

impl Accepted {
    /// The answer to the submission of this job.
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
    /// What is told of a job.
    #[must_use]
    pub fn new(status: &JobStatus, reader: ReportReader) -> Self {
        let JobStatus { record, queue_position, progress, wait_reason } = status;
        let ending = record.ending.as_ref();
        // What a job last said before it was done with everything would look like a contradiction.
        let progress = progress.as_ref().filter(|_| record.status != JobState::Completed);
        // Milliseconds are what the records have.
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
            progress: progress.map(|progress| progress.fraction),
            progress_message: progress.and_then(|progress| progress.message.clone()),
            queue_position: *queue_position,
            wait_reason: wait_reason.clone(),
            exit_code: ending.and_then(|ending| ending.exit_code),
            signal: ending.and_then(|ending| ending.signal),
            reason: ending.and_then(|ending| ending.reason),
            detail: ending.and_then(|ending| ending.detail.clone()),
            state_applied: record.state_applied,
            state_reason: record.state_reason.clone(),
            next_steps: next_steps(record, reader),
        }
    }

    /// How it ended, or where it is, in a few words: `failed: exit code 3`.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.cause() {
            Some(cause) => format!("{}: {cause}", self.status),
            None => self.status.to_string(),
        }
    }

    /// Why it is where it is, where that does not go without saying.
    #[must_use]
    pub fn cause(&self) -> Option<String> {
        // That a good end has code 0, and a cancelled one its signal, does.
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

/// What can be done with a job that is where it is.
fn next_steps(record: &JobRecord, reader: ReportReader) -> Vec<String> {
    let id = record.job_id;
    match reader {
        ReportReader::Agent(names) if record.call.is_some() => names.steps_after_a_call(id, record.status),
        ReportReader::Agent(names) => names.steps_of_an_agent(id, record.status),
        ReportReader::Person => commands_of_a_person(id, record),
    }
}

impl ToolNames {
    /// A call of a server's tool leaves its answer, and nothing else.
    fn steps_after_a_call(self, id: JobId, status: JobState) -> Vec<String> {
        let Self { prefix } = self;
        let left = match status {
            JobState::Completed => "the tool's answer",
            JobState::Failed | JobState::Cancelled | JobState::Lost => {
                "all that is known of why there is no answer"
            }
            JobState::Queued | JobState::Starting | JobState::Running => return self.steps_while_it_runs(id),
        };
        vec![format!("{prefix}get_job_results(job_id=\"{id}\") has {left}")]
    }

    fn steps_while_it_runs(self, id: JobId) -> Vec<String> {
        let Self { prefix } = self;
        vec![
            format!(
                "{prefix}get_job_status(job_id=\"{id}\") in 5 to 10 seconds, with other work in between; wait_seconds=25 waits \
                 for the end instead of asking again and again"
            ),
            format!("{prefix}get_job_results(job_id=\"{id}\") once the status is completed"),
        ]
    }

    fn steps_of_an_agent(self, id: JobId, status: JobState) -> Vec<String> {
        let mut steps = self.all_steps_of_an_agent(id, status);
        // What is not in its list it cannot call.
        steps.retain(|step| self.lists_all() || !step.contains("get_job_logs"));
        steps
    }

    fn all_steps_of_an_agent(self, id: JobId, status: JobState) -> Vec<String> {
        let Self { prefix } = self;
        match status {
            JobState::Queued | JobState::Starting | JobState::Running => self.steps_while_it_runs(id),
            JobState::Completed => vec![
                format!("{prefix}get_job_results(job_id=\"{id}\") has what it left"),
                format!("{prefix}get_job_logs(job_id=\"{id}\") has all that it printed"),
            ],
            JobState::Failed | JobState::Cancelled | JobState::Lost => vec![
                format!("{prefix}get_job_results(job_id=\"{id}\") has the error and the end of the output"),
                format!("{prefix}get_job_logs(job_id=\"{id}\", stream=\"stderr\") has all of it"),
                "start it anew once the cause is clear; nothing starts it again by itself".to_owned(),
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
        // It left an answer all the same.
        _ if record.ending.as_ref().is_some_and(|ending| ending.reason == Some(EndReason::ToolError)) => {
            [format!("unhang job result {id}"), format!("unhang job logs {id}")]
        }
        // Its server has a log of its own.
        _ if record.call.is_some() => [format!("unhang job show {id}"), format!("unhang job logs {id}")],
        JobState::Failed | JobState::Cancelled | JobState::Lost => {
            [format!("unhang job logs --stderr {id}"), format!("unhang job logs {id}")]
        }
    };
    steps.into()
}

impl ResultsReport {
    /// What is told of what a job has left.
    #[must_use]
    pub fn new(results: Results, reader: ReportReader) -> Self {
        let Results { status, results, error, stdout_tail, stderr_tail, gone } = results;
        let results_name = status.record.results.clone();
        let is_call = status.record.call.is_some();
        let results = results.map(|results| if is_call { without_protocol(results) } else { results });
        let job = JobReport::new(&status, reader);
        Self { job, results, results_name, error, stdout_tail, stderr_tail, gone }
    }
}

/// Returns the answer of a call without what 2026-07-28 says of a result: the window that leads adds it for those that follow, and whoever
/// reads the answer here is the client of neither.
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

/// The kind of an error, for programs.
#[must_use]
pub fn kind(error: &JobError) -> &'static str {
    match error {
        JobError::NoSuchJob(_) | JobError::Removed(_) => "no_such_job",
        JobError::IdTaken(_) => "id_taken",
        JobError::HasEnded { .. } => "has_ended",
        JobError::HasNotEnded { .. } => "has_not_ended",
        JobError::NoRoom { .. } | JobError::EndUnwritten { .. } => "no_room",
        JobError::MissingState(_) => "missing_state",
        JobError::Serialization(_) | JobError::InputTooLarge { .. } => "serialization",
        JobError::NoCommand | JobError::ArgumentsTaken | JobError::Command(_) => "bad_command",
        JobError::Uncertain { .. }
        | JobError::Unconfirmed { .. }
        | JobError::Late { .. }
        | JobError::StillEnding { .. } => "deadline",
        JobError::FileLimit { .. } => "file_limit",
        JobError::LogGone { .. } | JobError::FolderGone { .. } | JobError::DataFolderGone { .. } => "gone",
        JobError::Closed => "shutting_down",
        // Files, the database, and whatever is added later.
        _ => "storage",
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
