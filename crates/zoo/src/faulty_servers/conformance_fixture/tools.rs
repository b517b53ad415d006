//! The tools of the fixture, and what those answer that ask nothing.
//!
//! # Invariants
//!
//! - The list is sorted, and shorter by one tool at every other change.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::{
    bounded_waits,
    pipe::{self, ClientMessage},
};

use crate::faulty_servers::well_behaved::eras::RequestRules;
use crate::faulty_servers::well_behaved::tools::{ListedTool, beside, describe, failure, refusal, tool};
use crate::faulty_servers::well_behaved::{HandlerOutcome, WellBehavedServer};
use crate::tasks::plan::TaskTool;

use super::{PNG, listings, rounds, works};

/// How long the suite wants tools that report to take between two reports.
const STEP: Duration = Duration::from_millis(50);

/// A sound of one sample.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

/// The tool whose schema is the thing about it.
const WITH_SCHEMA: &str = "json_schema_2020_12_tool";

/// The tool with an argument that is mirrored in a header (SEP-2243).
const MIRRORED: &str = "test_mirrored_argument";

/// The tool that is there after every other change.
const CHANGING: &str = "test_changing_tool";

/// Whether that tool is there.
static IS_LONGER: AtomicBool = AtomicBool::new(false);

const TOOLS: &[ListedTool] = &[
    tool("test_audio_content", "Returns a sound", &[], true),
    tool(CHANGING, "Comes and goes with every change of the tools", &[], true),
    tool("test_elicitation", "Asks the user for a name and an address", &[("message", "string")], false),
    tool("test_elicitation_sep1034_defaults", "Asks the user for values with defaults", &[], false),
    tool("test_elicitation_sep1330_enums", "Asks the user to choose in five ways", &[], false),
    tool("test_embedded_resource", "Returns a resource", &[], true),
    tool("test_error_handling", "Returns a result that is an error", &[], true),
    tool("test_image_content", "Returns an image", &[], true),
    tool("test_input_required_result_capabilities", "Asks only for what the client can do", &[], false),
    tool("test_input_required_result_elicitation", "Asks for a name", &[], false),
    tool("test_input_required_result_list_roots", "Asks for the roots", &[], false),
    tool("test_input_required_result_multi_round", "Asks twice, one after the other", &[], false),
    tool("test_input_required_result_multiple_inputs", "Asks for three things at once", &[], false),
    tool("test_input_required_result_request_state", "Asks, and wants its state back", &[], false),
    tool("test_input_required_result_sampling", "Asks for a model's answer", &[], false),
    tool(
        "test_input_required_result_tampered_state",
        "Asks, and refuses a state that is not its own",
        &[],
        false,
    ),
    tool("test_logging_tool", "Logs where that is wanted", &[], true),
    tool("test_missing_capability", "Works for clients that sample only", &[], true),
    tool("test_multiple_content_types", "Returns a text, an image and a resource", &[], true),
    tool("test_reconnection", "Returns a text, on whichever way its answer comes", &[], true),
    tool("test_sampling", "Asks for a model's answer to a prompt", &[("prompt", "string")], false),
    tool("test_simple_text", "Returns a text", &[], true),
    tool("test_streaming_elicitation", "Asks for a name while its answer is a stream", &[], false),
    tool("test_tool_with_logging", "Logs three messages", &[], true),
    tool("test_tool_with_progress", "Reports progress three times", &[], true),
    tool("test_trigger_prompt_change", "Changes the prompts and announces that", &[], false),
    tool("test_trigger_tool_change", "Changes the tools and announces that", &[], false),
];

/// Returns the tools as `tools/list` shows them.
pub(super) fn descriptions() -> Vec<Value> {
    let is_longer = IS_LONGER.load(Ordering::Relaxed);
    let mut tools: Vec<_> =
        TOOLS.iter().filter(|tool| is_longer || tool.name != CHANGING).map(describe).collect();
    tools.extend([
        json!({
            "name": WITH_SCHEMA,
            "description": "Returns a text, and has a schema with all that there is in JSON Schema",
            "inputSchema": schema(),
        }),
        json!({
            "name": MIRRORED,
            "description": "Returns a text, and wants its argument in a header too where there are headers",
            "inputSchema": {
                "type": "object",
                "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
                "required": ["region"],
            },
        }),
    ]);
    tools.extend(works::all().iter().map(TaskTool::description));
    tools.sort_by_key(|tool| tool["name"].to_string());
    tools
}

/// Runs one `tools/call`.
pub(super) fn call(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
) -> HandlerOutcome {
    if let Some(plan) = works::all().iter().find(|plan| plan.tool == message.tool()) {
        return works::run(server, message, era, plan);
    }
    if let Some(refusal) =
        refusal(TOOLS, message).filter(|_| !matches!(message.tool(), WITH_SCHEMA | MIRRORED))
    {
        return refusal;
    }
    if let Some(asking) = rounds::of_tool(message.tool()) {
        return rounds::run(server, message, era, asking);
    }
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = || json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let resource = |uri: &str, kind: &str, text: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}});
    let content = match message.tool() {
        "test_audio_content" => vec![json!({"type": "audio", "data": WAV, "mimeType": "audio/wav"})],
        "test_embedded_resource" => {
            vec![resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
        }
        "test_error_handling" => {
            return HandlerOutcome::Result(failure("This tool intentionally returns an error for testing"));
        }
        "test_image_content" => vec![image()],
        "test_logging_tool" => return log(server, message, era, &["Logged where that is wanted"]),
        "test_multiple_content_types" => vec![
            text("Multiple content types test:"),
            image(),
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ],
        "test_tool_with_logging" => {
            let texts = ["Tool execution started", "Tool processing data", "Tool execution completed"];
            return log(server, message, era, &texts);
        }
        "test_tool_with_progress" => return progress(server, message),
        "test_trigger_prompt_change" => return change(server, "prompts", &listings::IS_LONGER),
        "test_trigger_tool_change" => return change(server, "tools", &IS_LONGER),
        _ => vec![text("This is a simple text response for testing.")],
    };
    HandlerOutcome::Result(json!({"content": content, "isError": false}))
}

/// Returns the schema that the suite wants to see unchanged (SEP-1613, SEP-2106).
fn schema() -> Value {
    let text = json!({"type": "string"});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": text, "city": text},
        }},
        "properties": {
            "name": text,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": text,
            "email": text,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

/// Does one thing after the other beside all other requests, with a step of time between two.
fn stepwise<T: Send + 'static>(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    things: Vec<T>,
    report: impl Fn(&T) -> io::Result<()> + Send + 'static,
) -> HandlerOutcome {
    beside(server, message, move |_, _| {
        for (number, thing) in things.iter().enumerate() {
            if number > 0 {
                bounded_waits::pause(STEP);
            }
            report(thing).ok()?;
        }
        Some(pipe::text("Tool execution completed"))
    })
}

fn log(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
    texts: &[&'static str],
) -> HandlerOutcome {
    let is_logged = era.wants_log(message);
    stepwise(
        server,
        message,
        texts.to_vec(),
        move |text| {
            if is_logged { pipe::send(&pipe::log(text)) } else { Ok(()) }
        },
    )
}

fn progress(server: &Arc<WellBehavedServer>, message: &ClientMessage) -> HandlerOutcome {
    let token = message.progress_token().clone();
    stepwise(server, message, vec![0, 50, 100], move |done| {
        if token.is_null() { Ok(()) } else { pipe::send(&pipe::progress(&token, *done, 100)) }
    })
}

/// Changes a list and announces that.
fn change(server: &WellBehavedServer, kind: &str, is_longer: &AtomicBool) -> HandlerOutcome {
    is_longer.fetch_not(Ordering::Relaxed);
    let method = format!("notifications/{kind}/list_changed");
    match server.announce(&method, &format!("{kind}ListChanged"), &json!({})) {
        Ok(()) => HandlerOutcome::Result(pipe::text("changed and announced")),
        Err(error) => HandlerOutcome::Result(failure(&format!("announcing: {error}"))),
    }
}
