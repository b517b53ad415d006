//! Messages from stdin and onto stdout, blocking and one line each.
//!
//! # Invariants
//!
//! - Every write is flushed before it returns, and one call writes one uninterrupted piece even with many threads.
//! - What is not a JSON object is skipped in silence, as all five measured servers do (contract.md part 4).

use std::io::{self, BufRead, Write};

use serde_json::{Map, Value, json};

/// One message of the client.
pub struct ClientMessage(Value);

impl ClientMessage {
    /// Reads one line; `None` when it is no JSON object.
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(Value::is_object).map(Self)
    }

    /// A line that is not a message.
    pub fn none() -> Self {
        Self(Value::Null)
    }

    /// Returns the method, empty for a response.
    pub fn method(&self) -> &str {
        self.0["method"].as_str().unwrap_or_default()
    }

    /// Returns the id, null for a notification.
    pub fn id(&self) -> &Value {
        &self.0["id"]
    }

    /// Returns the parameters, null when there are none.
    #[must_use]
    pub fn params(&self) -> &Value {
        &self.0["params"]
    }

    /// Returns the whole message.
    pub fn raw(&self) -> &Value {
        &self.0
    }

    /// Whether it has a method and an id.
    #[must_use]
    pub fn is_request(&self) -> bool {
        !self.method().is_empty() && !self.id().is_null()
    }

    /// Whether the message belongs to finding out about each other, not to the work.
    pub fn is_handshake(&self) -> bool {
        matches!(self.method(), "initialize" | "server/discover" | "notifications/initialized")
    }

    /// Whether it is a request that a session is for: neither handshake nor ping.
    pub fn is_work(&self) -> bool {
        self.is_request() && !self.is_handshake() && self.method() != "ping"
    }

    /// Whether it is a `tools/call`.
    #[must_use]
    pub fn is_call(&self) -> bool {
        self.is_request() && self.method() == "tools/call"
    }

    /// Returns the name of the called tool, empty when there is none.
    pub fn tool(&self) -> &str {
        self.params()["name"].as_str().unwrap_or_default()
    }

    /// Returns an argument of the called tool, null when it is absent.
    pub fn argument(&self, name: &str) -> &Value {
        &self.params()["arguments"][name]
    }

    /// Returns the token under which the client wants to hear of progress, null when it does not.
    pub fn progress_token(&self) -> &Value {
        &self.params()["_meta"]["progressToken"]
    }
}

/// Waits for the next message; `None` at the end of stdin.
pub fn receive() -> io::Result<Option<ClientMessage>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::stdin().lock().read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if let Some(message) = ClientMessage::parse(&line) {
            return Ok(Some(message));
        }
    }
}

/// Reads stdin to its end and throws it away.
pub fn drain() -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}

/// Writes one message and its line end.
pub fn send(message: &Value) -> io::Result<()> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    send_bytes(&line)
}

/// Writes text and a line end.
pub fn send_line(text: &str) -> io::Result<()> {
    send_bytes(format!("{text}\n").as_bytes())
}

/// Writes bytes as they are.
pub fn send_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Writes `count` bytes of the letter `x` without a line end, in pieces, so that memory stays small.
pub fn send_letters(out: &mut impl Write, mut count: usize) -> io::Result<()> {
    const PIECE: [u8; 16 * 1024] = [b'x'; 16 * 1024];
    while count > 0 {
        let piece = count.min(PIECE.len());
        out.write_all(&PIECE[..piece])?;
        count -= piece;
    }
    out.flush()
}

/// Writes lines of 100 bytes to stderr until `count` bytes are written.
pub fn complain_lines(count: usize) -> io::Result<()> {
    // A write for each piece of a line would make the floods of tests slow.
    let mut stderr = io::BufWriter::with_capacity(16 * 1024, io::stderr().lock());
    for start in (0..count).step_by(100) {
        let text = format!("WARN something that happened at byte {start} ");
        let width = 100.min(count - start).saturating_sub(1);
        writeln!(stderr, "{:.<width$}", &text[..text.len().min(width)])?;
    }
    stderr.flush()
}

/// Writes text and a line end to stderr.
pub fn complain(text: &str) -> io::Result<()> {
    writeln!(io::stderr().lock(), "{text}")
}

/// Builds a successful response.
pub fn result(id: &Value, result: Value) -> Value {
    let mut response = Map::new();
    response.insert("jsonrpc".to_owned(), json!("2.0"));
    response.insert("id".to_owned(), id.clone());
    response.insert("result".to_owned(), result);
    Value::Object(response)
}

/// Builds an error response.
pub fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

/// Builds a notification.
pub fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// Builds a log notification.
pub fn log(text: &str) -> Value {
    notification("notifications/message", &json!({"level": "info", "logger": "zoo", "data": text}))
}

/// Builds a progress notification.
pub fn progress(token: &Value, done: u64, total: u64) -> Value {
    notification("notifications/progress", &json!({"progressToken": token, "progress": done, "total": total}))
}

/// Builds the result of a tool that says one thing.
pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": false})
}
