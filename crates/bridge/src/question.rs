//! Questions of a server to its client during a call, translated from one era to the other (protocol.md 3.3, rows 6 and 7).
//!
//! Invariants: a question has the members that its client knows and requires. All else stays as it was written.

use std::borrow::Cow;

use serde_json::value::RawValue;
use unhang_wire::{Json, text_member};

use crate::{Splice, quoted};

/// The methods that a server may ask with, each with the capability that a client needs for it.
pub const CAPABILITIES: [(&str, &str); 3] =
    [("elicitation/create", "elicitation"), ("sampling/createMessage", "sampling"), ("roots/list", "roots")];

/// Returns whether a client with these capabilities can be asked this question.
#[must_use]
pub fn is_offered(capabilities: Json<'_>, (method, params): (&str, Option<&RawValue>)) -> bool {
    let capability = CAPABILITIES.iter().find(|(asked, _)| *asked == method);
    let offered = capability.and_then(|(_, capability)| capabilities.member(capability));
    let Some(offered) = offered.filter(|offered| offered.get().starts_with('{')) else { return false };
    let has = |kind: &str| offered.member(kind).is_some_and(|kind| kind.get().starts_with('{'));
    let params = params.and_then(|params| Json::new(params.get().as_bytes()));
    let mode = params.and_then(|params| text_member(params, "mode"));
    match mode.as_deref() {
        Some(mode) if mode != "form" => has(mode),
        // Clients of older revisions take forms without saying so: there were no other modes.
        _ => capability != Some(&CAPABILITIES[0]) || has("form") || !has("url"),
    }
}

/// The method that asks a person.
const ELICITATION: &str = "elicitation/create";

/// The name under which a server reports later that a person has visited the URL (2025-11-25 alone).
const ELICITATION_ID: &str = "elicitationId";

/// Translates the params of a question for a modern client. Returns `None` if they are not an object.
#[must_use]
pub fn to_modern<'a>(method: &str, params: Json<'a>) -> Option<Cow<'a, str>> {
    let splice = Splice::new(params);
    if method == ELICITATION { splice.remove(ELICITATION_ID).apply() } else { splice.apply() }
}

/// Translates the params of a question for a legacy client. Such a client needs an id for each URL: `id` is used if the params have none.
/// Returns `None` if the params are not an object.
#[must_use]
pub fn to_legacy<'a>(method: &str, params: Json<'a>, id: &str) -> Option<Cow<'a, str>> {
    let mode = params.member("mode").and_then(Json::text);
    let is_unnamed = method == ELICITATION
        && mode.is_some_and(|mode| mode == "url")
        && params.member(ELICITATION_ID).is_none();
    let splice = Splice::new(params);
    if is_unnamed { splice.set(ELICITATION_ID, quoted(id)).apply() } else { splice.apply() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn a_client_can_be_asked_what_it_has_declared() {
        let form: &RawValue = serde_json::from_str(r#"{"mode":"form"}"#).expect("JSON");
        let url: &RawValue = serde_json::from_str(r#"{"mode":"url"}"#).expect("JSON");
        for (capabilities, method, params, expected) in [
            ("{}", ELICITATION, None, false),
            (r#"{"elicitation":true}"#, ELICITATION, None, false),
            (r#"{"elicitation":{}}"#, ELICITATION, None, true),
            (r#"{"elicitation":{}}"#, ELICITATION, Some(form), true),
            (r#"{"elicitation":{}}"#, ELICITATION, Some(url), false),
            (r#"{"elicitation":{"url":{}}}"#, ELICITATION, Some(url), true),
            (r#"{"elicitation":{"url":{}}}"#, ELICITATION, Some(form), false),
            (r#"{"elicitation":{"url":{}}}"#, ELICITATION, None, false),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, ELICITATION, Some(form), true),
            (r#"{"sampling":{"url":{}}}"#, "sampling/createMessage", None, true),
            (r#"{"roots":{}}"#, "roots/list", None, true),
            (r#"{"roots":{}}"#, "roots/other", None, false),
        ] {
            assert_eq!(is_offered(json(capabilities), (method, params)), expected, "{capabilities} {method}");
        }
    }

    #[test]
    fn a_url_has_a_name_where_clients_know_that() {
        let legacy = r#"{"mode":"url", "url":"u","elicitationId":"e","message":"m"}"#;
        let modern = r#"{"mode":"url", "url":"u","message":"m"}"#;
        assert_eq!(to_modern(ELICITATION, json(legacy)).as_deref(), Some(modern));
        let named = to_legacy(ELICITATION, json(modern), "unhang-1").expect("an object");
        assert_eq!(named, r#"{"mode":"url", "url":"u","message":"m","elicitationId":"unhang-1"}"#);
    }

    #[test]
    fn everything_else_stays_as_it_was_written() {
        for (method, params) in [
            (ELICITATION, r#"{"mode":"form", "message":"m"}"#),
            (ELICITATION, r#"{ "message":"m","requestedSchema":{}}"#),
            ("sampling/createMessage", r#"{"mode":"url","elicitationId":1}"#),
            ("roots/list", "{}"),
        ] {
            assert_eq!(to_legacy(method, json(params), "i").as_deref(), Some(params));
            assert_eq!(to_modern(method, json(params)).as_deref(), Some(params));
        }
        let named = r#"{"mode":"url","elicitationId":"e"}"#;
        assert_eq!(to_legacy(ELICITATION, json(named), "i").as_deref(), Some(named));
        assert_eq!(to_modern("roots/list", json("[]")), None);
    }

    #[test]
    fn a_person_is_asked_in_the_way_that_the_client_offers() {
        let forms = ("elicitation/create", r#"{"message":"m","requestedSchema":{}}"#);
        let named = ("elicitation/create", r#"{"mode":"form"}"#);
        let links = ("elicitation/create", r#"{"mode":"url","url":"https://example.org"}"#);
        let sampling = ("sampling/createMessage", "{}");
        for (capabilities, asked, expect) in [
            (r#"{"elicitation":{}}"#, forms, true),
            (r#"{"elicitation":{}}"#, links, false),
            (r#"{"elicitation":{"form":{}}}"#, named, true),
            (r#"{"elicitation":{"form":{}}}"#, links, false),
            (r#"{"elicitation":{"url":{}}}"#, links, true),
            (r#"{"elicitation":{"url":{}}}"#, forms, false),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, links, true),
            (r#"{"elicitation":true}"#, forms, false),
            (r#"{"elicitation":{}}"#, sampling, false),
            (r#"{"sampling":{}}"#, sampling, true),
        ] {
            let params = RawValue::from_string(asked.1.to_owned()).expect("JSON");
            let capabilities = Json::new(capabilities.as_bytes()).expect("JSON");
            assert_eq!(
                is_offered(capabilities, (asked.0, Some(&params))),
                expect,
                "{capabilities:?} {asked:?}"
            );
        }
    }
}
