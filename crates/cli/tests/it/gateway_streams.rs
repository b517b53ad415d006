//! `unhang serve --http` for clients that prefer a stream of events: the stream is there before the answer, and a refusal is none.

use serde_json::{Value, json};

use crate::{
    gateway::server,
    gateway_http::{finish, gateway, in_flight},
    harness::{PATIENCE, Sandbox, WebAnswer, wait_until},
};

const EVENTS_FIRST: (&str, &str) = ("accept", "text/event-stream, application/json");

fn call(tool: &str, arguments: &Value, meta: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params })
}

/// The first three lines of a stream.
fn begin(stream: &mut WebAnswer) -> [String; 3] {
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
    [stream.line(), stream.line(), stream.line()]
}

#[test]
fn a_stream_that_began_before_its_answer_is_resumed_after_its_connection_broke() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    let session = web.begin();
    let headers = [("mcp-session-id", &*session), EVENTS_FIRST];
    let mut stream = web.post(&headers, &call("one__sleep", &json!({ "ms": 4000 }), &json!({})));
    let [id, retry, data] = begin(&mut stream);
    wait_until("the server still works on it", PATIENCE, || in_flight(&web) == [1]);
    assert_eq!((&*retry, &*data), ("retry: 3000", "data:"));
    drop(stream);
    let id = id.strip_prefix("id: ").unwrap_or_else(|| panic!("an id: {id}"));
    let mut resumed = web.ask("GET", "/mcp", &[("mcp-session-id", &session), ("last-event-id", id)], "");
    let answer = resumed.next().expect("an answer");
    assert_eq!(answer["result"]["content"][0]["text"], "slept 4000 ms", "{answer}");
    assert_eq!(resumed.next(), None, "the stream ends with its answer");
    // The stream of the session begins with a priming event too, and so does the stream of an answer that is ready at once.
    let mut listened = web.ask("GET", "/mcp", &[("mcp-session-id", &session)], "");
    assert_eq!(begin(&mut listened)[1..], ["retry: 3000", "data:"]);
    let list = json!({ "jsonrpc": "2.0", "id": 8, "method": "tools/list" });
    let mut listed = web.post(&headers, &list);
    assert_eq!(begin(&mut listed)[1..], ["retry: 3000", "data:"]);
    assert!(listed.last().to_string().contains("one__sleep"));
    // A client that prefers JSON gets JSON.
    let plain =
        web.post(&[("mcp-session-id", &session)], &call("one__echo", &json!({ "text": "x" }), &json!({})));
    assert_eq!(plain.header("content-type"), Some("application/json"));
    finish(process, &sandbox);
}

#[test]
fn a_request_that_stands_alone_has_a_stream_that_cannot_be_resumed_and_refusals_with_a_status() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let with_token = |meta: &Value| {
        let mut meta = meta.clone();
        meta["progressToken"] = json!("p");
        meta
    };
    let post = |headers: &[(&str, &str)], message: &Value| {
        web.post(&[&[("mcp-protocol-version", "2026-07-28")], headers].concat(), message)
    };
    // A progress token is enough, because progress comes on a stream.
    let headers = [("mcp-method", "tools/call"), ("mcp-name", "one__echo")];
    let mut stream = post(&headers, &call("one__echo", &json!({ "text": "x" }), &with_token(&meta)));
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert!(stream.line().starts_with("data: {"), "no id and no `retry:`");
    let headers = [("mcp-method", "tools/call"), ("mcp-name", "one__sleep"), EVENTS_FIRST];
    let stream = post(&headers, &call("one__sleep", &json!({ "ms": 60_000 }), &meta));
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
    wait_until("the server has the call", PATIENCE, || in_flight(&web) == [1]);
    drop(stream);
    wait_until("the call is withdrawn", PATIENCE, || in_flight(&web) == [0]);
    let ask = |method: &str, meta: &Value| json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": { "_meta": meta } });
    let bare = with_token(&json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" }));
    let meta = with_token(&meta);
    for (headers, message, status, code) in [
        (&[("mcp-method", "no/such"), EVENTS_FIRST][..], ask("no/such", &meta), 404, -32601),
        (&[("mcp-method", "ping"), EVENTS_FIRST], ask("ping", &meta), 404, -32601),
        (&[("mcp-method", "tools/list"), EVENTS_FIRST], ask("tools/call", &meta), 400, -32020),
        (&[("mcp-method", "tools/list"), EVENTS_FIRST], ask("tools/list", &bare), 400, -32602),
        (&[("mcp-method", "tools/list"), ("accept", "text/html")], ask("tools/list", &meta), 406, -32600),
        (&[("host", "evil.example.com"), EVENTS_FIRST], ask("tools/list", &meta), 403, -32600),
    ] {
        let refusal = post(headers, &message);
        assert_eq!((refusal.status, refusal.header("content-type")), (status, Some("application/json")));
        let refusal = refusal.last();
        assert_eq!(refusal["error"]["code"], code, "{refusal}");
    }
    finish(process, &sandbox);
}
