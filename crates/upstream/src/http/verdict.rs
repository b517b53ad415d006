//! The meaning of an exchange that has ended without an answer, for the caller that waits for one. Pure.
//!
//! Invariants: nothing that a server wrote reaches a person but its first line, cut short.

use unhang_net::http::HttpError;

use super::exchange::Close;
use unhang_core::fault::{BAD_RESPONSE_HINT, FaultKind};

/// The hint for an answer over the limit.
pub(super) const TOO_LARGE: &str = "ask for less, or raise --max-message";

impl Close {
    /// Returns the kind of failure and the hint for a request that has no answer.
    pub(super) fn verdict(&self, is_starting: bool, method: &str) -> (FaultKind, &'static str) {
        let lost = if is_starting { FaultKind::StartFailed } else { FaultKind::ServerExited };
        match self {
            Close::NoMessage(..) => (FaultKind::BadResponse, "check whether it is an MCP server"),
            Close::Whole => (FaultKind::BadResponse, BAD_RESPONSE_HINT),
            Close::Failed(HttpError::TooLarge(_)) | Close::Broke(HttpError::TooLarge(_), _) => {
                (FaultKind::TooLarge, TOO_LARGE)
            }
            Close::Failed(HttpError::Unreachable(why)) => (lost, unreachable_hint(why)),
            Close::Failed(HttpError::Redirected(_)) => (lost, "use that URL, if you trust it"),
            Close::Failed(HttpError::Circle) => (lost, "check the path of its URL"),
            _ if method == "tools/call" => {
                (lost, "the server may have carried out the request; send it again if it is safe to repeat")
            }
            _ if is_starting => (lost, "check whether it runs, and see its log"),
            _ => (lost, "ask again"),
        }
    }

    /// Returns the hint for a server that offers neither of the two transports, or has ended its stream.
    pub(super) fn stream_hint(&self) -> &'static str {
        match self {
            Close::Refused(404 | 405, _) => "check the path of its URL, which often ends with /mcp or /sse",
            Close::Failed(HttpError::Unreachable(why)) => unreachable_hint(why),
            _ => "check whether it runs, and see its log",
        }
    }

    /// Describes the end of the exchange to a person.
    pub(super) fn told(&self) -> String {
        match self {
            Close::Ended(_) => "the stream of events ended before the answer".to_owned(),
            Close::Whole => "the HTTP response has no answer to it".to_owned(),
            Close::Broke(error, _) | Close::Failed(error) => error.to_string(),
            Close::Refused(status, told) => format!("HTTP {status}{}", in_short(told)),
            Close::NoMessage(status, Some(kind)) => {
                format!(
                    "the HTTP response has the type {} and is not a message (HTTP {status})",
                    one_line(kind)
                )
            }
            Close::NoMessage(status, None) => format!("the response was only HTTP {status}"),
        }
    }

    /// Returns whether the answer is lost in any case, and the request may never have reached the server.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Close::Ended(_) | Close::Failed(HttpError::Broken(_)) => true,
            Close::Broke(error, _) => !matches!(error, HttpError::TooLarge(_)),
            _ => false,
        }
    }
}

/// Returns the hint for a connection that could not be made. The TLS library tells its reasons in its own words.
fn unreachable_hint(why: &str) -> &'static str {
    if why.contains("certificate") {
        "if its certificate is from an authority of your own, name the authority's file in SSL_CERT_FILE"
    } else if why.contains("corrupt message") {
        "try its URL with http://, because the port does not speak TLS"
    } else {
        "check whether it runs, and whether its URL is right"
    }
}

/// Reads the `error` of a response in JSON-RPC; `None` if it has none.
pub(super) fn error_member(told: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct ErrorResponse<'a> {
        #[serde(borrow)]
        error: &'a serde_json::value::RawValue,
    }
    let ErrorResponse { error } = serde_json::from_slice(told).ok()?;
    let is_error = serde_json::from_str::<serde_json::Value>(error.get()).ok()?["code"].is_i64();
    is_error.then(|| error.get().to_owned())
}

/// Returns whether the message is a response.
pub(super) fn is_answer(message: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct ResponseMembers {
        result: Option<serde::de::IgnoredAny>,
        error: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<ResponseMembers>(message)
        .is_ok_and(|members| members.result.or(members.error).is_some())
}

/// Returns the first line of what a server says besides its status; of an object, the words in it. Empty if there are none.
pub(super) fn in_short(told: &[u8]) -> String {
    let text = match serde_json::from_slice::<serde_json::Value>(told) {
        Ok(said) => {
            let words =
                [&said["error"]["message"], &said["error_description"], &said["message"], &said["detail"]];
            let words = words.into_iter().chain([&said["error"]]).find_map(|words| words.as_str());
            words.unwrap_or_default().to_owned()
        }
        Err(_) => String::from_utf8_lossy(told).into_owned(),
    };
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) if !line.starts_with('<') => format!(": {}", one_line(line)),
        _ => String::new(),
    }
}

/// Removes control characters from a server's text, and cuts it to 200 characters.
fn one_line(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_cannot_be_made_gets_the_hint_that_fits() {
        for (why, hint) in [
            ("invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
            ("received corrupt message of type InvalidContentType", "with http://"),
            ("Connection refused (os error 111)", "whether it runs"),
        ] {
            let close = Close::Failed(HttpError::Unreachable(why.to_owned()));
            let (_, told) = close.verdict(true, "initialize");
            assert!(told.contains(hint) && close.stream_hint() == told, "{why}: {told}");
        }
        assert!(Close::Refused(404, Vec::new()).stream_hint().contains("path"));
    }

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
        assert_eq!(in_short(b"a\x1b[31mb"), ": a[31mb");
        assert_eq!(
            in_short(br#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"Broken"},"id":1}"#),
            ": Broken"
        );
        assert_eq!(in_short(br#"{"error":"invalid_token"}"#), ": invalid_token");
        assert_eq!(in_short(b"{}"), "");
        assert_eq!(in_short("\u{e9}".repeat(300).as_bytes()).chars().count(), 202);
    }
}
