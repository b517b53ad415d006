//! URIs inside of other JSON: in the results of servers, and in the items of their lists.
//!
//! Invariant: text without such a URI, and text whose URIs stay, is not copied.

use serde_json::Value;
use unhang_bridge::Splice;
use unhang_wire::Json;

/// A step on the way to a URI.
pub(super) enum Step {
    /// The member of this name.
    Member(&'static str),
    /// Each element of an array.
    Each,
}

use Step::{Each, Member};

/// The places of URIs in results.
const OF_CONTENT: [&[Step]; 4] = [
    // A link, and an embedded resource.
    &[Member("content"), Each, Member("uri")],
    &[Member("content"), Each, Member("resource"), Member("uri")],
    // The view that shows the result.
    OF_LISTED_TOOL[0],
    OF_LISTED_TOOL[1],
];
const OF_MESSAGES: [&[Step]; 2] = [
    &[Member("messages"), Each, Member("content"), Member("uri")],
    &[Member("messages"), Each, Member("content"), Member("resource"), Member("uri")],
];
const OF_READ: [&[Step]; 1] = [&[Member("contents"), Each, Member("uri")]];
const OF_DIRECTORY: [&[Step]; 1] = [&[Member("resources"), Each, Member("uri")]];
const OF_GOT_SKILL: [&[Step]; 2] =
    [&[Member("skill"), Member("uri")], &[Member("skill"), Member("resources"), Each, Member("uri")]];

/// The places of URIs in the items of lists.
pub(super) const OF_LISTED_SKILL: [&[Step]; 2] =
    [&[Member("uri")], &[Member("resources"), Each, Member("uri")]];
/// The view of a tool: where it stands, and where it stood in the first version of MCP Apps.
pub(super) const OF_LISTED_TOOL: [&[Step]; 2] =
    [&[Member("_meta"), Member("ui"), Member("resourceUri")], &[Member("_meta"), Member("ui/resourceUri")]];

/// Returns the places of URIs in the result of this method.
pub(super) fn of_result(method: &str) -> &'static [&'static [Step]] {
    match method {
        "tools/call" => &OF_CONTENT,
        "prompts/get" => &OF_MESSAGES,
        "resources/read" => &OF_READ,
        "resources/directory/read" => &OF_DIRECTORY,
        "skills/get" => &OF_GOT_SKILL,
        _ => &[],
    }
}

/// Returns whether the results of this method have URIs of skills.
pub(super) fn is_of_skills(method: &str) -> bool {
    matches!(method, "skills/get" | "resources/directory/read")
}

/// Passes each URI at these places to `each`.
pub(super) fn each_uri(json: Json<'_>, places: &[&[Step]], mut each: impl FnMut(&str)) {
    for place in places {
        // Nothing is replaced, so nothing is copied.
        replace_at(json, place, &mut |uri| {
            each(uri);
            None
        });
    }
}

/// Returns the text with other URIs at these places. `public` returns the other URI, or `None` if a URI stays. Returns `None` if all stay.
pub(super) fn replaced(
    json: Json<'_>,
    places: &[&[Step]],
    mut public: impl FnMut(&str) -> Option<String>,
) -> Option<String> {
    places.iter().fold(None, |so_far: Option<String>, place| {
        let current = match &so_far {
            Some(text) => Json::new(text.as_bytes())?,
            None => json,
        };
        replace_at(current, place, &mut public).or(so_far)
    })
}

fn replace_at(
    json: Json<'_>,
    place: &[Step],
    public: &mut dyn FnMut(&str) -> Option<String>,
) -> Option<String> {
    match place {
        [] => Some(Value::from(public(&json.text()?)?).to_string()),
        [Member(name), rest @ ..] => {
            let member = replace_at(json.member(name)?, rest, public)?;
            Some(Splice::new(json).set(name, member).apply()?.into_owned())
        }
        [Each, rest @ ..] => {
            let (mut elements, mut are_changed) = (Vec::new(), false);
            json.each_element(|element| {
                let changed = replace_at(element, rest, public);
                are_changed |= changed.is_some();
                elements.push(changed.unwrap_or_else(|| element.get().to_owned()));
            });
            are_changed.then(|| format!("[{}]", elements.join(",")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str, text: &str) -> Option<String> {
        let json = Json::new(text.as_bytes()).expect("JSON");
        replaced(json, of_result(method), |uri| uri.starts_with("a:").then(|| format!("srv+{uri}")))
    }

    #[test]
    fn each_result_has_its_links_where_the_protocol_has_them() {
        for (method, text, expect) in [
            (
                "tools/call",
                r#"{"content":[{"type":"resource_link","uri":"a:1"},{"type":"resource","resource":{"uri":"a:2"}},{"type":"text","text":"a:3"}],"x":1.0e0}"#,
                Some(
                    r#"{"content":[{"type":"resource_link","uri":"srv+a:1"},{"type":"resource","resource":{"uri":"srv+a:2"}},{"type":"text","text":"a:3"}],"x":1.0e0}"#,
                ),
            ),
            ("tools/call", r#"{"content":[{"type":"resource_link","uri":"b:1"}]}"#, None),
            (
                "tools/call",
                r#"{"content":[],"_meta":{"ui":{"resourceUri":"a:1","x":1},"ui/resourceUri":"a:1","y":2}}"#,
                Some(
                    r#"{"content":[],"_meta":{"ui":{"resourceUri":"srv+a:1","x":1},"ui/resourceUri":"srv+a:1","y":2}}"#,
                ),
            ),
            ("prompts/get", r#"{"messages":[],"_meta":{"ui":{"resourceUri":"a:1"}}}"#, None),
            ("tools/call", r#"{"content":"a:1","structuredContent":{"uri":"a:1"}}"#, None),
            (
                "prompts/get",
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:1"}}}]}"#,
                Some(
                    r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"srv+a:1"}}}]}"#,
                ),
            ),
            (
                "resources/read",
                r#"{"contents":[{"uri":"a:1"},{"uri":"b:1"}]}"#,
                Some(r#"{"contents":[{"uri":"srv+a:1"},{"uri":"b:1"}]}"#),
            ),
            (
                "resources/directory/read",
                r#"{"resources":[{"uri":"a:1"}]}"#,
                Some(r#"{"resources":[{"uri":"srv+a:1"}]}"#),
            ),
            (
                "skills/get",
                r#"{"skill":{"uri":"a:S","frontmatter":{"uri":"a:1"},"resources":[{"uri":"a:S","size":1}]}}"#,
                Some(
                    r#"{"skill":{"uri":"srv+a:S","frontmatter":{"uri":"a:1"},"resources":[{"uri":"srv+a:S","size":1}]}}"#,
                ),
            ),
            ("skills/get", r#"{"skill":{"uri":5,"resources":"dynamic"}}"#, None),
            ("completion/complete", r#"{"content":[{"uri":"a:1"}]}"#, None),
        ] {
            assert_eq!(told(method, text).as_deref(), expect, "{method} {text}");
        }
    }

    #[test]
    fn the_views_of_a_tool_are_found() {
        let tool = r#"{"name":"t","_meta":{"ui":{"resourceUri":"ui://a"},"ui/resourceUri":"ui://b"}}"#;
        let mut found = Vec::new();
        each_uri(Json::new(tool.as_bytes()).expect("JSON"), &OF_LISTED_TOOL, |uri| {
            found.push(uri.to_owned());
        });
        assert_eq!(found, ["ui://a", "ui://b"]);
    }
}
