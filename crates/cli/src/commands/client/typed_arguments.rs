//! The arguments of a tool from typed words: `key=value`, each typed by the tool's schema, above a JSON object.
//!
//! Invariants: nothing is guessed if the schema gives the type of a value. A value of another type is an error of the user, printed before
//! the tool is called (C-26), unless `--no-check` is given. No number is changed: a number that does not fit into 64 bits is refused.

use std::{
    fs,
    io::{self, IsTerminal, Read},
    time::Duration,
};

use serde_json::{Map, Value};

use unhang_terminal::failure::CommandFailure;

use super::{beside, read_within, schema::property};
use crate::commands::large_numbers;

/// The size in bytes of the longest JSON that is read for arguments. A message cannot be longer.
const MAX_JSON: u64 = 64 << 20;

/// Returns the arguments of a prompt, which are texts.
pub(super) fn texts(pairs: &[String]) -> Result<Map<String, Value>, CommandFailure> {
    pairs.iter().map(|pair| split(pair).map(|(key, text)| (key.to_owned(), text.into()))).collect()
}

/// Returns all arguments of a tool. A `key=value` pair overrides the object. If `is_checked`, a value that does not fit its type is
/// refused.
pub(super) fn arguments(
    mut arguments: Map<String, Value>,
    pairs: &[String],
    schema: Option<&Value>,
    is_checked: bool,
) -> Result<Map<String, Value>, CommandFailure> {
    for pair in pairs {
        let (key, text) = split(pair)?;
        let kind = schema.and_then(|schema| property(schema, key));
        arguments.insert(key.to_owned(), value(key, text, kind, is_checked)?);
    }
    Ok(arguments)
}

fn split(pair: &str) -> Result<(&str, &str), CommandFailure> {
    pair.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
        CommandFailure::usage(
            format!("`{pair}` is not an argument"),
            Some("write KEY=VALUE, or give them with --json"),
        )
    })
}

/// Reads the JSON object from a text, a file or stdin. The wait for the writer of a pipe has a limit, the wait for a person who types has
/// none.
pub(super) async fn object_within(
    from: String,
    limit: Duration,
) -> Result<Map<String, Value>, CommandFailure> {
    match from.strip_prefix('@').map(str::to_owned) {
        Some(path) => read_within(&path, limit, move || object(&from)).await,
        None if from == "-" && !io::stdin().is_terminal() => {
            read_within("stdin", limit, move || object(&from)).await
        }
        None => beside(move || object(&from)).await,
    }
}

/// Reads the JSON object from a text, a file or stdin. It may wait for the writer.
fn object(from: &str) -> Result<Map<String, Value>, CommandFailure> {
    let read = |what: &str, reader: &mut dyn Read| {
        let mut text = String::new();
        reader
            .take(MAX_JSON + 1)
            .read_to_string(&mut text)
            .map_err(|error| CommandFailure::usage(format!("{what} cannot be read: {error}"), None))?;
        if text.len() as u64 > MAX_JSON {
            let message = format!("{what} has more than {} MiB", MAX_JSON >> 20);
            return Err(CommandFailure::usage(message, Some("a message cannot be longer")));
        }
        Ok(text)
    };
    let (what, text) = match from.strip_prefix('@') {
        _ if from == "-" => ("stdin", read("stdin", &mut io::stdin().lock())?),
        Some("") => {
            let hint = "write --json @FILE, or --json - for stdin";
            return Err(CommandFailure::usage("`--json @` names no file".to_owned(), Some(hint)));
        }
        Some(path) => {
            let mut file = fs::File::open(path)
                .map_err(|error| CommandFailure::usage(format!("{path} cannot be read: {error}"), None))?;
            (path, read(path, &mut file)?)
        }
        None => ("--json", from.to_owned()),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => large_numbers::refuse(text.as_bytes(), what).map(|()| object),
        Ok(_) => Err(CommandFailure::usage(
            format!("{what} is JSON, but not an object"),
            Some("arguments have names: {\"key\": value}"),
        )),
        Err(error) => Err(CommandFailure::usage(format!("{what} is not JSON: {error}"), None)),
    }
}

/// Returns one value, of the type that the schema asks for. If the schema asks for none, a text that is valid JSON becomes that.
fn value(key: &str, text: &str, schema: Option<&Value>, is_checked: bool) -> Result<Value, CommandFailure> {
    let json: Option<Value> = serde_json::from_str(text).ok();
    // A text is never read as a number, so it is not changed either.
    let whole = |value: Value| match value {
        Value::String(_) => Ok(value),
        _ => large_numbers::refuse(text.as_bytes(), &format!("the argument `{key}`")).map(|()| value),
    };
    let types = schema.map(types).unwrap_or_default();
    if types.is_empty() {
        return whole(json.unwrap_or_else(|| text.into()));
    }
    let fits = |kind: &str| match (kind, &json) {
        ("number", Some(Value::Number(_))) | ("boolean", Some(Value::Bool(_))) => true,
        ("integer", Some(Value::Number(number))) => {
            number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        ("array", Some(Value::Array(_)))
        | ("object", Some(Value::Object(_)))
        | ("null", Some(Value::Null)) => true,
        _ => false,
    };
    if types.iter().any(|kind| fits(kind)) {
        return whole(json.unwrap_or_default());
    }
    if types.iter().any(|kind| kind == "string") {
        return Ok(text.into());
    }
    if !is_checked {
        return whole(json.unwrap_or_else(|| text.into()));
    }
    Err(CommandFailure::usage(
        format!("the argument `{key}` must be {}, but `{text}` is not", types.join(" or ")),
        None,
    ))
}

/// Returns the types that a schema allows, as far as it gives them at its top.
fn types(schema: &Value) -> Vec<String> {
    let names = |value: &Value| match value {
        Value::String(name) => vec![name.clone()],
        Value::Array(names) => names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    let direct = names(&schema["type"]);
    if !direct.is_empty() {
        return direct;
    }
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    if let Some(choices) = choices {
        return choices.iter().flat_map(|choice| names(&choice["type"])).collect();
    }
    // A value that has to be one of some texts is a text.
    let words = schema.get("enum").and_then(Value::as_array);
    match words {
        Some(words) if words.iter().all(Value::is_string) => vec!["string".to_owned()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(pairs: &[&str], schema: &Value) -> Result<Value, String> {
        let pairs: Vec<String> = pairs.iter().map(|&pair| pair.to_owned()).collect();
        let read = arguments(Map::new(), &pairs, Some(schema), true);
        read.map(Value::from).map_err(|failure| failure.message)
    }

    #[test]
    fn values_are_typed_by_the_schema() {
        let schema = json!({ "type": "object", "properties": {
            "text": { "type": "string" }, "count": { "type": "integer" }, "share": { "type": "number" },
            "flag": { "type": "boolean" }, "list": { "type": "array" }, "maybe": { "type": ["integer", "null"] },
            "zip": { "$ref": "#/$defs/Zip" }, "both": { "allOf": [{ "$ref": "#/$defs/Zip" }] },
            "either": { "anyOf": [{ "type": "integer" }, { "type": "string" }] }, "unit": { "enum": ["m", "1"] }, "free": {},
        }, "patternProperties": { "^x-": { "type": "string" } }, "$defs": { "Zip": { "type": "string" } } });
        for (pair, expect) in [
            ("text=5", json!({ "text": "5" })),
            ("text=a=b", json!({ "text": "a=b" })),
            ("text=", json!({ "text": "" })),
            ("count=5", json!({ "count": 5 })),
            ("share=0.5", json!({ "share": 0.5 })),
            ("flag=true", json!({ "flag": true })),
            ("list=[1,2]", json!({ "list": [1, 2] })),
            ("maybe=null", json!({ "maybe": null })),
            ("either=7", json!({ "either": 7 })),
            ("either=seven", json!({ "either": "seven" })),
            ("unit=1", json!({ "unit": "1" })),
            ("zip=12345", json!({ "zip": "12345" })),
            ("both=12345", json!({ "both": "12345" })),
            ("x-a=12345", json!({ "x-a": "12345" })),
            ("free=7", json!({ "free": 7 })),
            ("free=seven", json!({ "free": "seven" })),
            ("unknown={\"a\":1}", json!({ "unknown": { "a": 1 } })),
            ("text=12345678901234567890123", json!({ "text": "12345678901234567890123" })),
            ("free=\"12345678901234567890123\"", json!({ "free": "12345678901234567890123" })),
            ("count=18446744073709551615", json!({ "count": u64::MAX })),
        ] {
            assert_eq!(read(&[pair], &schema), Ok(expect), "{pair}");
        }
    }

    #[test]
    fn c_26_what_is_not_what_it_has_to_be_is_the_users_error() {
        let schema = json!({ "properties": { "count": { "type": "integer" } } });
        for (pair, expect) in [
            ("count=1.5", "`count` must be integer, but `1.5` is not"),
            ("count=many", "`count` must be integer, but `many` is not"),
            ("count", "`count` is not an argument"),
            ("count=12345678901234567890123", "12345678901234567890123 in the argument `count` does not fit"),
            ("unknown=[-9223372036854775809]", "-9223372036854775809 in the argument `unknown` does not fit"),
            ("=1", "`=1` is not an argument"),
        ] {
            let told = read(&[pair], &schema).expect_err(pair);
            assert!(told.contains(expect), "{told}");
        }
        for (json, expect) in [
            ("[1]", "is JSON, but not an object"),
            ("{", "is not JSON: EOF"),
            ("@/nowhere", "cannot be read"),
            ("@", "`--json @` names no file"),
            (r#"{"a": 18446744073709551616}"#, "18446744073709551616 in --json does not fit into 64 bits"),
        ] {
            let told = object(json).expect_err(json).message;
            assert!(told.contains(expect), "{told}");
        }
    }

    #[test]
    fn f_76_what_is_not_compared_goes_out_as_json_or_as_text() {
        let schema =
            json!({ "properties": { "count": { "type": "integer" }, "text": { "type": "string" } } });
        let pairs = ["count=many", "text=5"].map(str::to_owned);
        let read = arguments(Map::new(), &pairs, Some(&schema), false).unwrap();
        assert_eq!(Value::from(read), json!({ "count": "many", "text": "5" }));
        let pairs = ["count=[1]".to_owned()];
        let read = arguments(Map::new(), &pairs, Some(&schema), false).unwrap();
        assert_eq!(Value::from(read), json!({ "count": [1] }));
    }

    #[test]
    fn a_pair_goes_above_the_object() {
        let object = object(r#"{"a": 1, "b": 2}"#).unwrap();
        let read = arguments(object, &["b=3".to_owned()], None, true).unwrap();
        assert_eq!(Value::from(read), json!({ "a": 1, "b": 3 }));
    }
}
