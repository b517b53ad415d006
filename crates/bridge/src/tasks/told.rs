//! Messages of a server about its tasks.
//!
//! Invariant: the outcome of a task's call is copied as it stands, except for the id that another server gave the task.

use std::borrow::Cow;

use unhang_wire::Json;

use super::{Dialect, ObjectWriter, SAFE_INTEGER, Task, TaskOutcome, TaskStatus, related, unrelated};
use crate::{
    META,
    result::{RESULT_TYPE, SERVER_INFO},
};

/// The member of a result's `_meta` with a text for the model while the task goes on (2025-11-25 alone).
const IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";

/// Makes the result of a call that goes on as a task.
///
/// `immediate_response` is a text for the model, which only the core has a place for. `server_info` is the server's name and version, as
/// JSON, which only the extension wants.
#[must_use]
pub fn created(
    dialect: Dialect,
    task: &Task<'_>,
    immediate_response: Option<&str>,
    server_info: Option<&str>,
) -> String {
    match dialect {
        Dialect::Core => {
            let created = ObjectWriter::new().json("task", &bare(task));
            let said =
                immediate_response.map(|said| ObjectWriter::new().text(IMMEDIATE_RESPONSE, said).end());
            said.iter().fold(created, |created, meta| created.json(META, meta)).end()
        }
        Dialect::Extension => {
            let created = with_task(ObjectWriter::new().text(RESULT_TYPE, "task"), dialect, task);
            signed(created, server_info).end()
        }
    }
}

/// Makes the result of `tasks/get`. Only the extension puts the outcome of the task here. In the core `tasks/result` answers with it, see
/// [`payload`].
#[must_use]
pub fn got(dialect: Dialect, task: &Task<'_>, outcome: TaskOutcome<'_>, server_info: Option<&str>) -> String {
    match dialect {
        Dialect::Core => detailed(ObjectWriter::new(), dialect, task, outcome).end(),
        Dialect::Extension => {
            let got = detailed(complete(), dialect, task, outcome);
            signed(got, server_info).end()
        }
    }
}

/// Makes the result of `tasks/result`: the result of the call, marked with its task. A result that is not an object is replaced by an
/// object.
#[must_use]
pub fn payload(result: Json<'_>, id: &str) -> String {
    related(Some(result), id)
}

/// Makes the answer to `tasks/cancel`. In the core it is the task, which is cancelled by then. In the extension it is an acknowledgement.
#[must_use]
pub fn cancelled(dialect: Dialect, task: &Task<'_>, server_info: Option<&str>) -> String {
    match dialect {
        Dialect::Core => bare(&Task { status: TaskStatus::Cancelled, ..*task }),
        Dialect::Extension => acknowledged(server_info),
    }
}

/// Makes the answer to `tasks/update` and `tasks/cancel` of the extension, a mere acknowledgement.
#[must_use]
pub fn acknowledged(server_info: Option<&str>) -> String {
    signed(complete(), server_info).end()
}

/// Makes the result of `tasks/list`, which only the core has. `next_cursor` asks for the tasks after these.
#[must_use]
pub fn listed(tasks: &[Task<'_>], next_cursor: Option<&str>) -> String {
    let tasks: Vec<String> = tasks.iter().map(bare).collect();
    let listed = ObjectWriter::new().json("tasks", &format!("[{}]", tasks.join(",")));
    next_cursor.into_iter().fold(listed, |listed, cursor| listed.text("nextCursor", cursor)).end()
}

/// Makes the method and the params of the notification that a task has changed. In the extension the caller puts the params under a
/// subscription, see [`under`](crate::notification::under).
#[must_use]
pub fn notification(dialect: Dialect, task: &Task<'_>, outcome: TaskOutcome<'_>) -> (&'static str, String) {
    let method = match dialect {
        Dialect::Core => "notifications/tasks/status",
        Dialect::Extension => "notifications/tasks",
    };
    (method, detailed(ObjectWriter::new(), dialect, task, outcome).end())
}

fn complete() -> ObjectWriter {
    ObjectWriter::new().text(RESULT_TYPE, "complete")
}

fn signed(result: ObjectWriter, server_info: Option<&str>) -> ObjectWriter {
    let meta = server_info.map(|info| ObjectWriter::new().json(SERVER_INFO, info).end());
    meta.iter().fold(result, |result, meta| result.json(META, meta))
}

/// Writes a task in the form of the core.
fn bare(task: &Task<'_>) -> String {
    with_task(ObjectWriter::new(), Dialect::Core, task).end()
}

fn with_task(object: ObjectWriter, dialect: Dialect, task: &Task<'_>) -> ObjectWriter {
    let told = object.text("taskId", task.id).text("status", task.status.as_str());
    let told = task.message.into_iter().fold(told, |told, message| told.text("statusMessage", message));
    let number = |number: u64| number.min(SAFE_INTEGER).to_string();
    let told = told
        .text("createdAt", task.created_at)
        .text("lastUpdatedAt", task.updated_at)
        .json(dialect.ttl(), &task.ttl_ms.map_or_else(|| "null".to_owned(), number));
    let interval = task.poll_interval_ms.map(number);
    interval.iter().fold(told, |told, interval| told.json(dialect.poll_interval(), interval))
}

/// Writes a task and its outcome.
fn detailed(
    object: ObjectWriter,
    dialect: Dialect,
    task: &Task<'_>,
    outcome: TaskOutcome<'_>,
) -> ObjectWriter {
    let status = outcome.status(dialect, task.status);
    let told = with_task(object, dialect, &Task { status, ..*task });
    if dialect == Dialect::Core || status == TaskStatus::Cancelled {
        return told;
    }
    match outcome {
        TaskOutcome::Open => told,
        TaskOutcome::Result(result) => {
            // The task stands beside the result, under the one id that the client knows.
            let result = unrelated(result).unwrap_or(Cow::Borrowed(result.get()));
            told.json("result", &result)
        }
        TaskOutcome::Error(error) => told.json("error", error.get()),
        TaskOutcome::Input(requests) => {
            let requests =
                requests.iter().fold(ObjectWriter::new(), |all, (key, request)| all.json(key, request));
            told.json("inputRequests", &requests.end())
        }
    }
}
