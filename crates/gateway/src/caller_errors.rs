//! What callers are told of what went wrong: with what only a gateway knows, and without what is not for them.
//!
//! Invariants: what a server has written may be about anybody's calls, so that who shares it with others reads nothing of that, unless
//! they look after the servers.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{ServerAnswer, backend::Backend};
use unhang_core::{
    fault::{FaultKind, RESTART_HINT, WORTH_TELLING, of_which_starting},
    units::in_words,
};
use unhang_upstream::client::Error;

/// Whether somebody may read what servers write that they share with others; looked up anew each time. Clones are the same.
#[derive(Clone, Default)]
pub struct MayRead(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl MayRead {
    /// Where this says so.
    #[must_use]
    pub fn where_it_is_so(is_so: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_so)))
    }

    /// Never.
    #[must_use]
    pub fn never() -> Self {
        Self::where_it_is_so(|| false)
    }

    /// Whether they may now.
    pub(super) fn now(&self) -> bool {
        self.0.as_ref().is_none_or(|is_so| is_so())
    }

    /// What is told of what this server came to.
    pub(super) fn told(&self, backend: &Backend, mut answered: ServerAnswer) -> ServerAnswer {
        answered.outcome = answered.outcome.map_err(|error| self.error(backend, error));
        answered
    }

    pub(super) fn error(&self, backend: &Backend, error: Error) -> Error {
        let is_fenced_off =
            matches!(&error, Error::Failure(failure) if failure.kind == FaultKind::BreakerOpen);
        // What last went wrong is told of all instances together.
        let is_their_own = backend.is_own() && !is_fenced_off;
        if is_their_own || self.now() { error } else { error.unquoted() }
    }
}

/// For how long a request was where.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeSpent {
    /// It waited for its turn behind others.
    pub(super) in_line: Duration,
    /// It waited for the server's start.
    pub(super) starting: Duration,
}

/// What came of a request that was with the server since then, with what only a gateway knows: where the time was spent, and that a dead
/// server comes back.
pub(super) fn explained(error: Error, spent: TimeSpent, since: Instant) -> Error {
    let Error::Failure(mut failure) = error else { return error };
    let failed = &mut *failure;
    if failed.kind == FaultKind::Deadline && spent.in_line >= WORTH_TELLING {
        let (server, line) = (&failed.server, in_words(spent.in_line));
        let asked = in_words(since.elapsed());
        failed.happened.push_str(&format!(
            ": it waited {line} for its turn behind other calls, and `{server}` had it for {asked}"
        ));
        failed.hint = "ask again when others have ended, or raise call-timeout or max-in-flight".to_owned();
    } else if failed.kind == FaultKind::Deadline {
        failed.happened.push_str(&of_which_starting(spent.starting));
    } else if failed.kind == FaultKind::ServerExited && failed.exit.is_some() {
        RESTART_HINT.clone_into(&mut failed.hint);
    } else if failed.kind == FaultKind::ServerExited {
        // A server at a URL has no process that anybody here could start again.
        failed.happened.push_str(&format!(" ({} after it was asked)", in_words(failed.elapsed)));
    }
    Error::Failure(failure)
}

/// A verdict on a server that was to be asked this, which does not say so itself.
pub(super) fn named(error: Error, method: &str, since: Instant) -> Error {
    let Error::Failure(mut failure) = error else { return error };
    if failure.method.is_none() {
        (failure.method, failure.elapsed) = (Some(method.to_owned()), since.elapsed());
    }
    Error::Failure(failure)
}
