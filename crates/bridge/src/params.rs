//! The params of requests, from a client of one era to a server of the other (protocol.md 3.3, rows 4 and 6).
//!
//! Invariants: `_meta` keeps the client's own members (`progressToken`, `traceparent`, names of its own). The members that the protocol
//! puts there go only to a server that knows them.

use std::borrow::Cow;

use unhang_wire::{Id, Json, may_have_progress_token, progress_token_value};

use crate::{quoted, with_meta, without_reserved};

/// The revision of the request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The client's name and version.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The client's capabilities.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The lowest level of log messages that the client wants for this request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The facts that a legacy client states once, and that a modern server wants with every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The revision that unhang speaks with the server.
    pub revision: &'static str,
    /// `clientInfo`, as JSON.
    pub client_info: String,
    /// `capabilities`, as JSON.
    pub client_capabilities: String,
    /// The level of the last `logging/setLevel`.
    pub log_level: Option<String>,
}

/// Translates the params for a modern server. Params that are not an object are replaced by an object.
#[must_use]
pub fn to_modern<'a>(params: Option<Json<'a>>, signature: &'a Signature) -> String {
    with_meta(params, |meta| {
        let signed = meta
            .remove(LOG_LEVEL)
            .set(PROTOCOL_VERSION, quoted(signature.revision))
            .set(CLIENT_INFO, signature.client_info.as_str())
            .set(CLIENT_CAPABILITIES, signature.client_capabilities.as_str());
        match &signature.log_level {
            Some(level) => signed.set(LOG_LEVEL, quoted(level)),
            None => signed,
        }
    })
}

/// Adds a progress token to the params of a request.
#[must_use]
pub fn with_progress_token(params: Option<Json<'_>>, token: &Id) -> String {
    with_meta(params, |meta| meta.set("progressToken", token.to_json()))
}

/// Removes the progress token from the params of a request, even if the token is neither a string nor an integer. Returns `None` if the
/// params have no progress token. Most params are searched and not parsed.
#[must_use]
pub fn without_progress_token(params: &str) -> Option<String> {
    if !may_have_progress_token(params) {
        return None;
    }
    let params = Json::new(params.as_bytes())?;
    progress_token_value(params)?;
    Some(with_meta(Some(params), |meta| meta.remove("progressToken")))
}

/// Translates the params for a legacy server. Returns `None` if there are none, or if they are not an object (no valid request has such).
#[must_use]
pub fn to_legacy(params: Option<Json<'_>>) -> Option<Cow<'_, str>> {
    // These members answer a question of the modern form, which a legacy server never asks.
    without_reserved(params?).remove("inputResponses").remove("requestState").apply()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Option<Json<'_>> {
        Some(Json::new(text.as_bytes()).expect("JSON"))
    }

    fn signature(level: Option<&str>) -> Signature {
        Signature {
            revision: "2026-07-28",
            client_info: r#"{"name":"a","version":"1"}"#.to_owned(),
            client_capabilities: r#"{"roots":{}}"#.to_owned(),
            log_level: level.map(str::to_owned),
        }
    }

    const SIGNED: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}}"#;

    #[test]
    fn a_modern_server_is_told_who_asks() {
        for (params, expect) in [
            (None, format!(r#"{{"_meta":{{{SIGNED}}}}}"#)),
            (json(r#"[1]"#), format!(r#"{{"_meta":{{{SIGNED}}}}}"#)),
            (
                json(r#"{"name":"t","arguments":{"x":1.0e0}}"#),
                format!(r#"{{"name":"t","arguments":{{"x":1.0e0}},"_meta":{{{SIGNED}}}}}"#),
            ),
            (
                json(r#"{"_meta":{"progressToken":1},"uri":"u"}"#),
                format!(r#"{{"_meta":{{"progressToken":1,{SIGNED}}},"uri":"u"}}"#),
            ),
            (json(r#"{"_meta":5}"#), format!(r#"{{"_meta":{{{SIGNED}}}}}"#)),
        ] {
            assert_eq!(to_modern(params, &signature(None)), expect);
        }
        let leveled = to_modern(None, &signature(Some("debug")));
        assert!(leveled.ends_with(r#","io.modelcontextprotocol/logLevel":"debug"}}"#), "{leveled}");
        // What it claims by itself does not count.
        let claimed = json(
            r#"{"_meta":{"io.modelcontextprotocol/logLevel":"debug","io.modelcontextprotocol/protocolVersion":"1"}}"#,
        );
        assert!(!to_modern(claimed, &signature(None)).contains("debug"));
        assert!(!to_modern(claimed, &signature(None)).contains(r#"protocolVersion":"1""#));
    }

    #[test]
    fn progress_is_asked_for_under_one_token() {
        for (params, expect) in [
            (None, r#"{"_meta":{"progressToken":7}}"#),
            (
                json(r#"{"a":1,"_meta":{"progressToken":"old","b":2}}"#),
                r#"{"a":1,"_meta":{"progressToken":7,"b":2}}"#,
            ),
        ] {
            assert_eq!(with_progress_token(params, &Id::Integer(7)), expect);
        }
    }

    #[test]
    fn no_progress_token_is_left() {
        for (params, expect) in [
            (r#"{"a":1}"#, None),
            (r#"{"_meta":{"b":2},"a":"progressToken"}"#, None),
            (r#"{"_meta":{"progressToken":2.0,"b":2},"a":1}"#, Some(r#"{"_meta":{"b":2},"a":1}"#)),
            (
                r#"{"_meta":{"progressToken":[1],"progress\u0054oken":2},"a":1}"#,
                Some(r#"{"_meta":{},"a":1}"#),
            ),
        ] {
            let removed = without_progress_token(params);
            assert_eq!(removed.as_deref(), expect, "{params}");
        }
    }

    #[test]
    fn a_legacy_server_is_told_nothing_that_it_does_not_know() {
        for (params, expect) in [
            (
                r#"{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
                r#"{"name":"t"}"#,
            ),
            (
                r#"{"_meta":{"progressToken":"p", "io.modelcontextprotocol/clientInfo":{}},"a":1}"#,
                r#"{"_meta":{"progressToken":"p"},"a":1}"#,
            ),
            (
                r#"{"_meta":{"traceparent":"t"},"inputResponses":{},"requestState":"s"}"#,
                r#"{"_meta":{"traceparent":"t"}}"#,
            ),
            (
                r#"{ "arguments" : {"io.modelcontextprotocol/x":1} }"#,
                r#"{ "arguments" : {"io.modelcontextprotocol/x":1} }"#,
            ),
            (r#"{"_meta":null}"#, r#"{"_meta":null}"#),
        ] {
            assert_eq!(to_legacy(json(params)).as_deref(), Some(expect));
        }
        assert_eq!(to_legacy(None), None);
    }
}
