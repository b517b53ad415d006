//! The headers that repeat parts of a message for a server over HTTP (2026-07-28, "Request Metadata"). With them a proxy can route the
//! message without reading the body. [`param_headers`](super::param_headers) has those of arguments.
//!
//! Invariants: pure. A value is in a header exactly as it is in the body, and encoded if a header cannot hold it.

use std::{borrow::Cow, time::Duration};

use data_encoding::BASE64;
use unhang_bridge::tasks;
use unhang_wire::{Json, text_member};

/// The method of a request. All names of headers are spelled as they go out.
pub const METHOD: &str = "mcp-method";
/// The revision that a request is in.
pub const REVISION: &str = "mcp-protocol-version";
/// The session that a request belongs to.
pub const SESSION: &str = "mcp-session-id";
/// The tool, prompt or resource that a request is about.
pub const NAME: &str = "mcp-name";
/// The session of a window, for the window that leads.
pub const WINDOW: &str = "unhang-window";

/// The time for which a window waits for the answer to its call: a [`CallLimit`].
pub const LIMIT: &str = "unhang-limit";

/// The time for which a window waits for the answer to a call, and how much was over when it asked the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimit {
    /// The time for which it waits in all.
    pub limit: Duration,
    /// The part of that time that had passed.
    pub waited: Duration,
}

impl CallLimit {
    /// Returns how long the window still waits.
    pub fn left(self) -> Duration {
        self.limit.saturating_sub(self.waited)
    }

    /// Writes the value of the header: both in milliseconds, as `4000;12`.
    pub fn told(self) -> String {
        format!("{};{}", self.limit.as_millis(), self.waited.as_millis())
    }

    /// Reads the value of the header; `None` if it is malformed.
    pub fn read(text: &str) -> Option<Self> {
        let (limit, waited) = text.split_once(';')?;
        let [limit, waited] = [limit, waited].map(|text| text.parse().ok().map(Duration::from_millis));
        Some(Self { limit: limit?, waited: waited? })
    }
}

/// Returns the member of the params that names the subject of a request; `None` for a method without a header for it.
pub fn subject(method: &str) -> Option<&'static str> {
    Some(match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        tasks::GET | tasks::UPDATE | tasks::CANCEL => "taskId",
        _ => return None,
    })
}

/// Returns the header that names the subject of a request; `None` if the request has none.
pub(crate) fn of_request(method: &str, params: Json<'_>) -> Option<(String, String)> {
    Some((NAME.to_owned(), encoded(&text_member(params, subject(method)?)?)))
}

/// Encodes a text if a header cannot hold it as it is.
pub(crate) fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let is_padded = text.starts_with(' ') || text.ends_with(' ');
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_plain && !is_padded && !looks_encoded {
        return text.to_owned();
    }
    format!("=?base64?{}?=", BASE64.encode(text.as_bytes()))
}

/// Decodes a header's value. Returns `None` if a header cannot have that value.
pub fn decoded(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix("=?base64?").and_then(|value| value.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(BASE64.decode(encoded.as_bytes()).ok()?).ok().map(Cow::Owned),
        None => value.bytes().all(|byte| matches!(byte, 0x20..=0x7e | b'\t')).then_some(Cow::Borrowed(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the specification, and what else a header cannot hold.
    #[test]
    fn a_value_is_encoded_where_a_header_cannot_hold_it() {
        for (text, expect) in [
            ("us-west1", "us-west1"),
            ("us west 1", "us west 1"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("\tindented", "=?base64?CWluZGVudGVk?="),
        ] {
            assert_eq!(encoded(text), expect);
            assert_eq!(decoded(expect).as_deref(), Some(text));
        }
        for malformed in ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?/w==?=", "é", "a\u{7f}"]
        {
            assert_eq!(decoded(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_request_names_what_it_is_about() {
        let named = |method: &str, params: &str| {
            of_request(method, Json::new(params.as_bytes()).expect("JSON")).map(|(_, value)| value)
        };
        assert_eq!(named("tools/call", r#"{ "name": "add" }"#).as_deref(), Some("add"));
        assert_eq!(
            named("resources/read", r#"{ "uri": "file:///ä" }"#).as_deref(),
            Some("=?base64?ZmlsZTovLy/DpA==?=")
        );
        assert_eq!(named("tools/list", r#"{ "name": "add" }"#), None);
    }
}
