//! The job with which a server goes on, read from what a tool's result says in words.
//!
//! Invariants: pure. A result counts as a job only if it has all members of the answer to a submission (design 7). The client calls no
//! tools for it but the two that look at jobs: a server cannot have another one called by what it writes.

use serde_json::{Value, value::RawValue};
use unhang_jobs::{id::JobId, record::JobState};

/// The tool that reports a job's state, and the tool that returns its result; each name may have a prefix.
const STATUS: &str = "get_job_status";
const RESULTS: &str = "get_job_results";

/// A job that a tool's result names in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInWords {
    /// The job's id.
    pub job: JobId,
    /// The prefix of the names of the tools about it.
    prefix: String,
}

/// The state of such a job.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusInWords {
    /// The job's state.
    pub state: JobState,
    /// The job is the call of a server's tool, not a command.
    pub(crate) is_call: bool,
    /// The part that is done.
    pub(crate) progress: Option<f64>,
    /// The job's own words about its current step.
    pub(crate) doing: Option<String>,
}

impl JobInWords {
    /// Reads the job that the result of this tool names; `None` for an answer, and for the answer of a tool about jobs.
    pub fn read(result: &RawValue, tool: &str) -> Option<Self> {
        // The search is cheap, and nearly no result contains this.
        memchr::memmem::find(result.get().as_bytes(), b"next_steps")?;
        let result: Value = serde_json::from_str(result.get()).ok()?;
        let told = &result["structuredContent"];
        let is_of_a_submission = told["message"].is_string() && told.get("created_at").is_none();
        if result["isError"] == true
            || !is_of_a_submission
            || tool.ends_with(STATUS)
            || tool.ends_with(RESULTS)
        {
            return None;
        }
        let state: JobState = told["status"].as_str()?.parse().ok()?;
        let job: JobId = told["job_id"].as_str()?.parse().ok()?;
        let steps = told["next_steps"].as_array()?.iter().filter_map(Value::as_str);
        let prefix = steps.filter_map(prefix_in).next().unwrap_or_default().to_owned();
        (!state.is_final()).then_some(Self { job, prefix })
    }

    /// Returns the server's name of the tool that reports the job's state.
    pub fn status_tool(&self) -> String {
        format!("{}{STATUS}", self.prefix)
    }

    /// Returns the server's name of the tool that returns the job's result.
    pub fn results_tool(&self) -> String {
        format!("{}{RESULTS}", self.prefix)
    }

    /// Returns this job with the tool names listed here: a gateway puts the name of a server before the names of its tools.
    pub(crate) fn among(self, listed: &[String], called: &str) -> Self {
        let own = self.status_tool();
        if listed.contains(&own) {
            return self;
        }
        let alike =
            |name: &str| name.bytes().zip(called.bytes()).take_while(|(one, other)| one == other).count();
        let nearest = listed.iter().filter(|name| name.ends_with(&own)).max_by_key(|name| alike(name));
        let prefix = nearest.and_then(|name| name.strip_suffix(STATUS)).map(str::to_owned);
        Self { prefix: prefix.unwrap_or(self.prefix), ..self }
    }
}

impl StatusInWords {
    /// Reads the answer of the tool that reports a job's state; `None` for anything else.
    pub fn read(result: &RawValue, job: JobId) -> Option<Self> {
        let result: Value = serde_json::from_str(result.get()).ok()?;
        let told = &result["structuredContent"];
        if told["job_id"] != job.as_str() {
            return None;
        }
        Some(Self {
            state: told["status"].as_str()?.parse().ok()?,
            is_call: told["kind"] == "call",
            progress: told["progress"].as_f64(),
            doing: told["progress_message"].as_str().map(str::to_owned),
        })
    }
}

/// Finds the prefix of the tool's name in a step such as `unhang_get_job_status(job_id="...")`; `None` if the step does not name the tool.
fn prefix_in(step: &str) -> Option<&str> {
    let before = &step[..step.find(STATUS)?];
    let is_of_a_name = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    Some(before.rsplit(|letter| !is_of_a_name(letter)).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn submission(status: &str, step: &str) -> Value {
        json!({ "content": [], "structuredContent": {
            "job_id": "abcdefgh2345", "status": status, "message": "goes on", "next_steps": [step],
        }})
    }

    #[test]
    fn only_what_a_submission_answers_with_is_a_job() {
        let step = "Next: unhang_get_job_status(job_id=\"abcdefgh2345\") in 5 seconds";
        let read = |value: &Value, tool: &str| JobInWords::read(&raw(value), tool);
        let job = read(&submission("running", step), "slow").unwrap();
        assert_eq!((job.job.as_str(), &*job.status_tool()), ("abcdefgh2345", "unhang_get_job_status"));
        assert_eq!(job.results_tool(), "unhang_get_job_results");
        assert_eq!(read(&submission("queued", "wait"), "slow").unwrap().status_tool(), STATUS);
        assert_eq!(read(&submission("completed", step), "slow"), None, "it has ended");
        assert_eq!(read(&submission("running", step), "srv__get_job_status"), None, "it was asked for");
        for (member, value) in [
            ("job_id", json!("../../etc")),
            ("created_at", json!("now")),
            ("message", json!(1)),
            ("status", json!("?")),
        ] {
            let mut other = submission("running", step);
            other["structuredContent"][member] = value;
            assert_eq!(read(&other, "slow"), None, "{member}");
        }
        let mut failed = submission("running", step);
        failed["isError"] = json!(true);
        assert_eq!(read(&failed, "slow"), None);
    }

    #[test]
    fn tools_are_found_behind_a_gateway_and_no_other_is_named() {
        let job = |step: &str| JobInWords::read(&raw(&submission("running", step)), "one__slow").unwrap();
        let listed =
            ["two__unhang_get_job_status", "one__unhang_get_job_status", "one__slow"].map(str::to_owned);
        let found = job("unhang_get_job_status(job_id=1)").among(&listed, "one__slow");
        assert_eq!(found.results_tool(), "one__unhang_get_job_results");
        let evil = job("rm_everything(job_id=1); get_job_status(job_id=1)");
        assert_eq!(evil.status_tool(), "get_job_status");
    }
}
