//! What a server says and asks beside its answer to a request, for whoever made that request for somebody else.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use unhang_core::fault::FaultKind;

/// Tells one session of a client from every other, of other processes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(u64);

impl SessionKey {
    /// That of a session that begins now.
    #[must_use]
    pub fn drawn() -> Self {
        // Its keys are drawn anew each time, first from the system's random source.
        Self(RandomState::new().hash_one(()))
    }

    /// That of a caller without a session, the same for each of its requests to this process.
    pub fn of(caller: &impl Hash) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(STATE.hash_one(caller))
    }

    /// Its bytes, for a digest.
    pub fn bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
}

/// The session that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfSession {
    /// Tells it from others.
    pub key: SessionKey,
    /// Its client is asked by requests of their own, so that a question about one of its calls may be put beside another of them. A
    /// client of 2026-07-28 is asked by the answer to a call, which has to be the call that the question is about.
    pub is_asked_beside: bool,
}

/// How a `requestState` of a gateway of ours begins, so that it is not taken for a server's.
pub const STATE: &str = "unhang.";

/// What is said of a session whose client is asked by requests of their own.
const BESIDE: &str = ";beside";

impl OfSession {
    /// As the window of this session tells it to the window that leads.
    pub fn told(self) -> String {
        let beside = if self.is_asked_beside { BESIDE } else { "" };
        format!("{:016x}{beside}", self.key.0)
    }

    /// What a window has told.
    pub fn read(told: &str) -> Option<Self> {
        let (key, is_asked_beside) = match told.strip_suffix(BESIDE) {
            Some(key) => (key, true),
            None => (told, false),
        };
        Some(Self { key: SessionKey(u64::from_str_radix(key, 16).ok()?), is_asked_beside })
    }
}

/// What comes of a question: a result as JSON, or the code and the message of an error.
pub type Replied = Result<String, (i32, String)>;

/// What a server says beside its answer.
#[derive(Debug)]
pub enum SideMessage {
    /// It asks something.
    Asked(OpenServerQuestion),
    /// It logs something: the params of `notifications/message`, as received.
    Logged(Box<RawValue>),
}

/// Where it goes.
pub(crate) type SideMessageSender = mpsc::Sender<SideMessage>;

/// Questions and logs about one call that may be on their way.
pub const ASIDES: usize = 64;

/// A question that waits for its answer. Dropped, it is declined.
#[derive(Debug)]
pub struct OpenServerQuestion {
    /// What is asked.
    pub method: String,
    /// What it is asked with.
    pub params: Option<Box<RawValue>>,
    /// It may be about another call of the same session, which was with the server as well when it was asked.
    pub is_of_several: bool,
    /// Who waits for the answer.
    pub reply: oneshot::Sender<Replied>,
}

/// Asks whoever made a request, and gives what they answer; why nobody does where that is so. Cancel-safe.
pub async fn ask(asides: &SideMessageSender, method: String, params: Option<Box<RawValue>>) -> Replied {
    ask_one(asides, method, params, false).await
}

/// The same on behalf of one of several requests of a session, where it may be about another of them. Cancel-safe.
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
            format!("`{method}` is declined: nobody waits for the request any more"),
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
