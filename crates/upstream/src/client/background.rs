//! Calls with which a server goes on in the background, followed to their end, so that whoever waits gets the answer as if it had come at once.
//!
//! Theory of operation. A server of ours answers a slow call with a job, told in words with the same for programs. A server that knows
//! tasks answers with a task: one of 2026-07-28 whenever it likes, since we say that we cope with it; one of 2025-11-25 where a tool is
//! nothing else. A job is asked for with the tool that waits for its end, a task as often as its server wants.
//!
//! Invariants
//!
//! - One limit bounds the call and all that is asked about it.
//! - What comes back is what the server would have answered at once, whole.
//! - A job that is left behind is named, with what fetches its result. A task that nobody could fetch is cancelled.

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

/// How long a job is waited for with one question: the most that the tool allows, and less where somebody looks at the progress.
const WAIT_MOST: Duration = Duration::from_secs(25);
const WAIT_WATCHED: Duration = Duration::from_secs(2);
/// Between two looks where less than a second is left, or a server answers at once what it was to wait with.
const LOOK_LEAST: Duration = Duration::from_millis(250);
/// The least and the most that a task is left alone between two looks, and what it is where its server does not say.
const TASK_LEAST: Duration = Duration::from_millis(100);
const TASK_MOST: Duration = Duration::from_secs(30);
const TASK_USUAL: Duration = Duration::from_secs(1);
/// How long the answer to the last look may take, which is made when the time is over: what has ended in time is no failure.
const LAST_LOOK: Duration = Duration::from_secs(1);
/// How long a server may take to hear that a task is not wanted any more.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

impl RequestOptions {
    /// Tells whoever wants to know what a server goes on with.
    fn tell_of(&self, unfinished: UnfinishedCall) {
        if let Some(background) = &self.background {
            background.send_replace(Some(unfinished));
        }
    }
}

impl Client {
    /// Calls a tool, and gives its result as [`Client::call_tool`] does; where the server goes on with the call in the background, what
    /// that comes to. `timeout` of the options is for all of it.
    ///
    /// # Errors
    /// As [`Client::request`]; [`Error::Unfinished`] where it had not ended in time.
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

    /// Reads a resource as [`Client::read_resource`] does; a job of ours, `job://` with its id, once it has ended. `timeout` of the options
    /// is for all of it, and `call-timeout` where it says nothing.
    ///
    /// # Errors
    /// As [`Client::request`]; [`Error::Unfinished`] where the job had not ended in time.
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

    /// As whom a server is asked that may answer with a task.
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

/// Whether a server has tasks of this dialect.
fn server_offers_tasks(session: &ServerInfo, dialect: Dialect) -> bool {
    let capabilities = Value::from(session.capabilities.clone()).to_string();
    Json::new(capabilities.as_bytes()).is_some_and(|capabilities| tasks::offers_tasks(dialect, capabilities))
}

/// One call that is followed.
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
                // It is nothing else than a task, and was not begun.
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

    /// Asks about what goes on; also once the time is over, for what has come of it until then.
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

    /// Shows how far it is.
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

    /// Waits for what a job comes to.
    async fn job(&self, job: JobInWords) -> Result<Box<RawValue>, Error> {
        tracing::debug!("`{}` goes on with `{}` as job {}", self.client.name, self.tool, job.job);
        // Whoever ends us now is to know of it.
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
                return Err(self.broken(&format!("`{tool}` does not say how job {} is", job.job)));
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

    /// What a job that has ended came to. It may have ended with the limit, so that this has the time of any request.
    async fn left_by(&self, job: &JobInWords, state: JobState) -> Result<Box<RawValue>, Error> {
        let options = RequestOptions::default();
        // As a resource it is whole; tools have bounded answers.
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
        // What has not completed has failed, whatever was written of it.
        let mut failed: Map<String, Value> = serde_json::from_str(told.get()).unwrap_or_default();
        failed.insert("isError".to_owned(), true.into());
        to_raw_value(&failed).map_err(|error| self.broken(&error.to_string()))
    }

    /// The result of a task; where it is what a tool tells of a command, with all that it leaves out.
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

    /// Waits for what a task comes to.
    async fn task(
        &self,
        mut task: SeenTask,
        dialect: Dialect,
        session: &ServerInfo,
    ) -> Result<Box<RawValue>, Error> {
        tracing::debug!("`{}` goes on with `{}` as task {}", self.client.name, self.tool, task.id);
        let mut answered = HashSet::new();
        // Servers of ours do not mind to be asked about short jobs soon.
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
                // What it has come to, and what it asks, comes with the answer to another request.
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

    /// Has a question of a task answered.
    async fn reply(&self, task: &str, key: String, request: &str) -> Result<(), Error> {
        let request = Json::new(request.as_bytes()).unwrap_or(Json::EMPTY);
        let method = text_member(request, "method").unwrap_or_default();
        let params = request.member("params").and_then(|params| serde_json::from_str(params.get()).ok());
        let asked = self.deadline.timeout(self.client.listener.asked(method, params)).await;
        let answer = match asked {
            Ok(Ok(answer)) => answer.to_string(),
            // There is no way to say why.
            Ok(Err(_)) | Err(_) => r#"{"action":"cancel"}"#.to_owned(),
        };
        self.ask(tasks::UPDATE, &tasks::update(task, &[(key, answer)]), None).await.map(drop)
    }

    /// A task that is a job of ours can be fetched later. Another one cannot, and its server is told that nobody waits any more.
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

    /// Whether a guard of ours stands before the server, and has this job.
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
            "call it again if it is still wanted",
        )
    }

    fn broken(&self, why: &str) -> Error {
        let happened =
            format!("`{}` goes on with `{}` in the background, and {why}", self.client.name, self.tool);
        self.client.failure(FaultKind::BadResponse, "tools/call", happened, "this is a fault of the server")
    }
}

fn is_core(session: &ServerInfo) -> bool {
    session.revision.era() == Era::Legacy && session.revision == Revision::V2025November
}

/// Whether a task is a job of a server that is one of ours by its own name.
fn is_our_job(task: &SeenTask, session: &ServerInfo) -> bool {
    session.server_info.as_ref().is_some_and(|info| info["name"] == "unhang")
        && task.id.parse::<JobId>().is_ok()
}

/// Pauses between looks at what may end soon and may take long.
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

/// What has come of a job.
enum JobOutcome {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

/// What the resource of a job has of its end.
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

/// The server's answer among what the tool that has the result of a call says of it.
fn answer_in(told: &RawValue) -> Option<Box<RawValue>> {
    let told = Json::new(told.get().as_bytes())?.member("structuredContent")?;
    let is_call = text_member(told, "kind").is_some_and(|kind| kind == "call");
    let answer = told.member("results").filter(|results| is_call && results.member("content").is_some())?;
    RawValue::from_string(answer.get().to_owned()).ok()
}

/// A result without the name of the task that it belongs to.
fn unrelated(result: Box<RawValue>) -> Box<RawValue> {
    let without = Json::new(result.get().as_bytes()).and_then(tasks::unrelated);
    let without = without.and_then(|without| RawValue::from_string(without.into_owned()).ok());
    without.unwrap_or(result)
}
