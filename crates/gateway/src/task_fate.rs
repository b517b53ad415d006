//! What becomes of the server of a task while the task is followed, and the errors of calls whose tasks bring no result.
//!
//! Invariants
//!
//! - The end of a server's process counts only if that process had told of the task. A later process that never came up hides no earlier end.
//! - Nothing here waits.

use tokio::time::Instant;
use unhang_bridge::tasks::SeenTask;
use unhang_core::{fault::FaultKind, units::in_words};
use unhang_upstream::client::{Error, Failure, ServerError};

use super::{backend::Backend, verdicts};

/// The advice about a call whose result does not come any more.
const LOST_HINT: &str = "call the tool again if that is safe to repeat";

/// What has become of the server of one task so far.
pub(super) struct TaskFate {
    begun: Instant,
    /// The start whose process has told of the task; `None` while no process of ours has.
    told_by: Option<u64>,
    /// How that process has ended.
    end: Option<Failure>,
    /// Why the last look brought nothing.
    missed: Option<Failure>,
}

impl TaskFate {
    /// Begins with a task that the process of this start has told of, if one has.
    pub(super) fn new(told_by: Option<u64>) -> Self {
        Self { begun: Instant::now(), told_by, end: None, missed: None }
    }

    /// Notes that the current process knows the task, whatever happened to an earlier one.
    pub(super) fn is_known_to(&mut self, start: u64) {
        *self = Self { begun: self.begun, ..Self::new(Some(start)) };
    }

    /// Notes that a look has brought nothing.
    pub(super) fn missed(&mut self, backend: &Backend, failure: Failure) {
        self.note_end(backend);
        self.missed = Some(failure);
    }

    fn note_end(&mut self, backend: &Backend) {
        if let (Some(start), None) = (self.told_by, &self.end) {
            self.end = backend.connection().end_since(start);
        }
    }

    /// Makes the error of a call whose server says that it does not know the task.
    pub(super) fn forgotten(mut self, backend: &Backend, error: &ServerError) -> Error {
        self.note_end(backend);
        let since = format!("it no longer knows the task: {}", error.message);
        let lost = self.lost(backend, FaultKind::ServerExited, &since);
        lost.unwrap_or_else(|| {
            let happened =
                format!("`{}` no longer knows the task of this call: {}", backend.name(), error.message);
            let hint = "the result of the call is no longer available";
            self.failure(backend, FaultKind::BadResponse, happened, hint).into()
        })
    }

    /// Makes the error of a call whose server cannot be asked for the task any more.
    pub(super) fn unreachable(mut self, backend: &Backend, error: Error) -> Error {
        self.note_end(backend);
        let Error::Failure(failure) = &error else { return error };
        // The server may have ended just now, while it was asked for the result.
        if failure.exit.is_some() && self.end.is_none() {
            self.end = Some((**failure).clone());
        }
        let since = "unhang could not ask it for the result";
        self.lost(backend, FaultKind::ServerExited, since).unwrap_or(error)
    }

    /// Makes the error of a call whose task has not ended in time.
    pub(super) fn late(mut self, backend: &Backend, task: &SeenTask) -> Error {
        self.note_end(backend);
        let since = "unhang could not ask it for the task again in time";
        // A server that could be reached by then may still be at the task, which is cancelled.
        let kind = if self.end.is_some() { FaultKind::ServerExited } else { FaultKind::Deadline };
        let lost = self.lost(backend, kind, since);
        lost.unwrap_or_else(|| {
            let doing = task.message.as_deref().map_or_else(String::new, |doing| format!(" ({doing})"));
            let happened = format!(
                "the task of `{}` for `tools/call` did not end within {}{doing}",
                backend.name(),
                in_words(self.begun.elapsed())
            );
            let hint = "unhang cancelled the task; raise job-timeout if it needs longer";
            self.failure(backend, FaultKind::Deadline, happened, hint).into()
        })
    }

    /// Makes the error of a call whose task the server has cancelled.
    pub(super) fn cancelled(self, backend: &Backend, task: &SeenTask) -> Error {
        let why = task.message.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
        let happened = format!("`{}` has cancelled the task of this call{why}", backend.name());
        let hint = "call it again if you still need the result";
        self.failure(backend, FaultKind::Cancelled, happened, hint).into()
    }

    /// Makes the error that tells of the server's end or absence first, and then of what came since. Returns `None` if the server was there.
    fn lost(&self, backend: &Backend, kind: FaultKind, since: &str) -> Option<Error> {
        let cause = self.end.as_ref().or(self.missed.as_ref())?;
        // A text that quotes the server's output is not for everybody.
        let told = cause.unquoted.as_ref().unwrap_or(&cause.happened);
        let happened = match cause.exit {
            Some(_) => format!("{told} during its task for `tools/call`, and {since}"),
            None => format!(
                "`{}` was away during its task for `tools/call` ({told}), and {since}",
                backend.name()
            ),
        };
        let failure = self.failure(backend, kind, happened, LOST_HINT);
        Some(Failure { exit: cause.exit.clone(), evidence: cause.evidence.clone(), ..failure }.into())
    }

    fn failure(&self, backend: &Backend, kind: FaultKind, happened: String, hint: &str) -> Failure {
        Failure {
            elapsed: self.begun.elapsed(),
            ..verdicts::failure(backend.name(), kind, "tools/call", happened, hint)
        }
    }
}
