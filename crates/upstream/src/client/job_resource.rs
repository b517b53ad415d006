//! A job of ours as its resource tells of it.
//!
//! Invariants: pure. Only the resource of a job, which names that very job and its state, is taken for one: what else a server has under
//! such a URI is a resource like any other.

use serde_json::{Value, value::RawValue};
use unhang_jobs::{id::JobId, record::JobState};

/// How the URI of a job begins, behind the name of a server where several have jobs.
pub(super) const JOB_SCHEME: &str = "job://";

/// A job, as a server tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResource {
    /// Its id.
    pub job: JobId,
    /// What it is called.
    pub name: String,
    /// Where it is.
    pub state: JobState,
    /// What it is doing, as it says itself.
    pub doing: Option<String>,
    /// Why it is where it is, where the server says so.
    pub cause: Option<String>,
}

impl JobResource {
    /// The job that the result of reading this URI tells of; `None` for any other resource.
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

    /// Whether it has ended, and not well.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.is_final() && self.state != JobState::Completed
    }
}

/// The id in the URI of a job, which may stand behind the name of a server: `job://ID`, `NAME+job://ID`.
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
