//! The listener, which hears a server's notifications and answers its questions.
//!
//! Invariants: nothing that a listener does holds up the session with the server.

use std::{
    future::{Future, pending, ready},
    pin::Pin,
};

use serde_json::{Map, Value, value::RawValue};
use tokio::sync::mpsc;

use super::question::{ReplyError, SessionKey, SideMessage};

/// The answer to a server's question: a result, or an error.
pub type ListenerAnswer = Result<Value, ReplyError>;

/// The error code for a method that is not offered.
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;

/// Hears the unasked messages of a server, and answers its questions.
pub trait ServerListener: Send + Sync {
    /// Returns the capabilities that the handshake declares: `elicitation`, `sampling`, `roots`. A server must not ask for anything else.
    fn capabilities(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Notes that the server has said something unasked, such as a log message or a change of a list. Must not wait.
    fn notified(&self, _method: &str, _params: Option<&RawValue>) {}

    /// Notes that notifications of the server may have been lost, since its stream of them has begun anew. Must not wait.
    fn may_have_missed_some(&self) {}

    /// Notes that the server has written so many lines to its stdout that were not messages. Must not wait.
    fn wrote_junk(&self, _lines: u64) {}

    /// Notes that the server asks the caller of a request something; the session is that caller's, if it has one. The future gives a reason
    /// as soon as the caller's answer must not be waited for any longer.
    fn asks(
        &self,
        _method: &str,
        _session: Option<SessionKey>,
    ) -> Pin<Box<dyn Future<Output = String> + Send + 'static>> {
        Box::pin(pending())
    }

    /// Notes that the server asks something in the middle of several requests, and nothing says which of them it is about.
    fn asks_in_a_crowd(&self, _method: &str) {}

    /// Finds the caller of the call that the server continues as this task, for a question about the task. The future may wait a moment,
    /// because the caller may not have read the name of the task yet. It returns `None` if nobody waits for the task.
    fn caller_of_task(
        &self,
        _task: &str,
    ) -> Pin<Box<dyn Future<Output = Option<mpsc::Sender<SideMessage>>> + Send + 'static>> {
        Box::pin(ready(None))
    }

    /// Answers a question that the server asks while no call runs, and that may be about a call that this session has abandoned. Returns
    /// `None` if the question may be for somebody else. The server then gets an error.
    fn asked_after_calls_of(
        &self,
        _session: SessionKey,
        _method: &str,
        _params: Option<&RawValue>,
    ) -> Option<Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>>> {
        None
    }

    /// Answers a question of the server. If the answer takes longer than `call-timeout`, the server gets an error.
    fn asked(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>>;
}

/// Ignores every notification, and declines every question with a reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct DecliningListener;

impl ServerListener for DecliningListener {
    fn asked(
        &self,
        method: String,
        _params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        Box::pin(async move { Err(declined(&method)) })
    }
}

/// Makes the error with which a question is declined.
#[must_use]
pub fn declined(method: &str) -> ReplyError {
    let why = match method {
        "sampling/createMessage" => "this client has no model to ask",
        "elicitation/create" => "this client has no user to ask",
        "roots/list" => "this client has no roots",
        _ => "this client does not support it",
    };
    (METHOD_NOT_FOUND, format!("`{method}` is declined: {why}")).into()
}
