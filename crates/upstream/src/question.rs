//! The messages and questions of a server beside its answer to a request, for a caller that made the request for somebody else.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use unhang_core::fault::FaultKind;

/// Tells one session of a client from every other, even of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(u64);

impl SessionKey {
    /// Draws the key of a session that begins now.
    #[must_use]
    pub fn drawn() -> Self {
        // The keys of `RandomState` are drawn anew each time, first from the system's random source.
        Self(RandomState::new().hash_one(()))
    }

    /// Returns the key of a caller without a session, which is the same for each of its requests to this process.
    pub fn of(caller: &impl Hash) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(STATE.hash_one(caller))
    }

    /// Returns the bytes of the key, for a digest.
    pub fn bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
}

/// The session that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfSession {
    /// The session's key.
    pub key: SessionKey,
    /// The client gets questions as requests of their own, so that a question about one of its calls may be put beside another of them. A
    /// client of 2026-07-28 gets a question as the answer to a call, which has to be the call that the question is about.
    pub is_asked_beside: bool,
}

/// The beginning of an unhang gateway's `requestState`, which tells it from a server's.
pub const STATE: &str = "unhang.";

/// The notification by which the leading window tells a window, before the answer to a call, that the server continues the call as a task.
pub const TASK_BEGUN: &str = "notifications/unhang/taskBegun";

/// The mark of a session whose client gets questions as requests of their own.
const BESIDE: &str = ";beside";

impl OfSession {
    /// Writes the session, as its window tells it to the window that leads.
    pub fn told(self) -> String {
        let beside = if self.is_asked_beside { BESIDE } else { "" };
        format!("{:016x}{beside}", self.key.0)
    }

    /// Reads a session that a window has told; `None` if it is malformed.
    pub fn read(told: &str) -> Option<Self> {
        let (key, is_asked_beside) = match told.strip_suffix(BESIDE) {
            Some(key) => (key, true),
            None => (told, false),
        };
        Some(Self { key: SessionKey(u64::from_str_radix(key, 16).ok()?), is_asked_beside })
    }
}

/// The reply to a question: a result as JSON, or the code and the message of an error.
pub type Replied = Result<String, (i32, String)>;

/// A message of a server beside its answer.
#[derive(Debug)]
pub enum SideMessage {
    /// The server asks something.
    Asked(OpenServerQuestion),
    /// The server logs something: the params of `notifications/message`, as received.
    Logged(Box<RawValue>),
    /// The server continues the call as a task.
    TaskBegun,
}

/// The channel for these messages.
pub(crate) type SideMessageSender = mpsc::Sender<SideMessage>;

/// The most questions and logs about one call that may be on their way.
pub const ASIDES: usize = 64;

/// A question that waits for its answer. Dropping it declines it.
#[derive(Debug)]
pub struct OpenServerQuestion {
    /// The question's method.
    pub method: String,
    /// The question's params.
    pub params: Option<Box<RawValue>>,
    /// The question may be about another call of the same session, which was with the server as well when it was asked.
    pub is_of_several: bool,
    /// Takes the answer.
    pub reply: oneshot::Sender<Replied>,
}

/// Asks the caller that made a request, and returns its reply, or the error if nobody waits for the request any more. Cancel-safe.
pub async fn ask(asides: &SideMessageSender, method: String, params: Option<Box<RawValue>>) -> Replied {
    ask_one(asides, method, params, false).await
}

/// Asks as [`ask`] does. `is_of_several` says that the question may be about another request of the same session. Cancel-safe.
pub(crate) async fn ask_one(
    asides: &SideMessageSender,
    method: String,
    params: Option<Box<RawValue>>,
    is_of_several: bool,
) -> Replied {
    let (reply, replied) = oneshot::channel();
    let nobody = || {
        (
            FaultKind::MethodNotFound.code(),
            format!("`{method}` is declined: the caller no longer waits for the request"),
        )
    };
    let question = OpenServerQuestion { method: method.clone(), params, is_of_several, reply };
    asides.send(SideMessage::Asked(question)).await.map_err(|_| nobody())?;
    replied.await.unwrap_or_else(|_| Err(nobody()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_told_is_the_session_that_is_read() {
        for is_asked_beside in [true, false] {
            let session = OfSession { key: SessionKey::drawn(), is_asked_beside };
            assert_eq!(OfSession::read(&session.told()), Some(session));
        }
        assert_eq!(OfSession::read("window"), None);
    }
}
