//! HTTP/1.1 by hand: one request a connection, read with limits, and one answer.
//!
//! # Invariants
//!
//! - No request holds more memory than [`MAX_HEAD`] and [`MAX_BODY`], and none is waited for longer than [`PATIENCE`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

const MAX_HEAD: usize = 64 << 10;
const MAX_BODY: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// The parameters of a form or of a query.
pub(super) type Form = BTreeMap<String, String>;

/// One request.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Form,
    headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// One answer.
pub(super) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Request {
    /// Reads one; `None` where none comes.
    pub(super) fn read(stream: &mut TcpStream) -> io::Result<Option<Self>> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = Vec::new();
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
                break at;
            }
            if bytes.len() > MAX_HEAD || !more(stream, &mut bytes)? {
                return Ok(None);
            }
        };
        let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let headers: BTreeMap<_, _> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = bytes.split_off(head_end + 4);
        while body.len() < length {
            if length > MAX_BODY || !more(stream, &mut body)? {
                return Ok(None);
            }
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (method, path, query) = (method.to_owned(), path.to_owned(), form(query));
        Ok(Some(Self { method, path, query, headers, body }))
    }

    /// Returns a header, empty where it is absent.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the body as a form.
    pub(super) fn form(&self) -> Form {
        form(&String::from_utf8_lossy(&self.body))
    }
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut piece = [0; 4096];
    let count = stream.read(&mut piece)?;
    bytes.extend_from_slice(&piece[..count]);
    Ok(count > 0)
}

impl Answer {
    /// Begins an answer without a body.
    pub(super) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// Begins one with a document.
    pub(super) fn json(status: u16, document: &Value) -> Self {
        Self { status, headers: Vec::new(), body: document.to_string().into_bytes() }
            .with("Content-Type", "application/json".to_owned())
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Writes it, and says that no other follows.
    pub(super) fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {} Zoo\r\nConnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)
    }
}

/// Takes a form apart.
pub(super) fn form(text: &str) -> Form {
    text.split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (plain(name), plain(value)))
        .collect()
}

/// Takes the escapes of a form out of a text.
pub(super) fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit =
                    || rest.next().and_then(|digit| char::from(digit).to_digit(16)).unwrap_or(0) as u8;
                digit() << 4 | digit()
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Escapes a text for a query.
pub(super) fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
