//! The form that a server wants to have filled in (`elicitation/create`, mode `form`). A person is asked for it field by field.
//!
//! Invariants: pure. The fields come in the order in which the server wrote them. Typed text becomes a value of the field's type, or the
//! person is asked again.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use crate::commands::large_numbers;

/// A server's question to a person.
#[derive(Deserialize)]
pub(super) struct FormQuestion {
    #[serde(default)]
    pub(super) message: String,
    /// The address to open, in the mode `url`.
    pub(super) url: Option<String>,
    #[serde(default, rename = "requestedSchema")]
    schema: Schema,
}

#[derive(Default, Deserialize)]
struct Schema {
    #[serde(default)]
    properties: Properties,
    #[serde(default)]
    required: Vec<String>,
}

/// Members in the order of the document.
#[derive(Default)]
struct Properties(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FormMembers;
        impl<'de> Visitor<'de> for FormMembers {
            type Value = Properties;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Properties(members))
            }
        }
        deserializer.deserialize_map(FormMembers)
    }
}

impl FormQuestion {
    /// Returns the fields to fill in.
    pub(super) fn fields(&self) -> Vec<FormField> {
        let Schema { properties, required } = &self.schema;
        let field = |(name, schema): &(String, Value)| FormField::read(name, schema, required.contains(name));
        properties.0.iter().map(field).collect()
    }
}

/// One field of the form.
#[derive(Debug)]
pub(super) struct FormField {
    pub(super) name: String,
    title: String,
    kind: FieldKind,
    /// The values to choose from; empty if anything may be typed.
    choices: Vec<FieldChoice>,
    default: Option<Value>,
    is_needed: bool,
}

#[derive(Debug)]
enum FieldKind {
    /// A text, with its format if the schema names one.
    Text(String),
    Number,
    Integer,
    Boolean,
    /// Several of the choices.
    Several,
}

#[derive(Debug)]
struct FieldChoice {
    value: String,
    title: Option<String>,
}

impl FormField {
    fn read(name: &str, schema: &Value, is_needed: bool) -> FormField {
        let kind = match schema["type"].as_str() {
            Some("number") => FieldKind::Number,
            Some("integer") => FieldKind::Integer,
            Some("boolean") => FieldKind::Boolean,
            Some("array") => FieldKind::Several,
            _ => FieldKind::Text(schema["format"].as_str().unwrap_or("string").to_owned()),
        };
        let choices = choices(if matches!(kind, FieldKind::Several) { &schema["items"] } else { schema });
        let title = schema["title"].as_str().or(schema["description"].as_str()).unwrap_or(name).to_owned();
        let default = schema.get("default").filter(|default| !default.is_null()).cloned();
        FormField { name: name.to_owned(), title, kind, choices, default, is_needed }
    }

    /// Returns the question for the person.
    pub(super) fn prompt(&self) -> String {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let default = match &self.default {
            None => String::new(),
            Some(Value::Array(some)) => {
                format!(" [{}]", some.iter().map(plain).collect::<Vec<_>>().join(", "))
            }
            Some(one) => format!(" [{}]", plain(one)),
        };
        format!("{} ({}){default}: ", self.title, self.expected())
    }

    /// Returns the value of the typed text. Returns `None` if the field is left out.
    ///
    /// # Errors
    /// Fails with a text that says what to type instead.
    pub(super) fn value(&self, typed: &str) -> Result<Option<Value>, String> {
        if typed.is_empty() {
            return match (&self.default, self.is_needed) {
                (None, true) => Err("this value is required; end the input to cancel".to_owned()),
                (default, _) => Ok(default.clone()),
            };
        }
        if matches!(self.kind, FieldKind::Number | FieldKind::Integer)
            && let Some(number) = large_numbers::in_json(typed.as_bytes())
        {
            return Err(format!("{number} does not fit into 64 bits"));
        }
        let number = || serde_json::from_str::<Value>(typed).ok().filter(Value::is_number);
        let value = match &self.kind {
            FieldKind::Several => typed.split(',').map(|part| self.chosen(part.trim())).collect(),
            FieldKind::Text(_) => self.chosen(typed),
            FieldKind::Number => number(),
            FieldKind::Integer => number().filter(|number| !number.is_f64()),
            FieldKind::Boolean => match typed.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Some(Value::Bool(true)),
                "n" | "no" | "false" => Some(Value::Bool(false)),
                _ => None,
            },
        };
        value.map(Some).ok_or_else(|| format!("this must be {}", self.expected()))
    }

    fn chosen(&self, typed: &str) -> Option<Value> {
        if self.choices.is_empty() {
            return Some(Value::from(typed));
        }
        let is_title = |choice: &&FieldChoice| choice.title.as_deref() == Some(typed);
        let mut choices = self.choices.iter();
        let choice = choices.clone().find(|choice| choice.value == typed).or_else(|| choices.find(is_title));
        choice.map(|choice| Value::from(&*choice.value))
    }

    fn expected(&self) -> String {
        let told = |choice: &FieldChoice| match &choice.title {
            Some(title) => format!("{}: {title}", choice.value),
            None => choice.value.clone(),
        };
        let choices = self.choices.iter().map(told).collect::<Vec<_>>().join(" | ");
        match &self.kind {
            FieldKind::Several if choices.is_empty() => "texts with commas between them".to_owned(),
            FieldKind::Several => format!("any of {choices}, with commas between them"),
            _ if !choices.is_empty() => choices,
            FieldKind::Text(format) => format.clone(),
            FieldKind::Number => "number".to_owned(),
            FieldKind::Integer => "integer".to_owned(),
            FieldKind::Boolean => "yes | no".to_owned(),
        }
    }
}

/// Returns the values to choose from: `enum`, with `enumNames` beside it as in 2025-06-18, or `oneOf` and `anyOf` with titles.
fn choices(schema: &Value) -> Vec<FieldChoice> {
    let choice = |value: &Value, title: &Value| {
        let value = value.as_str()?.to_owned();
        let title = title.as_str().filter(|title| *title != value).map(str::to_owned);
        Some(FieldChoice { value, title })
    };
    let plain = schema["enum"].as_array().into_iter().flatten().enumerate();
    let plain = plain.filter_map(|(index, value)| choice(value, &schema["enumNames"][index]));
    let titled = ["oneOf", "anyOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    plain.chain(titled.filter_map(|one| choice(&one["const"], &one["title"]))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(schema: &Value) -> FormField {
        FormField::read("name", schema, false)
    }

    #[test]
    fn fields_come_in_the_order_of_the_server() {
        let question = r#"{"message":"m","requestedSchema":{"type":"object","required":["a"],
            "properties":{"z":{"type":"string"},"a":{"type":"integer","title":"Years"},"m":{"type":"boolean","default":true}}}}"#;
        let question: FormQuestion = serde_json::from_str(question).expect("a question");
        let prompts: Vec<String> = question.fields().iter().map(FormField::prompt).collect();
        assert_eq!(prompts, ["z (string): ", "Years (integer): ", "m (yes | no) [true]: "]);
        assert!(question.fields()[1].value("").is_err_and(|why| why.contains("required")));
        assert_eq!(question.fields()[0].value(""), Ok(None));
        assert_eq!(question.fields()[2].value(""), Ok(Some(json!(true))));
        assert!(serde_json::from_str::<FormQuestion>(r#"{"requestedSchema":{"properties":[]}}"#).is_err());
    }

    #[test]
    fn what_is_typed_becomes_a_value_of_the_type() {
        for (schema, typed, expect) in [
            (json!({ "type": "string", "format": "email" }), "5", Ok(json!("5"))),
            (json!({ "type": "number" }), "2.5", Ok(json!(2.5))),
            (json!({ "type": "number" }), "true", Err("this must be number")),
            (json!({ "type": "integer" }), "7", Ok(json!(7))),
            (json!({ "type": "integer" }), "7.5", Err("this must be integer")),
            (json!({ "type": "boolean" }), "Yes", Ok(json!(true))),
            (json!({ "type": "boolean" }), "false", Ok(json!(false))),
            (json!({ "type": "boolean" }), "1", Err("this must be yes | no")),
            (json!({ "type": "array" }), "a, b", Ok(json!(["a", "b"]))),
        ] {
            let value = field(&schema).value(typed);
            assert_eq!(value, expect.map(Some).map_err(str::to_owned), "{schema} {typed}");
        }
    }

    #[test]
    fn choices_are_taken_by_value_or_title() {
        let titled = json!([{ "const": "p1", "title": "Cats" }, { "const": "p2", "title": "Dogs" }]);
        for schema in [
            json!({ "type": "string", "enum": ["p1", "p2"], "enumNames": ["Cats", "Dogs"] }),
            json!({ "type": "string", "oneOf": titled }),
        ] {
            let field = field(&schema);
            assert_eq!(field.prompt(), "name (p1: Cats | p2: Dogs): ");
            for typed in ["p2", "Dogs"] {
                assert_eq!(field.value(typed), Ok(Some(json!("p2"))));
            }
            assert_eq!(field.value("x"), Err("this must be p1: Cats | p2: Dogs".to_owned()));
        }
        let several =
            field(&json!({ "type": "array", "items": { "anyOf": titled }, "default": ["p1", "p2"] }));
        assert_eq!(
            several.prompt(),
            "name (any of p1: Cats | p2: Dogs, with commas between them) [p1, p2]: "
        );
        assert_eq!(several.value("p2, Cats"), Ok(Some(json!(["p2", "p1"]))));
        assert!(several.value("p2, x").is_err());
        let plain = field(&json!({ "type": "array", "items": { "type": "string", "enum": ["a", "b"] } }));
        assert_eq!(plain.prompt(), "name (any of a | b, with commas between them): ");
    }
}
