//! Tools as they are listed: what a modern server may write in a schema and a legacy client may refuse the whole list for, and what a
//! legacy server says that no modern client knows.
//!
//! Invariants: a tool is never left out; what cannot be said to a legacy client is said in another way that means the same, or, of an
//! output, not at all.

use std::borrow::Cow;

use unhang_wire::Json;

use crate::Splice;

/// Whether a tool says, as it is listed, that it may be called once more without doing anything twice.
#[must_use]
pub fn is_repeatable(tool: Json<'_>) -> bool {
    let hints = tool.member("annotations");
    let says = |hint| hints.and_then(|hints| hints.member(hint)).is_some_and(|hint| hint.get() == "true");
    says("readOnlyHint") || says("idempotentHint")
}

/// The list for a legacy client; `None` where nothing of it changes, or it is no list.
pub(crate) fn to_legacy(list: Json<'_>) -> Option<String> {
    translated(list, tool_to_legacy)
}

/// The list for a modern client, without what tools said of tasks up to 2025-11-25; `None` where nothing of it changes, or it is no list.
pub(crate) fn to_modern(list: Json<'_>) -> Option<String> {
    translated(list, |tool| {
        Splice::new(tool).remove("execution").apply().unwrap_or(Cow::Borrowed(tool.get()))
    })
}

fn translated<'a>(list: Json<'a>, mut translate: impl FnMut(Json<'a>) -> Cow<'a, str>) -> Option<String> {
    let (mut changed, mut tools) = (false, Vec::new());
    let is_list = list.each_element(|tool| {
        let translated = translate(tool);
        changed |= matches!(translated, Cow::Owned(_));
        tools.push(translated);
    });
    (is_list && changed).then(|| format!("[{}]", tools.join(",")))
}

fn tool_to_legacy(tool: Json<'_>) -> Cow<'_, str> {
    let mut splice = Splice::new(tool);
    if let Some(schema) = tool.member("inputSchema").and_then(schema_to_legacy) {
        splice = splice.set("inputSchema", schema);
    }
    match tool.member("outputSchema") {
        // Structured results that are no objects are left out too.
        Some(schema) if !describes_an_object(schema) => splice = splice.remove("outputSchema"),
        Some(schema) => {
            if let Some(schema) = schema_to_legacy(schema) {
                splice = splice.set("outputSchema", schema);
            }
        }
        None => {}
    }
    splice.apply().unwrap_or(Cow::Borrowed(tool.get()))
}

fn describes_an_object(schema: Json<'_>) -> bool {
    schema.member("type").and_then(Json::text).is_some_and(|kind| kind == "object")
}

/// Properties are objects to a legacy client, and may be `true` (anything) or `false` (nothing) to a modern one.
fn schema_to_legacy(schema: Json<'_>) -> Option<String> {
    let properties = schema.member("properties")?;
    let mut plain = Vec::new();
    properties.each_member(|name, value| {
        let same = match value.get() {
            "true" => "{}",
            "false" => r#"{"not":{}}"#,
            _ => return,
        };
        plain.extend(name.text().map(|name| (name.into_owned(), same)));
    });
    if plain.is_empty() {
        return None;
    }
    let set = |splice: Splice<'_>| {
        plain.iter().fold(splice, |splice, (name, same)| splice.set(name, *same)).apply().map(Cow::into_owned)
    };
    let properties = set(Splice::new(properties))?;
    Splice::new(schema).set("properties", properties).apply().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn what_a_legacy_client_would_refuse_is_said_in_another_way() {
        let tools = r#"[{"name":"a","inputSchema":{"type":"object","properties":{"x":true,"y":{"type":"string"},"z":false}}},
            {"name":"b","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}},
            {"name":"c","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"o":true}}}, {"name": "d"}]"#;
        let expect = r#"[{"name":"a","inputSchema":{"type":"object","properties":{"x":{},"y":{"type":"string"},"z":{"not":{}}}}},{"name":"b","inputSchema":{"type":"object"}},{"name":"c","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"o":{}}}},{"name": "d"}]"#;
        assert_eq!(to_legacy(json(tools)).as_deref(), Some(expect));
    }

    #[test]
    fn a_modern_client_hears_nothing_of_the_tasks_of_older_revisions() {
        let tools = r#"[{"name":"a","execution":{"taskSupport":"required"},"x":1}, {"name": "d"}]"#;
        assert_eq!(to_modern(json(tools)).as_deref(), Some(r#"[{"name":"a","x":1},{"name": "d"}]"#));
        assert_eq!(to_modern(json(r#"[ {"name":"a"} ]"#)), None);
    }

    #[test]
    fn a_list_that_is_well_stays_as_it_is() {
        for list in [
            r#"[ {"name":"a","inputSchema":{"type":"object","properties":{"x":{}}}} ]"#,
            "[]",
            "{}",
            "5",
            "[5,[true]]",
        ] {
            assert_eq!(to_legacy(json(list)), None, "{list}");
        }
    }
}
