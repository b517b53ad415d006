//! Tasks, from the side of a server: `tasks/get` and the other requests about them, in both dialects (protocol.md 2).
//!
//! Theory of operation. A task is a job: a promoted call of a server's tool, or a command of the configuration. A client's request about a
//! task goes to the job service, outside the event loop, on behalf of the caller. Jobs of other callers are invisible to it.
//!
//! Invariants
//!
//! - No request waits without a limit: `tasks/result` ends with an error that says to ask again.
//! - A task that never existed, that is gone, or that is another caller's looks the same.
//! - A dialect is spoken only to clients that speak it.

use std::time::Duration;

use serde_json::{Value, json};
use unhang_bridge::{
    Era, Splice, result,
    tasks::{self, Dialect, TaskOutcome, TaskStatus},
};
use unhang_jobs::{
    id::JobId,
    record::{EndReason, JobState},
};
use unhang_wire::Json;

use super::{
    answers::implementation,
    client_request::{ClientRequest, invalid_params},
    questions::members,
    session_calls::{Awaited, SessionCall},
};
use unhang_background::OpenInput;
use unhang_core::{
    config::VERDICT_SLACK,
    fault::{Fault, FaultKind},
    refusal::ErrorReport,
    revision::Revision,
    units::in_words,
};
use unhang_tools::{
    job_report::{JobReport, ToolNames},
    service::CallAnswer,
};

/// The beginning of a job's URI, as a resource.
const JOB_SCHEME: &str = "job://";

/// Returns the job of this URI. Returns `None` if it is not the URI of a job.
pub fn job_of(uri: &str) -> Option<JobId> {
    uri.strip_prefix(JOB_SCHEME)?.parse().ok()
}

/// The least and the greatest time that a client should wait before it asks again.
const POLL_LEAST: Duration = Duration::from_millis(250);
const POLL_MOST: Duration = Duration::from_secs(2);
/// The part of its time so far that a client should let pass. A task that has just begun may end soon.
const POLL_PART: f64 = 0.25;

/// Returns how long a client should wait before it asks for this job again.
fn poll_interval(report: &JobReport) -> Duration {
    let part = Duration::try_from_secs_f64(report.elapsed_time_seconds * POLL_PART);
    part.unwrap_or(POLL_MOST).clamp(POLL_LEAST, POLL_MOST)
}

/// The abilities of the jobs behind a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobCapabilities {
    /// Whether there is a job service.
    pub are_there: bool,
    /// Whether calls of servers' tools may become jobs.
    pub promotes: bool,
    /// Whether callers are told apart, so that a list shows each its own jobs.
    pub tells_callers_apart: bool,
    /// Whether the clients are windows, which make jobs of calls themselves.
    pub are_of_windows: bool,
    /// How long a job is kept after its end.
    pub ttl: Option<Duration>,
    /// The names of the job tools, if there is nothing but jobs.
    pub alone: Option<ToolNames>,
}

impl JobCapabilities {
    /// Returns the hint that tells how to list all readable resources.
    pub(super) fn names_all(self) -> String {
        match self.alone {
            Some(names) => format!("{}list_jobs lists all jobs", names.prefix),
            None => "resources/list names all resources".to_owned(),
        }
    }
}

/// A request about tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskAsked {
    /// The state of a task.
    Get(JobId),
    /// Everything that is known of a task, as the content of a resource.
    Resource(JobId),
    /// The result of a task after its end, waiting no longer than this.
    Result(JobId, Duration),
    /// The cancellation of a task.
    Cancel(JobId),
    /// Answers to the questions of a task.
    Update(JobId, Vec<(String, String)>),
    /// The caller's tasks, after this one if it is given.
    List(Option<JobId>),
}

impl TaskAsked {
    /// Returns the task that it is about. Returns `None` for a list.
    pub(super) fn about(&self) -> Option<JobId> {
        match self {
            TaskAsked::Get(id)
            | TaskAsked::Resource(id)
            | TaskAsked::Result(id, _)
            | TaskAsked::Cancel(id)
            | TaskAsked::Update(id, _) => Some(*id),
            TaskAsked::List(_) => None,
        }
    }
}

/// The knowledge about a task.
#[derive(Clone, Debug)]
pub struct TaskTold {
    /// The report of the job.
    pub report: JobReport,
    /// The outcome, after its end.
    pub answer: Option<CallAnswer>,
    /// The open questions that it waits for.
    pub inputs: Vec<OpenInput>,
}

/// The outcome of a request about tasks.
#[derive(Clone, Debug)]
pub enum TasksTold {
    /// The knowledge about one task.
    One(Box<TaskTold>),
    /// A page of tasks, and whether more follow.
    All(Vec<JobReport>, bool),
    /// The page begins after a task that is not in the list.
    NoSuchPage,
    /// The task has ended already, so that it cannot be cancelled.
    HasEnded(Box<TaskTold>),
    /// The task has not ended in time.
    NotYet,
    /// The caller has no task of this id.
    Unknown(JobId),
    /// The job service has failed, for this reason.
    Failed(String),
}

/// A job in the form of a task.
pub(super) struct TaskView {
    id: JobId,
    status: TaskStatus,
    message: Option<String>,
    created_at: String,
    updated_at: String,
    ttl: Option<u64>,
    poll_interval: u64,
}

impl TaskView {
    /// Makes the view of a job, which is kept for `ttl` after its end.
    pub(super) fn of(report: &JobReport, ttl: Option<Duration>) -> Self {
        let status = match report.status {
            JobState::Queued | JobState::Starting | JobState::Running => TaskStatus::Working,
            JobState::Completed => TaskStatus::Completed,
            JobState::Failed | JobState::Lost => TaskStatus::Failed,
            JobState::Cancelled => TaskStatus::Cancelled,
        };
        let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let percent = report.progress.map(|progress| format!("{:.0} % done", progress * 100.0));
        let doing = percent.into_iter().chain(report.progress_message.clone());
        let doing = doing.collect::<Vec<_>>().join(": ");
        let message = report.cause().or_else(|| Some(doing).filter(|doing| !doing.is_empty()));
        Self {
            id: report.job_id,
            status,
            message,
            created_at: report.created_at.to_string(),
            updated_at: report.completed_at.unwrap_or(report.created_at).to_string(),
            ttl: ttl.map(millis),
            poll_interval: millis(poll_interval(report)),
        }
    }

    pub(super) fn task(&self) -> tasks::Task<'_> {
        tasks::Task {
            id: self.id.as_str(),
            status: self.status,
            message: self.message.as_deref(),
            created_at: &self.created_at,
            updated_at: &self.updated_at,
            ttl_ms: self.ttl,
            poll_interval_ms: Some(self.poll_interval),
        }
    }
}

/// The outcome of a job, in the form for a client of this dialect.
pub(super) enum JobOutcomeWords {
    Nothing,
    Asked(Vec<(String, String)>),
    Result(String),
    Error(String),
}

impl JobOutcomeWords {
    pub(super) fn of(told: &TaskTold, dialect: Dialect) -> Self {
        match &told.answer {
            None if !told.inputs.is_empty() => {
                JobOutcomeWords::Asked(told.inputs.iter().map(request).collect())
            }
            None if !told.report.status.is_final() => JobOutcomeWords::Nothing,
            None => JobOutcomeWords::Error(error_of(&told.report).to_string()),
            Some(CallAnswer::Error(error)) => JobOutcomeWords::Error(error.clone()),
            Some(CallAnswer::Result(answer)) => {
                let raw = Json::new(answer.as_bytes());
                let worded = raw.and_then(|raw| match (dialect, era_of(raw)) {
                    (Dialect::Core, Era::Modern) => result::to_legacy("tools/call", raw),
                    (Dialect::Extension, Era::Legacy) => result::to_modern("tools/call", raw, None),
                    _ => None,
                });
                JobOutcomeWords::Result(worded.map_or_else(|| answer.clone(), Into::into))
            }
        }
    }

    pub(super) fn outcome(&self) -> TaskOutcome<'_> {
        match self {
            JobOutcomeWords::Nothing => TaskOutcome::Open,
            JobOutcomeWords::Asked(inputs) => TaskOutcome::Input(inputs),
            JobOutcomeWords::Result(text) => json_or_open(text, TaskOutcome::Result),
            JobOutcomeWords::Error(text) => json_or_open(text, TaskOutcome::Error),
        }
    }
}

/// Writes an open question as a request of 2026-07-28, under its key.
fn request(input: &OpenInput) -> (String, String) {
    let members = members((&input.method, input.params.as_deref()), Era::Modern, &input.key);
    (input.key.clone(), format!("{{{members}}}"))
}

/// Writes a job as the content of a resource: the report of `get_job_status` and, after its end, its whole outcome.
fn as_resource(uri: &str, told: &TaskTold) -> String {
    let report = serde_json::to_string(&told.report).unwrap_or_default();
    let known = Splice::new(Json::new(report.as_bytes()).unwrap_or(Json::EMPTY));
    // The outcome stays as it was written.
    let known = match &told.answer {
        Some(CallAnswer::Result(result)) => known.set("results", result.as_str()),
        Some(CallAnswer::Error(error)) => known.set("error", error.as_str()),
        None => known,
    };
    let text = known.apply().unwrap_or_default();
    let content = json!({ "uri": uri, "mimeType": "application/json", "text": text });
    json!({ "contents": [content] }).to_string()
}

/// Makes the error for a page with an unknown cursor.
fn no_such_page() -> String {
    let message =
        "tasks/list has a cursor that is too old, or that unhang never gave out; ask without a cursor";
    json!({ "code": FaultKind::InvalidParams.code(), "message": message }).to_string()
}

fn json_or_open<'a>(text: &'a str, outcome: fn(Json<'a>) -> TaskOutcome<'a>) -> TaskOutcome<'a> {
    Json::new(text.as_bytes()).map_or(TaskOutcome::Open, outcome)
}

/// Returns the era of a result's maker: results of 2026-07-28 name their kind.
pub(super) fn era_of(result: Json<'_>) -> Era {
    if result.member(result::RESULT_TYPE).is_some() { Era::Modern } else { Era::Legacy }
}

/// Makes the error of a call whose job has no result, with the reason.
fn error_of(report: &JobReport) -> Value {
    let kind = match (report.status, report.reason) {
        (JobState::Cancelled, _) => FaultKind::Cancelled,
        (_, Some(EndReason::Timeout)) => FaultKind::Deadline,
        (_, Some(EndReason::ServerError)) => FaultKind::BadResponse,
        (_, Some(EndReason::ServerExited)) => FaultKind::ServerExited,
        _ => FaultKind::ShuttingDown,
    };
    let elapsed = Duration::try_from_secs_f64(report.elapsed_time_seconds).unwrap_or_default();
    let (how, hint) = match kind {
        FaultKind::Cancelled => (
            format!("{} after {}", report.status, in_words(elapsed)),
            "call it again if you still need the result",
        ),
        _ => (report.summary(), "unhang does not start it again by itself"),
    };
    let happened = format!("`{}` has no result: {how}", report.name);
    let error_report = ErrorReport { kind, summary: happened, hint };
    let server = report.server.as_deref().unwrap_or("unhang");
    let fault = Fault { elapsed, ..error_report.into_fault(server, Some("tools/call")) };
    let mut data = fault.data();
    (data["job"], data["reason"]) = (json!(report.job_id), json!(report.reason));
    json!({ "code": kind.code(), "message": fault.message(), "data": data })
}

impl JobCapabilities {
    /// Returns whether this is a request about tasks that a client of this revision can make here.
    pub(super) fn answer_tasks(self, method: &str, revision: Revision) -> bool {
        let core = revision == Revision::V2025November;
        self.are_there
            && match method {
                tasks::GET | tasks::CANCEL => core || revision.is_stateless(),
                tasks::RESULT => core,
                tasks::LIST => core && self.tells_callers_apart,
                tasks::UPDATE => revision.is_stateless(),
                _ => false,
            }
    }

    /// Adds tasks to the capabilities of unhang.
    pub(super) fn offer_tasks(self, revision: Revision, capabilities: &mut Value) {
        let dialect = match revision {
            Revision::V2025November => Dialect::Core,
            _ if revision.is_stateless() => Dialect::Extension,
            _ => return,
        };
        let (member, offer) = tasks::offer(dialect, self.tells_callers_apart);
        capabilities[member] = serde_json::from_str(offer).unwrap_or_default();
    }

    /// Returns the job that a client reads as a resource. Returns `None` for any other request.
    pub(super) fn read_by(self, request: &ClientRequest<'_>) -> Option<(JobId, String)> {
        let is_read = request.method == "resources/read" && self.are_there;
        let uri = is_read.then(|| request.text("uri")).flatten()?;
        Some((job_of(&uri)?, uri))
    }
}

impl TaskAsked {
    /// Reads a request about tasks. Fails with the error for the client. A result is waited for as long as a call.
    pub(super) fn by(
        request: &ClientRequest<'_>,
        call_limit: impl FnOnce() -> Duration,
    ) -> Result<TaskAsked, String> {
        let job = |id: &str| id.parse::<JobId>().map_err(|_| tasks::unknown_task(id));
        let about = || job(&tasks::about_whom(&request.method, request.params)?);
        Ok(match &*request.method {
            tasks::GET => TaskAsked::Get(about()?),
            tasks::CANCEL => TaskAsked::Cancel(about()?),
            tasks::RESULT => TaskAsked::Result(about()?, call_limit()),
            tasks::UPDATE => {
                let (id, responses) = tasks::input_responses(request.params)?;
                TaskAsked::Update(job(&id)?, responses)
            }
            _ => {
                let after = request
                    .cursor()
                    .map(|cursor| cursor.text().and_then(|id| id.parse().ok()).ok_or_else(no_such_page));
                TaskAsked::List(after.transpose()?)
            }
        })
    }

    /// Returns the method of the request, and how long it may take if other requests have this limit.
    pub(super) fn method_and_limit(&self, request_limit: Duration) -> (&'static str, Duration) {
        match self {
            TaskAsked::Get(_) | TaskAsked::Resource(_) => (tasks::GET, request_limit),
            TaskAsked::Result(_, limit) => (tasks::RESULT, *limit + VERDICT_SLACK),
            TaskAsked::Cancel(_) => (tasks::CANCEL, request_limit),
            TaskAsked::Update(..) => (tasks::UPDATE, request_limit),
            TaskAsked::List(_) => (tasks::LIST, request_limit),
        }
    }
}

impl TasksTold {
    /// Makes the result of a request about tasks, or its error. A job is kept for `ttl` after its end.
    pub(super) fn answer(&self, call: &SessionCall, ttl: Option<Duration>) -> Result<String, String> {
        let dialect = if call.revision.is_stateless() { Dialect::Extension } else { Dialect::Core };
        let server = implementation().to_string();
        let view = |report: &JobReport| TaskView::of(report, ttl);
        let failed = |why: &str| {
            let error_report = invalid_params(why.to_owned(), "");
            json!({ "code": FaultKind::ShuttingDown.code(), "message": error_report.summary }).to_string()
        };
        if let (Awaited::Job(uri), TasksTold::One(told)) = (&call.awaited, self) {
            let result = as_resource(uri, told);
            let modern = || result::to_modern("resources/read", Json::new(result.as_bytes())?, Some(&server));
            let modern = if call.revision.is_stateless() { modern().map(Into::into) } else { None };
            return Ok(modern.unwrap_or(result));
        }
        match (self, call.awaited.method()) {
            (TasksTold::Unknown(id), _) => Err(tasks::unknown_task(id.as_str())),
            (TasksTold::Failed(why), _) => Err(failed(why)),
            (TasksTold::NotYet, _) => Err(failed("the task has not ended yet; ask for its result again")),
            (TasksTold::NoSuchPage, _) => Err(no_such_page()),
            (TasksTold::All(reports, has_more), _) => {
                let views: Vec<TaskView> = reports.iter().map(view).collect();
                let cursor = views.last().filter(|_| *has_more).map(|last| last.id.as_str());
                Ok(tasks::listed(&views.iter().map(TaskView::task).collect::<Vec<_>>(), cursor))
            }
            (TasksTold::HasEnded(told), _) if dialect == Dialect::Core => {
                let view = view(&told.report);
                let status = JobOutcomeWords::of(told, dialect).outcome().status(dialect, view.status);
                Err(tasks::already_ended(told.report.job_id.as_str(), status))
            }
            (TasksTold::One(told) | TasksTold::HasEnded(told), method) => {
                let (view, came) = (view(&told.report), JobOutcomeWords::of(told, dialect));
                match method {
                    tasks::RESULT => match came {
                        JobOutcomeWords::Result(text) => Json::new(text.as_bytes())
                            .map(|result| tasks::payload(result, told.report.job_id.as_str()))
                            .ok_or_else(|| failed("unhang can no longer read its result")),
                        JobOutcomeWords::Error(error) => Err(error),
                        JobOutcomeWords::Nothing | JobOutcomeWords::Asked(_) => {
                            Err(failed("the task has not ended yet; ask for its result again"))
                        }
                    },
                    tasks::CANCEL => Ok(tasks::cancelled(dialect, &view.task(), Some(&server))),
                    tasks::UPDATE => Ok(tasks::acknowledged(Some(&server))),
                    _ => Ok(tasks::got(dialect, &view.task(), came.outcome(), Some(&server))),
                }
            }
        }
    }
}
