//! Everything that is listed and read: tools, resources, templates, prompts and completions.
//!
//! # Invariants
//!
//! - Lists are sorted and always the same, whole or in pages.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::bounded_waits::lock;
use crate::pipe::ClientMessage;
use crate::plain_server::INVALID_PARAMS;

use super::eras::{RequestRules, no_such_resource};
use super::{HandlerOutcome, WellBehavedServer, tools};

/// The resources are `zoo://numbers/1` to this.
const NUMBERS: u32 = 5;
const PREFIX: &str = "zoo://numbers/";

/// Answers a request about something listed; `None` when it is about something else.
pub fn answer(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
) -> Option<HandlerOutcome> {
    let params = message.params();
    Some(match message.method() {
        "tools/list" => page(server, message, "tools", &tools::descriptions()),
        "resources/list" => page(server, message, "resources", &resources()),
        "resources/templates/list" => page(server, message, "resourceTemplates", &templates()),
        "prompts/list" => page(server, message, "prompts", &prompts()),
        "resources/read" => read(params["uri"].as_str().unwrap_or_default(), era),
        "resources/subscribe" | "resources/unsubscribe" => subscribe(server, message, era),
        "prompts/get" => prompt(params),
        "completion/complete" => complete(params),
        _ => return None,
    })
}

/// Cuts a list into pages when the server was told to; the cursor is the index of the first item.
pub fn page(
    server: &WellBehavedServer,
    message: &ClientMessage,
    key: &str,
    items: &[Value],
) -> HandlerOutcome {
    let start = match &message.params()["cursor"] {
        Value::Null => Some(0),
        cursor => cursor.as_str().and_then(|text| text.parse().ok()).filter(|start| *start < items.len()),
    };
    let Some(start) = start else {
        return HandlerOutcome::error(INVALID_PARAMS, "Invalid cursor");
    };
    let end = start.saturating_add(server.page).min(items.len());
    let mut result = json!({key: items[start..end]});
    if end < items.len() {
        result["nextCursor"] = json!(end.to_string());
    }
    HandlerOutcome::Result(result)
}

fn resources() -> Vec<Value> {
    let describe = |number| json!({"uri": format!("{PREFIX}{number}"), "name": format!("number {number}"), "mimeType": "text/plain"});
    (1..=NUMBERS).map(describe).collect()
}

fn templates() -> Vec<Value> {
    vec![json!({"uriTemplate": "zoo://numbers/{number}", "name": "number", "mimeType": "text/plain"})]
}

fn prompts() -> Vec<Value> {
    let arguments = json!([{"name": "name", "description": "Whom to greet", "required": true}]);
    vec![
        json!({"name": "farewell", "description": "Says goodbye"}),
        json!({"name": "greeting", "description": "Greets somebody", "arguments": arguments}),
    ]
}

fn exists(uri: &str) -> bool {
    uri.strip_prefix(PREFIX)
        .and_then(|number| number.parse().ok())
        .is_some_and(|number: u32| (1..=NUMBERS).contains(&number))
}

fn read(uri: &str, era: &RequestRules) -> HandlerOutcome {
    if !exists(uri) {
        return no_such_resource(era, uri);
    }
    let text = format!("The number {}", &uri[PREFIX.len()..]);
    HandlerOutcome::Result(json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}))
}

fn subscribe(server: &WellBehavedServer, message: &ClientMessage, era: &RequestRules) -> HandlerOutcome {
    let uri = message.params()["uri"].as_str().unwrap_or_default();
    if !exists(uri) {
        return no_such_resource(era, uri);
    }
    let subscriptions = &mut lock(&server.session).subscriptions;
    if message.method() == "resources/subscribe" {
        subscriptions.insert(uri.to_owned());
    } else {
        subscriptions.remove(uri);
    }
    HandlerOutcome::Result(json!({}))
}

fn prompt(params: &Value) -> HandlerOutcome {
    let text = match (params["name"].as_str(), params["arguments"]["name"].as_str()) {
        (Some("farewell"), _) => "Goodbye".to_owned(),
        (Some("greeting"), Some(name)) => format!("Hello, {name}"),
        (Some("greeting"), None) => return HandlerOutcome::error(INVALID_PARAMS, "Missing argument: name"),
        _ => return HandlerOutcome::error(INVALID_PARAMS, "Unknown prompt"),
    };
    HandlerOutcome::Result(json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}))
}

fn complete(params: &Value) -> HandlerOutcome {
    const NAMES: [&str; 3] = ["ada", "alan", "grace"];
    let typed = params["argument"]["value"].as_str().unwrap_or_default();
    let values: Vec<_> = NAMES.into_iter().filter(|name| name.starts_with(typed)).collect();
    HandlerOutcome::Result(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
}
