//! Tasks: a call whose answer comes later, under an id (protocol.md 2). There are two dialects, and both speak of the same thing.
//!
//! ```text
//!           2025-11-25, in the core                      2026-07-28, the extension
//! begins    the client asks: params.task; {"task":{..}}  the server alone decides; {"resultType":"task",..}
//! is told   tasks/get, notifications/tasks/status        tasks/get, notifications/tasks
//! answers   tasks/result, which waits                    tasks/get has `result` or `error` in it
//! asks      requests of the server, related to the task  tasks/get has `inputRequests`, answered with tasks/update
//! ```
//!
//! A server writes with `told`, `refused`, `offer` and `support`, and reads with `asked`. A client writes and reads with `driven`.
//!
//! Invariants
//!
//! - A message in one dialect has no member of the other.
//! - The status and the members beside it agree. If there is an outcome, it decides the status, each dialect in its own way. A cancelled
//!   task stays cancelled, whatever became of its work.
//! - The ids, messages and numbers of questions that a peer sends are bounded.

mod asked;
mod driven;
mod offer;
mod refused;
mod support;
mod told;

use std::borrow::Cow;

use unhang_wire::Json;

use crate::{META, Splice, is_empty, quoted, with_meta};

pub use asked::{WantedTask, about_whom, input_responses, requested_task};
pub use driven::{Payload, SeenTask, about, ask_for_task, declare, read_created, read_got, update};
pub use offer::{are_required, declares, declares_extension, offer, offers_cancel, offers_tasks, with_offer};
pub use refused::{already_ended, missing_capability, not_as_task, only_as_task, unknown_task};
pub use support::{Support, task_support, with_task_support};
pub use told::{acknowledged, cancelled, created, got, listed, notification, payload};

/// The name of the extension of 2026-07-28.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The member of a message's `_meta` with the task that the message belongs to (2025-11-25 alone).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The method that asks for a task's status.
pub const GET: &str = "tasks/get";
/// The method that waits for a task's result (2025-11-25 alone).
pub const RESULT: &str = "tasks/result";
/// The method that lists all tasks (2025-11-25 alone).
pub const LIST: &str = "tasks/list";
/// The method that ends a task.
pub const CANCEL: &str = "tasks/cancel";
/// The method that answers the questions of a task (2026-07-28 alone).
pub const UPDATE: &str = "tasks/update";

/// The longest id of a server's task, in bytes. The id is kept as long as the task exists, and sent with every question about it.
pub const ID_LIMIT: usize = 1024;

/// The most that is kept of a server's words about a task's status, in bytes.
pub const MESSAGE_LIMIT: usize = 4096;

/// The most questions that a task may have open, and the most answers that may come together.
pub const INPUT_LIMIT: usize = 256;

/// The largest whole number that every client reads exactly.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The most that is repeated to a peer of a word that it chose, in bytes.
const ECHO_LIMIT: usize = 64;

/// The form of tasks that a message uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Tasks of 2025-11-25, a part of the core.
    Core,
    /// The extension [`EXTENSION`] of 2026-07-28.
    Extension,
}

impl Dialect {
    const fn ttl(self) -> &'static str {
        match self {
            Dialect::Core => "ttl",
            Dialect::Extension => "ttlMs",
        }
    }

    const fn poll_interval(self) -> &'static str {
        match self {
            Dialect::Core => "pollInterval",
            Dialect::Extension => "pollIntervalMs",
        }
    }
}

/// The status of a task. Both dialects use the same words, but with different meanings: see [`status_of_result`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// The task is being worked on.
    Working,
    /// The task waits for answers of the client.
    InputRequired,
    /// The task has a result.
    Completed,
    /// The task has no result, or, in 2025-11-25, one that is marked as an error.
    Failed,
    /// The client cancelled the task.
    Cancelled,
}

impl TaskStatus {
    /// All statuses.
    pub const ALL: [TaskStatus; 5] = [
        TaskStatus::Working,
        TaskStatus::InputRequired,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ];

    /// Returns the word that the protocol uses for the status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Working => "working",
            TaskStatus::InputRequired => "input_required",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "cancelled",
        }
    }

    /// Parses the word for a status. Returns `None` if the word is unknown.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Returns whether the status is final.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
    }
}

/// Returns the status of a task whose call has this result. A result that is marked as an error means `failed` in 2025-11-25. In 2026-07-28
/// it means `completed`: there only a call without a result fails.
#[must_use]
pub fn status_of_result(dialect: Dialect, result: Json<'_>) -> TaskStatus {
    let is_error = result.member("isError").is_some_and(|is_error| is_error.get() == "true");
    if is_error && dialect == Dialect::Core { TaskStatus::Failed } else { TaskStatus::Completed }
}

/// A task, as it is described to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task<'a> {
    /// The task's id.
    pub id: &'a str,
    /// The task's status. The outcome overrides it, if there is one.
    pub status: TaskStatus,
    /// The status in words, for a person or a model.
    pub message: Option<&'a str>,
    /// When it began, in ISO 8601.
    pub created_at: &'a str,
    /// When the task last changed, in ISO 8601.
    pub updated_at: &'a str,
    /// How long after its beginning the task is kept; `None` if it is kept for ever.
    pub ttl_ms: Option<u64>,
    /// How long a client should wait before it asks again.
    pub poll_interval_ms: Option<u64>,
}

/// The end of a task, or the questions that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOutcome<'a> {
    /// The task has no outcome yet, or it was cancelled and will have none.
    Open,
    /// The call has this result, in the era of the client that is told.
    Result(Json<'a>),
    /// The call has ended with this error.
    Error(Json<'a>),
    /// The call goes on once these questions are answered. Each has a name that no other question of the task has, and a request as JSON
    /// with `method` and `params`.
    Input(&'a [(String, String)]),
}

impl TaskOutcome<'_> {
    /// Returns the status of a task with this outcome, which had the status `so_far` before. A task that has ended needs an outcome:
    /// without one the extension has nothing to put beside `completed` and `failed`, and that is invalid there.
    #[must_use]
    pub fn status(self, dialect: Dialect, so_far: TaskStatus) -> TaskStatus {
        match self {
            _ if so_far == TaskStatus::Cancelled => so_far,
            TaskOutcome::Open => so_far,
            TaskOutcome::Result(result) => status_of_result(dialect, result),
            TaskOutcome::Error(_) => TaskStatus::Failed,
            TaskOutcome::Input(_) => TaskStatus::InputRequired,
        }
    }
}

/// Marks params or a result as belonging to this task (2025-11-25). A value that is not an object is replaced by an object.
#[must_use]
pub fn related(message: Option<Json<'_>>, id: &str) -> String {
    with_meta(message, |meta| meta.set(RELATED_TASK, about(id)))
}

/// Reads the task that params or a result belong to (2025-11-25).
#[must_use]
pub fn related_to(message: Json<'_>) -> Option<Cow<'_, str>> {
    message.member(META)?.member(RELATED_TASK)?.member("taskId")?.text()
}

/// Removes the task that params or a result belong to. Returns `None` if `message` is not an object.
#[must_use]
pub fn unrelated(message: Json<'_>) -> Option<Cow<'_, str>> {
    let splice = Splice::new(message);
    let Some(meta) = message.member(META).filter(|meta| meta.member(RELATED_TASK).is_some()) else {
        return splice.apply();
    };
    match Splice::new(meta).remove(RELATED_TASK).apply() {
        Some(rest) if !is_empty(&rest) => splice.set(META, rest).apply(),
        _ => splice.remove(META).apply(),
    }
}

/// An object that is being written.
struct ObjectWriter(String);

impl ObjectWriter {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn json(mut self, name: &str, value: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&quoted(name));
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    fn text(self, name: &str, value: &str) -> Self {
        self.json(name, &quoted(value))
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Cuts a text to at most `limit` bytes, at a character boundary.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// Parses a length of time. Most peers write a whole number, some a fraction such as `60000.0`.
fn milliseconds(value: Json<'_>) -> Option<u64> {
    let text = value.get();
    text.parse().ok().or_else(|| {
        let number: f64 = serde_json::from_str(text).ok()?;
        // A number that is too large becomes the largest.
        (number >= 0.0).then_some(number as u64)
    })
}

fn is_object(value: Json<'_>) -> bool {
    value.get().starts_with('{')
}

#[cfg(test)]
mod tests;
