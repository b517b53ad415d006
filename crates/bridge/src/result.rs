//! Results, from a server of one era to a client of the other (protocol.md 3.3, rows 5 and 6).
//!
//! Invariants: a legacy client gets no member that it may take for an error. A modern client gets all members that it requires. Their
//! values promise nothing, because a legacy server says nothing about how long its answers stay good.

use std::borrow::Cow;

use unhang_wire::Json;

use crate::{META, Splice, quoted, tools};

/// The member that tells the kind of a result.
pub const RESULT_TYPE: &str = "resultType";

/// The member of a result's `_meta` with the server's name and version.
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Requests whose results say how long they may be cached.
const CACHEABLE: [&str; 9] = [
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    // SEP-2640
    "skills/list",
    "skills/get",
    "resources/directory/read",
];

/// The kind of a modern server's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// The result that was asked for.
    Complete,
    /// The server asks questions. The client makes the request again with the answers.
    InputRequired,
    /// The result comes later, as the result of this task.
    Task,
    /// An unknown kind. The result is invalid.
    Unknown(String),
}

impl ResultKind {
    /// Describes a result that came where only a complete one is allowed, so that a person sees which rule the server broke.
    #[must_use]
    pub fn out_of_place(&self) -> String {
        match self {
            // SEP-2663.
            ResultKind::Task => "a task, but the request declared no support for tasks".to_owned(),
            ResultKind::InputRequired => "a question, but no client can answer it".to_owned(),
            ResultKind::Complete | ResultKind::Unknown(_) => {
                format!("a result that is not complete ({self:?})")
            }
        }
    }
}

/// Reads the kind of a result. A result without a kind is complete, as those of legacy servers are.
#[must_use]
pub fn kind(result: Json<'_>) -> ResultKind {
    let Some(said) = result.member(RESULT_TYPE) else { return ResultKind::Complete };
    match said.text().as_deref() {
        Some("complete") => ResultKind::Complete,
        Some("input_required") => ResultKind::InputRequired,
        Some("task") => ResultKind::Task,
        Some(other) => ResultKind::Unknown(other.to_owned()),
        None => ResultKind::Unknown(said.get().to_owned()),
    }
}

/// Translates a complete result for a legacy client. Returns `None` if the result is not an object.
#[must_use]
pub fn to_legacy<'a>(method: &str, result: Json<'a>) -> Option<Cow<'a, str>> {
    let mut splice = Splice::new(result).remove(RESULT_TYPE);
    if CACHEABLE.contains(&method) {
        splice = splice.remove("ttlMs").remove("cacheScope");
    }
    match method {
        "tools/list" => {
            if let Some(listed) = result.member("tools").and_then(tools::to_legacy) {
                splice = splice.set("tools", listed);
            }
        }
        // A modern client takes any JSON value there, a legacy client only an object. The text of the result says the same.
        "tools/call" => {
            let structured = result.member("structuredContent");
            if structured.is_some_and(|structured| !structured.get().starts_with('{')) {
                splice = splice.remove("structuredContent");
            }
        }
        _ => {}
    }
    if let Some(meta) = result.member(META).and_then(without_server_info) {
        splice = if meta == "{}" { splice.remove(META) } else { splice.set(META, meta) };
    }
    splice.apply()
}

/// Removes the server's name and version from the `_meta` of a result. Returns `None` if it has none.
fn without_server_info(meta: Json<'_>) -> Option<Cow<'_, str>> {
    meta.member(SERVER_INFO)?;
    Splice::new(meta).remove(SERVER_INFO).apply()
}

/// Translates a list of tools for a modern client. Returns `None` if nothing changes, or if `tools` is not an array.
#[must_use]
pub fn tools_to_modern(tools: Json<'_>) -> Option<String> {
    tools::to_modern(tools)
}

/// Translates the result of a legacy server for a modern client. `server_info` is the server's name and version, as JSON. Returns `None` if
/// the result is not an object.
#[must_use]
pub fn to_modern<'a>(method: &str, result: Json<'a>, server_info: Option<&str>) -> Option<Cow<'a, str>> {
    let mut splice = Splice::new(result).set(RESULT_TYPE, quoted("complete"));
    if CACHEABLE.contains(&method) {
        splice = splice.set("ttlMs", "0").set("cacheScope", quoted("private"));
    }
    if method == "tools/list"
        && let Some(listed) = result.member("tools").and_then(tools::to_modern)
    {
        splice = splice.set("tools", listed);
    }
    if let Some(info) = server_info {
        let of = |meta: Json<'_>| Splice::new(meta).set(SERVER_INFO, info).apply().map(Cow::into_owned);
        let meta =
            result.member(META).and_then(of).unwrap_or_else(|| format!("{{{}:{info}}}", quoted(SERVER_INFO)));
        splice = splice.set(META, meta);
    }
    splice.apply()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn a_result_out_of_place_is_named() {
        assert!(ResultKind::Task.out_of_place().starts_with("a task"));
        assert!(ResultKind::InputRequired.out_of_place().starts_with("a question"));
        assert!(ResultKind::Unknown("later".to_owned()).out_of_place().contains("later"));
    }

    #[test]
    fn only_a_list_of_tools_is_translated_as_one() {
        let listed = r#"{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"x":true}}}]}"#;
        let legacy = r#"{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"x":{}}}}]}"#;
        assert_eq!(to_legacy("tools/list", json(listed)).as_deref(), Some(legacy));
        assert_eq!(to_legacy("tools/call", json(listed)).as_deref(), Some(listed));
        let tasks = r#"{"tools":[{"name":"a","execution":{"taskSupport":"required"}}]}"#;
        let of = |method| to_modern(method, json(tasks), None).expect("an object").into_owned();
        assert!(!of("tools/list").contains("execution"));
        assert!(of("tools/call").contains("execution"));
        let tools = r#"[{"name":"a","execution":{}}]"#;
        assert_eq!(tools_to_modern(json(tools)).as_deref(), Some(r#"[{"name":"a"}]"#));
        assert_eq!(tools_to_modern(json(r#"[{"name":"a"}]"#)), None);
    }

    #[test]
    fn kinds_are_told_apart() {
        for (result, expect) in [
            (r#"{"content":[]}"#, ResultKind::Complete),
            (r#"{"resultType":"complete"}"#, ResultKind::Complete),
            (r#"{"resultType":"input_required","requestState":"s"}"#, ResultKind::InputRequired),
            (r#"{"resultType":"task","taskId":"t"}"#, ResultKind::Task),
            (r#"{"resultType":"later"}"#, ResultKind::Unknown("later".to_owned())),
            (r#"{"resultType":5}"#, ResultKind::Unknown("5".to_owned())),
        ] {
            assert_eq!(kind(json(result)), expect, "{result}");
        }
    }

    #[test]
    fn what_goes_from_one_legacy_side_to_the_other_comes_as_it_was() {
        for (method, result) in [
            ("tools/call", r#"{"content":[ ],"isError":false,"x":1.0e0}"#),
            ("tools/call", r#"{"_meta":{"a":"\u00e4"},"structuredContent":{"b":[1, 2]},"content":[]}"#),
            ("prompts/get", r#"{"messages":[], "_meta":{"io.other/serverInfo":1}}"#),
            ("resources/read", r#"{"contents":[{"uri":"a:b","text":"x"}]}"#),
            ("tools/list", r#"{"tools":[{"name":"n","inputSchema":{"type":"object"}}]}"#),
        ] {
            let modern = to_modern(method, json(result), Some(r#"{"name":"s","version":"1"}"#));
            let modern = modern.expect("an object");
            let back = to_legacy(method, json(&modern)).expect("an object");
            assert_eq!(back, result);
        }
    }

    #[test]
    fn a_legacy_client_gets_what_it_knows() {
        for (method, result, expect) in [
            (
                "tools/call",
                r#"{"content":[ ],"resultType":"complete","ttlMs":5}"#,
                r#"{"content":[ ],"ttlMs":5}"#,
            ),
            (
                "prompts/list",
                r#"{"prompts":[],"resultType":"complete","ttlMs":5,"cacheScope":"public"}"#,
                r#"{"prompts":[]}"#,
            ),
            ("tools/call", r#"{"structuredContent":[1],"content":[]}"#, r#"{"content":[]}"#),
            (
                "tools/call",
                r#"{"structuredContent":{"a":1},"content":[]}"#,
                r#"{"structuredContent":{"a":1},"content":[]}"#,
            ),
            (
                "tools/call",
                r#"{"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{}},"content":[]}"#,
                r#"{"_meta":{"a":1},"content":[]}"#,
            ),
            (
                "resources/read",
                r#"{"contents":[{"structuredContent":[1]}]}"#,
                r#"{"contents":[{"structuredContent":[1]}]}"#,
            ),
        ] {
            assert_eq!(to_legacy(method, json(result)).as_deref(), Some(expect));
        }
        assert_eq!(to_legacy("tools/call", json("5")), None);
    }

    #[test]
    fn a_modern_client_gets_what_it_has_to_get() {
        let info = Some(r#"{"name":"s","version":"1"}"#);
        for (method, result, expect) in [
            (
                "tools/call",
                r#"{"content":[]}"#,
                r#"{"content":[],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#,
            ),
            (
                "resources/read",
                r#"{"_meta":{"a":1},"contents":[]}"#,
                r#"{"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"contents":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#,
            ),
        ] {
            assert_eq!(to_modern(method, json(result), info).as_deref(), Some(expect));
        }
        let expect = r#"{"resultType":"complete"}"#;
        assert_eq!(to_modern("completion/complete", json("{}"), None).as_deref(), Some(expect));
        assert_eq!(to_modern("tools/call", json("[]"), info), None);
    }
}
