//! Requests about tools and prompts that no server lists, and that a server decides about: the hint at a similar name.
//!
//! Invariant: the server's answer stays as it is, and the hint comes behind it.

use std::borrow::Cow;

use serde_json::json;
use unhang_bridge::Splice;
use unhang_core::wording::{nearest, shortened};
use unhang_wire::{Json, text_member};

use super::client_request::MOST_ECHOED;

/// Makes the hint for a request about an unlisted name, if one of the `known` names is similar.
pub(super) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<Box<str>> {
    let meant = nearest(name, known)?;
    Some(format!("no server lists `{}`; did you mean `{meant}`?", shortened(name, MOST_ECHOED)).into())
}

/// Adds the hint to the error of a server that refuses the call.
pub(super) fn with_hint_in_error<'a>(error: &'a str, hint: &str) -> Cow<'a, str> {
    let hinted = Json::new(error.as_bytes()).and_then(|raw| {
        let message = text_member(raw, "message").unwrap_or_default();
        let message = json!(format!("{message} ({hint})")).to_string();
        Splice::new(raw).set("message", message).apply()
    });
    hinted.map_or(Cow::Borrowed(error), |hinted| Cow::Owned(hinted.into_owned()))
}

/// Adds the hint to the result of a server's tool, if the result is an error.
pub(super) fn with_hint_in_result<'a>(result: &'a str, hint: &str) -> Cow<'a, str> {
    let hinted = Json::new(result.as_bytes()).and_then(|raw| {
        raw.member("isError").filter(|is_error| is_error.get() == "true")?;
        let content = raw.member("content")?.get().strip_suffix(']')?;
        let comma = if content.trim_end().ends_with('[') { "" } else { "," };
        let text = json!({ "type": "text", "text": hint });
        Splice::new(raw).set("content", format!("{content}{comma}{text}]")).apply()
    });
    hinted.map_or(Cow::Borrowed(result), |hinted| Cow::Owned(hinted.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_comes_behind_what_the_server_says() {
        let hint = hint("srv__ehco", ["srv__echo", "srv__other"].into_iter()).expect("one is alike");
        let error = r#"{"code":-32602,"message":"Unknown tool: ehco","data":1.0e0}"#;
        assert_eq!(
            with_hint_in_error(error, &hint),
            r#"{"code":-32602,"message":"Unknown tool: ehco (no server lists `srv__ehco`; did you mean `srv__echo`?)","data":1.0e0}"#
        );
        let told = json!({ "type": "text", "text": &*hint });
        for (before, after) in
            [("[]", format!("[{told}]")), (r#"[{"x":1.0e0} ]"#, format!(r#"[{{"x":1.0e0}} ,{told}]"#))]
        {
            let result = |content: &str| format!(r#"{{"content":{content},"isError":true}}"#);
            assert_eq!(with_hint_in_result(&result(before), &hint), result(&after));
        }
        let done = r#"{"content":[],"isError":false}"#;
        assert_eq!(with_hint_in_result(done, &hint), done);
        assert!(super::hint("unlike", ["srv__echo"].into_iter()).is_none());
    }
}
