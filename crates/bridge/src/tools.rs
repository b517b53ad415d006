//! Lists of tools. A modern server may write schemas for which a legacy client may refuse the whole list. A legacy server writes members
//! that no modern client knows.
//!
//! Invariants: no tool is ever left out. If a legacy client cannot understand a schema, it gets another one with the same meaning. An
//! output schema may be dropped instead.

use std::borrow::Cow;

use unhang_wire::Json;

use crate::Splice;

/// Returns whether a listed tool says that calling it again does nothing twice.
#[must_use]
pub fn is_repeatable(tool: Json<'_>) -> bool {
    let hints = tool.member("annotations");
    let says = |hint| hints.and_then(|hints| hints.member(hint)).is_some_and(|hint| hint.get() == "true");
    says("readOnlyHint") || says("idempotentHint")
}

/// Translates a list for a legacy client. Returns `None` if nothing changes, or if it is not an array.
pub(crate) fn to_legacy(list: Json<'_>) -> Option<String> {
    translated(list, tool_to_legacy)
}

/// Translates a list for a modern client, without what tools said of tasks up to 2025-11-25. Returns `None` if nothing changes, or if it is
/// not an array.
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
        // Structured results that are not objects are removed as well.
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

/// Translates properties that are `true` (anything) or `false` (nothing), which only a modern client knows, into objects. Returns `None` if
/// nothing changes.
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
    fn only_a_tool_that_says_so_may_be_called_again() {
        for (tool, expected) in [
            ("{}", false),
            (r#"{"annotations":{}}"#, false),
            (r#"{"annotations":{"readOnlyHint":true}}"#, true),
            (r#"{"annotations":{"idempotentHint":true}}"#, true),
            (r#"{"annotations":{"readOnlyHint":false,"idempotentHint":true}}"#, true),
            (r#"{"annotations":{"readOnlyHint":false,"idempotentHint":false}}"#, false),
            (r#"{"annotations":{"readOnlyHint":"true"}}"#, false),
            (r#"{"readOnlyHint":true}"#, false),
        ] {
            assert_eq!(is_repeatable(json(tool)), expected, "{tool}");
        }
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
