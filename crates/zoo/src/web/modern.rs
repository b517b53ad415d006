//! Streamable HTTP without sessions, as of 2026-07-28: every request says all, in its body and in its headers.
//!
//! # Invariants
//!
//! - What headers say is compared with the body before anything else is done: -32020 where they differ.
//! - An unknown method gets 404 with -32601; GET and DELETE get 405.

use std::io;

use serde_json::{Value, json};
use unhang_demo_servers::{
    pipe::{self, ClientMessage},
    plain_server::{INVALID_PARAMS, METHOD_NOT_FOUND, MODERN_REVISION, Plain, UNSUPPORTED_VERSION},
};

use super::sessions::{WAIT, stream};
use super::wire::Wire;
use super::{Then, WebRequest};

pub(crate) const HEADER_MISMATCH: i64 = -32020;

/// A server without sessions.
pub(crate) struct StatelessWebServer {
    plain: Plain,
    streams: bool,
}

impl StatelessWebServer {
    pub(crate) fn new(name: &'static str, streams: bool) -> Self {
        Self { plain: Plain::new(name).with_tool(WAIT), streams }
    }

    /// Deals with a request as it should be dealt with.
    pub(crate) fn serve(&self, asked: &WebRequest, wire: &mut Wire) -> io::Result<Then> {
        if !asked.is_post() {
            return wire.status(405).map(|()| Then::Next);
        }
        let message = &asked.message;
        if !message.is_request() {
            return wire.status(400).map(|()| Then::Next);
        }
        if let Some((status, refusal)) = refusal(asked) {
            return wire.json(status, &[], &refusal).map(|()| Then::Next);
        }
        if message.is_call() && message.tool() == WAIT {
            wire.begin_events(&[])?;
            wire.wait_for_the_end();
            return Ok(Then::HangUp);
        }
        let Some(response) = self.response(message) else {
            let text = format!("Method not found: {}", message.method());
            return wire
                .json(404, &[], &pipe::error(message.id(), METHOD_NOT_FOUND, &text))
                .map(|()| Then::Next);
        };
        if self.streams { stream(asked, wire, &[], &response) } else { wire.json(200, &[], &response) }?;
        Ok(Then::Next)
    }

    /// Returns the correct response to a request; `None` for an unknown method.
    pub(crate) fn response(&self, message: &ClientMessage) -> Option<Value> {
        let mut response = match message.method() {
            "server/discover" => pipe::result(
                message.id(),
                json!({"supportedVersions": [MODERN_REVISION], "capabilities": {"tools": {}}}),
            ),
            "tools/list" | "tools/call" => self.plain.answer(message)?,
            _ => return None,
        };
        if message.method() == "tools/list" {
            annotate(&mut response["result"]["tools"][0], "region", "Region");
        }
        if !response["result"].is_null() {
            response["result"]["resultType"] = json!("complete");
        }
        if message.method() != "tools/call" {
            response["result"]["ttlMs"] = json!(0);
            response["result"]["cacheScope"] = json!("private");
        }
        Some(response)
    }
}

/// Gives a tool an argument that goes along as a header.
pub(crate) fn annotate(tool: &mut Value, argument: &str, header: &str) {
    tool["inputSchema"]["properties"][argument] = json!({"type": "string", "x-mcp-header": header});
}

/// Builds the error for a header that does not say what the body says.
pub(crate) fn mismatch(message: &ClientMessage, header: &str) -> Value {
    pipe::error(message.id(), HEADER_MISMATCH, &format!("Header mismatch: {header}"))
}

/// A value as a header has it: as it is, or in base64 where a header cannot hold it.
fn encoded(value: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return value.to_owned();
    }
    let mut text = String::new();
    for bytes in value.as_bytes().chunks(3) {
        let byte = |index: usize| u32::from(bytes.get(index).copied().unwrap_or_default());
        let number = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * index)) as usize & 63];
            text.push(if index > bytes.len() { '=' } else { char::from(digit) });
        }
    }
    format!("=?base64?{text}?=")
}

/// What is wrong with a request, and the status for that.
pub(crate) fn refusal(asked: &WebRequest) -> Option<(u16, Value)> {
    let message = &asked.message;
    let meta = &message.params()["_meta"];
    let version = &meta["io.modelcontextprotocol/protocolVersion"];
    if version.is_null() || meta["io.modelcontextprotocol/clientCapabilities"].is_null() {
        return Some((400, pipe::error(message.id(), INVALID_PARAMS, "`_meta` lacks what it must have")));
    }
    let name = match message.method() {
        "tools/call" | "prompts/get" => message.params()["name"].as_str(),
        "resources/read" => message.params()["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => message.params()["taskId"].as_str(),
        _ => None,
    };
    let region = message.argument("region").as_str().filter(|_| message.tool() == "echo");
    for (header, expected) in [
        ("mcp-protocol-version", version.as_str()),
        ("mcp-method", Some(message.method())),
        ("mcp-name", name),
        ("mcp-param-region", region),
    ] {
        if asked.header(header) != expected.map(encoded).as_deref() {
            return Some((400, mismatch(message, header)));
        }
    }
    (version != MODERN_REVISION).then(|| {
        let mut error = pipe::error(message.id(), UNSUPPORTED_VERSION, "Unsupported protocol version");
        error["error"]["data"] = json!({"supported": [MODERN_REVISION], "requested": version});
        (400, error)
    })
}
