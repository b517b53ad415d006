//! Compares arguments with the declaration of a tool or a prompt, before the request goes out.
//!
//! Invariants: pure. A schema that the check cannot understand refuses nobody. A name counts as unknown only if the schema lists all names.

use serde_json::{Map, Value};
use unhang::{tools::ArgumentSchema, wording::nearest};
use unhang_terminal::{failure::CommandFailure, text::escaped};

use super::schema::{names, resolved};

/// Compares the arguments of a tool with its schema.
pub(super) fn check_tool(
    tool: &str,
    arguments: &Map<String, Value>,
    schema: Option<&Value>,
) -> Result<(), CommandFailure> {
    let Some(schema) = schema else { return Ok(()) };
    let stated = resolved(schema, schema);
    let needed = stated["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut complaints = missing(arguments, needed);
    if let Some(known) = names(schema) {
        complaints.extend(unknown(tool, arguments, &known));
    }
    if complaints.is_empty() {
        match ArgumentSchema::new(schema.clone()) {
            Ok(compiled) => complaints.extend(compiled.check(&arguments.clone().into()).err()),
            Err(why) => {
                tracing::debug!("the arguments of `{tool}` are not compared with its schema, which {why}");
            }
        }
    }
    let hint = format!(
        "`unhang tools` with the same server and `{tool}` shows the arguments; --no-check calls the tool without \
         this check"
    );
    told(&format!("`{tool}` was not called"), &complaints, &hint)
}

/// Compares the arguments of a prompt with those that it lists.
pub(super) fn check_prompt(
    prompt: &str,
    arguments: &Map<String, Value>,
    declared: &Value,
) -> Result<(), CommandFailure> {
    let listed = declared["arguments"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |argument: &'_ Value| argument["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = listed.iter().map(name).collect();
    let needed: Vec<String> =
        listed.iter().filter(|argument| argument["required"] == true).map(name).collect();
    let mut complaints = missing(arguments, needed.iter().map(String::as_str));
    complaints.extend(unknown(prompt, arguments, &names.iter().map(String::as_str).collect::<Vec<_>>()));
    let hint = "`unhang prompts` with the same server shows the arguments of its prompts";
    told(&format!("`{prompt}` was not requested"), &complaints, hint)
}

fn missing<'a>(arguments: &Map<String, Value>, needed: impl Iterator<Item = &'a str>) -> Vec<String> {
    let missing = needed.filter(|name| !arguments.contains_key(*name));
    missing.map(|name| format!("the argument `{name}` is missing")).collect()
}

fn unknown(tool: &str, arguments: &Map<String, Value>, known: &[&str]) -> Vec<String> {
    let complaint = |name: &String| {
        let instead =
            match nearest(name, known.iter().copied().filter(|known| !arguments.contains_key(*known))) {
                Some(near) => format!(" (did you mean `{near}`?)"),
                None if known.is_empty() => " (it takes none)".to_owned(),
                None => format!(" (it has {})", known.join(", ")),
            };
        format!("`{tool}` has no argument `{name}`{instead}")
    };
    arguments.keys().filter(|name| !known.contains(&name.as_str())).map(complaint).collect()
}

fn told(what: &str, complaints: &[String], hint: &str) -> Result<(), CommandFailure> {
    if complaints.is_empty() {
        return Ok(());
    }
    let message = format!("{what}: {}", complaints.join("; "));
    Err(CommandFailure::usage(escaped(&message), Some(hint)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(arguments: Value, schema: &Value, expect: &[&str]) {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        match check_tool("echo", &arguments, Some(schema)) {
            Ok(()) => assert!(expect.is_empty(), "{arguments:?}"),
            Err(failure) => {
                let message = &failure.message;
                assert!(!expect.is_empty() && expect.iter().all(|text| message.contains(text)), "{message}");
                assert_eq!(failure.code, unhang::exit::USAGE);
            }
        }
    }

    #[test]
    fn f_76_missing_and_unknown_names_are_told_together() {
        let schema = json!({ "type": "object", "required": ["text"],
            "properties": { "text": { "type": "string" }, "times": { "type": "integer", "minimum": 1 } } });
        check(json!({ "text": "x" }), &schema, &[]);
        check(
            json!({ "txt": "x" }),
            &schema,
            &["the argument `text` is missing", "`echo` has no argument `txt` (did you mean `text`?)"],
        );
        check(json!({ "text": "x", "volume": 1 }), &schema, &["no argument `volume` (it has text, times)"]);
        check(json!({ "text": "x", "times": 0 }), &schema, &["`times`"]);
        check(json!({ "a\u{1b}[2J": 1 }), &json!({ "properties": {} }), &["it takes none", "\\u{1b}"]);
    }

    #[test]
    fn f_76_what_stands_behind_a_reference_counts() {
        let schema = json!({ "$ref": "#/$defs/A", "type": "object", "$defs": {
            "A": { "properties": { "zip": { "type": "string" } }, "required": ["zip"] } } });
        check(json!({ "zip": "1" }), &schema, &[]);
        check(
            json!({ "zap": "1" }),
            &schema,
            &["`zip` is missing", "no argument `zap` (did you mean `zip`?)"],
        );
        for open in
            [json!({ "$ref": "#/$defs/None" }), json!({ "$ref": "#" }), json!({ "$ref": "https://a/b" })]
        {
            check(json!({ "zap": "1" }), &open, &[]);
        }
    }

    #[test]
    fn f_76_what_a_schema_leaves_open_is_not_refused() {
        let more = json!({ "x": 1 });
        for schema in [
            json!({}),
            json!({ "type": "object" }),
            json!({ "properties": { "a": {} }, "additionalProperties": true }),
            json!({ "properties": { "a": {} }, "additionalProperties": { "type": "integer" } }),
            json!({ "properties": { "a": {} }, "anyOf": [{ "properties": { "x": {} } }] }),
            json!({ "properties": { "a": { "pattern": "(?=x)" }, "x": {} } }),
        ] {
            check(more.clone(), &schema, &[]);
        }
        check(
            more,
            &json!({ "properties": { "a": {} }, "additionalProperties": false }),
            &["no argument `x`"],
        );
    }

    #[test]
    fn f_76_prompts_are_checked_too() {
        let declared = json!({ "arguments": [{ "name": "city", "required": true }, { "name": "state" }] });
        let of = |arguments: Value| check_prompt("args", arguments.as_object().unwrap(), &declared);
        assert!(of(json!({ "city": "Vienna" })).is_ok());
        let told = of(json!({ "citty": "Vienna" })).unwrap_err().message;
        assert!(told.contains("`city` is missing") && told.contains("did you mean `city`?"), "{told}");
    }
}
