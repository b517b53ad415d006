//! What it means that an exchange has ended without an answer, for whoever waits for one. Pure.
//!
//! Invariants: nothing that a server wrote reaches a person but its first line, cut short.

use unhang_net::http::HttpError;

use super::exchange::Close;
use crate::fault::Kind;

/// What to do about an answer over the limit.
pub(super) const TOO_LARGE: &str = "ask for less, or raise --max-message";

impl Close {
    /// What it means for a request that has no answer, and what to do about it.
    pub(super) fn verdict(&self, is_starting: bool) -> (Kind, &'static str) {
        let lost = if is_starting { Kind::StartFailed } else { Kind::ServerExited };
        match self {
            Close::NoMessage(_) => (Kind::BadResponse, "see whether it is an MCP server"),
            Close::Failed(HttpError::TooLarge(_)) => (Kind::TooLarge, TOO_LARGE),
            Close::Failed(HttpError::Unreachable(_)) => {
                (lost, "see whether it runs, and whether its URL is right")
            }
            Close::Failed(HttpError::Redirected(_)) => (lost, "use that URL, if it is trusted"),
            _ => (lost, "ask again"),
        }
    }

    /// The same for a person.
    pub(super) fn told(&self) -> String {
        match self {
            Close::Ended(_) => "the answer ended without a message".to_owned(),
            Close::Broke(error, _) | Close::Failed(error) => error.to_string(),
            Close::Refused(status, told) => format!("HTTP {status}{}", in_short(told)),
            Close::NoMessage(kind) => format!("what came is {kind}, and no message"),
        }
    }
}

/// The `error` of a response, where it is one.
pub(super) fn error_member(told: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Members<'a> {
        #[serde(borrow)]
        error: &'a serde_json::value::RawValue,
    }
    let Members { error } = serde_json::from_slice(told).ok()?;
    let is_error = serde_json::from_str::<serde_json::Value>(error.get()).ok()?["code"].is_i64();
    is_error.then(|| error.get().to_owned())
}

/// The first line of what a server says besides its status.
pub(super) fn in_short(told: &[u8]) -> String {
    let text = String::from_utf8_lossy(told);
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) if !line.starts_with('<') => format!(": {}", line.chars().take(200).collect::<String>()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_json_rpc_is_told_from_others() {
        for (told, expect) in [
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no"}}"#,
                Some(r#"{"code":-32022,"message":"no"}"#),
            ),
            (r#"{"error":"invalid_token"}"#, None),
            (r#"{"error":{"message":"no"}}"#, None),
            ("<html>", None),
            ("", None),
        ] {
            assert_eq!(error_member(told.as_bytes()).as_deref(), expect, "{told}");
        }
    }

    #[test]
    fn what_a_server_says_is_cut_short() {
        assert_eq!(in_short(b"\n  Service Unavailable \nmore"), ": Service Unavailable");
        assert_eq!(in_short(b"<!DOCTYPE html>"), "");
        assert_eq!(in_short("\u{e9}".repeat(300).as_bytes()).chars().count(), 202);
    }
}
