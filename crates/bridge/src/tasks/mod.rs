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
//! What a server says is in `told`, `refused`, `offer` and `support`, what it reads in `asked`; what a client says and reads in `driven`.
//!
//! Invariants
//!
//! - What is told of a task in one dialect has no member of the other.
//! - The status and what stands beside it agree: the outcome decides where there is one, each dialect in its own way, and a task that
//!   was cancelled stays so whatever became of its work.
//! - What a peer says of a task is kept in bounds: ids, messages and how many questions there may be.

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
pub use offer::{declares, offer, offers_cancel, offers_tasks, with_offer};
pub use refused::{already_ended, missing_capability, not_as_task, only_as_task, unknown_task};
pub use support::{Support, task_support, with_task_support};
pub use told::{acknowledged, cancelled, created, got, listed, notification, payload};

/// The name of the extension of 2026-07-28.
pub const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The member of a message's `_meta` for the task that it belongs to (2025-11-25 alone).
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Asks how a task is.
pub const GET: &str = "tasks/get";
/// Waits for the answer of a task (2025-11-25 alone).
pub const RESULT: &str = "tasks/result";
/// Asks which tasks there are (2025-11-25 alone).
pub const LIST: &str = "tasks/list";
/// Ends a task.
pub const CANCEL: &str = "tasks/cancel";
/// Answers what a task asks (2026-07-28 alone).
pub const UPDATE: &str = "tasks/update";

/// So long may the id of a server's task be, in bytes. It is kept as long as the task is, and sent with every question after it.
pub const ID_LIMIT: usize = 1024;

/// So much of what a server says of a task's status is kept, in bytes.
pub const MESSAGE_LIMIT: usize = 4096;

/// So many questions may a task have open, and so many answers may come together.
pub const INPUT_LIMIT: usize = 256;

/// The largest whole number that every client reads exactly.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// So much of a word that a peer chose is repeated to it, in bytes.
const ECHO_LIMIT: usize = 64;

/// Which tasks are spoken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Those of 2025-11-25, a part of the core.
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

/// How a task is. Both dialects have the same words; what they mean differs, see [`status_of_result`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// It is being worked on.
    Working,
    /// It waits for answers of the client.
    InputRequired,
    /// There is a result.
    Completed,
    /// There is none, or, in 2025-11-25, one that says of itself that it is an error.
    Failed,
    /// The client wanted it no more.
    Cancelled,
}

impl TaskStatus {
    /// All that there are.
    pub const ALL: [TaskStatus; 5] = [
        TaskStatus::Working,
        TaskStatus::InputRequired,
        TaskStatus::Completed,
        TaskStatus::Failed,
        TaskStatus::Cancelled,
    ];

    /// The word for it.
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

    /// What the word stands for; `None` where it is no status.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing comes after it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled)
    }
}

/// The status of a task whose call has this result: one that says that it is an error has failed in 2025-11-25, and is complete in
/// 2026-07-28, where only a call without a result fails.
#[must_use]
pub fn status_of_result(dialect: Dialect, result: Json<'_>) -> TaskStatus {
    let is_error = result.member("isError").is_some_and(|is_error| is_error.get() == "true");
    if is_error && dialect == Dialect::Core { TaskStatus::Failed } else { TaskStatus::Completed }
}

/// What is told of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task<'a> {
    /// Its name.
    pub id: &'a str,
    /// How it is, as far as its outcome does not say so.
    pub status: TaskStatus,
    /// The same in words, for a person or a model.
    pub message: Option<&'a str>,
    /// When it began, in ISO 8601.
    pub created_at: &'a str,
    /// When something of it changed, in ISO 8601.
    pub updated_at: &'a str,
    /// How long after its beginning it is kept; without an end where there is none.
    pub ttl_ms: Option<u64>,
    /// How long a client best waits before it asks again.
    pub poll_interval_ms: Option<u64>,
}

/// How a task ended, or what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOutcome<'a> {
    /// Nothing is known yet, or nothing comes any more because the task was cancelled.
    Open,
    /// The call has this result, in the words of the era of whoever is told.
    Result(Json<'a>),
    /// The call has ended with this error.
    Error(Json<'a>),
    /// The call goes on when these are answered: names that no other question of the task has, and requests as JSON, each with
    /// `method` and `params`.
    Input(&'a [(String, String)]),
}

impl TaskOutcome<'_> {
    /// The status of a task that has come to this, and was `so_far` before. An ended task has an outcome: without one the extension
    /// has nothing to say beside `completed` and `failed`, and that is invalid there.
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

/// The params of a request or notification, or a result, that belong to this task (2025-11-25). What is no object is none.
#[must_use]
pub fn related(message: Option<Json<'_>>, id: &str) -> String {
    with_meta(message, |meta| meta.set(RELATED_TASK, about(id)))
}

/// The task that params or a result belong to (2025-11-25).
#[must_use]
pub fn related_to(message: Json<'_>) -> Option<Cow<'_, str>> {
    message.member(META)?.member(RELATED_TASK)?.member("taskId")?.text()
}

/// Params or a result without the task that they belong to; `None` for what is no object.
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

/// The beginning of a text, at most so many bytes of it.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// A length of time as peers write it: most as a whole number, some with a fraction that is not there.
fn milliseconds(value: Json<'_>) -> Option<u64> {
    let text = value.get();
    text.parse().ok().or_else(|| {
        let number: f64 = serde_json::from_str(text).ok()?;
        // What is too large becomes the largest.
        (number >= 0.0).then_some(number as u64)
    })
}

fn is_object(value: Json<'_>) -> bool {
    value.get().starts_with('{')
}

#[cfg(test)]
mod tests;
