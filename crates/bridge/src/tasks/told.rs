//! What a server says of its tasks.
//!
//! Invariant: what a task's call has come to is copied as it stands, but for the id under which another server knew it.

use std::borrow::Cow;

use unhang_wire::Json;

use super::{Dialect, ObjectWriter, SAFE_INTEGER, Task, TaskOutcome, TaskStatus, related, unrelated};
use crate::{
    META,
    result::{RESULT_TYPE, SERVER_INFO},
};

/// The member of a result's `_meta` for what a model may be told while the task goes on (2025-11-25 alone).
const IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";

/// The result of a call that goes on as a task.
///
/// `immediate_response` is what a model may be told at once, which the core alone has a place for; `server_info` is what the server
/// calls itself, as JSON, which the extension alone wants.
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

/// The result of `tasks/get`. What the task has come to is in it in the extension alone; in the core it is the answer to `tasks/result`,
/// see [`payload`].
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

/// The result of `tasks/result`: that of the call, which it is told which task it belongs to. What is no object becomes one.
#[must_use]
pub fn payload(result: Json<'_>, id: &str) -> String {
    related(Some(result), id)
}

/// The answer to `tasks/cancel`: in the core the task, which is cancelled by then, in the extension that it was heard.
#[must_use]
pub fn cancelled(dialect: Dialect, task: &Task<'_>, server_info: Option<&str>) -> String {
    match dialect {
        Dialect::Core => bare(&Task { status: TaskStatus::Cancelled, ..*task }),
        Dialect::Extension => acknowledged(server_info),
    }
}

/// The answer to `tasks/update` and `tasks/cancel` of the extension, which says no more than that it was heard.
#[must_use]
pub fn acknowledged(server_info: Option<&str>) -> String {
    signed(complete(), server_info).end()
}

/// The result of `tasks/list`, of the core alone. `next_cursor` asks for those that come after these.
#[must_use]
pub fn listed(tasks: &[Task<'_>], next_cursor: Option<&str>) -> String {
    let tasks: Vec<String> = tasks.iter().map(bare).collect();
    let listed = ObjectWriter::new().json("tasks", &format!("[{}]", tasks.join(",")));
    next_cursor.into_iter().fold(listed, |listed, cursor| listed.text("nextCursor", cursor)).end()
}

/// The method and the params of the notification that something of a task has changed. In the extension the params have to be brought
/// under a subscription, see [`under`](crate::notification::under).
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

/// A task as the core has it.
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

/// A task and what it has come to.
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
            // The task is told beside it, under the one id that the client knows.
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
