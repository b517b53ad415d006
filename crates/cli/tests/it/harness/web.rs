//! A gateway over HTTP and requests to it, byte by byte: in HTTP/1.0, where an answer ends with its connection.
//!
//! Invariants: nothing waits without a limit.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Instant,
};

use serde_json::{Value, json};

use super::{Client, PATIENCE, Sandbox, wait_until};

/// Where a gateway serves over HTTP.
#[derive(Clone)]
pub(crate) struct Web {
    address: String,
    token: Option<String>,
}

/// An answer whose body is still to be read.
pub(crate) struct WebAnswer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<TcpStream>,
}

impl Web {
    /// Starts one in front of what `unhang.toml` names, and waits until it listens.
    #[track_caller]
    pub(crate) fn start(sandbox: &Sandbox) -> (Client, Web) {
        Web::start_with(sandbox, &["-v"], &[])
    }

    /// The same with other flags, in front of the command and behind it.
    #[track_caller]
    pub(crate) fn start_with(sandbox: &Sandbox, before: &[&str], behind: &[&str]) -> (Client, Web) {
        let mut command = sandbox.unhang();
        command.args(before).args(["serve", "--http", "127.0.0.1:0"]).args(behind);
        Web::start_as(command)
    }

    /// The same with a command of one's own.
    #[track_caller]
    pub(crate) fn start_as(command: Command) -> (Client, Web) {
        let process = Client::start(command);
        let told = || {
            let said = process.stderr();
            let url = said.lines().find_map(|line| Some(line.split_once("MCP is at http")?.1.to_owned()))?;
            // In a line of JSON more comes behind it.
            Some(url.split('"').next().unwrap_or_default().to_owned())
        };
        wait_until("it says where it is", PATIENCE, || told().is_some());
        let url = told().expect("it was told");
        let address = url.split_once("://").and_then(|(_, rest)| rest.strip_suffix("/mcp"));
        (process, Web { address: address.expect("an address").to_owned(), token: None })
    }

    /// One that listens at this address, or will.
    pub(crate) fn at(address: SocketAddr) -> Web {
        Web { address: address.to_string(), token: None }
    }

    /// The same gateway, asked by whoever has this token.
    pub(crate) fn with_token(&self, token: &str) -> Web {
        Web { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Where it listens: address and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Asks, and reads the head of the answer.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> WebAnswer {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut request = format!("{method} {path} HTTP/1.0\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("host", "localhost"),
        ] {
            if headers.iter().all(|(other, _)| *other != name) {
                request += &format!("{name}: {value}\r\n");
            }
        }
        if let Some(token) = &self.token {
            request += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        write!(stream, "{request}\r\n{body}").expect("it is read");
        let mut body = BufReader::new(stream);
        let mut line = || {
            let mut line = String::new();
            body.read_line(&mut line).expect("a line in time");
            line.trim_end().to_owned()
        };
        let status = line().split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut headers = Vec::new();
        while let Some((name, value)) = line().split_once(": ") {
            headers.push((name.to_owned(), value.to_owned()));
        }
        WebAnswer { status, headers, body }
    }

    /// Posts a message.
    #[track_caller]
    pub(crate) fn post(&self, headers: &[(&str, &str)], message: &Value) -> WebAnswer {
        self.ask("POST", "/mcp", headers, &message.to_string())
    }

    /// Begins a session, and gives its name.
    #[track_caller]
    pub(crate) fn begin(&self) -> String {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "sampling": {}, "elicitation": {}, "roots": {} }, "clientInfo": { "name": "test", "version": "1" } });
        let answer =
            self.post(&[], &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
        assert_eq!(answer.status, 200);
        let name = answer.header("mcp-session-id").expect("a name").to_owned();
        let said = self.post(
            &[("mcp-session-id", &name)],
            &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        );
        assert_eq!(said.status, 202);
        name
    }

    /// Calls a tool in a session; answered under this id.
    #[track_caller]
    pub(crate) fn call(&self, session: &str, id: u32, tool: &str, arguments: Value) -> WebAnswer {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        self.post(&[("mcp-session-id", session)], &message)
    }
}

impl WebAnswer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }

    /// The next message, of an answer of either kind; none at the end.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Value> {
        if self.header("content-type") == Some("application/json") {
            let mut whole = String::new();
            self.body.read_to_string(&mut whole).expect("a body in time");
            return (!whole.is_empty()).then(|| serde_json::from_str(&whole).expect("JSON"));
        }
        // Signs of life do not count.
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "no message within {PATIENCE:?}");
            let mut line = String::new();
            if self.body.read_line(&mut line).expect("a line in time") == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: {") {
                return Some(serde_json::from_str(&format!("{{{data}")).expect("JSON"));
            }
        }
    }

    /// The next line of the body, as it is.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.body.read_line(&mut line).expect("a line in time");
        line.trim_end().to_owned()
    }

    /// The body as it is.
    #[track_caller]
    pub(crate) fn text(mut self) -> String {
        let mut whole = String::new();
        self.body.read_to_string(&mut whole).expect("a body in time");
        whole
    }

    /// All messages up to the end, the answer last.
    #[track_caller]
    pub(crate) fn all(mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// The answer.
    #[track_caller]
    pub(crate) fn last(self) -> Value {
        self.all().pop().expect("an answer")
    }
}
