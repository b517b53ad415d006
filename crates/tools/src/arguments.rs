//! The arguments that a tool may be called with: its JSON schema, compiled once.
//!
//! Invariants
//! - Nothing is fetched: a schema with a reference that leads out of it is refused.
//! - Patterns are matched in linear time, so that no argument can keep the check busy. A schema with a pattern that only a backtracking
//!   matcher understands is refused.
//! - A complaint is short, whatever was sent: it gives the place and what was expected, and does not repeat the value.

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::Value;

use unhang_core::wording::shortened;

/// The most complaints that are told at once.
const MOST_COMPLAINTS: usize = 5;
/// The longest complaint, in characters.
const LONGEST_COMPLAINT: usize = 300;

/// A compiled schema, with its source.
#[derive(Clone, Debug)]
pub struct ArgumentSchema {
    schema: Value,
    compiled: Validator,
}

impl ArgumentSchema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// Fails with a sentence about the fault if the schema cannot be compiled.
    pub fn new(schema: Value) -> Result<ArgumentSchema, String> {
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        let compiled = options.build(&schema).map_err(|error| {
            let location = error.instance_path().as_str();
            let location = if location.is_empty() { String::new() } else { format!("`{location}`: ") };
            format!(
                "is not a usable JSON schema: {location}{}",
                shortened(&error.to_string(), LONGEST_COMPLAINT)
            )
        })?;
        Ok(ArgumentSchema { schema, compiled })
    }

    /// Returns the schema as it was written.
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Returns the names of the arguments that the schema lists.
    pub fn names(&self) -> Vec<&str> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        properties.map_or(Vec::new(), |properties| properties.keys().map(String::as_str).collect())
    }

    /// Checks the arguments of a call.
    ///
    /// # Errors
    /// Fails with the first few complaints if the arguments do not fit the schema.
    pub fn check(&self, arguments: &Value) -> Result<(), String> {
        let complaints: Vec<String> = self
            .compiled
            .iter_errors(arguments)
            .take(MOST_COMPLAINTS)
            .map(|error| {
                let location = error.instance_path().as_str().trim_start_matches('/');
                let told = match error.kind() {
                    // A schema without properties says this of every argument, or of all of them together.
                    ValidationErrorKind::FalseSchema if location.is_empty() => no_arguments(arguments),
                    ValidationErrorKind::FalseSchema => "there is no such argument".to_owned(),
                    _ => error.masked().to_string(),
                };
                let told = shortened(&told, LONGEST_COMPLAINT);
                match location {
                    "" => told.into_owned(),
                    location => format!("`{}`: {told}", shortened(location, LONGEST_COMPLAINT)),
                }
            })
            .collect();
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
    }
}

/// Names the arguments that a tool without arguments was given.
fn no_arguments(given: &Value) -> String {
    let names: Vec<_> = given
        .as_object()
        .into_iter()
        .flat_map(|given| given.keys())
        .map(|name| format!("`{name}`"))
        .collect();
    format!("there is no such argument: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn j_16_arguments_are_checked_and_complaints_name_the_place() {
        let schema = ArgumentSchema::new(json!({
            "type": "object",
            "properties": { "cod": { "type": "number" }, "mode": { "enum": ["a", "b"] }, "at": { "pattern": "^(a+)+$" } },
            "required": ["cod"],
            "additionalProperties": false,
        }))
        .expect("it is a schema");
        assert_eq!(schema.names(), ["at", "cod", "mode"]);
        assert_eq!(schema.check(&json!({ "cod": 1.5, "mode": "a" })), Ok(()));
        for (arguments, expect) in [
            (json!({}), r#""cod" is a required property"#),
            (json!({ "cod": "1" }), r#"`cod`: value is not of type "number""#),
            (json!({ "cod": 1, "mode": "c" }), "`mode`: "),
            (json!({ "cod": 1, "other": 1 }), "other"),
            (json!([]), r#"value is not of type "object""#),
            (json!({ "cod": 1, "at": format!("{}b", "a".repeat(50_000)) }), "`at`: "),
        ] {
            let told = schema.check(&arguments).expect_err("it does not fit");
            assert!(told.contains(expect) && told.len() < 500, "{told}");
        }
        let nothing = ArgumentSchema::new(json!({ "type": "object", "additionalProperties": false }));
        let told = nothing.expect("it is a schema").check(&json!({ "x": 1 })).expect_err("there is no x");
        assert!(told.contains("`x`"), "{told}");
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_told() {
        for (schema, expect) in [
            (json!({ "type": "objekt" }), "`/type`: "),
            (json!({ "$ref": "https://example.org/schema.json" }), "https://example.org/schema.json"),
            (json!({ "$ref": "file:///etc/passwd" }), "file:///etc/passwd"),
            (json!({ "properties": { "a": { "pattern": "(" } } }), "pattern"),
            (json!({ "properties": { "a": { "pattern": "(?=a)b" } } }), "pattern"),
        ] {
            let told = ArgumentSchema::new(schema).expect_err("it is bad");
            assert!(told.starts_with("is not a usable JSON schema: ") && told.contains(expect), "{told}");
        }
    }
}
