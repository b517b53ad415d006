//! The errors by which a server refuses what is asked of its tasks, each as JSON with its code and a sentence.
//!
//! Invariants: the codes are those of protocol.md 2.1; of what the client wrote so much is repeated as helps to find it.

use super::{ECHO_LIMIT, EXTENSION, ObjectWriter, TaskStatus, cut};
use crate::error::{INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY};

/// For a client that has not declared the extension with its request and asks of a task, or calls a tool that does not go without.
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

/// For a task that is not there, is no more, or belongs to another caller, which cannot be told apart by whoever asks.
#[must_use]
pub fn unknown_task(id: &str) -> String {
    let id = cut(id, ECHO_LIMIT);
    invalid_params(&format!(
        "There is no task `{id}`: it was never there, or its time is over, or another caller began it."
    ))
}

/// For `tasks/cancel` of 2025-11-25 when there is nothing left to end. The extension answers that it was heard.
#[must_use]
pub fn already_ended(id: &str, status: TaskStatus) -> String {
    let (id, status) = (cut(id, ECHO_LIMIT), status.as_str());
    invalid_params(&format!("The task `{id}` cannot be cancelled: it has ended and is {status}."))
}

/// For a call that asks to be a task, of a tool that is none (2025-11-25).
#[must_use]
pub fn not_as_task(tool: &str) -> String {
    let tool = cut(tool, ECHO_LIMIT);
    object(
        METHOD_NOT_FOUND,
        &format!("The tool `{tool}` cannot be called as a task: call it without `task`."),
    )
    .end()
}

/// For a call that does not ask to be a task, of a tool that is nothing else (2025-11-25).
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
