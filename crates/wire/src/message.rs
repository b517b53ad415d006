//! The parts of a line: messages, invalid messages, batches and junk.
//!
//! Invariants
//!
//! - `raw` is always a sub-slice of the line that was read.
//! - A [`Message`] is a valid JSON-RPC 2.0 envelope. Its `params`, `result` and `error` are whole JSON in UTF-8.
//! - Every id, here or in [`Invalid`], stood at the top level of that very object.
//!
//! [`crate::read`] documents how a line is cut into these.

use std::borrow::Cow;
use std::ops::Range;

use crate::{Id, Json};

/// A part of a line.
#[derive(Clone, Debug)]
pub enum Piece<'a> {
    /// A valid message.
    Message(Message<'a>),
    /// A JSON-RPC batch: its elements in order, each a message, invalid or junk. Never empty, never nested.
    Batch(Vec<Piece<'a>>),
    /// An object that was meant as a message but is not valid.
    Invalid(Invalid<'a>),
    /// Bytes that were not meant as a message: log text, or JSON that is not JSON-RPC. It is trimmed of white space and never empty. It
    /// should be logged and counted. Nothing in it may be answered by id.
    Junk(&'a [u8]),
}

/// A valid message and the bytes it came in.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// The exact bytes of this message within the line. They hold no line feed, if the line came from [`crate::Lines`]. They may hold
    /// carriage returns, see [`one_line`].
    pub raw: &'a [u8],
    /// What kind of message it is, and its members.
    pub body: Body<'a>,
}

/// The kinds of message.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// A request, which gets one answer with its id.
    Request {
        /// The id.
        id: Id,
        /// Where the JSON text of the id stands in [`Message::raw`], for [`replace_id`].
        id_span: Range<usize>,
        /// The method, decoded.
        method: Cow<'a, str>,
        /// The parameters: an object or an array.
        params: Option<Json<'a>>,
    },
    /// A notification, which is never answered.
    Notification {
        /// The method, decoded.
        method: Cow<'a, str>,
        /// The parameters: an object or an array.
        params: Option<Json<'a>>,
    },
    /// The answer to a request.
    Response {
        /// The id of the request.
        id: Id,
        /// Where the JSON text of the id stands in [`Message::raw`], for [`replace_id`].
        id_span: Range<usize>,
        /// The result or the error.
        outcome: ResponseOutcome<'a>,
    },
}

/// The outcome in a response.
#[derive(Clone, Copy, Debug)]
pub enum ResponseOutcome<'a> {
    /// The result: any JSON value, also `null`.
    Result(Json<'a>),
    /// The error: an object with an integer `code` and a text `message`.
    Error(Json<'a>),
}

/// An object that was meant as a message but is not valid.
#[derive(Clone, Debug)]
pub struct Invalid<'a> {
    /// The exact bytes within the line. If the JSON is broken, this is the rest of the line.
    pub raw: &'a [u8],
    /// The id, if there is one that can be trusted: at the top level, once, a string or an integer.
    pub id: Option<Id>,
    /// The JSON text of the member `id`, whatever its type, up to [`Id::MAX_JSON`] bytes. It is present only if the object is whole JSON.
    pub raw_id: Option<&'a str>,
    /// The kind of message that it seems meant to be.
    pub shape: MessageShape,
    /// The rule that it breaks.
    pub reason: InvalidReason,
}

/// The kind that an invalid message seems meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageShape {
    /// The object has `method`, or an `id` and `params`: a request or a notification.
    Request,
    /// The object has `result` or `error`, or an `id` alone, and no `method`.
    Response,
    /// Neither of the two.
    Unknown,
}

impl MessageShape {
    /// Returns the shape of an object that has these members.
    pub(crate) fn of(method: bool, outcome: bool, id: bool, params: bool) -> Self {
        match (method, outcome, id) {
            (true, _, _) => Self::Request,
            (false, true, _) => Self::Response,
            (false, false, true) if params => Self::Request,
            (false, false, true) => Self::Response,
            (false, false, false) => Self::Unknown,
        }
    }
}

/// The reason why a message is not valid: a fragment that fits after "the message" or "refused:".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidReason {
    /// The text begins like a JSON object, and is broken or cut off.
    #[error("is not valid JSON")]
    NotJson,
    /// The text holds bytes that are not UTF-8.
    #[error("is not valid UTF-8")]
    InvalidUtf8,
    /// An element of a batch is not an object.
    #[error("is not a JSON object")]
    NotAnObject,
    /// The batch has no elements.
    #[error("is an empty batch")]
    EmptyBatch,
    /// The batch has more than [`crate::MAX_BATCH`] elements.
    #[error("is a batch of more than {} elements", crate::MAX_BATCH)]
    LongBatch,
    /// A member of the envelope occurs twice, so that readers would disagree.
    #[error("has the member `{member}` twice")]
    DuplicateMember {
        /// The name of the member.
        member: &'static str,
    },
    /// `jsonrpc` is absent.
    #[error("has no `jsonrpc` member")]
    MissingVersion,
    /// `jsonrpc` is not `"2.0"`.
    #[error("has a `jsonrpc` other than \"2.0\"")]
    WrongVersion,
    /// `id` is `null`, a fraction, a boolean, an array or an object.
    #[error("has an `id` that is neither a string nor an integer")]
    BadId,
    /// `id` is longer than [`Id::MAX_JSON`].
    #[error("has an `id` of more than {} bytes", Id::MAX_JSON)]
    LongId,
    /// The response has no id.
    #[error("is a response without an `id`")]
    MissingId,
    /// `method` is not a string.
    #[error("has a `method` that is not a string")]
    BadMethod,
    /// There is neither a method nor an outcome, but `params` or nothing at all.
    #[error("has no `method`")]
    MissingMethod,
    /// `params` is neither an object nor an array.
    #[error("has `params` that are neither an object nor an array")]
    BadParams,
    /// There is only an id.
    #[error("has neither a `result` nor an `error`")]
    MissingOutcome,
    /// There are both `result` and `error`.
    #[error("has both a `result` and an `error`")]
    BothOutcomes,
    /// `error` is not an object with an integer `code` and a string `message`.
    #[error("has an `error` that is not an object with an integer `code` and a string `message`")]
    BadError,
    /// There is a `method` together with `result` or `error`.
    #[error("has both a `method` and a `result` or `error`")]
    ResultAndMethod,
}

/// Copies the message `raw` with another id. Every other byte stays unchanged.
///
/// `span` is the `id_span` that was read from the same `raw`.
pub fn replace_id(raw: &[u8], span: Range<usize>, id: &Id) -> Vec<u8> {
    let id = id.to_json();
    let before = raw.get(..span.start).unwrap_or(raw);
    let after = raw.get(span.end..).unwrap_or_default();
    let mut message = Vec::with_capacity(before.len() + id.len() + after.len() + 1);
    message.extend_from_slice(before);
    message.extend_from_slice(id.as_bytes());
    message.extend_from_slice(after);
    message
}

/// Puts a message on one line for every reader. Carriage returns and line feeds become spaces: they are legal white space in JSON, but
/// would split the line. In valid JSON they cannot stand inside a string.
pub fn one_line(raw: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr2(b'\r', b'\n', raw) else {
        return Cow::Borrowed(raw);
    };
    let mut line = raw.to_vec();
    for byte in line.iter_mut().skip(first) {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_line_breaks_between_its_members_is_put_on_one_line() {
        assert!(matches!(one_line(b"{\"a\":\"\\r\"}"), Cow::Borrowed(_)));
        assert_eq!(&*one_line(b"{\r\"a\":\r\n1}\n"), b"{ \"a\":  1} ");
    }

    #[test]
    fn a_span_that_is_not_of_the_message_does_no_harm() {
        assert_eq!(replace_id(b"{}", 5..9, &Id::Integer(1)), b"{}1");
        assert_eq!(replace_id(b"abc", 1..2, &Id::from("x")), b"a\"x\"c");
    }

    #[test]
    fn reasons_are_fragments() {
        let reason = InvalidReason::DuplicateMember { member: "id" };
        assert_eq!(format!("the message {reason}"), "the message has the member `id` twice");
        assert_eq!(InvalidReason::LongId.to_string(), "has an `id` of more than 1024 bytes");
    }
}
