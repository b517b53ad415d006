//! A client over HTTP that measures: connections that stay open, each with one request at a time.
//!
//! # Invariants
//!
//! - Requests are short, so that writing one does not block; each read has a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::answers::PATIENCE;

/// Where MCP is.
pub(crate) const PATH: &str = "/mcp";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"unhang-bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// How a stream of events ends.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";
/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// A connection.
pub(crate) struct LoadConnection {
    pub(crate) stream: TcpStream,
    address: SocketAddr,
    waiting: Vec<u8>,
}

/// An answer.
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    /// The session that it begins.
    pub(crate) session: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl LoadConnection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, address, waiting: Vec::new() })
    }

    /// Sends a request of this verb.
    pub(crate) fn send(
        &mut self,
        verb: &str,
        path: &str,
        session: Option<&str>,
        body: &str,
    ) -> io::Result<()> {
        let session = session.map_or_else(String::new, |session| {
            format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n")
        });
        let accept = if verb == "GET" { "text/event-stream" } else { "application/json, text/event-stream" };
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: {accept}\r\n{session}\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(request.as_bytes())
    }

    /// Posts a message.
    pub(crate) fn post(&mut self, session: Option<&str>, message: &str) -> io::Result<()> {
        self.send("POST", PATH, session, message)
    }

    /// Calls a tool for a text of this many bytes.
    pub(crate) fn call(&mut self, session: Option<&str>, tool: &str, bytes: usize) -> io::Result<()> {
        // Of one session there may be several connections, and no two requests in flight may have the same.
        static ID: AtomicU64 = AtomicU64::new(1);
        let id = ID.fetch_add(1, Ordering::Relaxed);
        let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{\"bytes\":{bytes}}}}}");
        self.post(
            session,
            &format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{params}}}"),
        )
    }

    /// Waits for the answer, whole or as events.
    pub(crate) fn answer(&mut self) -> io::Result<HttpAnswer> {
        loop {
            if let Some(answer) = self.whole()? {
                return Ok(answer);
            }
            self.read()?;
        }
    }

    /// Waits for the head of an answer that has no end yet.
    pub(crate) fn head(&mut self) -> io::Result<u16> {
        loop {
            if let Some(end) = end_of_head(&self.waiting) {
                let head = text(&self.waiting[..end])?;
                return status(head);
            }
            self.read()?;
        }
    }

    /// Reads what has come; the answer, where that makes it whole.
    pub(crate) fn take(&mut self) -> io::Result<Option<HttpAnswer>> {
        self.read()?;
        self.whole()
    }

    /// Reads what has come, and forgets it.
    pub(crate) fn skip(&mut self) -> io::Result<()> {
        self.waiting.clear();
        self.read()
    }

    fn read(&mut self) -> io::Result<()> {
        let begin = self.waiting.len();
        self.waiting.resize(begin + CHUNK, 0);
        let count = self.stream.read(&mut self.waiting[begin..]);
        self.waiting.truncate(begin + count.as_ref().copied().unwrap_or_default());
        if count? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn whole(&mut self) -> io::Result<Option<HttpAnswer>> {
        let Some(end) = end_of_head(&self.waiting) else { return Ok(None) };
        let head = text(&self.waiting[..end])?;
        let length: usize = match header(head, "content-length") {
            Some(length) => length.parse().map_err(|_| wrong(head))?,
            // Events, because something came first or it took long. There is one answer at a time, and nothing behind it.
            None if self.waiting.ends_with(LAST_CHUNK) => self.waiting.len() - end,
            None => return Ok(None),
        };
        if self.waiting.len() < end + length {
            return Ok(None);
        }
        let (status, session) = (status(head)?, header(head, "mcp-session-id").map(str::to_owned));
        let body = self.waiting[end..end + length].to_vec();
        self.waiting.drain(..end + length);
        Ok(Some(HttpAnswer { status, session, body }))
    }
}

/// Begins a session; nothing where the server has none.
pub(crate) fn begin(connection: &mut LoadConnection) -> io::Result<Option<String>> {
    connection.post(None, INITIALIZE)?;
    let answer = connection.answer()?;
    if answer.status != 200 {
        return Err(io::Error::other(format!("`initialize` was refused with {}", answer.status)));
    }
    connection.post(answer.session.as_deref(), INITIALIZED)?;
    connection.answer()?;
    Ok(answer.session)
}

/// Asks once, on a connection that has just been opened.
pub(crate) fn ask(address: SocketAddr, verb: &str, path: &str) -> io::Result<HttpAnswer> {
    let mut connection = LoadConnection::open(address)?;
    connection.stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    connection.send(verb, path, None, "")?;
    connection.answer()
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|index| index + 4)
}

fn text(bytes: &[u8]) -> io::Result<&str> {
    str::from_utf8(bytes).map_err(io::Error::other)
}

fn status(head: &str) -> io::Result<u16> {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| wrong(head))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
}

fn wrong(head: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("an answer that was not expected: {head}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nmcp-session-id:  x \r\n\r\n";
        assert_eq!(end_of_head(head.as_bytes()), Some(head.len()));
        assert_eq!((status(head).expect("one"), header(head, "Mcp-Session-Id")), (200, Some("x")));
        assert_eq!(end_of_head(b"HTTP/1.1 200 OK\r\n"), None);
        assert!(status("nonsense").is_err() && header(head, "x").is_none());
    }
}
