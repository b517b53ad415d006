//! The messages and questions of a server beside its answer to a request, for a caller that made the request for somebody else.

use std::{
    convert::Infallible,
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use unhang_core::fault::FaultKind;
use unhang_wire::Id;

/// Tells one session of a client from every other, even of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey(u64);

impl SessionKey {
    /// Draws the key of a session that begins now.
    #[must_use]
    pub fn drawn() -> Self {
        Self(drawn())
    }

    /// Returns the key of a caller without a session, which is the same for each of its requests to this process.
    pub fn of(caller: &impl Hash) -> Self {
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(STATE.hash_one(caller))
    }

    /// Returns the key with this number, which another process has drawn.
    #[must_use]
    pub fn of_number(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number of the key, for another process.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
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
    /// The client gets questions as requests of their own. A client of 2026-07-28 gets a question as the answer to a call.
    pub is_asked_beside: bool,
    /// The key belongs to one client, so that any of its calls may carry a question about another of them. Requests without a session and
    /// without a token may come from several clients.
    pub is_one_client: bool,
}

/// The beginning of an unhang gateway's `requestState`, which tells it from a server's.
pub const STATE: &str = "unhang.";

/// The notification by which the leading window tells a window, before the answer to a call, that the server continues the call as a task.
pub const TASK_BEGUN: &str = "notifications/unhang/taskBegun";

/// The notification by which a server tells that a person has done what a URL was opened for (2025-11-25).
pub const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";

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
        let key = SessionKey(u64::from_str_radix(key, 16).ok()?);
        // A window has one client.
        Some(Self { key, is_asked_beside, is_one_client: true })
    }
}

/// The reply to a question: a result as JSON, or an error.
pub type Replied = Result<String, ReplyError>;

/// An error in reply to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyError {
    /// Its code. Clients may use any number.
    pub code: i64,
    /// Its message.
    pub message: String,
    /// Its data as JSON, if it has any.
    pub data: Option<Box<str>>,
}

impl From<(i32, String)> for ReplyError {
    fn from((code, message): (i32, String)) -> Self {
        Self { code: code.into(), message, data: None }
    }
}

/// A message of a server beside its answer. Every call has a channel with room for dozens of them, so a message is small.
#[derive(Debug)]
pub enum SideMessage {
    /// The server asks something.
    Asked(Box<OpenServerQuestion>),
    /// The server logs something: the params of `notifications/message`, as received.
    Logged(Box<RawValue>),
    /// A person has done what a URL was opened for: the params of [`ELICITATION_COMPLETE`], as received.
    ElicitationOver(Box<RawValue>),
    /// The server continues the call as a task.
    TaskBegun,
}

impl From<OpenServerQuestion> for SideMessage {
    fn from(question: OpenServerQuestion) -> Self {
        SideMessage::Asked(Box::new(question))
    }
}

/// The channel for these messages.
pub(crate) type SideMessageSender = mpsc::Sender<SideMessage>;

/// The most questions and logs about one call that may be on their way.
pub const ASIDES: usize = 64;

/// A question that waits for its answer. Dropping it leaves it to another call of the same session, or declines it.
#[derive(Debug)]
pub struct OpenServerQuestion {
    /// A random number that tells the question from every other, even of other processes. A question that moves to another call keeps it.
    pub key: u64,
    /// The question's method.
    pub method: String,
    /// The question's params.
    pub params: Option<Box<RawValue>>,
    /// The question may be about another call of the same session, which was with the server as well when it was asked.
    pub is_of_several: bool,
    /// Takes the answer.
    pub reply: oneshot::Sender<Replied>,
    /// Tells when nobody needs the answer any more.
    pub over: QuestionOver,
}

/// Waits until nobody needs the answer to a question any more: it has come, or the question was withdrawn.
#[derive(Debug)]
pub struct QuestionOver(oneshot::Receiver<Infallible>);

impl QuestionOver {
    /// Waits for that. Cancel-safe.
    pub async fn wait(&mut self) {
        // Nothing is ever sent: the other end is dropped.
        let _over = (&mut self.0).await;
    }
}

/// The answer to a question, for the party that asks. Dropping it withdraws the question.
#[derive(Debug)]
pub struct AwaitedReply {
    replied: oneshot::Receiver<Replied>,
    _open: oneshot::Sender<Infallible>,
}

impl AwaitedReply {
    /// Waits for the answer; `None` if the question was dropped.
    pub async fn reply(self) -> Option<Replied> {
        self.replied.await.ok()
    }
}

impl OpenServerQuestion {
    /// Makes a question about one call, or about none.
    #[must_use]
    pub fn about_one(method: String, params: Option<Box<RawValue>>) -> (Self, AwaitedReply) {
        Self::new(drawn(), (method, params), false)
    }

    fn new(
        key: u64,
        (method, params): (String, Option<Box<RawValue>>),
        is_of_several: bool,
    ) -> (Self, AwaitedReply) {
        let ((reply, replied), (open, over)) = (oneshot::channel(), oneshot::channel());
        let over = QuestionOver(over);
        (Self { key, method, params, is_of_several, reply, over }, AwaitedReply { replied, _open: open })
    }
}

/// The beginning of the id of a question that the leading window puts to another window.
const WINDOW_QUESTION: &str = "unhang-question-";

/// The mark of a question that may be about another call of the same session.
const OF_SEVERAL: &str = ";several";

/// Writes the id with which the leading window puts a question to another window.
pub fn window_question_id(key: u64, is_of_several: bool) -> String {
    let of_several = if is_of_several { OF_SEVERAL } else { "" };
    format!("{WINDOW_QUESTION}{key:016x}{of_several}")
}

/// Reads the key of a question from such an id, and whether the question may be about another call. Returns `None` for other ids.
pub fn read_window_question_id(id: &Id) -> Option<(u64, bool)> {
    let Id::Text(text) = id else { return None };
    let rest = text.strip_prefix(WINDOW_QUESTION)?;
    let (key, is_of_several) = match rest.strip_suffix(OF_SEVERAL) {
        Some(key) => (key, true),
        None => (rest, false),
    };
    Some((u64::from_str_radix(key, 16).ok()?, is_of_several))
}

/// Asks the caller that made a request, and returns its reply, or the error if nobody waits for the request any more. Dropping the future
/// withdraws the question. Cancel-safe.
pub async fn ask(asides: &SideMessageSender, method: String, params: Option<Box<RawValue>>) -> Replied {
    let left = left_by_caller(&method);
    put(asides, drawn(), (method, params), false).await.unwrap_or(Err(left.into()))
}

/// Puts the question of this key beside a call, as [`ask`] does. `is_of_several` says that the question may be about another call of the
/// same session. Returns `None` if nobody waits for the call any more. Cancel-safe.
pub(crate) async fn put(
    asides: &SideMessageSender,
    key: u64,
    asked: (String, Option<Box<RawValue>>),
    is_of_several: bool,
) -> Option<Replied> {
    let (question, awaited) = OpenServerQuestion::new(key, asked, is_of_several);
    asides.send(question.into()).await.ok()?;
    awaited.reply().await
}

/// The refusal of a question about a call that nobody waits for any more.
pub(crate) fn left_by_caller(method: &str) -> (i32, String) {
    let why = format!("`{method}` is declined: the caller no longer waits for the request");
    (FaultKind::MethodNotFound.code(), why)
}

/// Draws a number that is the same nowhere else.
pub(crate) fn drawn() -> u64 {
    // The keys of `RandomState` are drawn anew each time, first from the system's random source.
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_told_is_the_session_that_is_read() {
        for is_asked_beside in [true, false] {
            let session = OfSession { key: SessionKey::drawn(), is_asked_beside, is_one_client: true };
            assert_eq!(OfSession::read(&session.told()), Some(session));
        }
        assert_eq!(OfSession::read("window"), None);
    }

    #[test]
    fn the_id_of_a_question_between_windows_says_which_question_it_is() {
        for is_of_several in [true, false] {
            let key = drawn();
            let id = Id::Text(window_question_id(key, is_of_several).into());
            assert_eq!(read_window_question_id(&id), Some((key, is_of_several)));
        }
        for other in [Id::Integer(7), Id::Text("unhang-7".into()), Id::Text("unhang-question-x".into())] {
            assert_eq!(read_window_question_id(&other), None);
        }
    }
}
