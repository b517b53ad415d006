//! The official example messages, translated.
//!
//! Invariants: what is translated is valid to whoever gets it; there and back again it means the same.

use serde_json::{Value, json};
use unhang_bridge::{
    error, notification,
    params::{self, Signature},
    result,
};
use unhang_wire::Id;

use crate::schemas::{LEGACY, MODERN, NEWEST, assert_valid, examples, raw, value};

/// What a client asks, by the name of its type.
const REQUESTS: [&str; 8] = [
    "CallToolRequest",
    "CompleteRequest",
    "GetPromptRequest",
    "ListPromptsRequest",
    "ListResourceTemplatesRequest",
    "ListResourcesRequest",
    "ListToolsRequest",
    "ReadResourceRequest",
];

/// What it is answered, and the method.
const RESULTS: [(&str, &str); 8] = [
    ("CallToolResult", "tools/call"),
    ("CompleteResult", "completion/complete"),
    ("GetPromptResult", "prompts/get"),
    ("ListPromptsResult", "prompts/list"),
    ("ListResourceTemplatesResult", "resources/templates/list"),
    ("ListResourcesResult", "resources/list"),
    ("ListToolsResult", "tools/list"),
    ("ReadResourceResult", "resources/read"),
];

/// A message without white space between its members, in the order of their names.
fn plain(text: &str) -> String {
    value(text).to_string()
}

fn signature() -> Signature {
    Signature {
        revision: MODERN,
        client_info: r#"{"name":"golden","version":"1"}"#.to_owned(),
        client_capabilities: "{}".to_owned(),
        log_level: Some("info".to_owned()),
    }
}

/// The whole of a request with other params.
fn with_params(request: &Value, params: Option<&str>) -> Value {
    let mut request = request.clone();
    match params {
        Some(params) => request["params"] = value(params),
        None => drop(request.as_object_mut().expect("a request").remove("params")),
    }
    request
}

#[test]
fn the_examples_are_examples() {
    for kind in REQUESTS.into_iter().chain(RESULTS.map(|(kind, _)| kind)) {
        for (_, text) in examples(kind) {
            assert_valid(MODERN, kind, &value(&text));
        }
    }
}

#[test]
fn a_request_of_a_modern_client_is_one_to_every_legacy_server() {
    for kind in REQUESTS {
        for (_, text) in examples(kind) {
            let request = value(&text);
            let sent = raw(&text).member("params");
            let legacy = params::to_legacy(sent);
            for revision in LEGACY {
                assert_valid(revision, kind, &with_params(&request, legacy.as_deref()));
            }
            let back = params::to_modern(legacy.as_deref().map(raw), &signature());
            assert_valid(MODERN, kind, &with_params(&request, Some(&back)));
            // There and back, it has lost nothing but who asks.
            let twice = params::to_legacy(Some(raw(&back))).expect("params");
            assert_eq!(plain(&twice), plain(legacy.as_deref().unwrap_or("{}")), "{kind}");
        }
    }
}

#[test]
fn a_result_of_a_modern_server_is_one_to_every_legacy_client() {
    for (kind, method) in RESULTS {
        for (_, text) in examples(kind) {
            let legacy = result::to_legacy(method, raw(&text)).expect("an object");
            for revision in LEGACY {
                assert_valid(revision, kind, &value(&legacy));
            }
            let modern = result::to_modern(method, raw(&legacy), Some(r#"{"name":"s","version":"1"}"#));
            assert_valid(MODERN, kind, &value(&modern.expect("an object")));
        }
    }
}

#[test]
fn an_error_is_one_to_everybody() {
    for kind in [
        "HeaderMismatchError",
        "InternalError",
        "InvalidParamsError",
        "MethodNotFoundError",
        "MissingRequiredClientCapabilityError",
        "UnsupportedProtocolVersionError",
    ] {
        for (_, text) in examples(kind) {
            let whole = value(&text);
            let error = if whole.get("error").is_some() { whole["error"].to_string() } else { text.clone() };
            for method in ["tools/call", "resources/read"] {
                let legacy = error::to_legacy(method, raw(&error)).expect("an error");
                let code = value(&legacy)["code"].as_i64().expect("a code");
                assert!(!(-32099..=-32020).contains(&code), "{kind}: {code} is of 2026-07-28");
                for revision in LEGACY {
                    let answer = json!({ "jsonrpc": "2.0", "id": 1, "error": value(&legacy) });
                    let name = if revision == NEWEST { "JSONRPCErrorResponse" } else { "JSONRPCError" };
                    assert_valid(revision, name, &answer);
                }
            }
        }
    }
}

#[test]
fn a_notification_is_one_to_everybody() {
    for kind in [
        "PromptListChangedNotification",
        "ResourceListChangedNotification",
        "ResourceUpdatedNotification",
        "ToolListChangedNotification",
    ] {
        for (_, text) in examples(kind) {
            let notification = value(&text);
            let sent = raw(&text).member("params");
            for revision in LEGACY {
                assert_valid(
                    revision,
                    kind,
                    &with_params(&notification, notification::to_legacy(sent).as_deref()),
                );
            }
            let under = notification::under(sent, &Id::from("listen-1"));
            let modern = with_params(&notification, Some(&under));
            assert_valid(MODERN, kind, &modern);
            assert_eq!(modern["params"]["_meta"][notification::SUBSCRIPTION_ID], "listen-1");
        }
    }
}
