//! The person in front of the terminal, as far as servers may talk to them.
//!
//! Invariants: nobody is asked where there is no terminal, and the server is told that its question was declined; what a server writes
//! steers no terminal.

use std::{
    future::Future,
    io::{self, BufRead, IsTerminal, Write},
    pin::Pin,
};

use serde_json::{Map, Value, json, value::RawValue};
use tokio::{sync::Mutex, task::spawn_blocking};
use unhang::client::{Answer, Listener, declined};

use crate::{progress, terminal_text::escaped};

/// Held while somebody is asked.
static TERMINAL: Mutex<()> = Mutex::const_new(());

/// Hears a server's messages and answers its questions, at the terminal where there is one.
pub(super) struct Person {
    server: String,
}

impl Person {
    pub(super) fn new(server: &str) -> Self {
        Self { server: server.to_owned() }
    }
}

impl Listener for Person {
    fn capabilities(&self) -> Map<String, Value> {
        Map::from_iter([("elicitation".to_owned(), json!({ "form": {}, "url": {} }))])
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        if method == "notifications/message" {
            let params: Value =
                params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
            let text = params["data"].as_str().map_or_else(|| params["data"].to_string(), str::to_owned);
            tracing::debug!(
                "`{}` says ({}): {}",
                self.server,
                params["level"].as_str().unwrap_or("?"),
                escaped(&text)
            );
        }
    }

    fn asked(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = Answer> + Send + 'static>> {
        let server = self.server.clone();
        Box::pin(async move {
            if method != "elicitation/create" {
                return Err(declined(&method));
            }
            if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
                tracing::warn!(
                    "`{server}` asks for input, and there is no terminal to ask at; it was declined"
                );
                return Ok(json!({ "action": "decline" }));
            }
            let params: Value =
                params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
            // One question at a time, whoever asks.
            let _turn = TERMINAL.lock().await;
            // Whoever is asked may take their time. A panic has been told.
            let asked = spawn_blocking(move || ask(&server, &params)).await;
            Ok(asked.unwrap_or_else(|_| json!({ "action": "cancel" })))
        })
    }
}

/// Asks, line by line. The end of input cancels.
fn ask(server: &str, params: &Value) -> Value {
    progress::end();
    say(&format!("\n`{}` asks: {}\n", escaped(server), escaped(params["message"].as_str().unwrap_or("?"))));
    if let Some(url) = params["url"].as_str() {
        say(&format!("open {} and come back\n", escaped(url)));
        return match line("done? [y/N] ") {
            Some(answer) if is_yes(&answer) => json!({ "action": "accept" }),
            Some(_) => json!({ "action": "decline" }),
            None => json!({ "action": "cancel" }),
        };
    }
    let schema = &params["requestedSchema"];
    let mut content = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let is_needed =
            schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name));
        match answer_for(name, field, is_needed) {
            Some(Some(value)) => drop(content.insert(name.clone(), value)),
            Some(None) => {}
            None => return json!({ "action": "cancel" }),
        }
    }
    match line("send this? [Y/n] ") {
        Some(answer) if answer.is_empty() || is_yes(&answer) => {
            json!({ "action": "accept", "content": content })
        }
        Some(_) => json!({ "action": "decline" }),
        None => json!({ "action": "cancel" }),
    }
}

/// The value of one field; none inside where it is left out, none at all where input has ended.
fn answer_for(name: &str, field: &Value, is_needed: bool) -> Option<Option<Value>> {
    let title = field["title"].as_str().or(field["description"].as_str()).unwrap_or(name);
    let choices: Vec<String> = ["enum", "oneOf"]
        .iter()
        .filter_map(|key| field[key].as_array())
        .flatten()
        .filter_map(|choice| choice.as_str().or(choice["const"].as_str()).map(str::to_owned))
        .collect();
    let kind = if choices.is_empty() {
        field["type"].as_str().unwrap_or("string").to_owned()
    } else {
        choices.join(" | ")
    };
    let default = field.get("default");
    let shown = default.map_or_else(String::new, |default| format!(" [{default}]"));
    loop {
        let answer = line(&format!("{} ({}){}: ", escaped(title), escaped(&kind), escaped(&shown)))?;
        if answer.is_empty() {
            match default {
                Some(default) => return Some(Some(default.clone())),
                None if !is_needed => return Some(None),
                None => {
                    say("this is needed; end the input to cancel\n");
                    continue;
                }
            }
        }
        let value = match field["type"].as_str() {
            Some("number" | "integer" | "boolean") => {
                serde_json::from_str(&answer).ok().filter(|value: &Value| {
                    value.is_boolean() == (field["type"] == "boolean")
                        && (value.is_boolean() || value.is_number())
                })
            }
            Some("array") => Some(answer.split(',').map(|part| Value::from(part.trim())).collect()),
            _ if !choices.is_empty() && !choices.contains(&answer) => None,
            _ => Some(Value::from(answer)),
        };
        match value {
            Some(value) => return Some(Some(value)),
            None => say(&format!("this has to be {}\n", escaped(&kind))),
        }
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes")
}

fn say(text: &str) {
    let _nobody_reads = io::stderr().write_all(text.as_bytes());
}

fn line(prompt: &str) -> Option<String> {
    say(prompt);
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(1..) => Some(line.trim().to_owned()),
        Ok(0) | Err(_) => None,
    }
}
