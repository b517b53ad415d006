//! An unhang job, read from its resource.
//!
//! Invariants: pure. A resource counts as a job only if it names that very job and its state. Any other resource with such a URI is a
//! resource like all others.

use serde_json::{Value, value::RawValue};
use unhang_jobs::{id::JobId, record::JobState};

/// The beginning of a job's URI; if several servers have jobs, the name of a server stands before it.
pub(super) const JOB_SCHEME: &str = "job://";

/// A job, as a server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResource {
    /// The job's id.
    pub job: JobId,
    /// The job's name.
    pub name: String,
    /// The job's state.
    pub state: JobState,
    /// The job's own words about its current step.
    pub doing: Option<String>,
    /// The cause of its state, if the server tells it.
    pub cause: Option<String>,
}

impl JobResource {
    /// Reads the job in the result of reading this URI; `None` for any other resource.
    #[must_use]
    pub fn read(uri: &str, read: &RawValue) -> Option<Self> {
        let job = id_in(uri)?;
        let read: Value = serde_json::from_str(read.get()).ok()?;
        let told: Value = serde_json::from_str(read["contents"][0]["text"].as_str()?).ok()?;
        if told["job_id"] != job.as_str() {
            return None;
        }
        let text = |name: &str| told[name].as_str().map(str::to_owned);
        let number = |name: &str, what: &str| told[name].as_i64().map(|number| format!("{what} {number}"));
        let cause = text("detail")
            .or_else(|| number("signal", "signal"))
            .or_else(|| number("exit_code", "exit code"));
        Some(Self {
            job,
            name: text("name").unwrap_or_default(),
            state: told["status"].as_str()?.parse().ok()?,
            doing: text("progress_message"),
            cause,
        })
    }

    /// Returns whether the job has ended without completing.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.is_final() && self.state != JobState::Completed
    }
}

/// Reads the id in the URI of a job, which may follow the name of a server: `job://ID`, `NAME+job://ID`. Returns `None` for other URIs.
fn id_in(uri: &str) -> Option<JobId> {
    let (before, id) = uri.split_once(JOB_SCHEME)?;
    (before.is_empty() || before.ends_with('+')).then(|| id.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(uri: &str, told: &Value) -> Option<JobResource> {
        let read = json!({ "contents": [{ "uri": uri, "text": told.to_string() }] });
        JobResource::read(uri, &serde_json::value::to_raw_value(&read).unwrap())
    }

    #[test]
    fn f_70_a_job_is_known_by_its_uri_and_what_it_tells() {
        let failed = json!({ "job_id": "abcdefgh2345", "name": "slow", "status": "failed", "exit_code": 3 });
        for uri in ["job://abcdefgh2345", "srv+job://abcdefgh2345"] {
            let job = told(uri, &failed).unwrap();
            assert!(job.has_failed() && job.cause.as_deref() == Some("exit code 3"), "{job:?}");
        }
        for (status, has_failed) in
            [("running", false), ("completed", false), ("cancelled", true), ("lost", true)]
        {
            let job = json!({ "job_id": "abcdefgh2345", "status": status });
            assert_eq!(told("job://abcdefgh2345", &job).unwrap().has_failed(), has_failed, "{status}");
        }
        for (uri, other) in [
            ("job://abcdefgh2345", json!({ "job_id": "zzzzzzzz2345", "status": "failed" })),
            ("job://abcdefgh2345", json!({ "job_id": "abcdefgh2345", "status": "?" })),
            ("job://abcdefgh2345", json!("text")),
            ("file://job", failed.clone()),
            ("notjob://abcdefgh2345", failed),
        ] {
            assert_eq!(told(uri, &other), None, "{uri} {other}");
        }
    }
}
