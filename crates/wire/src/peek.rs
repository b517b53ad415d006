//! Lookups in `params` and results, made only on demand.
//!
//! Invariants
//!
//! - A lookup enters at most three levels, and skips what stands beside its path. Nothing recurses, and nothing is built.
//! - A member that is absent, of another type or unreadable is `None`. A lookup never makes a message invalid.
//! - If a member occurs twice, the last one counts, as in the common readers.

use memchr::memmem;

use crate::{Id, Json};

/// The member of `params` for data about the request.
const META: &str = "_meta";

/// The member of [`META`] under which a server reports progress.
const TOKEN: &str = "progressToken";

/// Reads the progress token of a request: `params._meta.progressToken`.
///
/// If there is none, this costs two searches for one byte each.
pub fn progress_token(params: Json<'_>) -> Option<Id> {
    Id::from_json(progress_token_value(params)?.get())
}

/// Finds the member of a request where its progress token belongs. Its value may be invalid as a token, for example a fraction.
pub fn progress_token_value(params: Json<'_>) -> Option<Json<'_>> {
    may_have_progress_token(params.get()).then(|| params.member(META)?.member(TOKEN)).flatten()
}

/// Searches the text of params for the name of the progress token. Returns false if they have no progress token. Parses nothing.
pub fn may_have_progress_token(params: &str) -> bool {
    may_have(params, TOKEN)
}

/// Searches a JSON text for a part of a name or of a string. Returns false if no name and no string in the text has this part. A reader
/// decodes them, so an escape may hide one. Parses nothing.
pub fn may_have(json: &str, part: &str) -> bool {
    // Only an escape with the number of a character can stand for a letter.
    has(json, part) || has(json, "\\u")
}

/// Searches a text for a part of it.
fn has(text: &str, part: &str) -> bool {
    // Most texts do not even have the rarest byte of the part, and the search for one byte costs a tenth of that for several.
    let rarest = part.bytes().find(|byte| !byte.is_ascii_lowercase()).or(part.bytes().last());
    rarest.is_none_or(|byte| memchr::memchr(byte, text.as_bytes()).is_some())
        && memmem::find(text.as_bytes(), part.as_bytes()).is_some()
}

/// Reads the token that a `notifications/progress` is about: `params.progressToken`.
pub fn notified_token(params: Json<'_>) -> Option<Id> {
    id_member(params, "progressToken")
}

/// Reads the id of the request that a `notifications/cancelled` is about: `params.requestId`.
pub fn cancelled_request(params: Json<'_>) -> Option<Id> {
    id_member(params, "requestId")
}

/// Reads and decodes a member that is a string, such as `uri`, `level`, `protocolVersion` or `name`.
pub fn text_member(params: Json<'_>, name: &str) -> Option<String> {
    params.member(name)?.text().map(Into::into)
}

/// Finds the client's description of itself. In `initialize` it is `params.clientInfo`. In stateless traffic (2026-07-28) it is
/// `params._meta."io.modelcontextprotocol/clientInfo"`. Returns `None` if it has no name.
pub fn client_info(params: Json<'_>) -> Option<Json<'_>> {
    let has_name = |info: &Json<'_>| info.member("name").is_some_and(|name| name.text().is_some());
    let at_the_top = params.member("clientInfo").filter(has_name);
    at_the_top.or_else(|| meta_member(params, "io.modelcontextprotocol/clientInfo").filter(has_name))
}

/// Reads the client's name from its description of itself.
pub fn client_name(params: Json<'_>) -> Option<String> {
    text_member(client_info(params)?, "name")
}

/// Reads the revision that a stateless request names (2026-07-28): `params._meta."io.modelcontextprotocol/protocolVersion"`.
pub fn request_version(params: Json<'_>) -> Option<String> {
    meta_member(params, "io.modelcontextprotocol/protocolVersion")?.text().map(Into::into)
}

/// Finds a member of `params._meta` with a namespaced name. If the last part of the name cannot be in the bytes, the search ends there.
fn meta_member<'a>(params: Json<'a>, name: &str) -> Option<Json<'a>> {
    // JSON may write the slash as `\/`, so only what follows it is searched for.
    let last = name.rsplit('/').next()?;
    may_have(params.get(), last).then(|| params.member(META)?.member(name)).flatten()
}

fn id_member(object: Json<'_>, name: &str) -> Option<Id> {
    Id::from_json(object.member(name)?.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn tokens_and_ids() {
        let progress: &[(&str, Option<Id>)] = &[
            (r#"{"_meta":{"progressToken":7}}"#, Some(Id::Integer(7))),
            (r#"{"_me\u0074a":{"progress\u0054oken":7}}"#, Some(Id::Integer(7))),
            (r#"{"_meta":{"progressToken":7,"progressTo\u006Ben":"a"}}"#, Some(Id::from("a"))),
            (r#"{"_meta":{"progressToken":7.0}}"#, None),
            (r#"{"_meta":{"x":{"progressToken":1},"progressToken":"a"},"x":1}"#, Some(Id::from("a"))),
            (r#"{"progressToken":7}"#, None),
            (r#"{"x":{"_meta":{"progressToken":7}}}"#, None),
            (r#"{"_meta":{"progressToken":null}}"#, None),
            (r#"{"_meta":"progressToken"}"#, None),
            (r#"["progressToken"]"#, None),
            ("{}", None),
        ];
        for (params, expected) in progress {
            assert_eq!(progress_token(raw(params)), *expected, "{params}");
        }
        assert_eq!(notified_token(raw(r#"{"progressToken":7,"progress":1}"#)), Some(Id::Integer(7)));
        assert_eq!(notified_token(raw(r#"{"_meta":{"progressToken":7}}"#)), None);
        assert_eq!(cancelled_request(raw(r#"{"reason":"x","requestId":"a"}"#)), Some(Id::from("a")));
        assert_eq!(cancelled_request(raw(r#"{"requestId":1,"requestId":2}"#)), Some(Id::Integer(2)));
        assert_eq!(cancelled_request(raw(r#"{"requestId":1.5}"#)), None);
        assert_eq!(cancelled_request(raw("[1]")), None);
    }

    #[test]
    fn a_part_is_found_where_a_reader_would_find_it() {
        let params = r#"{"name":"a_tool","arguments":{"text":"unhang"}}"#;
        for part in ["a_tool", "ext", "unhang", "arguments", ""] {
            assert!(may_have(params, part), "{part}");
        }
        for part in ["unhang_", "b_tool", "Text", "task"] {
            assert!(!may_have(params, part), "{part}");
        }
        // The number of a character may stand for any, and other escapes for no letter.
        assert!(may_have(r#"{"name":"unhan\u0067_get"}"#, "unhang_"));
        assert!(!may_have(r#"{"name":"C:\nhang\\"}"#, "unhang_"));
    }

    #[test]
    fn texts() {
        let params =
            raw(r#"{"uri":"file:\/\/\u0061","level":5,"x":{"name":"n"},"\ud800":1,"\u006eame":"m"}"#);
        assert_eq!(text_member(params, "uri").as_deref(), Some("file://a"));
        assert_eq!(text_member(params, "level"), None);
        assert_eq!(text_member(params, "name").as_deref(), Some("m"));
        assert_eq!(text_member(params, "absent"), None);
    }

    #[test]
    fn the_client_and_the_revision_in_both_eras() {
        let legacy = raw(r#"{"protocolVersion":"2025-06-18","clientInfo":{"name":"a","version":"1"}}"#);
        assert_eq!(client_name(legacy).as_deref(), Some("a"));
        assert_eq!(request_version(legacy), None);
        let modern = raw(r#"{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"b","version":"2"},
                "io.modelcontextprotocol\/protocolVersion":"2026-07-28"}}"#);
        assert_eq!(client_name(modern).as_deref(), Some("b"));
        let version = |params| text_member(client_info(params)?, "version");
        assert_eq!((version(legacy).as_deref(), version(modern).as_deref()), (Some("1"), Some("2")));
        assert_eq!(request_version(modern).as_deref(), Some("2026-07-28"));
        assert_eq!(client_name(raw("{}")), None);
        assert_eq!(client_name(raw(r#"{"clientInfo":"x"}"#)), None);
    }

    #[test]
    fn deep_nesting_is_stepped_over_on_a_small_stack() {
        let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let text =
            format!(r#"{{"a":{nested},"requestId":{nested},"_meta":{{"x":{nested},"progressToken":3}}}}"#);
        let look = move || {
            let params = raw(&text);
            assert_eq!(progress_token(params), Some(Id::Integer(3)));
            assert_eq!(cancelled_request(params), None);
        };
        std::thread::Builder::new().stack_size(128 * 1024).spawn(look).unwrap().join().unwrap();
    }
}
