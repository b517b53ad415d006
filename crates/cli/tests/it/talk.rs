//! What a test says and demands over and over, on top of the harness.
//!
//! Invariant: a fault is checked as a whole wherever it occurs, so that every test also holds design 4.

#![expect(clippy::needless_pass_by_value, reason = "what is handed in is nearly always a fresh `json!`")]

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Client, wait_until};

/// Codes of unhang's own errors and their words (design 4).
pub(crate) mod code {
    pub(crate) const DEADLINE: i64 = -31001;
    pub(crate) const SERVER_EXITED: i64 = -31002;
    pub(crate) const START_FAILED: i64 = -31003;
    pub(crate) const BREAKER_OPEN: i64 = -31004;
    pub(crate) const OVERLOADED: i64 = -31005;
    pub(crate) const TOO_LARGE: i64 = -31006;
    pub(crate) const BAD_RESPONSE: i64 = -31007;
    pub(crate) const SHUTTING_DOWN: i64 = -31008;
    pub(crate) const PARSE_ERROR: i64 = -32700;
    pub(crate) const INVALID_REQUEST: i64 = -32600;
}

fn word(code: i64) -> &'static str {
    match code {
        code::DEADLINE => "deadline",
        code::SERVER_EXITED => "server_exited",
        code::START_FAILED => "start_failed",
        code::BREAKER_OPEN => "breaker_open",
        code::OVERLOADED => "overloaded",
        code::TOO_LARGE => "too_large",
        code::BAD_RESPONSE => "bad_response",
        code::SHUTTING_DOWN => "shutting_down",
        code::PARSE_ERROR => "parse_error",
        code::INVALID_REQUEST => "invalid_request",
        other => panic!("{other} is no code of unhang"),
    }
}

/// Demands that an answer is an error of ours with this code and with all that explains it. Returns the error.
#[track_caller]
pub(crate) fn assert_fault(answer: &Value, code: i64) -> Value {
    let error = answer["error"].clone();
    assert_eq!(error["code"], code, "{answer}");
    let data = &error["data"];
    assert_eq!(data["origin"], "unhang", "{answer}");
    assert_eq!(data["kind"], word(code), "{answer}");
    assert!(data["server"].as_str().is_some_and(|name| !name.is_empty()), "{answer}");
    assert!(data["elapsedMs"].is_u64(), "{answer}");
    assert!(data["stderrTail"].as_array().is_some_and(|lines| lines.len() <= 20), "{answer}");
    assert!(data["junk"].as_array().is_some_and(|lines| lines.len() <= 5), "{answer}");
    let hint = data["hint"].as_str().expect("a hint");
    let message = error["message"].as_str().expect("a message");
    assert!(!hint.is_empty() && message.contains(hint) && !message.contains('\n'), "{answer}");
    error
}

/// The lines of a member of `error.data`.
pub(crate) fn lines_of(error: &Value, member: &str) -> Vec<String> {
    let lines = error["data"][member].as_array().into_iter().flatten();
    lines.filter_map(|line| line.as_str().map(str::to_owned)).collect()
}

/// The text in the answer to a tool call.
#[track_caller]
pub(crate) fn text_of(answer: &Value) -> String {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
        .to_owned()
}

/// What every stateless request carries in `_meta` (2026-07-28).
pub(crate) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "unhang-test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

impl Client {
    /// The answer to this id, which may have come already, while another was awaited.
    #[track_caller]
    pub(crate) fn outcome(&mut self, id: i64) -> Value {
        let seen = self.seen().iter().find(|message| message["id"] == id && message.get("method").is_none());
        let seen = seen.cloned();
        seen.unwrap_or_else(|| self.answer(id))
    }

    /// The answer to this id, which must be a fault of ours.
    #[track_caller]
    pub(crate) fn fault(&mut self, id: impl Into<Value>, code: i64) -> Value {
        let answer = self.answer(id);
        assert_fault(&answer, code)
    }

    /// Sends a stateless request.
    #[track_caller]
    pub(crate) fn modern(&mut self, method: &str, mut params: Value) -> i64 {
        params["_meta"] = modern_meta();
        self.request(method, params)
    }

    /// Sends a stateless tool call.
    #[track_caller]
    pub(crate) fn modern_call(&mut self, tool: &str, arguments: Value) -> i64 {
        self.modern("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Answers a request of the server.
    #[track_caller]
    pub(crate) fn respond(&mut self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
    }

    #[track_caller]
    pub(crate) fn cancel(&mut self, id: i64) {
        self.notify("notifications/cancelled", json!({"requestId": id, "reason": "a test"}));
    }

    /// What the well-behaved server knows about its session.
    #[track_caller]
    pub(crate) fn state(&mut self) -> Value {
        serde_json::from_str(&self.tool_text("state", json!({}))).expect("the state is JSON")
    }

    /// One exchange with the server and back: what was sent before it has been dealt with.
    #[track_caller]
    pub(crate) fn round_trip(&mut self) {
        let id = self.request("ping", json!({}));
        let answer = self.answer(id);
        assert_eq!(answer["result"], json!({}), "{answer}");
    }

    /// Waits for words of unhang on stderr.
    #[track_caller]
    pub(crate) fn wait_for_notice(&self, words: &str) {
        wait_until(&format!("`{words}` on stderr"), Duration::from_secs(30), || {
            self.stderr().contains(words)
        });
    }

    /// Ends the session well, and demands that each request got exactly one answer, and the withdrawn ones none.
    #[track_caller]
    pub(crate) fn end(&mut self, withdrawn: &[i64]) {
        self.finish();
        self.assert_answered_once(withdrawn);
    }

    /// Reads to the end of stdout and demands that each request got exactly one answer, and the withdrawn ones none.
    #[track_caller]
    pub(crate) fn assert_answered_once(&mut self, withdrawn: &[i64]) {
        self.drain();
        for id in 1..=self.last_id() {
            let expect = usize::from(!withdrawn.contains(&id));
            assert_eq!(self.answers_to(id), expect, "answers to {id}");
        }
    }
}

/// Demands that a condition stays true for a while. Absence cannot be waited for; a busy machine only makes this weaker,
/// never red.
#[track_caller]
pub(crate) fn assert_stays(what: &str, length: Duration, mut condition: impl FnMut() -> bool) {
    let mut broken = false;
    let end = format!("{what} (looking for {length:?})");
    let looks = length.as_millis() / 10;
    let mut count = 0;
    wait_until(&end, length * 100, || {
        count += 1;
        broken |= !condition();
        broken || count >= looks
    });
    assert!(!broken, "{what}");
}
