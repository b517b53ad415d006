//! One server of jobs, and the tools of it that are measured.
//!
//! # Invariants
//!
//! - A time is that from the first byte of the request to the last of the answer; the answer is understood after it.
//! - Every wait for a job has a limit, and ends when the run is to end.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::bounded_waits;

use super::go_on;
use super::jobs_folder::JobsFolder;
use crate::load::answers::PATIENCE;
use crate::load::session::LoadSession;

/// How long a job may take to get where it is waited for; a queue of hundreds is before some.
pub(super) const JOB_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at where a job is.
pub(super) const LOOK: Duration = Duration::from_millis(2);
/// How long the start of a server may take that has a hundred thousand folders and no database.
const REBUILD_LIMIT: Duration = Duration::from_secs(900);

/// A server with its session.
pub(super) struct LoadServer<'a> {
    jobs_folder: &'a JobsFolder,
    /// None once it was closed.
    session: Option<LoadSession>,
}

impl Drop for LoadServer<'_> {
    fn drop(&mut self) {
        if self.session.is_some() {
            // Before the session waits for what stands below its server.
            self.jobs_folder.end_jobs();
        }
    }
}

impl<'a> LoadServer<'a> {
    /// Starts one with its data in this part of the folder; returns when `initialize` is answered.
    pub(super) fn start(jobs_folder: &'a JobsFolder, data: &str, at_once: usize) -> io::Result<Self> {
        Self::start_within(jobs_folder, data, at_once, PATIENCE)
    }

    /// The same on a folder without its database, which is made anew from the jobs' folders.
    pub(super) fn start_anew(jobs_folder: &'a JobsFolder, data: &str, at_once: usize) -> io::Result<Self> {
        Self::start_within(jobs_folder, data, at_once, REBUILD_LIMIT)
    }

    fn start_within(
        jobs_folder: &'a JobsFolder,
        data: &str,
        at_once: usize,
        timeout: Duration,
    ) -> io::Result<Self> {
        go_on()?;
        let home = jobs_folder.path(data);
        let home = home.to_str().ok_or_else(|| io::Error::other("the path of the folder is no text"))?;
        let session = LoadSession::open_alone(&jobs_folder.server(at_once), ("UNHANG_HOME", home), timeout)?;
        Ok(Self { jobs_folder, session: Some(session) })
    }

    fn session(&mut self) -> io::Result<&mut LoadSession> {
        self.session.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Calls a tool and returns the fields of its answer.
    fn call(&mut self, tool: &str, arguments: &str) -> io::Result<(Value, Duration)> {
        let (mut result, time) = call(self.session()?, tool, arguments)?;
        Ok((result["structuredContent"].take(), time))
    }

    /// Submits a job and returns its id.
    pub(super) fn submit(&mut self, tool: &str, arguments: &str) -> io::Result<(String, Duration)> {
        let (fields, time) = self.call(tool, arguments)?;
        let id = fields["job_id"].as_str().ok_or_else(|| io::Error::other(format!("no job: {fields}")))?;
        Ok((id.to_owned(), time))
    }

    /// A round trip that the jobs have no part in.
    pub(super) fn ping(&mut self) -> io::Result<Duration> {
        ask(self.session()?, "ping", "{}").map(|(_, time)| time)
    }

    /// Where a job is.
    pub(super) fn status(&mut self, job: &str) -> io::Result<(String, Duration)> {
        let (fields, time) = self.call("get_job_status", &json!({"job_id": job}).to_string())?;
        Ok((fields["status"].as_str().unwrap_or_default().to_owned(), time))
    }

    /// What a job has left, once it has ended.
    pub(super) fn results(&mut self, job: &str) -> io::Result<Value> {
        self.call("get_job_results", &json!({"job_id": job}).to_string()).map(|(fields, _)| fields)
    }

    pub(super) fn terminate(&mut self, job: &str) -> io::Result<()> {
        self.call("terminate_job", &json!({"job_id": job}).to_string()).map(drop)
    }

    pub(super) fn wait_until_running(&mut self, job: &str) -> io::Result<()> {
        self.wait_for(job, "running", 0)
    }

    /// Waits until these have ended; an error where one of them did not end well.
    pub(super) fn expect_completed(&mut self, jobs: &[String]) -> io::Result<()> {
        // The last one first: when it has ended, hardly any of the others is still to be waited for.
        jobs.iter().rev().try_for_each(|job| self.wait_for(job, "completed", 1))
    }

    /// `seconds` are those that the server waits for the end, so that one may hear in between that the run is to end.
    fn wait_for(&mut self, job: &str, expected: &str, seconds: u8) -> io::Result<()> {
        let arguments = json!({"job_id": job, "wait_seconds": seconds}).to_string();
        let end = bounded_waits::now() + JOB_LIMIT;
        loop {
            let (fields, _) = self.call("get_job_status", &arguments)?;
            let status = fields["status"].as_str().unwrap_or_default();
            if status == expected {
                return Ok(());
            }
            if !matches!(status, "queued" | "starting" | "running") || bounded_waits::now() >= end {
                return Err(io::Error::other(format!(
                    "job {job} is {status} instead of {expected}: {fields}"
                )));
            }
            bounded_waits::pause(LOOK);
        }
    }

    /// Ends the session, and waits for the end of the server.
    pub(super) fn close(mut self) -> io::Result<()> {
        self.session.take().map_or(Ok(()), |session| session.close().map(drop))
    }
}

/// Sends a request and waits for its answer.
fn ask(session: &mut LoadSession, method: &str, params: &str) -> io::Result<(Value, Duration)> {
    go_on()?;
    let begin = bounded_waits::now();
    session.request(method, params)?;
    let line = session.answer_line()?;
    let time = begin.elapsed();
    let mut answer = line.message().ok_or_else(|| io::Error::other("an answer that is too long"))?;
    Ok((answer["result"].take(), time))
}

/// Calls a tool, which has to succeed.
pub(in crate::load) fn call(
    session: &mut LoadSession,
    tool: &str,
    arguments: &str,
) -> io::Result<(Value, Duration)> {
    let params = format!("{{\"name\":{},\"arguments\":{arguments}}}", Value::from(tool));
    let (result, time) = ask(session, "tools/call", &params)?;
    if result["isError"] == Value::Bool(true) {
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        return Err(io::Error::other(format!("{tool}: {text}")));
    }
    Ok((result, time))
}
