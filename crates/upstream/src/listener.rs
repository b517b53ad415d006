//! Who hears a server's notifications and answers its questions.
//!
//! Invariants: nothing that a listener does holds up the conversation with the server.

use std::{
    future::{Future, pending},
    pin::Pin,
};

use serde_json::{Map, Value, value::RawValue};

use super::question::SessionKey;

/// The answer to a server's question: a result, or an error's code and message.
pub type ListenerAnswer = Result<Value, (i32, String)>;

/// The error for what is not offered.
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;

/// Hears what a server says unasked, and answers what it asks.
pub trait ServerListener: Send + Sync {
    /// What we offer to servers, for the handshake: `elicitation`, `sampling`, `roots`. A server must not ask for anything else.
    fn capabilities(&self) -> Map<String, Value> {
        Map::new()
    }

    /// The server has said something unasked: a log message, say, or that a list has changed. Must not wait.
    fn notified(&self, _method: &str, _params: Option<&RawValue>) {}

    /// The server has written so many lines to its stdout that were no messages. Must not wait.
    fn wrote_junk(&self, _lines: u64) {}

    /// The server asks something of whoever made the request that it is about, of this session where it is of one. What comes back
    /// gives the reason when that one's answer must not be waited for any longer.
    fn asks(
        &self,
        _method: &str,
        _session: Option<SessionKey>,
    ) -> Pin<Box<dyn Future<Output = String> + Send + 'static>> {
        Box::pin(pending())
    }

    /// The server asks something in the middle of several requests, and nothing says which of them it is about.
    fn asks_in_a_crowd(&self, _method: &str) {}

    /// The server asks something. What does not come back within `call-timeout` is answered with an error.
    fn asked(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>>;
}

/// Hears nothing and declines everything, with a reason.
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

/// Why a question is not answered.
#[must_use]
pub fn declined(method: &str) -> (i32, String) {
    let why = match method {
        "sampling/createMessage" => "this client has no model to ask",
        "elicitation/create" => "there is nobody to ask",
        "roots/list" => "this client has no roots",
        _ => "this client does not know it",
    };
    (METHOD_NOT_FOUND, format!("`{method}` is declined: {why}"))
}
