//! Streamable HTTP with a session, as from 2025-03-26 to 2025-11-25: complete and correct, but for what a vice takes out of its hands.
//!
//! # Invariants
//!
//! - Without the name of its session a request gets 400, with an unknown one 404; DELETE ends it.
//! - A notification gets 202. A call that was cancelled gets no answer.

use std::collections::HashSet;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use unhang_demo_servers::{bounded_waits::lock, pipe, plain_server::Plain};

use super::wire::Wire;
use super::{Then, WebRequest};

pub(crate) const SESSION: &str = "mcp-session-id";

/// The tool whose calls last until they are withdrawn.
pub(crate) const WAIT: &str = "wait";

/// A server with sessions.
pub(crate) struct SessionWebServer {
    plain: Plain,
    /// Answers come as streams of events, with progress before them.
    streams: bool,
    open: Mutex<HashSet<String>>,
    /// Requests that were withdrawn, by session and id.
    cancelled: Mutex<HashSet<(String, String)>>,
    number: AtomicU64,
}

impl SessionWebServer {
    pub(crate) fn new(name: &'static str, streams: bool) -> Self {
        Self {
            plain: Plain::new(name).with_tool(WAIT),
            streams,
            open: Mutex::default(),
            cancelled: Mutex::default(),
            number: AtomicU64::new(0),
        }
    }

    /// Returns the correct response to a request.
    pub(crate) fn response(&self, asked: &WebRequest) -> Value {
        self.plain.answer(&asked.message).unwrap_or_default()
    }

    /// Ends every session without a word.
    pub(crate) fn forget(&self) {
        lock(&self.open).clear();
    }

    /// Says no to a request without a session that there is; true where that was so.
    pub(crate) fn refuses(&self, asked: &WebRequest, wire: &mut Wire) -> io::Result<bool> {
        if asked.message.method() == "initialize" {
            return Ok(false);
        }
        let (status, code, text) = match asked.header(SESSION) {
            None => (400, -32000, "Bad Request: Mcp-Session-Id header is required"),
            Some(session) if !lock(&self.open).contains(session) => (404, -32001, "Session not found"),
            Some(_) => return Ok(false),
        };
        wire.json(status, &[], &pipe::error(&Value::Null, code, text))?;
        Ok(true)
    }

    /// Deals with a request as it should be dealt with.
    pub(crate) fn serve(&self, asked: &WebRequest, wire: &mut Wire) -> io::Result<Then> {
        if self.refuses(asked, wire)? {
            return Ok(Then::Next);
        }
        match asked.verb.as_str() {
            "POST" => self.post(asked, wire),
            "GET" => {
                wire.begin_events(&[])?;
                let session = session(asked);
                if wire.wait_until(|| !lock(&self.open).contains(&session)) {
                    wire.end()?;
                }
                Ok(Then::HangUp)
            }
            "DELETE" => {
                lock(&self.open).remove(&session(asked));
                wire.status(200).map(|()| Then::Next)
            }
            _ => wire.status(405).map(|()| Then::Next),
        }
    }

    fn post(&self, asked: &WebRequest, wire: &mut Wire) -> io::Result<Then> {
        let message = &asked.message;
        if message.raw().is_null() {
            wire.json(400, &[], &pipe::error(&Value::Null, -32700, "Parse error"))?;
            return Ok(Then::Next);
        }
        if !message.is_request() {
            if message.method() == "notifications/cancelled" {
                let id = message.params()["requestId"].to_string();
                lock(&self.cancelled).insert((session(asked), id));
            }
            return wire.status(202).map(|()| Then::Next);
        }
        if message.method() == "initialize" {
            let session = format!("session-{}", self.number.fetch_add(1, Ordering::SeqCst) + 1);
            lock(&self.open).insert(session.clone());
            return self.respond(asked, wire, &[(SESSION, &session)]);
        }
        if message.is_call() && message.tool() == WAIT {
            let key = (session(asked), message.id().to_string());
            wire.begin_events(&[])?;
            if wire.wait_until(|| lock(&self.cancelled).contains(&key)) {
                wire.end()?;
            }
            return Ok(Then::HangUp);
        }
        self.respond(asked, wire, &[])
    }

    fn respond(&self, asked: &WebRequest, wire: &mut Wire, headers: &[(&str, &str)]) -> io::Result<Then> {
        let response = self.response(asked);
        if self.streams {
            stream(asked, wire, headers, &response)
        } else {
            wire.json(200, headers, &response)
        }?;
        Ok(Then::Next)
    }
}

/// Answers by a stream, with progress before the answer where that is wanted, and ids on all events.
pub(crate) fn stream(
    asked: &WebRequest,
    wire: &mut Wire,
    headers: &[(&str, &str)],
    response: &Value,
) -> io::Result<()> {
    wire.begin_events(headers)?;
    wire.piece(b": hello\n\n")?;
    let token = asked.message.progress_token();
    if !token.is_null() {
        wire.event(Some("1"), &pipe::progress(token, 1, 2))?;
    }
    wire.event(Some("2"), response)?;
    wire.end()
}

/// The session that a request says it belongs to.
pub(crate) fn session(asked: &WebRequest) -> String {
    asked.header(SESSION).unwrap_or_default().to_owned()
}

/// A question to the client.
pub(crate) fn question(id: &str, method: &str) -> Value {
    let params = crate::faulty_servers::well_behaved::question_params(method);
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A server with sessions whose requests a vice sees first: it deals with a request, or leaves it.
pub(crate) fn serve_with(
    name: &'static str,
    vice: impl Fn(&SessionWebServer, &WebRequest, &mut Wire) -> io::Result<Option<Then>> + Send + Sync + 'static,
) -> io::Result<std::process::ExitCode> {
    let sessions = SessionWebServer::new(name, false);
    super::serve("/mcp", move |asked, wire| match vice(&sessions, asked, wire)? {
        Some(then) => Ok(then),
        None => sessions.serve(asked, wire),
    })
}
