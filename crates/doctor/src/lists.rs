//! The lists of a server: pages, tools and their schemas. Pure.
//!
//! Invariants: a tool counts as safe only if it says so itself, and if it needs no arguments.

use serde_json::Value;

use super::observations::ObservedTool;

/// The lists that are requested: method, member, and the capability that announces it.
pub(super) const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "tools"),
    ("resources/list", "resources", "resources"),
    ("resources/templates/list", "resourceTemplates", "resources"),
    ("prompts/list", "prompts", "prompts"),
];

/// Reads the items of a page, and the cursor of the next. Returns `None` if it is not a valid page.
pub(super) fn page(answer: &str, member: &str) -> Option<(Vec<Value>, Option<String>)> {
    let mut page: Value = serde_json::from_str(answer).ok()?;
    let next = page["nextCursor"].as_str().map(str::to_owned);
    match page[member].take() {
        Value::Array(items) => Some((items, next)),
        _ => None,
    }
}

/// Reads what the doctor has to know of a tool.
pub(super) fn tool(item: &Value) -> ObservedTool {
    let name = item["name"].as_str().unwrap_or_default().to_owned();
    let annotations = &item["annotations"];
    let needs_nothing = item["inputSchema"]["required"].as_array().is_none_or(Vec::is_empty);
    let fault = schema_fault(&item["inputSchema"], true)
        .map(|why| format!("inputSchema {why}"))
        .or_else(|| Some(format!("outputSchema {}", schema_fault(item.get("outputSchema")?, false)?)));
    let only_reads = annotations["readOnlyHint"] == true && annotations["destructiveHint"] != true;
    ObservedTool { is_safe: !name.is_empty() && fault.is_none() && only_reads && needs_nothing, name, fault }
}

/// Returns why a schema is not valid, or not one of an object. Returns `None` if it is fine.
fn schema_fault(schema: &Value, must_be_object: bool) -> Option<String> {
    if schema.is_null() {
        return Some("is missing".to_owned());
    }
    if !schema.is_object() {
        return Some("is not an object".to_owned());
    }
    if must_be_object && schema["type"] != "object" {
        return Some("has no `\"type\": \"object\"`".to_owned());
    }
    let options = jsonschema::options().with_pattern_options(jsonschema::PatternOptions::regex());
    options.build(schema).err().map(|error| {
        let location = error.instance_path().to_string();
        let location = if location.is_empty() { String::new() } else { format!(" at {location}") };
        unhang_core::wording::shortened(&format!("is not a JSON schema{location}: {error}"), 160).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_safe_only_if_it_says_so_and_needs_nothing() {
        let with = |annotations: Value, required: Value| {
            let schema = json!({ "type": "object", "properties": { "a": {} }, "required": required });
            tool(&json!({ "name": "t", "inputSchema": schema, "annotations": annotations })).is_safe
        };
        assert!(with(json!({ "readOnlyHint": true }), json!([])));
        assert!(!with(json!({}), json!([])));
        assert!(!with(json!({ "readOnlyHint": true }), json!(["a"])));
        assert!(!with(json!({ "readOnlyHint": true, "destructiveHint": true }), json!([])));
    }

    #[test]
    fn what_is_wrong_with_a_schema_is_said() {
        for (schema, expect) in [
            (json!({ "type": "object" }), None),
            (json!(null), Some("is missing")),
            (json!("object"), Some("is not an object")),
            (json!({}), Some("has no")),
            (json!({ "type": "object", "properties": { "a": { "type": "integr" } } }), Some("/properties/a")),
            (
                json!({ "type": "object", "properties": { "a": { "pattern": "(" } } }),
                Some("is not a JSON schema"),
            ),
        ] {
            let fault = tool(&json!({ "name": "t", "inputSchema": schema })).fault;
            match expect {
                None => assert_eq!(fault, None),
                Some(part) => {
                    assert!(fault.as_deref().is_some_and(|why| why.contains(part)), "{schema}: {fault:?}");
                }
            }
        }
    }

    #[test]
    fn a_page_has_items_and_perhaps_a_cursor() {
        assert_eq!(
            page(r#"{"tools":[{}],"nextCursor":"2"}"#, "tools").map(|(items, next)| (items.len(), next)),
            Some((1, Some("2".to_owned())))
        );
        assert_eq!(page(r#"{"tools":[],"nextCursor":null}"#, "tools"), Some((vec![], None)));
        assert_eq!(page(r#"{"tools":{}}"#, "tools"), None);
    }
}
