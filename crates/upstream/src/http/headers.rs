//! The headers that repeat parts of a message for a server over HTTP (2026-07-28, "Request Metadata"). With them a proxy can route the
//! message without reading the body.
//!
//! Invariants: pure. A value is in a header exactly as it is in the body, and encoded if a header cannot hold it. A tool whose annotations
//! break the rules has no headers, and is not offered.

use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Map, Value};
use unhang_bridge::tasks;

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

const PARAMETER: &str = "mcp-param-";

/// The annotation in a tool's schema that asks for a header.
const ANNOTATION: &str = "x-mcp-header";

/// Keywords of JSON Schema besides `properties`: those that hold one schema, those that hold a list of schemas, and those that hold schemas
/// by name.
const ONE: [&str; 11] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const LISTS: [&str; 5] = ["items", "prefixItems", "oneOf", "anyOf", "allOf"];
const NAMED: [&str; 4] = ["$defs", "definitions", "patternProperties", "dependentSchemas"];

/// An argument of a tool that is sent as a header as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    header: String,
    path: Vec<String>,
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
pub(crate) fn of_request(method: &str, params: &Map<String, Value>) -> Option<(String, String)> {
    Some((NAME.to_owned(), encoded(params.get(subject(method)?)?.as_str()?)))
}

/// Finds the arguments of a tool that are sent as headers as well.
///
/// # Errors
/// Fails with the rule that the tool's schema breaks.
pub(crate) fn mirrors(schema: &Value) -> Result<Vec<Mirror>, String> {
    let mut found = Vec::new();
    walk(schema, Some(&[]), &mut found)?;
    Ok(found)
}

/// Collects the annotations below a schema. `path` leads to it by `properties` alone; it is `None` if other keywords are on the way.
fn walk(schema: &Value, path: Option<&[String]>, found: &mut Vec<Mirror>) -> Result<(), String> {
    let Some(members) = schema.as_object() else { return Ok(()) };
    if let Some(name) = members.get(ANNOTATION) {
        let path = path.filter(|path| !path.is_empty());
        let path = path.ok_or("an annotation is at a place that properties alone do not reach")?;
        found.push(annotated(name, members, path.to_vec(), found)?);
    }
    for (name, property) in members.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path: Option<Vec<String>> = path.map(|path| path.iter().cloned().chain([name.clone()]).collect());
        walk(property, path.as_deref(), found)?;
    }
    let listed = LISTS.iter().filter_map(|keyword| members.get(*keyword)?.as_array()).flatten();
    let named = NAMED.iter().filter_map(|keyword| members.get(*keyword)?.as_object()).flat_map(Map::values);
    let inner = ONE.iter().filter_map(|keyword| members.get(*keyword)).chain(listed).chain(named);
    inner.into_iter().try_for_each(|schema| walk(schema, None, found))
}

fn annotated(
    name: &Value,
    schema: &Map<String, Value>,
    path: Vec<String>,
    found: &[Mirror],
) -> Result<Mirror, String> {
    let name = name
        .as_str()
        .filter(|name| !name.is_empty())
        .ok_or("the name of a header is empty, or not a text")?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(is_token) {
        return Err(format!("`{}` cannot be the name of a header", name.escape_debug()));
    }
    let header = format!("{PARAMETER}{}", name.to_ascii_lowercase());
    if found.iter().any(|mirror| mirror.header == header) {
        return Err(format!("`{name}` is the name of two headers"));
    }
    let kinds = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.as_slice(),
        Some(kind) => std::slice::from_ref(kind),
        None => &[],
    };
    let is_plain = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let is_allowed = |kind: &Value| is_plain(kind) || kind == "null";
    if !kinds.iter().any(is_plain) || !kinds.iter().all(is_allowed) {
        return Err(format!("`{name}` is for an argument that is neither text, integer nor boolean"));
    }
    Ok(Mirror { header, path })
}

/// Returns the headers of a call with these arguments. Absent arguments and `null` have none.
pub(crate) fn of_arguments(mirrors: &[Mirror], arguments: Option<&Value>) -> Vec<(String, String)> {
    let value = |mirror: &Mirror| {
        let found = mirror.path.iter().try_fold(arguments?, |value, name| value.get(name))?;
        let text = match found {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            _ => return None,
        };
        Some((mirror.header.clone(), encoded(&text)))
    };
    mirrors.iter().filter_map(value).collect()
}

/// Encodes a text if a header cannot hold it as it is.
fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let is_padded = text.starts_with(' ') || text.ends_with(' ');
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_plain && !is_padded && !looks_encoded {
        return text.to_owned();
    }
    format!("=?base64?{}?=", BASE64.encode(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        }
    }

    #[test]
    fn annotated_arguments_go_along_by_their_path() {
        let schema = json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "type": "object", "properties": { "count": { "type": ["integer", "null"], "x-mcp-header": "Count" } } },
            "x-mcp-header": { "type": "string" },
            "dry": { "type": "boolean", "x-mcp-header": "Dry" },
            "gone": { "type": "string", "x-mcp-header": "Gone" },
        } });
        let mirrors = mirrors(&schema).unwrap();
        let arguments = json!({ "region": "é", "deep": { "count": -7 }, "dry": false, "gone": null });
        let mut headers = of_arguments(&mirrors, Some(&arguments));
        headers.sort();
        let expect =
            [("mcp-param-count", "-7"), ("mcp-param-dry", "false"), ("mcp-param-region", "=?base64?w6k=?=")];
        assert_eq!(headers, expect.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(of_arguments(&mirrors, None), []);
    }

    #[test]
    fn a_tool_whose_annotations_break_the_rules_is_told_of() {
        let one = |property: Value| json!({ "properties": { "a": property } });
        for (schema, why) in [
            (one(json!({ "type": "string", "x-mcp-header": "" })), "empty"),
            (one(json!({ "type": "string", "x-mcp-header": 7 })), "not a text"),
            (one(json!({ "type": "string", "x-mcp-header": "My Region" })), "cannot be the name"),
            (one(json!({ "type": "string", "x-mcp-header": "a\r\nb" })), "cannot be the name"),
            (one(json!({ "type": "number", "x-mcp-header": "A" })), "neither"),
            (one(json!({ "type": "null", "x-mcp-header": "A" })), "neither"),
            (one(json!({ "x-mcp-header": "A" })), "neither"),
            (
                one(json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "A" } })),
                "do not reach",
            ),
            (json!({ "oneOf": [one(json!({ "type": "string", "x-mcp-header": "A" }))] }), "do not reach"),
            (json!({ "$defs": { "a": { "type": "string", "x-mcp-header": "A" } } }), "do not reach"),
            (json!({ "type": "string", "x-mcp-header": "A" }), "do not reach"),
            (
                json!({ "properties": {
                    "a": { "type": "string", "x-mcp-header": "Same" }, "b": { "type": "string", "x-mcp-header": "SAME" },
                } }),
                "two headers",
            ),
        ] {
            let error = mirrors(&schema).expect_err("a rule is broken");
            assert!(error.contains(why), "{schema}: {error}");
        }
    }

    #[test]
    fn a_request_names_what_it_is_about() {
        let params = |value: Value| value.as_object().unwrap().clone();
        let named = |method: &str, value: Value| of_request(method, &params(value)).map(|(_, value)| value);
        assert_eq!(named("tools/call", json!({ "name": "add" })).as_deref(), Some("add"));
        assert_eq!(
            named("resources/read", json!({ "uri": "file:///ä" })).as_deref(),
            Some("=?base64?ZmlsZTovLy/DpA==?=")
        );
        assert_eq!(named("tools/list", json!({ "name": "add" })), None);
    }
}
