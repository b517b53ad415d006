//! One tool, as a person reads it: its description, and each argument with its type, choices and meaning.
//!
//! Invariants: pure; text from a server cannot steer a terminal.

use serde_json::Value;

use unhang_terminal::text::escaped;

use crate::commands::engine::{quoted_word, wrapped_in};

/// The number of choices that are listed; the rest is only counted.
const MOST_CHOICES: usize = 20;
/// The indent of an argument's description.
const INDENT: &str = "      ";

/// Makes the whole page. `server` is the word to type for the server, or `None` if a command was given.
pub(super) fn page(tool: &Value, server: Option<&str>) -> String {
    let name = tool["name"].as_str().unwrap_or_default();
    let mut page = match tool["title"].as_str().or(tool["annotations"]["title"].as_str()) {
        Some(title) if title != name => format!("{}: {}\n", escaped(name), escaped(title)),
        _ => format!("{}\n", escaped(name)),
    };
    for paragraph in tool["description"].as_str().unwrap_or_default().split("\n\n") {
        page.push_str(&wrapped_in("  ", &escaped(&one_line(paragraph))));
    }
    let schema = &tool["inputSchema"];
    let arguments = fields(schema);
    page.push_str(if arguments.is_empty() { "\nIt takes no arguments.\n" } else { "\nArguments:\n" });
    arguments.iter().for_each(|argument| page.push_str(argument));
    let results = fields(&tool["outputSchema"]);
    if !results.is_empty() {
        page.push_str("\nStructured result:\n");
        results.iter().for_each(|result| page.push_str(result));
    }
    let hints = hints(&tool["annotations"]);
    if !hints.is_empty() {
        page.push_str(&format!("\nIt says that it {}.\n", hints.join(", ")));
    }
    page.push_str(&format!("\n  {}\n", example(name, server, schema)));
    page
}

/// Makes the line for each property, the required ones first.
fn fields(schema: &Value) -> Vec<String> {
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let is_needed = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
    };
    let longest =
        properties.keys().map(|name| escaped(name).chars().count()).max().unwrap_or_default().min(24);
    let mut fields: Vec<(bool, String)> = Vec::new();
    for (name, property) in properties {
        let needed = is_needed(name);
        let word = if needed { ", required" } else { "" };
        let default = property.get("default").map(|default| format!(" [default: {}]", plain(default)));
        let told = format!("{}{word}{}", kind(property, schema, 0), default.unwrap_or_default());
        let lead = format!("  {:<longest$}  ", escaped(name));
        let mut field = wrapped_in(&" ".repeat(longest + 4), &escaped(&told));
        field.replace_range(..longest + 4, &lead);
        if let Some(description) = property["description"].as_str().or(property["title"].as_str()) {
            field.push_str(&wrapped_in(INDENT, &escaped(&one_line(description))));
        }
        fields.push((!needed, field));
    }
    fields.sort_by_key(|(is_optional, _)| *is_optional);
    fields.into_iter().map(|(_, field)| field).collect()
}

/// Returns the type of a value in words: `string`, `a | b`, `array of integer, 1 to 10 items`.
fn kind(property: &Value, root: &Value, depth: usize) -> String {
    /// The number of nested types that are described.
    const DEEPEST: usize = 4;
    if depth > DEEPEST {
        return "...".to_owned();
    }
    if let Some(reference) = property["$ref"].as_str() {
        let found = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return found.map_or_else(|| reference.to_owned(), |found| kind(found, root, depth + 1));
    }
    if let Some(only) = property.get("const") {
        return plain(only);
    }
    if let Some(choices) = property["enum"].as_array() {
        let mut told: Vec<String> = choices.iter().take(MOST_CHOICES).map(plain).collect();
        if choices.len() > MOST_CHOICES {
            told.push(format!("{} more", choices.len() - MOST_CHOICES));
        }
        return told.join(" | ");
    }
    if let Some(choices) = ["anyOf", "oneOf"].into_iter().find_map(|word| property[word].as_array()) {
        let mut told: Vec<String> =
            choices.iter().take(MOST_CHOICES).map(|choice| kind(choice, root, depth + 1)).collect();
        told.dedup();
        return told.join(" | ");
    }
    let named = match &property["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        _ => "any".to_owned(),
    };
    let named = match (named.as_str(), property.get("items")) {
        ("array", Some(items)) => format!("array of {}", kind(items, root, depth + 1)),
        _ => named,
    };
    let format = property["format"].as_str().or(property["pattern"].as_str());
    let format = format.map_or_else(String::new, |format| format!(" ({format})"));
    format!("{named}{format}{}", bounds(property))
}

/// Returns the bounds that a schema sets: `, 1 to 10`.
fn bounds(property: &Value) -> String {
    let unit = [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ];
    let told = unit.into_iter().filter_map(|(least, most, unit)| {
        Some(match (property.get(least), property.get(most)) {
            (Some(least), Some(most)) => format!(", {least} to {most}{unit}"),
            (Some(least), None) => format!(", at least {least}{unit}"),
            (None, Some(most)) => format!(", at most {most}{unit}"),
            (None, None) => return None,
        })
    });
    told.collect()
}

fn hints(annotations: &Value) -> Vec<&'static str> {
    let told = [
        ("readOnlyHint", true, "only reads"),
        ("destructiveHint", true, "may destroy something"),
        ("idempotentHint", true, "does the same when it is called again"),
        ("openWorldHint", true, "reaches other systems"),
    ];
    let is_said = |(name, wanted, _): &(&str, bool, &str)| annotations[*name] == *wanted;
    told.into_iter().filter(is_said).map(|(.., words)| words).collect()
}

/// Returns an example of a call: the required arguments, each with a value of its type.
fn example(name: &str, server: Option<&str>, schema: &Value) -> String {
    let needed = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str| {
        let property = &schema["properties"][name];
        let first = property["enum"].get(0).or(property.get("default")).or(property.get("const"));
        let types = &property["type"];
        first.map(plain).unwrap_or_else(|| match types.as_str().or(types[0].as_str()) {
            Some("integer" | "number") => {
                property.get("minimum").map_or_else(|| "1".to_owned(), Value::to_string)
            }
            Some("boolean") => "true".to_owned(),
            Some("array") => "[]".to_owned(),
            Some("object") => "{}".to_owned(),
            _ => "TEXT".to_owned(),
        })
    };
    let arguments = needed.map(|name| quoted_word(&format!("{name}={}", value(name))));
    let words: Vec<String> =
        server.map(quoted_word).into_iter().chain([quoted_word(name)]).chain(arguments).collect();
    let end = if server.is_none() { " -- CMD ARGS..." } else { "" };
    format!("unhang call {}{end}", escaped(&words.join(" ")))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn f_77_a_page_has_types_choices_and_what_they_mean() {
        let tool = json!({ "name": "draw", "description": "Draws.\u{1b}[2J\n\nSlowly.", "inputSchema": {
            "required": ["unit", "size"],
            "$defs": { "Colour": { "enum": ["red", "blue"] } },
            "properties": {
                "unit": { "enum": ["mm", "inch"], "description": "What sizes are in ".repeat(6) },
                "size": { "type": "integer", "minimum": 1, "maximum": 9 },
                "tags": { "type": "array", "items": { "type": "string" }, "default": [] },
                "colour": { "anyOf": [{ "$ref": "#/$defs/Colour" }, { "type": "null" }] },
            }},
            "annotations": { "readOnlyHint": true },
        });
        let page = page(&tool, Some("plotter"));
        for expect in [
            "draw\n",
            "  Draws.",
            "  Slowly.",
            "unit    mm | inch, required",
            "size    integer, 1 to 9, required",
            "tags    array of string [default: []]",
            "colour  red | blue | null",
            "      What sizes are in",
            "It says that it only reads.",
            "unhang call plotter draw unit=mm size=1",
        ] {
            assert!(page.contains(expect), "{expect}: {page}");
        }
        assert!(page.find("size ") < page.find("colour "), "what is needed comes first: {page}");
        assert!(page.lines().all(|line| line.chars().count() <= 80) && !page.contains('\u{1b}'), "{page}");
        let nothing = super::page(&json!({ "name": "now", "inputSchema": { "type": "object" } }), None);
        assert!(
            nothing.contains("It takes no arguments.") && nothing.contains("unhang call now -- CMD"),
            "{nothing}"
        );
    }

    #[test]
    fn f_77_a_schema_that_refers_to_itself_ends() {
        let schema = json!({ "properties": { "a": { "$ref": "#/properties/a" } } });
        assert!(page(&json!({ "name": "x", "inputSchema": schema }), None).contains("a  ..."));
    }
}
