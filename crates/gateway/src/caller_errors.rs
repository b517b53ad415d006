//! Errors as callers see them: with what only a gateway knows, and without what is not for the caller.
//!
//! Invariants: a server's output may be about anybody's calls. So a caller who shares the server with others sees nothing of that output,
//! unless the caller looks after the servers.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{ServerAnswer, backend::Backend};
use unhang_core::{
    fault::{FaultKind, RESTART_HINT, WORTH_TELLING, of_which_starting},
    units::in_words,
};
use unhang_upstream::client::Error;

/// Decides whether a caller may read the output of servers that the caller shares with others. Asked anew each time. Clones share the
/// decision.
#[derive(Clone, Default)]
pub struct MayRead(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl MayRead {
    /// Makes one that asks `is_so` each time.
    #[must_use]
    pub fn where_it_is_so(is_so: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_so)))
    }

    /// Makes one that never allows it.
    #[must_use]
    pub fn never() -> Self {
        Self::where_it_is_so(|| false)
    }

    /// Returns whether the caller may read the output now.
    pub(super) fn now(&self) -> bool {
        self.0.as_ref().is_none_or(|is_so| is_so())
    }

    /// Takes from the answer's error what this caller may not read.
    pub(super) fn told(&self, backend: &Backend, mut answered: ServerAnswer) -> ServerAnswer {
        answered.outcome = answered.outcome.map_err(|error| self.error(backend, error));
        answered
    }

    pub(super) fn error(&self, backend: &Backend, error: Error) -> Error {
        let is_fenced_off =
            matches!(&error, Error::Failure(failure) if failure.kind == FaultKind::BreakerOpen);
        // The last failure is the same text for all instances together.
        let is_their_own = backend.is_own() && !is_fenced_off;
        if is_their_own || self.now() { error } else { error.unquoted() }
    }
}

/// Time that a request spent before the server had it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeSpent {
    /// Time behind other requests.
    pub(super) in_line: Duration,
    /// Time until the server had started.
    pub(super) starting: Duration,
}

/// Adds to the error of a request what only a gateway knows: where the time was spent, and that a dead server comes back. `since` is when
/// the server got the request.
pub(super) fn explained(error: Error, spent: TimeSpent, since: Instant) -> Error {
    let Error::Failure(mut failure) = error else { return error };
    let failed = &mut *failure;
    if failed.kind == FaultKind::Deadline && spent.in_line >= WORTH_TELLING {
        let (server, line) = (&failed.server, in_words(spent.in_line));
        let asked = in_words(since.elapsed());
        failed.happened.push_str(&format!(
            ": the request waited {line} for its turn behind other calls, and `{server}` had it for {asked}"
        ));
        failed.hint = "ask again when others have ended, or raise call-timeout or max-in-flight".to_owned();
    } else if failed.kind == FaultKind::Deadline {
        failed.happened.push_str(&of_which_starting(spent.starting));
    } else if failed.kind == FaultKind::ServerExited && failed.exit.is_some() {
        RESTART_HINT.clone_into(&mut failed.hint);
    } else if failed.kind == FaultKind::ServerExited {
        // A server at a URL has no process that we could start again.
        failed.happened.push_str(&format!(" ({} after it was asked)", in_words(failed.elapsed)));
    }
    Error::Failure(failure)
}

/// Adds the method and the time since `since` to an error that names no method.
pub(super) fn named(error: Error, method: &str, since: Instant) -> Error {
    let Error::Failure(mut failure) = error else { return error };
    if failure.method.is_none() {
        (failure.method, failure.elapsed) = (Some(method.to_owned()), since.elapsed());
    }
    Error::Failure(failure)
}
