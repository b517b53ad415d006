//! Messages that drive the tasks of a server, as its client writes and reads them.
//!
//! Invariants: unknown members are ignored. Without an id or a status there is no task. The sentence that says so is for the log and for
//! the caller. No number is trusted: the caller bounds how often it asks a server.

use unhang_wire::Json;

use super::{
    Dialect, ECHO_LIMIT, ID_LIMIT, INPUT_LIMIT, MESSAGE_LIMIT, ObjectWriter, TaskOutcome, TaskStatus, cut,
    is_object, milliseconds, offer::extended,
};
use crate::{
    Splice,
    result::{ResultKind, kind},
};

/// A task, as its server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTask {
    /// The task's id, at most [`ID_LIMIT`] bytes.
    pub id: String,
    /// The task's status.
    pub status: TaskStatus,
    /// The status in words, the first [`MESSAGE_LIMIT`] bytes of them.
    pub message: Option<String>,
    /// How long after its beginning the server keeps the task; `None` if it is kept for ever, or if the server says nothing.
    pub ttl_ms: Option<u64>,
    /// How long to wait before the next question about the task. A server may write anything here.
    pub poll_interval_ms: Option<u64>,
}

/// The outcome that a server sends beside a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The result of the call, as JSON.
    Result(String),
    /// The error that the call has ended with, as JSON.
    Error(String),
    /// The questions of the task: names, and requests as JSON.
    Input(Vec<(String, String)>),
}

impl Payload {
    /// Returns the payload as an outcome. Returns `None` if its JSON is invalid, which no payload that was read from a server is.
    #[must_use]
    pub fn as_outcome(&self) -> Option<TaskOutcome<'_>> {
        Some(match self {
            Payload::Result(result) => TaskOutcome::Result(Json::new(result.as_bytes())?),
            Payload::Error(error) => TaskOutcome::Error(Json::new(error.as_bytes())?),
            Payload::Input(requests) => TaskOutcome::Input(requests),
        })
    }
}

/// Adds tasks of the extension to a client's capabilities. Capabilities that are not an object are replaced by an object.
#[must_use]
pub fn declare(client_capabilities: &str) -> String {
    let declared = |capabilities| extended(Splice::new(capabilities), capabilities).apply();
    let capabilities = Json::new(client_capabilities.as_bytes());
    // Both objects can be changed, so the default is never used.
    capabilities.and_then(declared).or_else(|| declared(Json::EMPTY)).unwrap_or_default().into_owned()
}

/// Adds the wish for a task to the params of a call (2025-11-25). `ttl_ms` says how long the server should keep the task. Returns `None` if
/// the params are not an object.
#[must_use]
pub fn ask_for_task(params: Json<'_>, ttl_ms: Option<u64>) -> Option<String> {
    let task = ttl_ms.iter().fold(ObjectWriter::new(), |task, ttl| task.json("ttl", &ttl.to_string()));
    Some(Splice::new(params).set("task", task.end()).apply()?.into_owned())
}

/// Makes the params of a request about this task.
#[must_use]
pub fn about(id: &str) -> String {
    ObjectWriter::new().text("taskId", id).end()
}

/// Makes the params of `tasks/update`: the answers, each with the name of its question and as JSON.
#[must_use]
pub fn update(id: &str, responses: &[(String, String)]) -> String {
    let given =
        responses.iter().fold(ObjectWriter::new(), |given, (key, response)| given.json(key, response));
    ObjectWriter::new().text("taskId", id).json("inputResponses", &given.end()).end()
}

/// Reads the task that a call goes on as. Returns `None` if the result is that of the call itself.
///
/// # Errors
///
/// Fails with a sentence if the result claims to be a task but is not a valid one.
pub fn read_created(dialect: Dialect, result: Json<'_>) -> Result<Option<SeenTask>, String> {
    match dialect {
        Dialect::Core => {
            // The result of a tool has `content`, and may have any member beside it.
            let task = result.member("task").filter(|_| result.member("content").is_none());
            task.map(|task| seen(dialect, task)).transpose()
        }
        Dialect::Extension if kind(result) == ResultKind::Task => seen(dialect, result).map(Some),
        Dialect::Extension => Ok(None),
    }
}

/// Reads a task from a result of `tasks/get`, or from the params of a notification. In 2025-11-25 it also reads the answer to
/// `tasks/cancel`. Only the extension tells the outcome here.
///
/// # Errors
///
/// Fails with a sentence if it is not a valid task, or if it lacks the member that its status requires.
pub fn read_got(dialect: Dialect, told: Json<'_>) -> Result<(SeenTask, Option<Payload>), String> {
    let task = seen(dialect, told)?;
    let payload = match (dialect, task.status) {
        (Dialect::Core, _) | (_, TaskStatus::Working | TaskStatus::Cancelled) => None,
        (_, TaskStatus::Completed) => Some(Payload::Result(promised(told, &task, "result")?)),
        (_, TaskStatus::Failed) => Some(Payload::Error(promised(told, &task, "error")?)),
        (_, TaskStatus::InputRequired) => Some(Payload::Input(asked(told, &task)?)),
    };
    Ok((task, payload))
}

fn seen(dialect: Dialect, task: Json<'_>) -> Result<SeenTask, String> {
    let text = |name| task.member(name).and_then(Json::text);
    let id = text("taskId").filter(|id| !id.is_empty());
    let id = id.ok_or("the task has no `taskId`: a string that is not empty")?.into_owned();
    if id.len() > ID_LIMIT {
        let begin = cut(&id, ECHO_LIMIT);
        return Err(format!(
            "the `taskId` that begins with `{begin}` has {} bytes, over the limit of {ID_LIMIT}",
            id.len()
        ));
    }
    let status = text("status").ok_or_else(|| format!("the task `{}` has no `status`", shown(&id)))?;
    let status = TaskStatus::parse(&status).ok_or_else(|| {
        let word = cut(&status, ECHO_LIMIT);
        format!("the task `{}` has the `status` `{word}`, which MCP does not define", shown(&id))
    })?;
    Ok(SeenTask {
        status,
        message: text("statusMessage").map(|message| cut(&message, MESSAGE_LIMIT).to_owned()),
        ttl_ms: task.member(dialect.ttl()).and_then(milliseconds),
        poll_interval_ms: task.member(dialect.poll_interval()).and_then(milliseconds),
        id,
    })
}

/// Returns the member, an object, that a task of this status must have.
fn promised(told: Json<'_>, task: &SeenTask, name: &str) -> Result<String, String> {
    let member = told.member(name).filter(|member| is_object(*member));
    member.map(|member| member.get().to_owned()).ok_or_else(|| lacking(task, name))
}

fn asked(told: Json<'_>, task: &SeenTask) -> Result<Vec<(String, String)>, String> {
    let (mut requests, mut count) = (Vec::new(), 0_usize);
    let is_object = told.member("inputRequests").is_some_and(|asked| {
        asked.each_member(|name, request| {
            count += 1;
            if count <= INPUT_LIMIT {
                requests.extend(name.text().map(|name| (name.into_owned(), request.get().to_owned())));
            }
        })
    });
    match (is_object, count) {
        (false, _) => Err(lacking(task, "inputRequests")),
        (true, ..=INPUT_LIMIT) => Ok(requests),
        (true, _) => {
            let id = shown(&task.id);
            Err(format!("the task `{id}` asks {count} questions at once, over the limit of {INPUT_LIMIT}"))
        }
    }
}

fn lacking(task: &SeenTask, name: &str) -> String {
    format!("the task `{}` is {} and has no object `{name}`", shown(&task.id), task.status.as_str())
}

fn shown(id: &str) -> &str {
    cut(id, ECHO_LIMIT)
}
