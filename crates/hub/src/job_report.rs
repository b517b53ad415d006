//! What is told of a job, its results, its logs and the named state: the one form that tools answer with and that the command
//! line prints as JSON.
//!
//! Invariants
//!
//! - The names of the members are part of the public contract (design 7); what means nothing yet is absent.
//! - What a status means does not depend on who asks; the next steps do, since an agent has tools and a person commands.

use serde::Serialize;
use serde_json::Value;

use crate::jobs::{
    document::{Document, Field, Listed},
    engine::{Results, Status},
    error::JobError,
    id::JobId,
    log::Page,
    moment::Moment,
    record::{JobState, Reason, Record},
};

/// Who reads the next steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// An agent, which has the tools.
    Agent,
    /// A person, who has the command line.
    Person,
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

/// Where a job is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its id.
    pub job_id: JobId,
    /// What people call it.
    pub name: String,
    /// Where it is.
    pub status: JobState,
    /// When it was accepted.
    pub created_at: Moment,
    /// When it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Moment>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Moment>,
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
    pub reason: Option<Reason>,
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

/// What a job has left.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultsReport {
    /// Where it is.
    #[serde(flatten)]
    pub job: JobReport,
    /// Its result file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<Value>,
    /// What it says of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The end of its stdout.
    pub stdout_tail: String,
    /// The end of its stderr.
    pub stderr_tail: String,
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
    pub updated_at: Moment,
}

/// What the list of documents says of one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedReport {
    /// Its name.
    pub field: Field,
    /// Bytes of its file.
    pub bytes: u64,
    /// When it was last replaced.
    pub updated_at: Moment,
}

impl Accepted {
    /// The answer to a submission that was accepted as `status` says.
    #[must_use]
    pub fn new(status: &Status, reader: Reader) -> Self {
        let id = status.record.job_id;
        let message = match status.queue_position {
            None => format!("job {id} is being started"),
            Some(0) => format!("job {id} is queued and starts next"),
            Some(before) => format!("job {id} is queued with {before} ahead of it"),
        };
        let next_steps = match reader {
            Reader::Agent => vec![
                format!(
                    "Ask get_job_status for job_id {id} about every 10 seconds, or with wait_seconds up to 25, and do \
                     other work in between."
                ),
                format!("When it is completed, fetch what it left with get_job_results, job_id {id}."),
            ],
            Reader::Person => next_steps(&status.record, reader),
        };
        Self { job_id: id, status: status.record.status, message, next_steps }
    }
}

impl JobReport {
    /// What is told of a job.
    #[must_use]
    pub fn new(status: &Status, reader: Reader) -> Self {
        let Status { record, queue_position, progress, wait_reason } = status;
        let ending = record.ending.as_ref();
        // Milliseconds are what the records have.
        let elapsed = (status.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        Self {
            job_id: record.job_id,
            name: record.name.clone(),
            status: record.status,
            created_at: record.created_at,
            started_at: record.started_at,
            completed_at: ending.map(|ending| ending.completed_at),
            elapsed_time_seconds: elapsed,
            progress: progress.as_ref().map(|progress| progress.fraction),
            progress_message: progress.as_ref().and_then(|progress| progress.message.clone()),
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
        let cause = match (&self.detail, self.exit_code, self.signal) {
            (Some(detail), ..) => Some(detail.clone()),
            (None, _, Some(signal)) => Some(format!("signal {signal}")),
            (None, Some(code), None) => Some(format!("exit code {code}")),
            (None, None, None) => self.wait_reason.clone(),
        };
        // That a good end has code 0, and a cancelled one its signal, goes without saying.
        match cause.filter(|_| !matches!(self.status, JobState::Completed | JobState::Cancelled)) {
            Some(cause) => format!("{}: {cause}", self.status),
            None => self.status.to_string(),
        }
    }
}

/// What can be done with a job that is where it is.
fn next_steps(record: &Record, reader: Reader) -> Vec<String> {
    let id = record.job_id;
    let steps: [String; 2] = match (reader, record.status) {
        (Reader::Agent, JobState::Queued | JobState::Starting | JobState::Running) => [
            "Ask again in about 10 seconds, or with wait_seconds up to 25, and do other work in between."
                .to_owned(),
            "Read along with get_job_logs, or end it with terminate_job.".to_owned(),
        ],
        (Reader::Agent, JobState::Completed) => [
            "Fetch what it left with get_job_results.".to_owned(),
            "Read its output with get_job_logs.".to_owned(),
        ],
        (Reader::Agent, JobState::Failed | JobState::Cancelled | JobState::Lost) => [
            "See the ends of its logs with get_job_results, all of them with get_job_logs.".to_owned(),
            "Once the cause is clear, start it anew; nothing starts it again by itself.".to_owned(),
        ],
        (Reader::Person, JobState::Queued | JobState::Starting | JobState::Running) => {
            [format!("unhang job wait {id}"), format!("unhang job logs -f {id}")]
        }
        (Reader::Person, JobState::Completed) if record.results.is_none() => {
            [format!("unhang job logs {id}"), format!("unhang job remove {id}")]
        }
        (Reader::Person, JobState::Completed) => {
            [format!("unhang job result {id}"), format!("unhang job logs {id}")]
        }
        (Reader::Person, JobState::Failed | JobState::Cancelled | JobState::Lost) => {
            [format!("unhang job logs --stderr {id}"), format!("unhang job logs {id}")]
        }
    };
    steps.into()
}

impl ResultsReport {
    /// What is told of what a job has left.
    #[must_use]
    pub fn new(results: Results, reader: Reader) -> Self {
        let Results { status, results, error, stdout_tail, stderr_tail } = results;
        Self { job: JobReport::new(&status, reader), results, error, stdout_tail, stderr_tail }
    }
}

impl From<Page> for LogReport {
    fn from(page: Page) -> Self {
        let Page { text, offset, next_offset, eof, dropped_before } = page;
        Self { text, offset, next_offset, eof, dropped_before }
    }
}

impl From<Document> for DocumentReport {
    fn from(document: Document) -> Self {
        let Document { field, value, updated_at } = document;
        Self { field, value, updated_at }
    }
}

impl From<Listed> for ListedReport {
    fn from(listed: Listed) -> Self {
        let Listed { field, bytes, updated_at } = listed;
        Self { field, bytes, updated_at }
    }
}

/// The kind of an error, for programs.
#[must_use]
pub fn kind(error: &JobError) -> &'static str {
    match error {
        JobError::NoSuchJob(_) => "no_such_job",
        JobError::IdTaken(_) => "id_taken",
        JobError::HasEnded { .. } => "has_ended",
        JobError::HasNotEnded { .. } => "has_not_ended",
        JobError::NoRoom { .. } => "no_room",
        JobError::MissingState(_) => "missing_state",
        JobError::Serialization(_) => "serialization",
        JobError::NoCommand | JobError::Command(_) => "bad_command",
        JobError::Uncertain { .. } | JobError::StillEnding { .. } => "deadline",
        JobError::Closed => "shutting_down",
        // Files, the database, and whatever is added later.
        _ => "storage",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jobs::{
        progress::Progress,
        record::{Ending, Outcome},
    };

    fn status(change: impl FnOnce(&mut Record)) -> Status {
        let mut record: Record = serde_json::from_value(json!({
            "format": 1, "job_id": "abcdefgh2345", "name": "simulate", "command": ["true"], "folder": "/",
            "stop_grace_ms": 5000, "log_limit": 1, "status": "queued", "created_at": "2026-03-30T12:00:00.000Z",
            "rules": {"max_concurrent": 2, "memory_limit": 90.0, "disk_reserve": 0},
        }))
        .unwrap();
        change(&mut record);
        Status { record, queue_position: None, progress: None, wait_reason: None }
    }

    fn ended(outcome: Outcome, change: impl FnOnce(&mut Ending)) -> Status {
        status(|record| {
            record.started_at = Some(record.created_at);
            let completed_at = Moment::from_millis(record.created_at.millis() + 1500);
            let mut ending = Ending { completed_at, ..Ending::without_run(outcome) };
            change(&mut ending);
            record.end(&ending);
        })
    }

    #[test]
    fn the_names_are_those_of_the_contract_and_what_means_nothing_is_absent() {
        let mut queued = status(|_| {});
        queued.queue_position = Some(3);
        let mut report = serde_json::to_value(JobReport::new(&queued, Reader::Person)).unwrap();
        assert!(report["elapsed_time_seconds"].take().as_f64().unwrap() > 0.0);
        assert_eq!(
            report,
            json!({"job_id": "abcdefgh2345", "name": "simulate", "status": "queued",
                "created_at": "2026-03-30T12:00:00.000Z", "elapsed_time_seconds": null, "queue_position": 3,
                "next_steps": ["unhang job wait abcdefgh2345", "unhang job logs -f abcdefgh2345"]})
        );
        let mut failed = ended(Outcome::Failed, |ending| ending.exit_code = Some(3));
        failed.progress = Some(Progress { fraction: 0.4, message: Some("cooling".to_owned()) });
        assert_eq!(
            serde_json::to_value(JobReport::new(&failed, Reader::Agent)).unwrap(),
            json!({"job_id": "abcdefgh2345", "name": "simulate", "status": "failed",
                "created_at": "2026-03-30T12:00:00.000Z", "started_at": "2026-03-30T12:00:00.000Z",
                "completed_at": "2026-03-30T12:00:01.500Z", "elapsed_time_seconds": 1.5, "progress": 0.4,
                "progress_message": "cooling", "exit_code": 3,
                "next_steps": [
                    "See the ends of its logs with get_job_results, all of them with get_job_logs.",
                    "Once the cause is clear, start it anew; nothing starts it again by itself."]})
        );
    }

    #[test]
    fn j_23_the_answer_to_a_submission_names_the_status_and_the_results_tool() {
        let mut queued = status(|_| {});
        queued.queue_position = Some(0);
        let accepted = Accepted::new(&queued, Reader::Agent);
        assert_eq!(accepted.message, "job abcdefgh2345 is queued and starts next");
        assert!(accepted.next_steps[0].contains("get_job_status"), "{accepted:?}");
        assert!(accepted.next_steps[1].contains("get_job_results"), "{accepted:?}");
    }

    #[test]
    fn a_summary_says_why_where_there_is_a_why() {
        let summary = |status: Status| JobReport::new(&status, Reader::Person).summary();
        assert_eq!(summary(ended(Outcome::Completed, |ending| ending.exit_code = Some(0))), "completed");
        assert_eq!(summary(ended(Outcome::Cancelled, |ending| ending.signal = Some(15))), "cancelled");
        assert_eq!(summary(ended(Outcome::Failed, |ending| ending.signal = Some(9))), "failed: signal 9");
        assert_eq!(
            summary(ended(Outcome::Failed, |ending| ending.exit_code = Some(3))),
            "failed: exit code 3"
        );
        let because = |ending: &mut Ending| {
            ending.exit_code = Some(0);
            *ending = ending.clone().because(Reason::ResultsMissing, "results.json is missing");
        };
        assert_eq!(summary(ended(Outcome::Failed, because)), "failed: results.json is missing");
        let mut waiting = status(|_| {});
        waiting.wait_reason = Some("95 % of the memory is in use".to_owned());
        assert_eq!(summary(waiting), "queued: 95 % of the memory is in use");
    }
}
