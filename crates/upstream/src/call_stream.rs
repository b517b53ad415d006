//! The stream on which the answer to a call comes: what another process needs to resume it.
//!
//! ```text
//! HttpActor ─ CallStream ─► whoever keeps the call: writes down the point
//! HttpActor ◄─ CallStream ◄─ we end, and another process resumes the stream: the server is told nothing
//! ```
//!
//! Invariants
//!
//! - A point never lies behind the answer, nor behind a question of the server that nobody has answered.
//! - The debug form of a point does not show the session, which is a secret.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use unhang_core::revision::Revision;

/// The point from which the stream of an answer can be resumed, and everything that the server has to be told for that.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPoint {
    /// The name of the session, if the server has given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The revision that is spoken in the session.
    pub revision: String,
    /// The id of the request, which is its progress token too.
    pub request: i64,
    /// The id of the last event that was read.
    pub last_event: String,
    /// The pause before the stream is resumed, if the server has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<u64>,
}

impl fmt::Debug for StreamPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StreamPoint")
            .field("revision", &self.revision)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// The state of a call's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resumability {
    /// The server has not been asked over HTTP.
    #[default]
    Unasked,
    /// A server of this revision has been asked, and has given no event an id so far.
    WithoutIds(Revision),
    /// The stream can be resumed from here.
    At(StreamPoint),
}

/// The stream on which the answer to a call comes. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct CallStream(Arc<CallStreamState>);

#[derive(Debug, Default)]
struct CallStreamState {
    /// The state, with the number of its changes.
    state: Mutex<(u64, Resumability)>,
    changes: Notify,
    is_left: AtomicBool,
}

impl CallStream {
    fn latest(&self) -> MutexGuard<'_, (u64, Resumability)> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of the stream.
    pub fn state(&self) -> Resumability {
        self.latest().1.clone()
    }

    /// Waits for a change after `seen`, and returns the state. Only one task may wait. Cancel-safe.
    pub async fn next_change(&self, seen: &mut u64) -> Resumability {
        loop {
            if let (number, state) = &*self.latest()
                && number > seen
            {
                *seen = *number;
                return state.clone();
            }
            self.0.changes.notified().await;
        }
    }

    /// Notes the state of the stream.
    pub(crate) fn comes_to(&self, state: Resumability) {
        let mut latest = self.latest();
        if latest.1 != state {
            *latest = (latest.0 + 1, state);
            drop(latest);
            self.0.changes.notify_one();
        }
    }

    /// Notes that another process resumes the stream: the server is to hear nothing of our end.
    pub fn leave(&self) {
        self.0.is_left.store(true, Ordering::Relaxed);
    }

    /// Returns whether another process resumes the stream.
    pub fn is_left(&self) -> bool {
        self.0.is_left.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn a_point_is_read_as_it_was_written_and_its_session_is_shown_to_nobody() {
        let bare = json!({ "revision": "2025-11-25", "request": 4, "last_event": "7" });
        let whole = json!({
            "session": "secret-7", "revision": "2025-11-25", "request": 4, "last_event": "7", "retry_ms": 60,
        });
        for written in [bare, whole] {
            let point: StreamPoint = from_value(written.clone()).unwrap();
            assert_eq!(to_value(&point).unwrap(), written);
            assert!(!format!("{:?}", Resumability::At(point)).contains("secret-7"));
        }
    }

    #[tokio::test]
    async fn a_change_is_told_once_and_a_repetition_never() {
        let (stream, mut seen) = (CallStream::default(), 0);
        stream.comes_to(Resumability::Unasked);
        let asked = Resumability::WithoutIds(Revision::V2025November);
        stream.comes_to(asked.clone());
        stream.comes_to(asked.clone());
        assert_eq!((stream.next_change(&mut seen).await, seen), (asked, 1));
    }
}
