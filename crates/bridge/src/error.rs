//! Errors, from a server of one era to a client of the other (protocol.md 3.3, row 17).
//!
//! Invariants: the message and the other members of `data` stay as they were written. A code means the same on both sides.

use std::borrow::Cow;

use unhang_wire::Json;

use crate::{Splice, quoted};

/// The resource does not exist (up to 2025-11-25).
const RESOURCE_NOT_FOUND: i64 = -32002;
/// The resource does not exist (from 2026-07-28 on), or another parameter is wrong (both eras).
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// The method does not exist, or it cannot be called in this way.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The request cannot be taken as it stands.
const INVALID_REQUEST: i64 = -32600;
/// Headers and body of a request do not agree (from 2026-07-28 on).
const HEADER_MISMATCH: i64 = -32020;
/// The client lacks what the request needs (from 2026-07-28 on).
pub const MISSING_CAPABILITY: i64 = -32021;
/// The revision of the request is not spoken (from 2026-07-28 on).
const UNSUPPORTED_VERSION: i64 = -32022;
/// A person has to open a URL first (2025-11-25 alone). A modern server asks for that with `input_required`.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// A legacy server's error, as a modern client gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModernError<'a> {
    /// An error.
    Error(Cow<'a, str>),
    /// The questions to a person (`elicitations`), a JSON array. The client makes the request again once they are answered.
    InputRequired(&'a str),
}

/// Returns the code with which a legacy client knows a code that the revision 2026-07-28 added; `None` for every other code.
#[must_use]
pub fn legacy_code(code: i64) -> Option<i64> {
    match code {
        HEADER_MISMATCH | UNSUPPORTED_VERSION => Some(INVALID_REQUEST),
        MISSING_CAPABILITY => Some(INVALID_PARAMS),
        _ => None,
    }
}

/// Translates the error of a modern server for a legacy client. Returns `None` if `error` is not an error object.
#[must_use]
pub fn to_legacy<'a>(method: &str, error: Json<'a>) -> Option<Cow<'a, str>> {
    let code = code(error)?;
    let known = match code {
        _ if legacy_code(code).is_some() => legacy_code(code),
        // The code has other uses: only the error about a resource carries a URI.
        INVALID_PARAMS if method == "resources/read" && uri(error).is_some() => Some(RESOURCE_NOT_FOUND),
        _ => None,
    };
    with_code(error, known)
}

/// Translates the error of a legacy server for a modern client. `asked_for` is the URI of the request, as JSON. Returns `None` if `error`
/// is not an error object.
#[must_use]
pub fn to_modern<'a>(method: &str, error: Json<'a>, asked_for: Option<Json<'_>>) -> Option<ModernError<'a>> {
    match code(error)? {
        RESOURCE_NOT_FOUND if method == "resources/read" => {
            let mut splice = Splice::new(error).set("code", INVALID_PARAMS.to_string());
            if let Some(asked_for) = asked_for.filter(|_| uri(error).is_none()) {
                let of = |data: Json<'_>| {
                    Splice::new(data).set("uri", asked_for.get().to_owned()).apply().map(Cow::into_owned)
                };
                let data = error.member("data").and_then(of);
                splice = splice.set(
                    "data",
                    data.unwrap_or_else(|| format!("{{{}:{}}}", quoted("uri"), asked_for.get())),
                );
            }
            splice.apply().map(ModernError::Error)
        }
        URL_ELICITATION_REQUIRED => match error.member("data").and_then(|data| data.member("elicitations")) {
            Some(wanted) if wanted.get().starts_with('[') => Some(ModernError::InputRequired(wanted.get())),
            _ => with_code(error, None).map(ModernError::Error),
        },
        _ => with_code(error, None).map(ModernError::Error),
    }
}

fn code(error: Json<'_>) -> Option<i64> {
    serde_json::from_str(error.member("code")?.get()).ok()
}

fn uri(error: Json<'_>) -> Option<Json<'_>> {
    error.member("data")?.member("uri")
}

fn with_code<'a>(error: Json<'a>, code: Option<i64>) -> Option<Cow<'a, str>> {
    match code {
        Some(code) => Splice::new(error).set("code", code.to_string()).apply(),
        None => Some(Cow::Borrowed(error.get())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn a_resource_is_missing_only_where_one_was_read() {
        let error = r#"{"code":-32002,"message":"m"}"#;
        let told = |method| match to_modern(method, json(error), Some(json(r#""a:b""#))) {
            Some(ModernError::Error(error)) => error.into_owned(),
            other => panic!("{other:?}"),
        };
        assert!(told("resources/read").contains("a:b"), "{}", told("resources/read"));
        assert!(!told("tools/call").contains("a:b"), "{}", told("tools/call"));
    }

    #[test]
    fn urls_that_are_no_list_are_no_questions() {
        for (elicitations, is_question) in [("[]", true), ("{}", false), ("1", false)] {
            let error =
                format!(r#"{{"code":-32042,"message":"m","data":{{"elicitations":{elicitations}}}}}"#);
            let told = to_modern("tools/call", json(&error), None).expect("an error");
            assert_eq!(matches!(told, ModernError::InputRequired(_)), is_question, "{elicitations}");
        }
    }

    #[test]
    fn a_legacy_client_is_told_in_its_own_codes() {
        for (method, error, expect) in [
            (
                "tools/call",
                r#"{"code":-32020,"message":"m","data":1}"#,
                r#"{"code":-32600,"message":"m","data":1}"#,
            ),
            ("tools/call", r#"{"code":-32021,"message":"m"}"#, r#"{"code":-32602,"message":"m"}"#),
            ("tools/call", r#"{"code": -32022 ,"message":"m"}"#, r#"{"code": -32600 ,"message":"m"}"#),
            (
                "resources/read",
                r#"{"code":-32602,"message":"m","data":{"uri":"u"}}"#,
                r#"{"code":-32002,"message":"m","data":{"uri":"u"}}"#,
            ),
            ("resources/read", r#"{"code":-32602,"message":"m"}"#, r#"{"code":-32602,"message":"m"}"#),
            (
                "tools/call",
                r#"{"code":-32602,"message":"m","data":{"uri":"u"}}"#,
                r#"{"code":-32602,"message":"m","data":{"uri":"u"}}"#,
            ),
            ("x", r#"{"code":7,"message":"m"}"#, r#"{"code":7,"message":"m"}"#),
        ] {
            assert_eq!(to_legacy(method, json(error)).as_deref(), Some(expect));
        }
        assert_eq!(to_legacy("x", json(r#"{"message":"m"}"#)), None);
    }

    #[test]
    fn a_modern_client_is_told_which_resource_is_not_there() {
        let told = |error| to_modern("resources/read", json(error), Some(json(r#""u:\/a""#)));
        let expect = |text: &str| Some(ModernError::Error(Cow::<str>::Owned(text.to_owned())));
        assert_eq!(
            told(r#"{"code":-32002,"message":"m"}"#),
            expect(r#"{"code":-32602,"message":"m","data":{"uri":"u:\/a"}}"#)
        );
        assert_eq!(
            told(r#"{"code":-32002,"message":"m","data":{"uri":"v","x":1}}"#),
            expect(r#"{"code":-32602,"message":"m","data":{"uri":"v","x":1}}"#)
        );
        assert_eq!(told(r#"{"code":-32601,"message":"m"}"#), expect(r#"{"code":-32601,"message":"m"}"#));
    }

    #[test]
    fn a_url_to_be_opened_is_asked_for() {
        let error = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url"}]}}"#;
        assert_eq!(
            to_modern("tools/call", json(error), None),
            Some(ModernError::InputRequired(r#"[{"mode":"url"}]"#))
        );
        let bare = r#"{"code":-32042,"message":"m"}"#;
        assert_eq!(to_modern("tools/call", json(bare), None), Some(ModernError::Error(Cow::Borrowed(bare))));
    }
}
