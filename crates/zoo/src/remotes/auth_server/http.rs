//! Requests and answers of OAuth: forms, documents and redirects, over the zoo's own server.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;
use unhang_demo_servers::pipe::ClientMessage;

use crate::web::{Then, WebRequest, wire::Wire};

/// The parameters of a form or of a query.
pub(super) type FormParameters = BTreeMap<String, String>;

/// One request.
pub(super) struct AuthRequest<'a> {
    asked: &'a WebRequest,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: FormParameters,
    pub(super) body: &'a [u8],
}

/// One answer.
pub(super) struct AuthAnswer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    kind: &'static str,
    body: Vec<u8>,
}

impl<'a> AuthRequest<'a> {
    pub(super) fn of(asked: &'a WebRequest) -> Self {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        Self { asked, method: &asked.verb, path, query: form(query), body: &asked.body }
    }

    /// Returns a header, empty where it is absent.
    pub(super) fn header(&self, name: &str) -> &str {
        self.asked.header(name).unwrap_or_default()
    }

    /// Returns the message of MCP in it.
    pub(super) fn message(&self) -> &ClientMessage {
        &self.asked.message
    }

    /// Returns the body as a form.
    pub(super) fn form(&self) -> FormParameters {
        form(&String::from_utf8_lossy(self.body))
    }
}

impl AuthAnswer {
    /// Begins an answer without a body.
    pub(super) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), kind: "", body: Vec::new() }
    }

    /// Begins one with a document.
    pub(super) fn json(status: u16, document: &Value) -> Self {
        Self { kind: "application/json", body: document.to_string().into_bytes(), ..Self::new(status) }
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Writes it, and says that no other follows.
    pub(super) fn write(&self, wire: &mut Wire) -> io::Result<Then> {
        let headers = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        let headers: Vec<(&str, &str)> = headers.chain([("Connection", "close")]).collect();
        wire.answer(self.status, &headers, self.kind, &self.body).map(|()| Then::HangUp)
    }
}

/// Takes a form apart.
pub(super) fn form(text: &str) -> FormParameters {
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
