//! The schema of a tool's arguments, as far as it can be read without a value.
//!
//! Invariants: pure, and of bounded depth, whatever refers to what. Only references within the schema are followed. A reference that cannot
//! be followed says nothing.

use serde_json::{Value, json};
use unhang::tools::ArgumentSchema;

/// The number of references that are followed for one schema.
const MOST_REFERENCES: usize = 16;

/// The words of a schema through which it may have more names than its `properties`.
const MORE_NAMES: [&str; 9] = [
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "patternProperties",
    "unevaluatedProperties",
];

/// Resolves a schema's references into the whole, and replaces an `allOf` with one part by that part. Generators write both for a type that
/// has a name.
pub(super) fn resolved<'a>(schema: &'a Value, whole: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MOST_REFERENCES {
        let says_itself = ["properties", "type", "enum"].iter().any(|word| schema.get(word).is_some());
        let is_root = std::ptr::eq(schema, whole);
        if says_itself && !(is_root && schema.get("properties").is_none()) {
            break;
        }
        let target = match (&schema["$ref"], schema["allOf"].as_array().map(Vec::as_slice)) {
            (Value::String(reference), _) => reference.strip_prefix('#').and_then(|path| whole.pointer(path)),
            (_, Some([part])) => Some(part),
            _ => None,
        };
        match target {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Returns the schema of the argument of this name, or `None` if there is none.
pub(super) fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    let stated = resolved(schema, schema);
    let listed = stated["properties"].get(name);
    let by_pattern = || {
        let patterns = stated["patternProperties"].as_object()?;
        let fits = |pattern: &str| {
            let text = ArgumentSchema::new(json!({ "pattern": pattern }));
            text.is_ok_and(|text| text.check(&name.into()).is_ok())
        };
        patterns.iter().find(|(pattern, _)| fits(pattern)).map(|(_, schema)| schema)
    };
    let further = || Some(&stated["additionalProperties"]).filter(|further| further.is_object());
    listed.or_else(by_pattern).or_else(further).map(|property| resolved(property, schema))
}

/// Returns the names of all arguments, or `None` if the schema allows more names than it lists.
pub(super) fn names(schema: &Value) -> Option<Vec<&str>> {
    let stated = resolved(schema, schema);
    let takes_more = stated.get("additionalProperties").is_some_and(|more| *more != false)
        || MORE_NAMES.iter().any(|word| stated.get(word).is_some());
    let properties = stated["properties"].as_object().filter(|_| !takes_more)?;
    Some(properties.keys().map(String::as_str).collect())
}
