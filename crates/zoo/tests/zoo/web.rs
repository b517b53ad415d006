//! The servers over HTTP, met with nothing but a socket: each shows its vice, and is honest before it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::zoo_client::{PATIENCE, ZooClient};

/// How long nothing has to come before that is silence.
const SILENCE: Duration = Duration::from_millis(500);
/// Whatever is longer has no end.
const ENDLESS: usize = 48 << 10;

/// How an answer came to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Whole,
    HungUp,
    Silent,
    Endless,
}

/// What came back.
#[derive(Debug)]
struct Seen {
    text: String,
    end: End,
}

impl Seen {
    fn is(&self, end: End, part: &str) -> bool {
        self.end == end && self.text.contains(part)
    }
}

/// A server, and the header that names the session with it.
struct Web {
    client: ZooClient,
    address: String,
    path: String,
    session: String,
}

impl Web {
    fn meet(line: &str) -> Self {
        let client = ZooClient::meet(line);
        let url = String::from_utf8(client.line().expect("its URL")).expect("text");
        let (address, path) =
            url.trim().strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL");
        let (address, path) = (address.to_owned(), format!("/{path}"));
        Self { client, address, path, session: String::new() }
    }

    /// The same with a session.
    fn with_session(line: &str) -> Self {
        let mut web = Self::meet(line);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "v", "version": "1"}});
        let seen = web.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        assert!(seen.is(End::Whole, "protocolVersion"), "{line}: {seen:?}");
        let named = |line: &str| line.to_ascii_lowercase().starts_with("mcp-session-id:");
        web.session =
            seen.text.lines().find(|line| named(line)).map(|line| format!("{line}\r\n")).unwrap_or_default();
        web
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(SILENCE)).expect("a limit");
        stream
    }

    fn send(&self, stream: &mut TcpStream, verb: &str, headers: &str, body: &str) {
        let Self { address, path, session, .. } = self;
        let length = body.len();
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: application/json, text/event-stream\r\n{session}{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("sent");
    }

    fn ask(&self, verb: &str, headers: &str, body: &str) -> Seen {
        let mut stream = self.connect();
        self.send(&mut stream, verb, headers, body);
        receive(&mut stream)
    }

    fn post(&self, message: &Value) -> Seen {
        self.ask("POST", "", &message.to_string())
    }

    fn call(&self, id: u64) -> Seen {
        let mut stream = self.connect();
        self.send_call(&mut stream, id);
        receive(&mut stream)
    }

    fn send_call(&self, stream: &mut TcpStream, id: u64) {
        let params = json!({"name": "echo", "arguments": {"text": "hello"}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        self.send(stream, "POST", "", &call.to_string());
    }

    fn list(&self) -> Seen {
        self.post(&json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}))
    }

    fn leave(mut self) {
        self.client.close_stdin();
        assert!(self.client.end().success(), "it ends with its stdin");
    }
}

/// Reads until the answer has come to its end, one way or another.
fn receive(stream: &mut TcpStream) -> Seen {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let end = loop {
        if is_whole(&bytes) {
            break End::Whole;
        }
        if bytes.len() > ENDLESS {
            break End::Endless;
        }
        match stream.read(&mut piece) {
            Ok(0) => break End::HungUp,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(_) => break End::Silent,
        }
    };
    Seen { text: String::from_utf8_lossy(&bytes).into_owned(), end }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    length.map_or(body.ends_with("0\r\n\r\n"), |length: usize| body.len() >= length)
}

/// Each vice at the call, behind an honest handshake.
#[test]
fn vices_at_a_call() {
    let cases = [
        ("http-well-behaved --dialect session", End::Whole, "hello"),
        ("http-well-behaved --dialect session --stream yes", End::Whole, "hello"),
        ("http-never-answers", End::Silent, ""),
        ("http-answers-html", End::Whole, "text/html"),
        ("http-asks-client elicitation/create", End::Silent, "\"elicitation/create\""),
        ("http-endless-body", End::Endless, "\"text\":\""),
        ("http-endless-event", End::Endless, "data: "),
        ("http-half-answer", End::HungUp, "application/json"),
        ("http-half-answer --stream yes", End::HungUp, "data: "),
        ("http-refuses-calls 503", End::Whole, "HTTP/1.1 503 "),
        ("http-refuses-after-initialize", End::Whole, "HTTP/1.1 400 "),
        ("http-resumes", End::Whole, "id: 7"),
        ("http-wrong-ids", End::Whole, "987654321"),
        ("http-ignores-delete", End::Whole, "hello"),
        ("http-stream-ends-at-once", End::Whole, "hello"),
    ];
    // A silence takes its whole limit to be seen, so all are looked at together.
    thread::scope(|scope| {
        for (line, end, part) in cases {
            scope.spawn(move || {
                let web = Web::with_session(line);
                let seen = web.call(7);
                assert!(seen.is(end, part), "{line}: {seen:?}");
                web.leave();
            });
        }
    });
}

/// A stream of nothing but comments: it takes minutes to grow beyond the limit, so a few of them do.
#[test]
fn a_stream_of_comments_answers_nothing() {
    let web = Web::with_session("http-drips-comments");
    let mut stream = web.connect();
    web.send_call(&mut stream, 7);
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while String::from_utf8_lossy(&bytes).matches(": still alive").count() < 5 {
        let count = stream.read(&mut piece).expect("the next comment");
        assert!(count > 0, "it hung up after {:?}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..count]);
    }
    assert!(!is_whole(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
    web.leave();
}

#[test]
fn vices_elsewhere() {
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let web = Web::with_session("http-initialized-unanswered");
    assert!(web.post(&notice).is(End::Silent, ""));
    web.leave();
    let web = Web::with_session("http-ignores-delete");
    assert!(web.ask("DELETE", "", "").is(End::Silent, ""));
    web.leave();
    let web = Web::with_session("http-stream-ends-at-once");
    assert!(web.ask("GET", "", "").is(End::Whole, "retry: 1"));
    web.leave();
    let web = Web::with_session("http-resumes");
    assert!(!web.call(7).text.contains("hello"), "the answer is kept");
    assert!(web.ask("GET", "Last-Event-ID: 7\r\n", "").is(End::Whole, "hello"));
    web.leave();
    let web = Web::with_session("http-replays");
    let wait = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait","arguments":{"seconds":0.3}}}"#;
    let seen = web.ask("POST", "", wait);
    assert!(seen.is(End::Whole, "id: 7/0") && seen.text.contains("waited"), "{seen:?}");
    let seen = web.ask("GET", "Last-Event-ID: 7/1\r\n", "");
    let (has_passed, comes) = (seen.text.contains("id: 7/1"), seen.text.contains("id: 7/2"));
    assert!(seen.is(End::Whole, "waited") && !has_passed && comes, "{seen:?}");
    web.leave();
    let web = Web::with_session("http-forgets-session 1");
    assert!(web.call(1).is(End::Whole, "hello"));
    assert!((2..4).any(|id| web.call(id).is(End::Whole, "HTTP/1.1 404 ")), "it forgets");
    web.leave();
}

#[test]
fn vices_from_the_start() {
    let web = Web::meet("http-accepts-and-is-mute");
    assert!(web.call(1).is(End::Silent, ""));
    web.leave();
    let web = Web::meet("http-wants-login");
    let seen = web.call(1);
    assert!(
        seen.is(End::Whole, "HTTP/1.1 401 ") && seen.text.contains("WWW-Authenticate: Bearer"),
        "{seen:?}"
    );
    web.leave();
    for (line, location) in [
        ("http-redirects-elsewhere", "Location: http://127.0.0.1:"),
        ("http-redirects-in-a-loop", "Location: /mcp/"),
    ] {
        let web = Web::meet(line);
        let seen = web.call(1);
        assert!(seen.is(End::Whole, "HTTP/1.1 307 ") && seen.text.contains(location), "{line}: {seen:?}");
        web.leave();
    }
    let web = Web::meet("http-changes-headers");
    assert!(web.call(1).is(End::Whole, "-32020"));
    web.leave();
    let web = Web::meet("http-odd-headers");
    assert!(web.list().is(End::Whole, "two words"));
    web.leave();
    let web = Web::meet("http-hangs-up-on-reuse");
    let mut stream = web.connect();
    for end in [End::Whole, End::HungUp] {
        web.send(&mut stream, "POST", "", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let seen = receive(&mut stream);
        assert_eq!(seen.end, end, "{seen:?}");
    }
    web.leave();
}

#[test]
fn two_who_call_get_each_others_answers() {
    let web = Web::with_session("http-swaps-answers");
    // Both are asked before one is read: neither is answered before that.
    let mut streams = [1, 2].map(|id| {
        let mut stream = web.connect();
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        web.send_call(&mut stream, id);
        stream
    });
    let answers = streams.each_mut().map(|stream| receive(stream).text);
    assert!(answers[0].contains("\"id\":2") && answers[1].contains("\"id\":1"), "{answers:?}");
    web.leave();
}

#[test]
fn tasks_are_given_out_over_http_too() {
    let web = Web::meet("http-tasks-modern");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let ask = |method: &str, name: Option<&str>, mut params: Value| {
        params["_meta"] = meta.clone();
        let named = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let headers = format!("Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{named}");
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        web.ask("POST", &headers, &message.to_string())
    };
    let result = |seen: &Seen| -> Value {
        let body = seen.text.split_once("\r\n\r\n").expect("a body").1;
        serde_json::from_str::<Value>(body).expect("JSON")["result"].take()
    };
    let call = json!({"name": "slow_compute", "arguments": {"seconds": 3600}});
    let created = result(&ask("tools/call", Some("slow_compute"), call));
    let id = created["taskId"].as_str().expect("a task");
    // The header has to name the task of the body.
    let task = json!({"taskId": id});
    assert_eq!(result(&ask("tasks/get", Some(id), task.clone()))["status"], "working");
    assert!(ask("tasks/get", Some("other"), task.clone()).is(End::Whole, "-32020"));
    assert!(ask("tasks/get", None, task.clone()).is(End::Whole, "HTTP/1.1 400 "));
    assert!(ask("tasks/list", None, json!({})).is(End::Whole, "HTTP/1.1 404 "));
    let received = ask("subscriptions/listen", None, json!({"notifications": {"taskIds": [id]}}));
    assert!(received.is(End::Silent, "notifications/subscriptions/acknowledged"), "{received:?}");
    assert_eq!(result(&ask("tasks/cancel", Some(id), task))["resultType"], "complete");
    web.leave();
}
