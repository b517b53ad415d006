//! The plain server: a handshake, two tools, one thing at a time. Most faulty servers are this with one vice.
//!
//! # Invariants
//!
//! - It is correct by the handshake revisions (2024-11-05 to 2025-11-25), answers in order and ends at the end of stdin.
//! - It answers `server/discover` with -32601, as the measured Node servers do (contract.md part 4).

use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::pipe::{self, ClientMessage};

/// The revisions that begin with `initialize`, newest first.
pub const HANDSHAKE_REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The one revision without a handshake.
pub const MODERN_REVISION: &str = "2026-07-28";

/// The code of the error for a revision that the server does not know.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// The code of the error for a method that the server does not have.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The code of the error for parameters that are wrong.
pub const INVALID_PARAMS: i64 = -32602;

/// The way in which a vice has handled a message.
pub enum MessageHandling {
    /// Nothing: the plain server deals with it.
    Plain,
    /// Everything: the plain server goes on to the next message.
    Done,
    /// The faulty server ends.
    Leave(ExitCode),
}

/// A plain server under the name of its faulty server.
pub struct Plain {
    name: &'static str,
    tools: Vec<String>,
}

impl Plain {
    /// Builds a server with the tools `echo` and `pid`.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, tools: vec!["echo".to_owned(), "pid".to_owned()] }
    }

    /// Adds a tool that does nothing but say so.
    pub fn with_tool(mut self, tool: &str) -> Self {
        self.tools.push(tool.to_owned());
        self
    }

    /// Serves until stdin ends; `vice` sees every message first.
    pub fn serve(
        &self,
        mut vice: impl FnMut(&ClientMessage) -> io::Result<MessageHandling>,
    ) -> io::Result<ExitCode> {
        while let Some(message) = pipe::receive()? {
            match vice(&message)? {
                MessageHandling::Plain => {
                    self.answer(&message).map_or(Ok(()), |answer| pipe::send(&answer))?;
                }
                MessageHandling::Done => {}
                MessageHandling::Leave(code) => return Ok(code),
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Serves until stdin ends; `deliver` writes each answer to a `tools/call` in its own way.
    pub fn serve_calls(
        &self,
        mut deliver: impl FnMut(&ClientMessage, Value) -> io::Result<()>,
    ) -> io::Result<ExitCode> {
        self.serve(|message| match self.answer(message) {
            Some(answer) if message.is_call() => deliver(message, answer).map(|()| MessageHandling::Done),
            _ => Ok(MessageHandling::Plain),
        })
    }

    /// Returns the correct response, `None` where none is due.
    pub fn answer(&self, message: &ClientMessage) -> Option<Value> {
        if !message.is_request() {
            return None;
        }
        let id = message.id();
        Some(match message.method() {
            "initialize" => pipe::result(id, self.introduction(message)),
            "ping" => pipe::result(id, json!({})),
            "tools/list" => pipe::result(id, self.tools()),
            "tools/call" => self.call(message),
            method => pipe::error(id, METHOD_NOT_FOUND, &format!("Method not found: {method}")),
        })
    }

    fn introduction(&self, message: &ClientMessage) -> Value {
        json!({
            "protocolVersion": settle_revision(message),
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": self.name, "version": env!("CARGO_PKG_VERSION")},
        })
    }

    fn tools(&self) -> Value {
        let tools: Vec<_> = self
            .tools
            .iter()
            .map(|name| {
                json!({
                    "name": name,
                    "description": format!("The tool `{name}` of the program `{}`", self.name),
                    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
                    "annotations": {"readOnlyHint": true},
                })
            })
            .collect();
        json!({"tools": tools})
    }

    fn call(&self, message: &ClientMessage) -> Value {
        let (id, tool) = (message.id(), message.tool());
        if !self.tools.iter().any(|known| known == tool) {
            return pipe::error(id, INVALID_PARAMS, &format!("Unknown tool: {tool}"));
        }
        let text = match tool {
            "echo" => message.argument("text").as_str().unwrap_or("nothing to echo").to_owned(),
            "pid" => std::process::id().to_string(),
            other => format!("`{other}` was called"),
        };
        pipe::result(id, pipe::text(&text))
    }
}

/// Returns the revision for the answer to an `initialize`: the client's own if it has a handshake, else the newest that has.
pub fn settle_revision(message: &ClientMessage) -> &str {
    let requested = message.params()["protocolVersion"].as_str().unwrap_or_default();
    HANDSHAKE_REVISIONS.into_iter().find(|known| *known == requested).unwrap_or(HANDSHAKE_REVISIONS[0])
}
