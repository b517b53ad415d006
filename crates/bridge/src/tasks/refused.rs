//! The errors by which a server refuses what is asked of its tasks, each as JSON with its code and a sentence.
//!
//! Invariants: the codes are those of protocol.md 2.1. An error repeats only as much of the client's words as helps to find the mistake.

use super::{ECHO_LIMIT, EXTENSION, ObjectWriter, TaskStatus, cut};
use crate::error::{INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY};

/// Refuses a client that asks about a task, or calls a tool that needs tasks, without declaring the extension in its request.
#[must_use]
pub fn missing_capability() -> String {
    let required = ObjectWriter::new().json(EXTENSION, "{}").end();
    let required = ObjectWriter::new().json("extensions", &required).end();
    let required = ObjectWriter::new().json("requiredCapabilities", &required).end();
    let message = format!(
        "This needs the extension `{EXTENSION}`, which the client has not declared: declare it in the clientCapabilities of each request."
    );
    object(MISSING_CAPABILITY, &message).json("data", &required).end()
}

/// Refuses a request about a task that does not exist, has expired, or belongs to another caller. The client cannot tell which.
#[must_use]
pub fn unknown_task(id: &str) -> String {
    let id = cut(id, ECHO_LIMIT);
    invalid_params(&format!(
        "There is no task `{id}`: it never existed, it has expired, or it belongs to another caller."
    ))
}

/// Refuses `tasks/cancel` of 2025-11-25 for a task that has ended. The extension acknowledges such a request instead.
#[must_use]
pub fn already_ended(id: &str, status: TaskStatus) -> String {
    let (id, status) = (cut(id, ECHO_LIMIT), status.as_str());
    invalid_params(&format!("The task `{id}` cannot be cancelled: it has ended and is {status}."))
}

/// Refuses a call that asks for a task, of a tool that cannot be one (2025-11-25).
#[must_use]
pub fn not_as_task(tool: &str) -> String {
    let tool = cut(tool, ECHO_LIMIT);
    object(
        METHOD_NOT_FOUND,
        &format!("The tool `{tool}` cannot be called as a task: call it without `task`."),
    )
    .end()
}

/// Refuses a call that does not ask for a task, of a tool that can only be called as one (2025-11-25).
#[must_use]
pub fn only_as_task(tool: &str) -> String {
    let tool = cut(tool, ECHO_LIMIT);
    object(METHOD_NOT_FOUND, &format!("The tool `{tool}` can only be called as a task: call it with `task`."))
        .end()
}

pub(super) fn invalid_params(happened: &str) -> String {
    object(INVALID_PARAMS, happened).end()
}

fn object(code: i64, message: &str) -> ObjectWriter {
    ObjectWriter::new().json("code", &code.to_string()).text("message", message)
}
