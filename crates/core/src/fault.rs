//! Our own JSON-RPC errors: the report to a person or a program if the server did not answer (design 4).
//!
//! Invariants: codes lie outside the range that JSON-RPC reserves, so nobody mistakes our verdict for the server's (protocol.md 1.3). The
//! standard codes are used for malformed input, unknown methods and bad parameters only. Every fault names the server, the awaited answer,
//! how long it was awaited, and the next step.

use std::time::Duration;

use serde::Serialize;
use unhang_wire::{Id, one_line};

use crate::{config::LAST_MOMENT, units::in_words};

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// No answer within the limit.
    Deadline,
    /// The server's process ended while the request was with it.
    ServerExited,
    /// The server could not be started.
    StartFailed,
    /// The server failed too often and is left alone for a while.
    BreakerOpen,
    /// A queue or a limit on requests in flight is full.
    Overloaded,
    /// A message was longer than the limit.
    TooLarge,
    /// The answer is not valid JSON-RPC.
    BadResponse,
    /// unhang is ending.
    ShuttingDown,
    /// The client cancelled the request.
    Cancelled,
    /// The client's line is not JSON.
    ParseError,
    /// The client's message is not a valid JSON-RPC request.
    InvalidRequest,
    /// The method does not exist, or not in the revision that the client speaks.
    MethodNotFound,
    /// The parameters do not fit the method.
    InvalidParams,
    /// The headers of a request over HTTP contradict its body (2026-07-28).
    HeaderMismatch,
}

impl FaultKind {
    /// Returns the JSON-RPC error code.
    pub fn code(self) -> i32 {
        match self {
            FaultKind::Deadline => -31001,
            FaultKind::ServerExited => -31002,
            FaultKind::StartFailed => -31003,
            FaultKind::BreakerOpen => -31004,
            FaultKind::Overloaded => -31005,
            FaultKind::TooLarge => -31006,
            FaultKind::BadResponse => -31007,
            FaultKind::ShuttingDown => -31008,
            FaultKind::Cancelled => -31009,
            FaultKind::ParseError => -32700,
            FaultKind::InvalidRequest => -32600,
            FaultKind::MethodNotFound => -32601,
            FaultKind::InvalidParams => -32602,
            FaultKind::HeaderMismatch => -32020,
        }
    }

    /// Returns the word for `error.data.kind`.
    pub const fn word(self) -> &'static str {
        match self {
            FaultKind::Deadline => "deadline",
            FaultKind::ServerExited => "server_exited",
            FaultKind::StartFailed => "start_failed",
            FaultKind::BreakerOpen => "breaker_open",
            FaultKind::Overloaded => "overloaded",
            FaultKind::TooLarge => "too_large",
            FaultKind::BadResponse => "bad_response",
            FaultKind::ShuttingDown => "shutting_down",
            FaultKind::Cancelled => "cancelled",
            FaultKind::ParseError => "parse_error",
            FaultKind::InvalidRequest => "invalid_request",
            FaultKind::MethodNotFound => "method_not_found",
            FaultKind::InvalidParams => "invalid_params",
            FaultKind::HeaderMismatch => "header_mismatch",
        }
    }
}

/// Output of the server that may explain a fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Last lines of its stderr, oldest first.
    pub stderr_tail: Vec<String>,
    /// The time from the last of them to the fault, if it is known.
    pub stderr_age: Option<Duration>,
    /// Last lines of its stdout that were not messages, oldest first.
    pub junk: Vec<String>,
}

/// One fault, ready to be reported.
#[derive(Clone, Debug)]
pub struct Fault<'a> {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The server's name.
    pub server: &'a str,
    /// The request's method, if there was one.
    pub method: Option<&'a str>,
    /// The event, as the beginning of a sentence: the server, the awaited answer, how long.
    pub happened: String,
    /// The next step, as the end of that sentence.
    pub hint: &'a str,
    /// The time since the request came in.
    pub elapsed: Duration,
    /// The limit that fired, if one did.
    pub limit: Option<Duration>,
    /// The time after which another try makes sense, if that can be said.
    pub retry_after: Option<Duration>,
    /// How the server's process ended, if it did.
    pub exit: Option<String>,
    /// Output of the server that may explain the fault.
    pub evidence: Evidence,
}

/// The age from which the report of a line of stderr also tells its age.
const OLD: Duration = Duration::from_secs(1);

/// The advice about a server that ended during a request, if it is started again.
pub const RESTART_HINT: &str = "unhang starts it again when it is needed, or after a pause if it fails often; send the request again if it is \
     safe to repeat";

/// The advice about a server whose answers are not responses. Its end is for a reader who also has the server's output.
pub const BAD_RESPONSE_HINT: &str = "this is a fault of the server; error.data.junk has its output";

/// The place where an operator finds the server's output, for a reader who may not see it.
pub(crate) const STDERR_AT_STATUS: &str = "an operator sees its stderr at /status";

/// Words an event in the life of a server, and how long after a request it happened.
pub fn after_request(happened: &str, elapsed: Duration, method: &str) -> String {
    format!("{happened} {} after `{method}` was sent", in_words(elapsed))
}

/// The report that a server became useless: the time when that was noticed, and the reason ("closed its stdout").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uselessness {
    /// When it was noticed, on the clock of the server's owner.
    pub since: Duration,
    /// The server's act, as a sentence without its name.
    pub why: &'static str,
}

impl Uselessness {
    /// Returns the reason why we ended a server that ends now; `None` if it ended by itself.
    ///
    /// A server that ends by itself closes its pipes a moment before, and that is not a reason of ours. No signal of ours comes before
    /// `stop_grace` has passed.
    pub fn reason_of_end(self, now: Duration, stop_grace: Duration) -> Option<&'static str> {
        (now >= self.since + stop_grace.min(LAST_MOMENT)).then_some(self.why)
    }
}

/// Words the end of a server with this exit: it ended, or we ended it for this reason.
pub fn end_of_server(server: &str, exit: &str, our_reason: Option<&str>) -> String {
    match our_reason {
        Some(why) => format!("`{server}` {why}, and unhang ended it ({exit})"),
        None => format!("`{server}` ended ({exit})"),
    }
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    jsonrpc: &'static str,
    id: Option<&'a serde_json::value::RawValue>,
    error: ErrorMember<'a>,
}

#[derive(Serialize)]
struct ErrorMember<'a> {
    code: i32,
    message: String,
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    origin: &'static str,
    kind: &'static str,
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    elapsed_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<&'a str>,
    stderr_tail: &'a [String],
    junk: &'a [String],
    hint: &'a str,
}

impl Fault<'_> {
    /// Returns the sentence for a person. Many clients show nothing but this sentence, so a dead server's last line stands in it.
    pub fn message(&self) -> String {
        format!("{}; {}", self.cause(), self.hint)
    }

    /// Returns the event without the advice.
    pub fn cause(&self) -> String {
        let last_words = match self.kind {
            FaultKind::ServerExited | FaultKind::StartFailed => self.evidence.stderr_tail.last(),
            _ => None,
        };
        match last_words {
            Some(line) => {
                // A line from before the request, or from long ago, may be about something else.
                let is_old = |age: &Duration| *age > self.elapsed || *age >= OLD;
                let age = self.evidence.stderr_age.filter(is_old);
                let age = age.map_or_else(String::new, |age| format!(", {} before", in_words(age)));
                format!("{} (its last line on stderr{age}: {})", self.happened, line.trim())
            }
            None => self.happened.clone(),
        }
    }

    /// Makes the JSON-RPC error response as one line without its ending. Without an id it carries `null`, as JSON-RPC 2.0 section 5 asks if
    /// the id could not be read.
    pub fn response(&self, id: Option<&Id>) -> Vec<u8> {
        self.response_to_raw(id.map(Id::to_json).as_deref())
    }

    /// Makes the response for an id that is a text or a number but not valid (a fraction, say): the id is echoed as it came.
    pub fn response_to_raw(&self, id: Option<&str>) -> Vec<u8> {
        // An array may have line breaks in it, which would split our line for some readers.
        let one_line = |text: &str| String::from_utf8_lossy(&one_line(text.as_bytes())).into_owned();
        let raw_id = id.and_then(|text| serde_json::value::RawValue::from_string(one_line(text)).ok());
        let envelope = ErrorEnvelope {
            jsonrpc: "2.0",
            id: raw_id.as_deref(),
            error: ErrorMember { code: self.kind.code(), message: self.message(), data: self.members() },
        };
        serde_json::to_vec(&envelope).expect("strings and numbers always serialise")
    }

    /// Returns the contents of `error.data` (design 4).
    pub fn data(&self) -> serde_json::Value {
        serde_json::to_value(self.members()).expect("strings and numbers always serialise")
    }

    fn members(&self) -> Data<'_> {
        Data {
            origin: "unhang",
            kind: self.kind.word(),
            server: self.server,
            method: self.method,
            elapsed_ms: milliseconds(self.elapsed),
            limit_ms: self.limit.map(milliseconds),
            retry_after_ms: self.retry_after.map(milliseconds),
            exit: self.exit.as_deref(),
            stderr_tail: &self.evidence.stderr_tail,
            junk: &self.evidence.junk,
            hint: self.hint,
        }
    }
}

/// Returns whole milliseconds, saturating.
fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The shortest time to start that a report mentions.
pub const WORTH_TELLING: Duration = Duration::from_millis(100);

/// Words the rest of a sentence about a limit: how much of it a server took to start. The text is empty if that is under [`WORTH_TELLING`].
pub fn of_which_starting(starting: Duration) -> String {
    match starting >= WORTH_TELLING {
        true => format!(", {} of which it took to start", in_words(starting)),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Fault<'static> {
        Fault {
            kind: FaultKind::ServerExited,
            server: "time",
            method: Some("tools/call"),
            happened: "`time` ended (exit code 1) 20ms after `tools/call`".to_owned(),
            hint: "see its stderr",
            elapsed: Duration::from_millis(20),
            limit: None,
            retry_after: None,
            exit: Some("exit code 1".to_owned()),
            evidence: Evidence {
                stderr_tail: vec!["Traceback".into(), "KeyError: 'x'".into()],
                stderr_age: Some(Duration::from_millis(3)),
                junk: vec![],
            },
        }
    }

    #[test]
    fn no_server_is_ended_by_us_before_a_signal_of_ours_can_come() {
        let ms = Duration::from_millis;
        let useless = Uselessness { since: ms(100), why: "closed its stdout" };
        for (now, grace, is_ours) in [
            (110, 1000, false),
            (1099, 1000, false),
            (1100, 1000, true),
            (1100, 60_000, true),
            (150, 50, true),
        ] {
            assert_eq!(useless.reason_of_end(ms(now), ms(grace)).is_some(), is_ours, "{now} {grace}");
        }
        assert_eq!(end_of_server("s", "exit code 1", None), "`s` ended (exit code 1)");
        assert_eq!(
            end_of_server("s", "signal 9", Some(useless.why)),
            "`s` closed its stdout, and unhang ended it (signal 9)"
        );
    }

    #[test]
    fn a_fault_is_one_line_with_all_that_is_known() {
        let line = fault().response(Some(&Id::Integer(7)));
        assert!(!line.contains(&b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["id"], 7);
        assert_eq!(value["error"]["code"], -31002);
        assert_eq!(value["error"]["data"]["origin"], "unhang");
        assert_eq!(value["error"]["data"]["stderrTail"][1], "KeyError: 'x'");
        assert!(value["error"]["data"].get("limitMs").is_none());
        assert!(
            value["error"]["message"].as_str().unwrap().contains("KeyError: 'x'"),
            "last words in the message"
        );
    }

    #[test]
    fn f_74_a_line_of_stderr_that_may_be_about_something_else_has_its_age() {
        for (age, expect) in
            [(3, "stderr: Key"), (300, "stderr, 300ms before: Key"), (10_000, "stderr, 10s before: Key")]
        {
            let mut fault = fault();
            fault.evidence.stderr_age = Some(Duration::from_millis(age));
            assert!(fault.message().contains(expect), "{}", fault.message());
        }
    }

    #[test]
    fn an_unreadable_id_is_null_and_a_strange_one_is_echoed() {
        let value = |line: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&line).unwrap();
        assert!(value(fault().response(None))["id"].is_null());
        assert_eq!(value(fault().response_to_raw(Some("1.5")))["id"], 1.5);
        assert!(!fault().response_to_raw(Some("[1,\r2]")).contains(&b'\r'), "on one line");
    }

    #[test]
    fn each_kind_has_its_code_and_its_word() {
        for (kind, code, word) in [
            (FaultKind::Deadline, -31001, "deadline"),
            (FaultKind::ServerExited, -31002, "server_exited"),
            (FaultKind::StartFailed, -31003, "start_failed"),
            (FaultKind::BreakerOpen, -31004, "breaker_open"),
            (FaultKind::Overloaded, -31005, "overloaded"),
            (FaultKind::TooLarge, -31006, "too_large"),
            (FaultKind::BadResponse, -31007, "bad_response"),
            (FaultKind::ShuttingDown, -31008, "shutting_down"),
            (FaultKind::Cancelled, -31009, "cancelled"),
            (FaultKind::ParseError, -32700, "parse_error"),
            (FaultKind::InvalidRequest, -32600, "invalid_request"),
            (FaultKind::MethodNotFound, -32601, "method_not_found"),
            (FaultKind::InvalidParams, -32602, "invalid_params"),
            (FaultKind::HeaderMismatch, -32020, "header_mismatch"),
        ] {
            assert_eq!((kind.code(), kind.word()), (code, word));
        }
    }

    #[test]
    fn the_data_of_a_fault_has_all_members_and_leaves_out_what_is_not_known() {
        let mut fault = fault();
        fault.evidence.junk = vec!["Listening".into()];
        let mut expect = serde_json::json!({
            "origin": "unhang", "kind": "server_exited", "server": "time", "method": "tools/call", "elapsedMs": 20,
            "exit": "exit code 1", "stderrTail": ["Traceback", "KeyError: 'x'"], "junk": ["Listening"],
            "hint": "see its stderr",
        });
        assert_eq!(fault.data(), expect);
        fault.limit = Some(Duration::from_micros(1_999));
        fault.retry_after = Some(Duration::MAX);
        expect["limitMs"] = 1.into();
        expect["retryAfterMs"] = u64::MAX.into();
        assert_eq!(fault.data(), expect, "whole milliseconds, and no more than a number can hold");
        (fault.method, fault.exit, fault.limit, fault.retry_after) = (None, None, None, None);
        for name in ["method", "exit", "limitMs", "retryAfterMs"] {
            expect.as_object_mut().expect("an object").remove(name);
        }
        assert_eq!(fault.data(), expect);
    }

    #[test]
    fn the_last_words_of_a_dead_server_stand_in_the_sentence() {
        let ended = "`time` ended (exit code 1) 20ms after `tools/call`";
        let with_words = format!("{ended} (its last line on stderr: KeyError: 'x')");
        for (kind, expect) in [
            (FaultKind::ServerExited, &with_words),
            (FaultKind::StartFailed, &with_words),
            (FaultKind::Deadline, &ended.to_owned()),
            (FaultKind::BreakerOpen, &ended.to_owned()),
        ] {
            let fault = Fault { kind, ..fault() };
            assert_eq!(
                (fault.cause(), fault.message()),
                (expect.clone(), format!("{expect}; see its stderr"))
            );
        }
        let mut silent = fault();
        silent.evidence.stderr_tail = vec!["  spaced\t".into()];
        assert!(silent.cause().ends_with("stderr: spaced)"), "{}", silent.cause());
        silent.evidence.stderr_tail.clear();
        assert_eq!(silent.cause(), ended);
    }

    #[test]
    fn a_line_of_stderr_is_old_from_before_the_request_or_after_a_second() {
        for (elapsed, age, expect) in [
            (20, Some(20), "stderr: Key"),
            (20, Some(21), "stderr, 21ms before: Key"),
            (60_000, Some(999), "stderr: Key"),
            (60_000, Some(1000), "stderr, 1s before: Key"),
            (20, None, "stderr: Key"),
        ] {
            let mut fault = Fault { elapsed: Duration::from_millis(elapsed), ..fault() };
            fault.evidence.stderr_age = age.map(Duration::from_millis);
            assert!(fault.cause().contains(expect), "{elapsed} {age:?}: {}", fault.cause());
        }
    }

    #[test]
    fn an_event_is_told_with_the_time_since_the_request_and_the_time_to_start() {
        let ms = Duration::from_millis;
        assert_eq!(
            after_request("`s` ended", ms(350), "tools/call"),
            "`s` ended 350ms after `tools/call` was sent"
        );
        for (starting, expect) in [
            (0, ""),
            (99, ""),
            (100, ", 100ms of which it took to start"),
            (2000, ", 2s of which it took to start"),
        ] {
            assert_eq!(of_which_starting(ms(starting)), expect);
        }
    }
}
