//! What goes back over a connection: a whole answer, or a stream of events, or what is neither.
//!
//! # Invariants
//!
//! - A stream is chunked, so that its end is not the end of its connection.
//! - Whoever waits for the client to go away notices it.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;
use unhang_demo_servers::bounded_waits::{BOUND, now, pause};

/// Between two looks at a connection.
const LOOK: Duration = Duration::from_millis(10);

/// The writing end of a connection.
pub(crate) struct Wire {
    stream: TcpStream,
    is_closed_by_client: bool,
    answers: u64,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, is_closed_by_client: false, answers: 0 }
    }

    /// Whether the client has closed it while its request was being answered.
    pub(super) fn is_closed_by_client(&self) -> bool {
        self.is_closed_by_client
    }

    /// Whether a request was answered over it before.
    pub(crate) fn is_used(&self) -> bool {
        self.answers > 0
    }

    pub(super) fn answered(&mut self) -> io::Result<()> {
        self.answers += 1;
        self.stream.flush()
    }

    pub(super) fn hang_up(&self) {
        // It may be closed already.
        let _closed = self.stream.shutdown(Shutdown::Both);
    }

    /// Answers whole.
    pub(crate) fn answer(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        kind: &str,
        body: &[u8],
    ) -> io::Result<()> {
        let mut whole = head(status, headers, kind);
        whole.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut whole = whole.into_bytes();
        whole.extend_from_slice(body);
        self.write(&whole)
    }

    /// Answers with JSON.
    pub(crate) fn json(&mut self, status: u16, headers: &[(&str, &str)], body: &Value) -> io::Result<()> {
        self.answer(status, headers, "application/json", body.to_string().as_bytes())
    }

    /// Answers with a status alone.
    pub(crate) fn status(&mut self, status: u16) -> io::Result<()> {
        let mut head = head(status, &[], "");
        head.push_str("Content-Length: 0\r\n\r\n");
        self.write(head.as_bytes())
    }

    /// Begins an answer of which the pieces follow.
    pub(crate) fn begin(&mut self, headers: &[(&str, &str)], kind: &str) -> io::Result<()> {
        let mut head = head(200, headers, kind);
        head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        self.write(head.as_bytes())
    }

    /// Begins a stream of events.
    pub(crate) fn begin_events(&mut self, headers: &[(&str, &str)]) -> io::Result<()> {
        self.begin(headers, "text/event-stream; charset=utf-8")
    }

    /// Writes a piece of an answer that has begun.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.write(&chunk)
    }

    /// Writes a message as an event, with an id where there is one.
    pub(crate) fn event(&mut self, id: Option<&str>, message: &Value) -> io::Result<()> {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.piece(format!("{id}event: message\ndata: {message}\n\n").as_bytes())
    }

    /// Sends messages all at once.
    pub(crate) fn events(&mut self, messages: &[Value]) -> io::Result<()> {
        let events: String =
            messages.iter().map(|message| format!("event: message\ndata: {message}\n\n")).collect();
        self.piece(events.as_bytes())
    }

    /// Ends an answer of which all pieces are there.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.write(b"0\r\n\r\n")
    }

    /// Writes bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.stream.write_all(bytes);
        self.is_closed_by_client |= written.is_err();
        written
    }

    /// Waits until a condition holds, and returns whether it does; not so where the client has gone before, or time is up.
    pub(crate) fn wait_until(&mut self, mut condition: impl FnMut() -> bool) -> bool {
        let end = now() + BOUND;
        while now() < end {
            if condition() {
                return true;
            }
            if self.is_gone() {
                break;
            }
            pause(LOOK);
        }
        false
    }

    /// Waits for so long, and returns whether the client has gone away.
    pub(crate) fn is_gone_after(&mut self, length: Duration) -> bool {
        pause(length);
        self.is_gone()
    }

    /// Waits until the client has gone away.
    pub(crate) fn wait_for_the_end(&mut self) {
        self.wait_until(|| false);
    }

    /// Whether the client has closed the connection.
    fn is_gone(&mut self) -> bool {
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let is_gone = match looked {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        // Reads and writes wait again.
        let _blocking = self.stream.set_nonblocking(false);
        self.is_closed_by_client |= is_gone;
        is_gone
    }
}

fn head(status: u16, headers: &[(&str, &str)], kind: &str) -> String {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    if !kind.is_empty() {
        head.push_str(&format!("Content-Type: {kind}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        503 => "Service Unavailable",
        _ => "Other",
    }
}
