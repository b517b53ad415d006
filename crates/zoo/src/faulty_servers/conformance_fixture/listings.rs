//! The resources, templates, prompts and completions of the fixture.
//!
//! # Invariants
//!
//! - What cannot be read can be subscribed to as little.
//! - The prompts are sorted, and one fewer after every other change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use unhang_demo_servers::{bounded_waits::lock, pipe::ClientMessage, plain_server::INVALID_PARAMS};

use crate::faulty_servers::well_behaved::eras::{RequestRules, no_such_resource};
use crate::faulty_servers::well_behaved::listings::page;
use crate::faulty_servers::well_behaved::{HandlerOutcome, WellBehavedServer};

use super::{PNG, rounds, tools};

/// The prompt that is there after every other change.
const CHANGING: &str = "test_changing_prompt";

/// Whether that prompt is there.
pub(super) static IS_LONGER: AtomicBool = AtomicBool::new(false);

/// Answers a request about something listed; `None` when it is about something else.
pub(super) fn answer(
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
        "prompts/get" => prompt(server, message, era),
        "completion/complete" => complete(params),
        _ => return None,
    })
}

fn resources() -> Vec<Value> {
    vec![
        json!({"uri": "test://static-binary", "name": "static-binary", "description": "An image", "mimeType": "image/png"}),
        json!({"uri": "test://static-text", "name": "static-text", "description": "A text", "mimeType": "text/plain"}),
        json!({"uri": "test://watched-resource", "name": "watched-resource", "description": "A text to subscribe to", "mimeType": "text/plain"}),
    ]
}

fn templates() -> Vec<Value> {
    vec![
        json!({"uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data by id", "mimeType": "application/json"}),
    ]
}

fn prompts() -> Vec<Value> {
    let argument = |name, description| json!({"name": name, "description": description, "required": true});
    let mut prompts = vec![
        json!({"name": CHANGING, "description": "Comes and goes with every change of the prompts"}),
        json!({"name": rounds::PROMPT, "description": "Asks for context before it is complete"}),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "Repeats its arguments",
            "arguments": [argument("arg1", "First test argument"), argument("arg2", "Second test argument")],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "Embeds a resource",
            "arguments": [argument("resourceUri", "URI of the resource to embed")],
        }),
        json!({"name": "test_prompt_with_image", "description": "Shows an image"}),
        json!({"name": "test_simple_prompt", "description": "Says one thing"}),
    ];
    prompts.retain(|prompt| prompt["name"] != CHANGING || IS_LONGER.load(Ordering::Relaxed));
    prompts
}

/// Returns what is at a URI, without the URI.
fn content(uri: &str) -> Option<Value> {
    let id = || uri.strip_prefix("test://template/")?.strip_suffix("/data").filter(|id| !id.contains('/'));
    Some(match uri {
        "test://static-binary" => json!({"mimeType": "image/png", "blob": PNG}),
        "test://static-text" => {
            json!({"mimeType": "text/plain", "text": "This is the content of the static text resource."})
        }
        "test://watched-resource" => json!({"mimeType": "text/plain", "text": "Watched resource content."}),
        _ => {
            let id = id()?;
            let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            json!({"mimeType": "application/json", "text": text.to_string()})
        }
    })
}

fn read(uri: &str, era: &RequestRules) -> HandlerOutcome {
    let Some(mut content) = content(uri) else {
        return no_such_resource(era, uri);
    };
    content["uri"] = json!(uri);
    HandlerOutcome::Result(json!({"contents": [content]}))
}

fn subscribe(server: &WellBehavedServer, message: &ClientMessage, era: &RequestRules) -> HandlerOutcome {
    let uri = message.params()["uri"].as_str().unwrap_or_default();
    if content(uri).is_none() {
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

fn prompt(server: &Arc<WellBehavedServer>, message: &ClientMessage, era: &RequestRules) -> HandlerOutcome {
    let name = message.params()["name"].as_str().unwrap_or_default();
    let text = |text: &str| json!({"type": "text", "text": text});
    let contents = match name {
        rounds::PROMPT => return rounds::run(server, message, era, rounds::prompt),
        "test_simple_prompt" | CHANGING => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => match (argument(message, "arg1"), argument(message, "arg2")) {
            (Ok(one), Ok(two)) => vec![text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))],
            (Err(refusal), _) | (_, Err(refusal)) => return refusal,
        },
        "test_prompt_with_embedded_resource" => match argument(message, "resourceUri") {
            Ok(uri) => {
                let resource = json!({"uri": uri, "mimeType": "text/plain", "text": "Embedded resource content for testing."});
                vec![
                    json!({"type": "resource", "resource": resource}),
                    text("Please process the embedded resource above."),
                ]
            }
            Err(refusal) => return refusal,
        },
        "test_prompt_with_image" => vec![
            json!({"type": "image", "data": PNG, "mimeType": "image/png"}),
            text("Please analyze the image above."),
        ],
        _ => return HandlerOutcome::error(INVALID_PARAMS, &format!("Unknown prompt: {name}")),
    };
    HandlerOutcome::Result(messages(contents))
}

/// Builds the result of a prompt whose user says this.
pub(super) fn messages(contents: Vec<Value>) -> Value {
    let messages: Vec<_> =
        contents.into_iter().map(|content| json!({"role": "user", "content": content})).collect();
    json!({"messages": messages})
}

fn argument<'a>(message: &'a ClientMessage, name: &str) -> Result<&'a str, HandlerOutcome> {
    let refuse = || HandlerOutcome::error(INVALID_PARAMS, &format!("Missing argument: {name}"));
    message.argument(name).as_str().ok_or_else(refuse)
}

fn complete(params: &Value) -> HandlerOutcome {
    const VALUES: [&str; 3] = ["paris", "park", "party"];
    let typed = params["argument"]["value"].as_str().unwrap_or_default();
    let values: Vec<_> = VALUES.into_iter().filter(|value| value.starts_with(typed)).collect();
    HandlerOutcome::Result(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
}
