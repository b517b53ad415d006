//! The arguments of a tool that are sent as headers as well: `Mcp-Param-*` (2026-07-28, SEP-2243). A tool asks for them with `x-mcp-header`
//! in its input schema. unhang sends these headers to servers over HTTP, and compares those of its own clients with their arguments.
//!
//! Invariants: pure. Sender and receiver read an argument in the same way. A tool whose annotations break the rules has no headers. No error
//! shows the value of an argument.

use std::borrow::Cow;

use serde_json::{Map, Value};
use unhang_wire::Json;

use super::headers::{decoded, encoded};
use unhang_core::wording::shortened;

/// The beginning of the names of these headers, spelled as they go out.
const PREFIX: &str = "mcp-param-";

/// The annotation in a tool's schema that asks for a header.
pub const ANNOTATION: &str = "x-mcp-header";

/// The most places by which an exponent may move the point of a number.
const MOST_PLACES: u32 = 400;

/// The most characters of a name from a schema that an error shows.
const MOST_SHOWN: usize = 100;

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

/// The headers that a tool wants beside its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders(Vec<ParamHeader>);

/// One header, and the argument that it repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ParamHeader {
    name: String,
    /// The names of the properties that lead to the argument.
    path: Vec<String>,
}

/// The headers of this kind that a request has brought, as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedParamHeaders(Vec<(String, Vec<u8>)>);

impl ReceivedParamHeaders {
    /// Keeps the headers of this kind among the headers of a request.
    pub fn among<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let lowercase = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        let kept = lowercase.filter(|(name, _)| name.starts_with(PREFIX));
        Self(kept.map(|(name, value)| (name, value.to_vec())).collect())
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

impl ParamHeaders {
    /// Finds the headers that a tool of this input schema wants.
    ///
    /// # Errors
    /// Fails with the rule that the schema breaks.
    pub fn of_schema(schema: &Value) -> Result<Self, String> {
        let mut found = Vec::new();
        walk(schema, Some(&[]), &mut found)?;
        Ok(Self(found))
    }

    /// Returns whether the tool wants no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the headers of a call with these arguments. Absent arguments and `null` have none.
    pub(crate) fn of_arguments(&self, arguments: Option<Json<'_>>) -> Vec<(String, String)> {
        let header = |header: &ParamHeader| {
            let text = text_of(header.value(arguments)?)?;
            Some((header.name.clone(), encoded(&text)))
        };
        self.0.iter().filter_map(header).collect()
    }

    /// Compares received headers with the arguments of a call. Headers that the tool does not want are ignored.
    ///
    /// # Errors
    /// Fails with the first difference.
    pub fn check(&self, arguments: Option<Json<'_>>, received: &ReceivedParamHeaders) -> Result<(), String> {
        self.0.iter().try_for_each(|header| header.check(arguments, received))
    }
}

impl ParamHeader {
    /// Returns the argument, unless it is absent or `null`.
    fn value<'a>(&self, arguments: Option<Json<'a>>) -> Option<Json<'a>> {
        let found = self.path.iter().try_fold(arguments?, |value, name| value.member(name));
        found.filter(|value| value.get() != "null")
    }

    fn check(&self, arguments: Option<Json<'_>>, received: &ReceivedParamHeaders) -> Result<(), String> {
        let mut headers = received.values(&self.name);
        let happened = match (self.value(arguments), headers.next(), headers.next()) {
            (_, _, Some(_)) => "came more than once".to_owned(),
            (None, None, None) => return Ok(()),
            // No header can hold such a value. Whether the argument may have it is the server's to judge.
            (Some(value), None, None) if value.get().starts_with(['{', '[']) => return Ok(()),
            (Some(_), None, None) => format!("is missing, but {} has a value", self.argument()),
            (None, Some(_), None) => format!("came, but {} has no value", self.argument()),
            (Some(value), Some(header), None) => match std::str::from_utf8(header).ok().and_then(decoded) {
                Some(text) if is_same(value, &text) => return Ok(()),
                Some(_) => format!("is not equal to {}", self.argument()),
                None => "has characters that a header cannot have, or base64 that is not valid".to_owned(),
            },
        };
        Err(format!("the header {} {happened}", shortened(&self.name, MOST_SHOWN)))
    }

    /// Returns the name of the argument for people.
    fn argument(&self) -> String {
        let path = self.path.join(".");
        format!("the argument `{}`", shortened(&path, MOST_SHOWN).escape_debug())
    }
}

/// Returns the text of an argument for a header. Returns `None` for an argument that no header can hold.
fn text_of(value: Json<'_>) -> Option<Cow<'_, str>> {
    match value.get().as_bytes().first()? {
        b'"' => value.text(),
        b'{' | b'[' => None,
        b't' | b'f' => Some(value.get().into()),
        _ => Some(plain_number(value.get()).map_or(value.get().into(), Cow::Owned)),
    }
}

/// Returns whether a header with this text repeats the argument. Numbers are compared as numbers, so that `42.0` is `42`.
fn is_same(value: Json<'_>, header: &str) -> bool {
    let is_number = value.get().starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let is_as_written = || is_number && value.get() == header;
    let is_equal = || {
        let number = plain_number(header).filter(|_| !header.contains(['e', 'E']));
        number.is_some_and(|number| plain_number(value.get()) == Some(number))
    };
    text_of(value).is_some_and(|text| text == header) || is_as_written() || is_equal()
}

/// Writes a number of JSON without an exponent and without zeros that mean nothing, so that equal numbers have the same text. Returns `None`
/// for other texts, and for exponents over [`MOST_PLACES`].
fn plain_number(text: &str) -> Option<String> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent = exponent.parse::<i32>().ok().filter(|places| places.unsigned_abs() <= MOST_PLACES)?;
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |number| ("-", number));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let zeros = "0".repeat(exponent.unsigned_abs() as usize);
    let (whole, fraction) = if exponent < 0 {
        let whole = format!("{zeros}{whole}");
        let (whole, moved) = whole.split_at(whole.len() - zeros.len());
        (whole.to_owned(), format!("{moved}{fraction}"))
    } else {
        let fraction = format!("{fraction}{zeros}");
        let (moved, fraction) = fraction.split_at(zeros.len());
        (format!("{whole}{moved}"), fraction.to_owned())
    };
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(match (whole, fraction) {
        ("0", "") => "0".to_owned(),
        (whole, "") => format!("{sign}{whole}"),
        (whole, fraction) => format!("{sign}{whole}.{fraction}"),
    })
}

/// Collects the annotations below a schema. `path` leads to it by `properties` alone; it is `None` if other keywords are on the way.
fn walk(schema: &Value, path: Option<&[String]>, found: &mut Vec<ParamHeader>) -> Result<(), String> {
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
    found: &[ParamHeader],
) -> Result<ParamHeader, String> {
    let name = name
        .as_str()
        .filter(|name| !name.is_empty())
        .ok_or("the name of a header is empty, or not a text")?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(is_token) {
        return Err(format!("`{}` cannot be the name of a header", name.escape_debug()));
    }
    let header = format!("{PREFIX}{}", name.to_ascii_lowercase());
    if found.iter().any(|known| known.name == header) {
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
    Ok(ParamHeader { name: header, path })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(schema: &Value) -> ParamHeaders {
        ParamHeaders::of_schema(schema).expect("no rule is broken")
    }

    /// Schemas with arguments of each kind, one of them inside another.
    fn sample() -> ParamHeaders {
        declared(&json!({ "type": "object", "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "deep": { "type": "object", "properties": { "count": { "type": ["integer", "null"], "x-mcp-header": "Count" } } },
            "x-mcp-header": { "type": "string" },
            "dry": { "type": "boolean", "x-mcp-header": "Dry" },
            "gone": { "type": "string", "x-mcp-header": "Gone" },
        } }))
    }

    fn arguments(text: &str) -> Option<Json<'_>> {
        Some(Json::new(text.as_bytes()).expect("JSON"))
    }

    #[test]
    fn annotated_arguments_go_along_by_their_path() {
        let all = r#"{ "region": "é", "deep": { "count": -7.0 }, "dry": false, "gone": null, "big": 1e400 }"#;
        let mut headers = sample().of_arguments(arguments(all));
        headers.sort_unstable();
        let expect =
            [("mcp-param-count", "-7"), ("mcp-param-dry", "false"), ("mcp-param-region", "=?base64?w6k=?=")];
        assert_eq!(headers, expect.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(sample().of_arguments(None), []);
        assert_eq!(sample().of_arguments(arguments(r#"["region"]"#)), []);
    }

    #[test]
    fn headers_that_say_what_the_arguments_say_are_accepted() {
        let check = |text: &str, headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
            sample().check(arguments(text), &ReceivedParamHeaders::among(headers))
        };
        for (text, headers) in [
            (
                r#"{ "region": "us west" }"#,
                &[("Mcp-Param-REGION", "us west"), ("mcp-param-other", "\u{1}")][..],
            ),
            (r#"{ "region": "Hello" }"#, &[("mcp-param-region", "=?base64?SGVsbG8=?=")]),
            (r#"{ "region": "=?base64?SGVsbG8" }"#, &[("mcp-param-region", "=?base64?SGVsbG8")]),
            (r#"{ "region": "" }"#, &[("mcp-param-region", "=?base64??=")]),
            (r#"{ "region": "", "dry": true }"#, &[("mcp-param-region", ""), ("mcp-param-dry", "true")]),
            (r#"{ "region": "a\u00e9" }"#, &[("mcp-param-region", "=?base64?YcOp?=")]),
            (r#"{ "deep": { "count": 42 } }"#, &[("mcp-param-count", "42.0")]),
            (r#"{ "deep": { "count": 4.2e1 } }"#, &[("mcp-param-count", "42")]),
            (r#"{ "deep": { "count": 4.2e1 } }"#, &[("mcp-param-count", "4.2e1")]),
            (r#"{ "deep": { "count": 9007199254740993 } }"#, &[("mcp-param-count", "9007199254740993")]),
            (r#"{ "deep": { "count": 1e+999 } }"#, &[("mcp-param-count", "1e+999")]),
            (r#"{ "region": null, "deep": { "count": null }, "dry": {}, "other": 1e999 }"#, &[]),
            (r#"{ "deep": "no object" }"#, &[]),
            ("{}", &[]),
        ] {
            assert_eq!(check(text, headers), Ok(()), "{text} {headers:?}");
        }
        assert_eq!(sample().check(None, &ReceivedParamHeaders::default()), Ok(()));
    }

    #[test]
    fn a_header_that_does_not_say_what_its_argument_says_is_named_and_no_value_is() {
        let missing = "mcp-param-region is missing, but the argument `region` has a value";
        let differs = "mcp-param-region is not equal to the argument `region`";
        let malformed =
            "mcp-param-region has characters that a header cannot have, or base64 that is not valid";
        for (text, headers, expect) in [
            (r#"{ "region": "SECRET" }"#, &[][..], missing),
            (r#"{ "region": "" }"#, &[("mcp-param-other", &b"SECRET"[..])], missing),
            (r#"{ "region": "SECRET" }"#, &[("mcp-param-region", b"SECRETS")], differs),
            (r#"{ "region": "SECRET" }"#, &[("mcp-param-region", b"secret")], differs),
            (r#"{ "region": "U0VDUkVU" }"#, &[("mcp-param-region", b"=?base64?U0VDUkVU?=")], differs),
            (r#"{ "region": "a", "region": "SECRET" }"#, &[("mcp-param-region", b"a")], differs),
            (r#"{ "region": "\ud800SECRET" }"#, &[("mcp-param-region", b"SECRET")], differs),
            (r#"{ "region": { "SECRET": 1 } }"#, &[("mcp-param-region", b"SECRET")], differs),
            (r#"{ "region": "042" }"#, &[("mcp-param-region", b"42")], differs),
            (r#"{ "region": "SECRET" }"#, &[("mcp-param-region", b"\"SECRET\"")], differs),
            (r#"{ "region": "Hello" }"#, &[("mcp-param-region", b"=?base64?SGVsbG8?=")], malformed),
            (r#"{ "region": "Hello" }"#, &[("mcp-param-region", b"=?base64?SGVs!!!bG8=?=")], malformed),
            (r#"{ "region": "Hello" }"#, &[("mcp-param-region", b"=?base64?SGVsbG9=?=")], malformed),
            (r#"{ "region": "\u00e9" }"#, &[("mcp-param-region", "é".as_bytes())], malformed),
            (r#"{ "region": "\u00e9" }"#, &[("mcp-param-region", b"\xe9")], malformed),
            (
                r#"{ "region": "a" }"#,
                &[("mcp-param-region", b"a"), ("MCP-Param-Region", b"a")],
                "mcp-param-region came more than once",
            ),
            (
                r#"{ "region": null }"#,
                &[("mcp-param-region", b"SECRET")],
                "mcp-param-region came, but the argument `region` has no value",
            ),
            (
                r#"{ "deep": { "count": 42 } }"#,
                &[("mcp-param-count", b"4.2e1")],
                "mcp-param-count is not equal to the argument `deep.count`",
            ),
            (
                r#"{ "deep": { "count": 9007199254740993 } }"#,
                &[("mcp-param-count", b"9007199254740992")],
                "mcp-param-count is not equal to the argument `deep.count`",
            ),
            (
                r#"{ "dry": true }"#,
                &[("mcp-param-dry", b"True")],
                "mcp-param-dry is not equal to the argument `dry`",
            ),
        ] {
            let received = ReceivedParamHeaders::among(headers.iter().copied());
            let error = sample().check(arguments(text), &received).expect_err(text);
            assert_eq!(error, format!("the header {expect}"), "{text}");
        }
    }

    #[test]
    fn equal_numbers_have_the_same_text() {
        for (text, expect) in [
            ("0", Some("0")),
            ("-0.0", Some("0")),
            ("42", Some("42")),
            ("42.0", Some("42")),
            ("-42.50", Some("-42.5")),
            ("4.25e1", Some("42.5")),
            ("4.25E+3", Some("4250")),
            ("425e-4", Some("0.0425")),
            ("0.5e0", Some("0.5")),
            ("1e400", Some(&*format!("1{}", "0".repeat(400)))),
            ("1e401", None),
            ("1e99999999999", None),
            ("0x1a", None),
            ("", None),
            ("-", None),
            ("1.", None),
            (".5", None),
            ("+1", None),
            ("1 ", None),
        ] {
            assert_eq!(plain_number(text).as_deref(), expect, "{text}");
        }
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
            let error = ParamHeaders::of_schema(&schema).expect_err("a rule is broken");
            assert!(error.contains(why), "{schema}: {error}");
        }
        assert!(declared(&one(json!({ "type": "string" }))).is_empty());
    }
}
