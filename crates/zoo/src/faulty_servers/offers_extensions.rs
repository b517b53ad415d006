//! Offers what extensions of the protocol add: views (MCP Apps), skills (SEP-2640), and resources that it does not list.
//!
//! # Invariants
//!
//! - It serves both eras side by side, and has each resource that it is asked for, under the schemes that it knows.
//! - What it says of a resource names the server and the URI, so that a test sees who was asked for what.

use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe::{self, ClientMessage},
    plain_server::{INVALID_PARAMS, MessageHandling, Plain},
};

use super::era_locked::modernized;
use unhang_demo_servers::faulty_servers::well_behaved::eras::CLIENT_CAPABILITIES;
use unhang_demo_servers::plain_server::{METHOD_NOT_FOUND, MODERN_REVISION, settle_revision};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "offers-extensions",
    incident: "Stands for no incident: what works directly has to work through a gateway, extensions included (SEP-1865, SEP-2640).",
    usage: "[--name NAME] [--template TEMPLATE]",
    promises: &[],
    run,
};

/// The schemes of its resources.
const SCHEMES: [&str; 3] = ["demo://", "ui://", "skill://"];

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let name = arguments.option("name")?.unwrap_or(PROGRAM.name).to_owned();
    let template = arguments.option("template")?;
    let templates: Vec<Value> =
        template.iter().map(|template| json!({"uriTemplate": template, "name": "template"})).collect();
    let mut declared = Value::Null;
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_request() {
            return Ok(MessageHandling::Done);
        }
        if message.method() == "initialize" {
            declared = message.params()["capabilities"].clone();
        }
        let meta = &message.params()["_meta"][CLIENT_CAPABILITIES];
        let client = if meta.is_null() { &declared } else { meta };
        let answered = match answer(&name, message, client, &templates) {
            Ok(result) => pipe::result(message.id(), result),
            Err((code, text)) => pipe::error(message.id(), code, &text),
        };
        let answered = if meta.is_null() { answered } else { modernized(answered) };
        pipe::send(&answered).map(|()| MessageHandling::Done)
    })
}

fn answer(
    name: &str,
    message: &ClientMessage,
    client: &Value,
    templates: &[Value],
) -> Result<Value, (i64, String)> {
    let uri = message.params()["uri"].as_str().unwrap_or_default();
    let having = |result: Value| match SCHEMES.iter().any(|scheme| uri.starts_with(scheme)) {
        true => Ok(result),
        false => Err((INVALID_PARAMS, format!("`{name}` has no {uri}"))),
    };
    match message.method() {
        "initialize" => Ok(json!({
            "protocolVersion": settle_revision(message), "capabilities": capabilities(),
            "serverInfo": {"name": name, "version": "1"},
        })),
        "server/discover" => {
            Ok(json!({"supportedVersions": [MODERN_REVISION], "capabilities": capabilities()}))
        }
        "ping" | "resources/subscribe" | "resources/unsubscribe" => Ok(json!({})),
        "tools/list" => Ok(json!({"tools": tools()})),
        "tools/call" => call(name, message, client),
        "resources/list" => Ok(json!({"resources": []})),
        "resources/templates/list" => Ok(json!({"resourceTemplates": templates})),
        "resources/read" => having(json!({"contents": [{"uri": uri, "text": format!("{name} has {uri}")}]})),
        "resources/directory/read" => having(json!({"resources": [
            {"uri": format!("{uri}/SKILL.md"), "name": "SKILL.md", "mimeType": "text/markdown"},
        ]})),
        "skills/list" => Ok(json!({"skills": [skill("skill://refunds"), skill(&format!("skill://{name}"))]})),
        "skills/get" => having(json!({"skill": skill(uri.trim_end_matches("/SKILL.md"))})),
        method => Err((METHOD_NOT_FOUND, format!("Method not found: {method}"))),
    }
}

fn capabilities() -> Value {
    json!({
        "tools": {}, "resources": {"subscribe": true},
        "extensions": {
            "io.modelcontextprotocol/ui": {},
            "io.modelcontextprotocol/skills": {"directoryRead": true},
        },
    })
}

fn tools() -> Vec<Value> {
    let tool =
        |name: &str, meta: Value| json!({"name": name, "inputSchema": {"type": "object"}, "_meta": meta});
    vec![
        tool("link", json!({})),
        tool("declared", json!({})),
        tool("show", json!({"ui": {"resourceUri": "ui://clock/view"}})),
        tool("redraw", json!({"ui": {"resourceUri": "ui://clock/view", "visibility": ["app"]}})),
    ]
}

fn call(name: &str, message: &ClientMessage, client: &Value) -> Result<Value, (i64, String)> {
    match message.tool() {
        "link" => {
            let uri = message.argument("uri").as_str().unwrap_or("demo://unlisted");
            Ok(json!({"content": [{"type": "resource_link", "uri": uri, "name": "linked"}]}))
        }
        "declared" => Ok(pipe::text(&client["extensions"].to_string())),
        "show" | "redraw" => {
            let mut result = pipe::text(&format!("{name} does it"));
            result["_meta"] =
                json!({"ui": {"resourceUri": "ui://clock/view"}, "ui/resourceUri": "ui://clock/view"});
            Ok(result)
        }
        other => Err((INVALID_PARAMS, format!("Unknown tool: {other}"))),
    }
}

fn skill(folder: &str) -> Value {
    let uri = format!("{folder}/SKILL.md");
    let name = folder.rsplit('/').next().unwrap_or_default();
    json!({
        "uri": uri, "frontmatter": {"name": name, "description": "A skill"},
        "resources": [{"uri": uri, "digest": format!("sha256:{}", "0".repeat(64)), "size": 1}],
    })
}
