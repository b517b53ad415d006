//! The reports to a client about a line or a request that is refused. The client talks to a guard or to our own front.
//!
//! Invariants: each sentence states what came and what to send instead. An id is echoed if a text or a number could be read. The id of an
//! answer is never echoed, because the client may itself be waiting for an answer under it.

use std::time::Duration;

use unhang_wire::{Body, Id, Invalid, InvalidReason, Json, MessageShape, Oversized, Piece};

use crate::{
    batch::BatchId,
    fault::{Evidence, Fault, FaultKind},
};

/// The only revision that has batches (protocol.md 1.1).
pub const BATCH_REVISION: &str = "2025-03-26";

/// The parts of a sentence.
pub struct ErrorReport<'a> {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The event, as the beginning of a sentence.
    pub summary: String,
    /// The advice, as its end.
    pub hint: &'a str,
}

impl<'a> ErrorReport<'a> {
    /// Makes the fault that reports this about a request of `method` to `server`, without anything else that may be known of it.
    pub fn into_fault(self, server: &'a str, method: Option<&'a str>) -> Fault<'a> {
        Fault {
            kind: self.kind,
            server,
            method,
            happened: self.summary,
            hint: self.hint,
            elapsed: Duration::ZERO,
            limit: None,
            retry_after: None,
            exit: None,
            evidence: Evidence::default(),
        }
    }
}

/// The addressee of an answer of ours.
#[derive(Clone, Copy)]
pub struct Addressee<'a> {
    /// The id of the request, if it has a valid one.
    pub id: Option<&'a Id>,
    /// An id that is not valid but was readable.
    pub raw_id: Option<&'a str>,
    /// The batch that the request came in.
    pub batch: Option<BatchId>,
    /// The method of the request.
    pub method: Option<&'a str>,
    /// The server that the request was about, if another one reports.
    pub server: Option<&'a str>,
    /// How long the request has waited.
    pub waited: Duration,
}

impl<'a> Addressee<'a> {
    /// Makes an addressee that is nobody: the line has no id.
    pub fn nobody() -> Addressee<'a> {
        Addressee { id: None, raw_id: None, batch: None, method: None, server: None, waited: Duration::ZERO }
    }

    /// Addresses the sender of this request.
    pub fn request(id: &'a Id, method: &'a str, batch: Option<BatchId>) -> Addressee<'a> {
        Addressee { id: Some(id), batch, method: Some(method), ..Addressee::nobody() }
    }

    /// Addresses the sender of an invalid message.
    pub fn of_invalid(invalid: &'a Invalid<'a>, batch: Option<BatchId>) -> Addressee<'a> {
        match invalid.shape {
            MessageShape::Response => Addressee::nobody(),
            _ => {
                let (id, raw_id) =
                    (invalid.id.as_ref(), invalid.raw_id.filter(|raw_id| may_be_echoed(raw_id)));
                Addressee { id, raw_id, batch, ..Addressee::nobody() }
            }
        }
    }

    /// Makes the error response as one line.
    pub fn line(&self, fault: &Fault<'_>) -> Vec<u8> {
        match (self.id, self.raw_id) {
            (None, Some(raw_id)) => fault.response_to_raw(Some(raw_id)),
            (id, _) => fault.response(id),
        }
    }
}

/// Returns whether an invalid id may stand in an answer all the same. JSON-RPC knows texts and numbers, and `null` for the rest. A number
/// that no program can hold does not count as one.
fn may_be_echoed(raw_id: &str) -> bool {
    raw_id.starts_with('"') || raw_id.parse::<f64>().is_ok_and(f64::is_finite)
}

const ONE_MESSAGE_A_LINE: &str = "send one whole JSON-RPC 2.0 message per line";

/// Reports the fault of a line that is not a valid message.
pub fn invalid(invalid: &Invalid<'_>) -> ErrorReport<'static> {
    let kind = match invalid.reason {
        InvalidReason::NotJson | InvalidReason::InvalidUtf8 => FaultKind::ParseError,
        _ => FaultKind::InvalidRequest,
    };
    let happened = match kind {
        FaultKind::ParseError => format!("the client's line {}", invalid.reason),
        _ => format!("the client's line is not a valid JSON-RPC 2.0 message: it {}", invalid.reason),
    };
    ErrorReport { kind, summary: happened, hint: ONE_MESSAGE_A_LINE }
}

/// Reports that a line is not JSON, or is JSON but not a message.
pub fn junk(bytes: &[u8]) -> ErrorReport<'static> {
    let is_json = Json::new(bytes).is_some();
    let kind = if is_json { FaultKind::InvalidRequest } else { FaultKind::ParseError };
    let what = if is_json { "not a JSON-RPC 2.0 message" } else { "not JSON" };
    let happened = format!("the client's line is {what} ({} bytes)", bytes.len());
    ErrorReport { kind, summary: happened, hint: ONE_MESSAGE_A_LINE }
}

/// Reports that a line is longer than `limit` bytes.
pub fn oversized(oversized: &Oversized, limit: usize) -> ErrorReport<'static> {
    let happened =
        format!("the client's message is {} bytes long, over the limit of {limit}", oversized.length);
    ErrorReport {
        kind: FaultKind::TooLarge,
        summary: happened,
        hint: "send smaller messages, or raise --max-message",
    }
}

/// Reports that this revision has no batches.
pub fn foreign_batch() -> ErrorReport<'static> {
    let happened =
        "the client sent a JSON-RPC batch, but the session is not of revision 2025-03-26".to_owned();
    ErrorReport { kind: FaultKind::InvalidRequest, summary: happened, hint: "send one message per line" }
}

/// Reports that `initialize` came in a batch, and has to stand alone.
pub fn handshake_in_batch() -> ErrorReport<'static> {
    let happened = "the client sent `initialize` in a batch".to_owned();
    ErrorReport { kind: FaultKind::InvalidRequest, summary: happened, hint: "send it on a line of its own" }
}

/// Reports that another request with this id is in flight.
pub fn repeated_id(id: &Id) -> ErrorReport<'static> {
    let happened = format!("a request with the id {id} is still in flight");
    ErrorReport {
        kind: FaultKind::InvalidRequest,
        summary: happened,
        hint: "give each request an id of its own",
    }
}

/// Reports that as many requests are in flight as there may be.
pub fn overloaded(whom: &str, in_flight: usize) -> ErrorReport<'static> {
    let happened = format!("`{whom}` has {in_flight} requests in flight already");
    let hint = "wait for answers before sending more, or raise --max-in-flight";
    ErrorReport { kind: FaultKind::Overloaded, summary: happened, hint }
}

/// Says that the whole of unhang ends, and why.
#[must_use]
pub fn unhang_ends(cause: &str) -> String {
    format!("unhang is ending because {cause}")
}

/// Reports that unhang ends.
pub fn ending() -> ErrorReport<'static> {
    let hint = "send the request again in the next session";
    ErrorReport { kind: FaultKind::ShuttingDown, summary: "unhang is ending".to_owned(), hint }
}

/// Reports that a request stays unanswered, because unhang ends for this reason.
pub fn ended(cause: &str, method: &str) -> ErrorReport<'static> {
    let hint = "send the request again in the next session";
    let happened = format!("{}, before `{method}` was answered", unhang_ends(cause));
    ErrorReport { kind: FaultKind::ShuttingDown, summary: happened, hint }
}

/// Returns whether an element of a batch is owed an answer.
pub fn gets_an_answer(piece: &Piece<'_>) -> bool {
    match piece {
        Piece::Message(message) => matches!(message.body, Body::Request { .. }),
        Piece::Invalid(invalid) => invalid.shape != MessageShape::Response,
        Piece::Junk(_) | Piece::Batch(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use unhang_wire::{Line, Lines};

    use super::*;

    #[test]
    fn an_id_that_no_answer_can_have_is_not_repeated() {
        for (raw_id, expect) in [
            ("1.5", true),
            ("-0.0", true),
            (r#""a""#, true),
            ("1e400", false),
            ("-1e400", false),
            ("[1]", false),
            (r#"{"a":1}"#, false),
            ("true", false),
            ("null", false),
        ] {
            assert_eq!(may_be_echoed(raw_id), expect, "{raw_id}");
        }
    }

    fn pieces(line: &str) -> Vec<Piece<'_>> {
        unhang_wire::read(line.as_bytes()).collect()
    }

    fn message(line: &[u8]) -> serde_json::Value {
        serde_json::from_slice(line).expect("JSON")
    }

    #[test]
    fn an_answer_has_the_id_that_can_be_read_and_never_that_of_an_answer() {
        let report = || junk(b"x");
        for (line, id, raw_id, answered) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":1}"#, Some(Id::Integer(7)), Some("7"), "7"),
            (r#"{"jsonrpc":"2.0","id":"a","method":1}"#, Some(Id::from("a")), Some(r#""a""#), r#""a""#),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, None, Some("1.5"), "1.5"),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, None, None, "null"),
            (r#"{"jsonrpc":"2.0"}"#, None, None, "null"),
            (r#"{"jsonrpc":"2.0","id":7,"result":1,"error":2}"#, None, None, "null"),
        ] {
            let pieces = pieces(line);
            let [Piece::Invalid(invalid)] = pieces.as_slice() else { panic!("{line}: {pieces:?}") };
            let addressee = Addressee::of_invalid(invalid, Some(3));
            assert_eq!((addressee.id, addressee.raw_id), (id.as_ref(), raw_id), "{line}");
            let batch = Some(3).filter(|_| invalid.shape != MessageShape::Response);
            assert_eq!((addressee.batch, addressee.method, addressee.server), (batch, None, None), "{line}");
            let answer = message(&addressee.line(&report().into_fault("unhang", None)));
            assert_eq!(answer["id"].to_string(), answered, "{line}");
        }
        let id = Id::Integer(7);
        let asked = Addressee::request(&id, "tools/call", Some(4));
        assert_eq!((asked.id, asked.method, asked.batch), (Some(&id), Some("tools/call"), Some(4)));
        assert_eq!((asked.raw_id, asked.server, asked.waited), (None, None, Duration::ZERO));
        let nobody = Addressee::nobody();
        assert_eq!((nobody.id, nobody.raw_id, nobody.method, nobody.batch), (None, None, None, None));
        let both = Addressee { raw_id: Some("8"), ..asked };
        assert_eq!(message(&both.line(&report().into_fault("unhang", None)))["id"], 7);
    }

    #[test]
    fn each_report_says_what_came_and_what_to_send_instead() {
        let of_invalid = |line: &str| match pieces(line).as_slice() {
            [Piece::Invalid(found)] => invalid(found),
            other => panic!("{line}: {other:?}"),
        };
        let mut lines = Lines::new(64);
        lines.push(&[[b'x'; 70].as_slice(), b"\n"].concat());
        let Some(Line::Oversized(long)) = lines.next_line() else { panic!("a line over the limit") };
        let again = "send the request again in the next session";
        for (report, kind, summary, hint) in [
            (
                of_invalid(r#"{"jsonrpc":"2.0","#),
                FaultKind::ParseError,
                "the client's line is not valid JSON",
                ONE_MESSAGE_A_LINE,
            ),
            (
                of_invalid(r#"{"id":1,"method":"m"}"#),
                FaultKind::InvalidRequest,
                "the client's line is not a valid JSON-RPC 2.0 message: it has no `jsonrpc` member",
                ONE_MESSAGE_A_LINE,
            ),
            (
                junk(b"hello"),
                FaultKind::ParseError,
                "the client's line is not JSON (5 bytes)",
                ONE_MESSAGE_A_LINE,
            ),
            (
                junk(b"42"),
                FaultKind::InvalidRequest,
                "the client's line is not a JSON-RPC 2.0 message (2 bytes)",
                ONE_MESSAGE_A_LINE,
            ),
            (
                oversized(&long, 64),
                FaultKind::TooLarge,
                "the client's message is 70 bytes long, over the limit of 64",
                "send smaller messages, or raise --max-message",
            ),
            (
                foreign_batch(),
                FaultKind::InvalidRequest,
                "the client sent a JSON-RPC batch, but the session is not of revision 2025-03-26",
                "send one message per line",
            ),
            (
                handshake_in_batch(),
                FaultKind::InvalidRequest,
                "the client sent `initialize` in a batch",
                "send it on a line of its own",
            ),
            (
                repeated_id(&Id::Integer(7)),
                FaultKind::InvalidRequest,
                "a request with the id 7 is still in flight",
                "give each request an id of its own",
            ),
            (
                overloaded("s", 9),
                FaultKind::Overloaded,
                "`s` has 9 requests in flight already",
                "wait for answers before sending more, or raise --max-in-flight",
            ),
            (ending(), FaultKind::ShuttingDown, "unhang is ending", again),
            (
                ended("it was interrupted", "tools/call"),
                FaultKind::ShuttingDown,
                "unhang is ending because it was interrupted, before `tools/call` was answered",
                again,
            ),
        ] {
            assert_eq!((report.kind, report.summary.as_str(), report.hint), (kind, summary, hint));
            let fault = report.into_fault("unhang", Some("m"));
            assert_eq!((fault.kind, fault.message()), (kind, format!("{summary}; {hint}")));
            assert_eq!((fault.server, fault.method), ("unhang", Some("m")));
        }
        assert_eq!(unhang_ends("it was told to end"), "unhang is ending because it was told to end");
    }

    #[test]
    fn an_element_of_a_batch_gets_an_answer_unless_it_is_a_notification_or_an_answer() {
        for (element, expect) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, true),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, false),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, false),
            (r#"{"jsonrpc":"2.0","id":1,"method":1}"#, true),
            (r#"{"jsonrpc":"2.0"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":2}"#, false),
            ("1", true),
        ] {
            let line = format!("[{element}]");
            let pieces = pieces(&line);
            let [whole @ Piece::Batch(elements)] = pieces.as_slice() else { panic!("{line}: {pieces:?}") };
            assert_eq!(elements.iter().map(gets_an_answer).collect::<Vec<_>>(), [expect], "{element}");
            assert!(gets_an_answer(whole));
        }
        assert!(gets_an_answer(&Piece::Junk(b"hello")), "its sender may wait for one");
    }
}
