//! Calls with which a server goes on in the background. The client follows them to their end and returns the answer as if it had come at
//! once.
//!
//! Theory of operation. A server of unhang answers a slow call with a job, told in words and in the same fields for programs. A server that
//! knows tasks answers with a task. A task of 2026-07-28 may come at any time, since unhang declares that it copes with tasks. A task of
//! 2025-11-25 comes if the tool can be called in no other way. The client asks about a job with the tool that waits for its end, and about
//! a task as often as its server wants.
//!
//! Invariants
//!
//! - One limit bounds the call and all that is asked about it.
//! - The result is the whole answer that the server would have given at once.
//! - A job that is left behind is named, with the tool that fetches its result. A task that nobody could fetch is cancelled.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::time::{Instant, sleep};
use unhang_bridge::{
    Era,
    params::Signature,
    tasks::{self, Dialect, Payload, SeenTask, TaskStatus},
};
use unhang_jobs::{id::JobId, record::JobState};
use unhang_proc::deadline::Deadline;
use unhang_wire::{Json, text_member};

use super::{
    Background, CallOptions, Client, Error, ProgressSender, RequestOptions, RequestSignature, ServerError,
    ServerInfo, UnfinishedCall,
    in_words::{JobInWords, StatusInWords},
    introduced,
    job_resource::{JOB_SCHEME, JobResource},
    object,
};
use unhang_core::{fault::FaultKind, revision::Revision};

/// The longest wait for a job in one question: the most that the tool allows, and less if somebody watches the progress.
const WAIT_MOST: Duration = Duration::from_secs(25);
const WAIT_WATCHED: Duration = Duration::from_secs(2);
/// The pause between two looks if less than a second is left, or if a server answers a question at once that was to wait.
const LOOK_LEAST: Duration = Duration::from_millis(250);
/// The least and the longest pause between two looks at a task, and the pause if its server gives none.
const TASK_LEAST: Duration = Duration::from_millis(100);
const TASK_MOST: Duration = Duration::from_secs(30);
const TASK_USUAL: Duration = Duration::from_secs(1);
/// The timeout of the last look, which is made when the time is over: a call that has ended in time is no failure.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// The time that a server gets to hear that a task is not wanted any more.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

impl RequestOptions {
    /// Tells the caller, if it wants to know, with which job or task the server goes on.
    fn tell_of(&self, unfinished: UnfinishedCall) {
        if let Some(background) = &self.background {
            background.send_replace(Some(unfinished));
        }
    }
}

impl Client {
    /// Calls a tool, and returns its result as [`Client::call_tool`] does. If the server goes on with the call in the background, returns
    /// the result of that. `timeout` of the options bounds all of it.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does; with [`Error::Unfinished`] if the call had not ended in time.
    pub async fn call_tool_to_its_end(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        let session = self.ready().await?;
        let limit = options.timeout.unwrap_or(self.limits.call_timeout);
        let since = options.since.unwrap_or_else(Instant::now);
        let deadline = Deadline::after(limit.saturating_sub(since.elapsed()));
        let signed = self.signed_for_tasks(&session);
        let pursuit = FollowedCall { client: self, tool, limit, since, deadline, options, signed };
        pursuit.through(&session, arguments).await
    }

    /// Reads a resource as [`Client::read_resource`] does. Waits for the end of an unhang job (`job://` with its id) before it returns it.
    /// `timeout` of the options bounds all of it; without one, `call-timeout` does.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does; with [`Error::Unfinished`] if the job had not ended in time.
    pub async fn read_resource_to_its_end(
        &self,
        uri: &str,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        let limit = options.timeout.unwrap_or(self.limits.call_timeout);
        let (deadline, mut pace) = (Deadline::after(limit), LookPace::up_to(TASK_USUAL));
        loop {
            let read = self.read_resource(uri, options).await?;
            let running = JobResource::read(uri, &read).filter(|job| !job.state.is_final());
            let Some(running) = running else { return Ok(read) };
            let (server, job) = (self.name.to_string(), running.job.to_string());
            let (tool, what, doing) = (running.name, Background::OurTask, running.doing);
            let unfinished = UnfinishedCall { server, tool, job, what, limit, doing };
            if deadline.remaining().is_zero() {
                return Err(Error::Unfinished(Box::new(unfinished)));
            }
            options.tell_of(unfinished);
            sleep(pace.pause().min(deadline.remaining())).await;
        }
    }

    /// Returns the identity under which to ask a server that may answer with a task.
    fn signed_for_tasks(&self, session: &ServerInfo) -> RequestSignature {
        if !session.revision.is_stateless() || !server_offers_tasks(session, Dialect::Extension) {
            return RequestSignature::ByUs;
        }
        let capabilities = Value::from(self.listener.capabilities()).to_string();
        RequestSignature::By(Arc::new(Signature {
            revision: Revision::V2026July.name(),
            client_info: introduced().to_string(),
            client_capabilities: tasks::declare(&capabilities),
            log_level: None,
        }))
    }
}

/// Returns whether the server has tasks of this dialect.
fn server_offers_tasks(session: &ServerInfo, dialect: Dialect) -> bool {
    let capabilities = Value::from(session.capabilities.clone()).to_string();
    Json::new(capabilities.as_bytes()).is_some_and(|capabilities| tasks::offers_tasks(dialect, capabilities))
}

/// One call that the client follows to its end.
struct FollowedCall<'a> {
    client: &'a Client,
    tool: &'a str,
    limit: Duration,
    since: Instant,
    deadline: Deadline,
    options: &'a RequestOptions,
    signed: RequestSignature,
}

impl FollowedCall<'_> {
    async fn through(
        &self,
        session: &ServerInfo,
        arguments: Map<String, Value>,
    ) -> Result<Box<RawValue>, Error> {
        let params = json!({ "name": self.tool, "arguments": arguments }).to_string();
        let progress = self.options.progress.clone();
        let result =
            match self.ask_within(self.limit, self.since, "tools/call", &params, progress.clone()).await {
                // The tool can be called as a task alone, and the server has not begun the call.
                Err(Error::Server(error))
                    if error.code == i64::from(FaultKind::MethodNotFound.code()) && is_core(session) =>
                {
                    let as_task =
                        Json::new(params.as_bytes()).and_then(|params| tasks::ask_for_task(params, None));
                    let as_task = as_task
                        .filter(|_| server_offers_tasks(session, Dialect::Core))
                        .ok_or(Error::Server(error))?;
                    self.ask("tools/call", &as_task, progress).await?
                }
                result => result?,
            };
        if let Some(job) = JobInWords::read(&result, self.tool) {
            return self.job(job).await;
        }
        let dialect = if is_core(session) { Dialect::Core } else { Dialect::Extension };
        let raw = Json::new(result.get().as_bytes()).unwrap_or(Json::EMPTY);
        match tasks::read_created(dialect, raw) {
            Ok(None) => Ok(result),
            Ok(Some(task)) => self.task(task, dialect, session).await,
            Err(why) => Err(self.broken(&why)),
        }
    }

    /// Asks about the call in the background. Works even once the time is over, for the last look.
    async fn ask(
        &self,
        method: &str,
        params: &str,
        progress: Option<ProgressSender>,
    ) -> Result<Box<RawValue>, Error> {
        let limit = self.deadline.remaining().max(LAST_LOOK);
        self.ask_within(limit, Instant::now(), method, params, progress).await
    }

    async fn ask_within(
        &self,
        limit: Duration,
        since: Instant,
        method: &str,
        params: &str,
        progress: Option<ProgressSender>,
    ) -> Result<Box<RawValue>, Error> {
        let (timeout, since, signed) = (Some(limit), Some(since), self.signed.clone());
        self.client
            .ask(method, params, &CallOptions { timeout, since, progress, signed, ..CallOptions::default() })
            .await
    }

    /// Reports the progress to the caller.
    fn show(&self, progress: Option<f64>, doing: Option<&str>) {
        let Some(sender) = &self.options.progress else { return };
        let mut told = Map::new();
        if let Some(progress) = progress {
            told.insert("progress".to_owned(), progress.into());
            told.insert("total".to_owned(), 1.into());
        }
        told.extend(doing.map(|doing| ("message".to_owned(), doing.into())));
        sender.send_replace(to_raw_value(&told).ok());
    }

    /// Waits for the end of a job, and returns its result.
    async fn job(&self, job: JobInWords) -> Result<Box<RawValue>, Error> {
        tracing::debug!("`{}` continues `{}` as job {}", self.client.name, self.tool, job.job);
        // A caller that drops this future now still knows of the job.
        self.options.tell_of(self.unfinished_job(&job, None));
        let options =
            RequestOptions { timeout: Some(self.deadline.remaining()), ..RequestOptions::default() };
        let listed = self.client.list_tools(&options).await.unwrap_or_default();
        let name = |tool: &RawValue| text_member(Json::new(tool.get().as_bytes())?, "name");
        let listed: Vec<String> = listed.iter().filter_map(|tool| name(tool)).collect();
        let job = job.among(&listed, self.tool);
        self.options.tell_of(self.unfinished_job(&job, None));
        let most = if self.options.progress.is_some() { WAIT_WATCHED } else { WAIT_MOST };
        let mut last: Option<StatusInWords> = None;
        loop {
            let remaining = self.deadline.remaining();
            let is_last_look = remaining.is_zero();
            let wait = remaining.min(most).as_secs();
            let arguments = json!({ "job_id": job.job, "wait_seconds": wait });
            let asked = json!({ "name": job.status_tool(), "arguments": arguments }).to_string();
            let since = Instant::now();
            let told = match self.ask("tools/call", &asked, None).await {
                Err(Error::Failure(failure)) if failure.kind == FaultKind::Deadline => {
                    return Err(self.given_up(&job, last.as_ref()));
                }
                told => told?,
            };
            let Some(status) = StatusInWords::read(&told, job.job) else {
                let tool = job.status_tool();
                return Err(self.broken(&format!("`{tool}` did not return the status of job {}", job.job)));
            };
            if status.state.is_final() {
                return self.left_by(&job, status.state).await;
            }
            self.show(status.progress, status.doing.as_deref());
            self.options.tell_of(self.unfinished_job(&job, Some(&status)));
            last = Some(status);
            if is_last_look {
                return Err(self.given_up(&job, last.as_ref()));
            }
            if since.elapsed() < LOOK_LEAST {
                sleep(LOOK_LEAST.min(self.deadline.remaining())).await;
            }
        }
    }

    fn given_up(&self, job: &JobInWords, last: Option<&StatusInWords>) -> Error {
        Error::Unfinished(Box::new(self.unfinished_job(job, last)))
    }

    fn unfinished_job(&self, job: &JobInWords, last: Option<&StatusInWords>) -> UnfinishedCall {
        let is_call = last.is_none_or(|last| last.is_call);
        let tool = job.results_tool();
        let what = if is_call { Background::Call(tool) } else { Background::Command(tool) };
        self.unfinished(job.job.as_str(), what, last.and_then(|last| last.doing.clone()))
    }

    fn unfinished(&self, job: &str, what: Background, doing: Option<String>) -> UnfinishedCall {
        let (server, tool) = (self.client.name.to_string(), self.tool.to_owned());
        UnfinishedCall { server, tool, job: job.to_owned(), what, limit: self.limit, doing }
    }

    /// Returns the result of a job that has ended. The job may have ended at the limit, so this has the time of any request.
    async fn left_by(&self, job: &JobInWords, state: JobState) -> Result<Box<RawValue>, Error> {
        let options = RequestOptions::default();
        // The resource is whole; the answers of tools are bounded.
        if let Ok(read) = self.client.read_resource(&format!("{JOB_SCHEME}{}", job.job), &options).await
            && let Some(left) = left_in(&read)
        {
            return match left {
                JobOutcome::Result(result) => Ok(result),
                JobOutcome::Error(error) => {
                    let error = ServerError::read(&self.client.name, "tools/call", error.get());
                    Err(Error::Server(Box::new(error)))
                }
            };
        }
        let asked = object(json!({ "job_id": job.job }));
        let told = self.client.call_tool(&job.results_tool(), asked, &options).await?;
        if state == JobState::Completed {
            return Ok(answer_in(&told).unwrap_or(told));
        }
        // A job that has not completed has failed, whatever it wrote.
        let mut failed: Map<String, Value> = serde_json::from_str(told.get()).unwrap_or_default();
        failed.insert("isError".to_owned(), true.into());
        to_raw_value(&failed).map_err(|error| self.broken(&error.to_string()))
    }

    /// Returns the result of a task. If that is a tool's report of a command, returns the whole report from the job's resource.
    async fn whole(&self, task: &str, result: Box<RawValue>) -> Result<Box<RawValue>, Error> {
        let fields = Json::new(result.get().as_bytes()).and_then(|result| result.member("structuredContent"));
        let is_of_command = fields.is_some_and(|fields| {
            fields.member("results").is_none() && text_member(fields, "job_id").is_some_and(|job| job == task)
        });
        if !is_of_command || task.parse::<JobId>().is_err() {
            return Ok(result);
        }
        let read =
            self.client.read_resource(&format!("{JOB_SCHEME}{task}"), &RequestOptions::default()).await;
        match read.ok().as_deref().and_then(left_in) {
            Some(JobOutcome::Result(whole)) => Ok(whole),
            _ => Ok(result),
        }
    }

    /// Waits for the end of a task, and returns its result.
    async fn task(
        &self,
        mut task: SeenTask,
        dialect: Dialect,
        session: &ServerInfo,
    ) -> Result<Box<RawValue>, Error> {
        tracing::debug!("`{}` continues `{}` as task {}", self.client.name, self.tool, task.id);
        let mut answered = HashSet::new();
        // Servers of unhang do not mind being asked about short jobs soon.
        let mut pace = task.id.parse::<JobId>().is_ok().then(|| LookPace::up_to(TASK_MOST));
        loop {
            if is_our_job(&task, session) {
                self.options.tell_of(self.unfinished(&task.id, Background::OurTask, task.message.clone()));
            }
            let pause = task.poll_interval_ms.map_or(TASK_USUAL, Duration::from_millis);
            let pause = pause.clamp(TASK_LEAST, TASK_MOST);
            let pause = pace.as_mut().map_or(pause, |pace| pace.pause().min(pause));
            sleep(pause.min(self.deadline.remaining())).await;
            let is_last_look = self.deadline.remaining().is_zero();
            let got = match self.ask(tasks::GET, &tasks::about(&task.id), None).await {
                Err(Error::Failure(failure)) if failure.kind == FaultKind::Deadline => {
                    return Err(self.unfinished_task(task, session).await);
                }
                got => got?,
            };
            let raw = Json::new(got.get().as_bytes()).unwrap_or(Json::EMPTY);
            let (seen, payload) = tasks::read_got(dialect, raw).map_err(|why| self.broken(&why))?;
            let status = seen.status;
            task = SeenTask { id: task.id, ..seen };
            self.show(None, task.message.as_deref());
            match (status, payload) {
                (TaskStatus::Working | TaskStatus::InputRequired, _) if is_last_look => {
                    return Err(self.unfinished_task(task, session).await);
                }
                (TaskStatus::Working, _) => {}
                (_, Some(Payload::Result(result))) => {
                    let result =
                        RawValue::from_string(result).map_err(|error| self.broken(&error.to_string()))?;
                    return self.whole(&task.id, result).await;
                }
                (_, Some(Payload::Error(error))) => {
                    let error = ServerError::read(&self.client.name, "tools/call", &error);
                    return Err(Error::Server(Box::new(error)));
                }
                (_, Some(Payload::Input(inputs))) => {
                    for (key, request) in inputs {
                        if answered.insert(key.clone()) {
                            self.reply(&task.id, key, &request).await?;
                        }
                    }
                }
                (TaskStatus::Cancelled, _) => return Err(self.cancelled(&task)),
                // The outcome of the task, or its question, comes with the answer to another request.
                (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::InputRequired, None) => {
                    return match self.ask(tasks::RESULT, &tasks::about(&task.id), None).await {
                        Err(Error::Failure(failure)) if failure.kind == FaultKind::Deadline => {
                            Err(self.unfinished_task(task, session).await)
                        }
                        result => self.whole(&task.id, unrelated(result?)).await,
                    };
                }
            }
        }
    }

    /// Lets the listener answer a question of a task, and sends the answer.
    async fn reply(&self, task: &str, key: String, request: &str) -> Result<(), Error> {
        let request = Json::new(request.as_bytes()).unwrap_or(Json::EMPTY);
        let method = text_member(request, "method").unwrap_or_default();
        let params = request.member("params").and_then(|params| serde_json::from_str(params.get()).ok());
        let asked = self.deadline.timeout(self.client.listener.asked(method, params)).await;
        let answer = match asked {
            Ok(Ok(answer)) => answer.to_string(),
            // The protocol has no way to say why.
            Ok(Err(_)) | Err(_) => r#"{"action":"cancel"}"#.to_owned(),
        };
        self.ask(tasks::UPDATE, &tasks::update(task, &[(key, answer)]), None).await.map(drop)
    }

    /// Makes the error for a task that had not ended in time. An unhang job can be fetched later. Any other task cannot, and is cancelled.
    async fn unfinished_task(&self, task: SeenTask, session: &ServerInfo) -> Error {
        if is_our_job(&task, session) || self.knows_job(&task.id).await {
            let unfinished = self.unfinished(&task.id, Background::OurTask, task.message);
            return Error::Unfinished(Box::new(unfinished));
        }
        let manner = CallOptions {
            timeout: Some(CANCEL_LIMIT),
            signed: self.signed.clone(),
            ..CallOptions::default()
        };
        if let Err(error) = self.client.ask(tasks::CANCEL, &tasks::about(&task.id), &manner).await {
            tracing::debug!("a task of `{}` could not be cancelled: {error}", self.client.name);
        }
        Error::Unfinished(Box::new(self.unfinished(&task.id, Background::CancelledTask, task.message)))
    }

    /// Returns whether an unhang guard stands before the server and has this job.
    async fn knows_job(&self, id: &str) -> bool {
        let options = RequestOptions { timeout: Some(CANCEL_LIMIT), ..RequestOptions::default() };
        id.parse::<JobId>().is_ok()
            && self.client.read_resource(&format!("{JOB_SCHEME}{id}"), &options).await.is_ok()
    }

    fn cancelled(&self, task: &SeenTask) -> Error {
        let why = task.message.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
        let happened =
            format!("`{}` has cancelled task {} of `{}`{why}", self.client.name, task.id, self.tool);
        self.client.failure(
            FaultKind::Cancelled,
            "tools/call",
            happened,
            "call it again if you still need the result",
        )
    }

    fn broken(&self, why: &str) -> Error {
        let happened =
            format!("`{}` continues `{}` in the background, and {why}", self.client.name, self.tool);
        self.client.failure(FaultKind::BadResponse, "tools/call", happened, "this is a fault of the server")
    }
}

fn is_core(session: &ServerInfo) -> bool {
    session.revision.era() == Era::Legacy && session.revision == Revision::V2025November
}

/// Returns whether the task is a job of a server that calls itself unhang.
fn is_our_job(task: &SeenTask, session: &ServerInfo) -> bool {
    session.server_info.as_ref().is_some_and(|info| info["name"] == "unhang")
        && task.id.parse::<JobId>().is_ok()
}

/// The pauses between looks at a job that may end soon and may take long.
struct LookPace {
    next: Duration,
    most: Duration,
}

impl LookPace {
    fn up_to(most: Duration) -> Self {
        Self { next: TASK_LEAST, most }
    }

    fn pause(&mut self) -> Duration {
        let pause = self.next.min(self.most);
        self.next = pause * 2;
        pause
    }
}

/// The outcome of a job.
enum JobOutcome {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

/// Reads the outcome in the resource of a job; `None` if it holds none.
fn left_in(read: &RawValue) -> Option<JobOutcome> {
    let read = Json::new(read.get().as_bytes())?;
    let mut text = None;
    read.member("contents")?
        .each_element(|content| text = text.take().or_else(|| text_member(content, "text")));
    let text = text?;
    let told = Json::new(text.as_bytes())?;
    let member = |name| RawValue::from_string(told.member(name)?.get().to_owned()).ok();
    member("results").map(JobOutcome::Result).or_else(|| member("error").map(JobOutcome::Error))
}

/// Finds the server's answer in the report of the tool that fetches the result of a call; `None` if it holds none.
fn answer_in(told: &RawValue) -> Option<Box<RawValue>> {
    let told = Json::new(told.get().as_bytes())?.member("structuredContent")?;
    let is_call = text_member(told, "kind").is_some_and(|kind| kind == "call");
    let answer = told.member("results").filter(|results| is_call && results.member("content").is_some())?;
    RawValue::from_string(answer.get().to_owned()).ok()
}

/// Removes the name of the task that a result belongs to.
fn unrelated(result: Box<RawValue>) -> Box<RawValue> {
    let without = Json::new(result.get().as_bytes()).and_then(tasks::unrelated);
    let without = without.and_then(|without| RawValue::from_string(without.into_owned()).ok());
    without.unwrap_or(result)
}
