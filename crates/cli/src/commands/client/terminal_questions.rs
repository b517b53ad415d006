//! The person in front of the terminal, as far as servers may talk to them.
//!
//! Invariants: without a terminal nobody is asked, and the server gets the answer that its question was declined. Text from a server cannot
//! steer the terminal.

use std::{
    future::Future,
    io::{self, BufRead, IsTerminal},
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::{Map, Value, json, value::RawValue};
use tokio::{sync::Mutex, task::spawn_blocking};
use unhang::{
    client::{ListenerAnswer, ServerListener, declined},
    wording::is_round,
};
use unhang_terminal::{output, progress, text::escaped};

use super::elicitation_form::FormQuestion;

/// The lock that is held while a person is asked.
static TERMINAL: Mutex<()> = Mutex::const_new(());

/// The JSON-RPC error for a question that cannot be read.
const INVALID_PARAMS: i32 = -32602;

/// Returns whether a question occupies the terminal.
pub(super) fn is_asking() -> bool {
    TERMINAL.try_lock().is_err()
}

/// The listener that receives a server's messages and answers its questions, at the terminal if there is one.
pub(super) struct TerminalUser {
    server: String,
    /// The number of questions that were declined because there is no terminal.
    declined: AtomicU64,
}

impl TerminalUser {
    pub(super) fn new(server: &str) -> Self {
        Self { server: server.to_owned(), declined: AtomicU64::default() }
    }
}

impl ServerListener for TerminalUser {
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
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        let server = self.server.clone();
        let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        let is_declined = method == "elicitation/create" && !is_terminal;
        let declined_before = self.declined.fetch_add(u64::from(is_declined), Ordering::Relaxed);
        Box::pin(async move {
            if method != "elicitation/create" {
                return Err(declined(&method));
            }
            if is_declined {
                let count = declined_before + 1;
                if is_round(count) {
                    let times = if count == 1 { String::new() } else { format!(" {count} times") };
                    tracing::warn!(
                        "`{server}` asks for input{times}, but there is no terminal for the question; \
                         unhang declined it"
                    );
                }
                return Ok(json!({ "action": "decline" }));
            }
            let params = params.map_or_else(|| "{}".to_owned(), |params| params.get().to_owned());
            let question: FormQuestion = serde_json::from_str(&params)
                .map_err(|error| (INVALID_PARAMS, format!("the question cannot be read: {error}")))?;
            // One question at a time, whichever server asks.
            let _turn = TERMINAL.lock().await;
            // The person may take their time. If the thread panicked, that has been reported.
            let asked = spawn_blocking(move || ask(&server, &question)).await;
            Ok(asked.unwrap_or_else(|_| json!({ "action": "cancel" })))
        })
    }
}

/// Asks a person, line by line. The end of input cancels.
fn ask(server: &str, question: &FormQuestion) -> Value {
    progress::end();
    say(&format!("\n`{}` asks: {}\n", escaped(server), escaped(&question.message)));
    let content = match &question.url {
        Some(url) => {
            say(&format!("open {} and come back\n", escaped(url)));
            None
        }
        None => match filled_in(question) {
            Some(content) => Some(content),
            None => return json!({ "action": "cancel" }),
        },
    };
    let answer = line(if content.is_some() { "send this? [Y/n] " } else { "done? [y/N] " });
    match (answer, content) {
        (None, _) => json!({ "action": "cancel" }),
        (Some(answer), Some(content)) if answer.is_empty() || is_yes(&answer) => {
            json!({ "action": "accept", "content": content })
        }
        (Some(answer), None) if is_yes(&answer) => json!({ "action": "accept" }),
        (Some(_), _) => json!({ "action": "decline" }),
    }
}

/// Asks for each field, and returns the values. Returns `None` if the input ended.
fn filled_in(question: &FormQuestion) -> Option<Map<String, Value>> {
    let mut content = Map::new();
    for field in question.fields() {
        let value = loop {
            match field.value(&line(&escaped(&field.prompt()))?) {
                Ok(value) => break value,
                Err(why) => say(&format!("{}\n", escaped(&why))),
            }
        };
        content.extend(value.map(|value| (field.name, value)));
    }
    Some(content)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes")
}

fn say(text: &str) {
    output::say(text);
}

fn line(prompt: &str) -> Option<String> {
    say(prompt);
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(1..) => Some(line.trim().to_owned()),
        Ok(0) | Err(_) => None,
    }
}
