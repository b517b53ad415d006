//! A server over HTTP inside the process of a test. It answers one request for each connection, as the test says.
//!
//! Invariant: it ends with the process of the test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use serde_json::Value;

/// A request to the server.
pub(crate) struct PostedRequest {
    pub(crate) is_post: bool,
    /// The header names 2026-07-28.
    pub(crate) is_modern: bool,
    /// The body; `null` if it is not JSON.
    pub(crate) message: Value,
}

/// The answer to a request.
pub(crate) struct PostAnswer {
    /// The status and its words.
    pub(crate) status: String,
    pub(crate) content_type: &'static str,
    /// More headers, each with its line end.
    pub(crate) headers: &'static str,
    pub(crate) body: String,
}

impl PostAnswer {
    /// An answer of this status without a body.
    pub(crate) fn empty(status: &str) -> PostAnswer {
        PostAnswer { status: status.to_owned(), content_type: "text/plain", headers: "", body: String::new() }
    }

    /// A message of JSON-RPC.
    pub(crate) fn json(status: &str, body: String) -> PostAnswer {
        PostAnswer { content_type: "application/json", body, ..PostAnswer::empty(status) }
    }
}

/// Starts a server, and returns its URL. It closes a connection for which `answer` gives nothing.
pub(crate) fn serve_posts(
    answer: impl Fn(&PostedRequest) -> Option<PostAnswer> + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve_one(&client, &*answer));
        }
    });
    url
}

fn serve_one(
    mut client: &TcpStream,
    answer: &(impl Fn(&PostedRequest) -> Option<PostAnswer> + ?Sized),
) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let (mut verb, mut line, mut length, mut is_modern) = (String::new(), String::new(), 0, false);
    reader.read_line(&mut verb).ok()?;
    while reader.read_line(&mut line).ok()? > 2 {
        match line.to_ascii_lowercase().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().ok()?,
            Some(("mcp-protocol-version", value)) => is_modern = value.trim() == "2026-07-28",
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let message = serde_json::from_slice(&body).unwrap_or_default();
    let is_post = verb.starts_with("POST");
    let PostAnswer { status, content_type, headers, body } =
        answer(&PostedRequest { is_post, is_modern, message })?;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n"
    );
    client.write_all(format!("{head}{body}").as_bytes()).ok()
}
