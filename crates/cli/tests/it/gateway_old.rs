//! `unhang serve --http --sse`: clients of 2024-11-05, by the HTTP+SSE of that revision.

use std::fs;

use serde_json::{Value, json};

use crate::{
    gateway::server,
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, WebAnswer, run_to_end, wait_until},
};

/// A gateway in front of one server, once it has come up.
fn gateway(sandbox: &Sandbox, more: &str, flags: &[&str]) -> (Client, Web) {
    let text = server("one", &["well-behaved"], "") + more;
    fs::write(sandbox.path().join("unhang.toml"), text).expect("a file");
    let (process, web) = Web::start_with(sandbox, &["-v"], flags);
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    (process, web)
}

/// The same for those who have this token.
fn closed(sandbox: &Sandbox) -> (Client, Web) {
    let text = server("one", &["well-behaved"], "") + "\n[http]\ntokens = [\"one-0123456789abcdef\"]\n";
    fs::write(sandbox.path().join("unhang.toml"), text).expect("a file");
    let (process, web) = Web::start_with(sandbox, &["-v"], &["--sse"]);
    assert_eq!(web.ask("GET", "/sse", &[], "").status, 401);
    (process, web)
}

/// Opens a stream, and reads where messages are posted.
fn open(web: &Web) -> (String, WebAnswer) {
    let mut stream = web.ask("GET", "/sse", &[], "");
    assert_eq!((stream.status, stream.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(stream.line(), "event: endpoint", "before all else");
    let endpoint = stream.line();
    let endpoint = endpoint
        .strip_prefix("data: /messages?sessionId=")
        .unwrap_or_else(|| panic!("an endpoint: {endpoint}"));
    (format!("/messages?sessionId={endpoint}"), stream)
}

fn request(id: u32, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

#[test]
fn what_a_client_of_the_first_revision_asks_is_answered_on_its_stream() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, "\n[http]\nsse = true\n", &[]);
    let (endpoint, mut stream) = open(&web);
    let post = |message: String| web.ask("POST", &endpoint, &[], &message).status;
    let client = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "old", "version": "1" } });
    assert_eq!(post(request(0, "initialize", &client)), 202);
    assert_eq!(stream.next().expect("an answer")["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned()), 202);
    let call = |id: u32, tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p" } });
        post(request(id, "tools/call", &params))
    };
    // What is quick does not wait for what is slow, and what comes before an answer comes on the same stream.
    assert_eq!(call(1, "one__sleep", json!({ "ms": 60_000 })), 202);
    assert_eq!(call(2, "one__echo", json!({ "text": "hello" })), 202);
    let answer = stream.next().expect("an answer");
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!(2), &json!("hello")));
    let withdrawn = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(post(withdrawn.to_owned()), 202);
    assert_eq!(post(request(3, "ping", &json!({}))), 202);
    assert_eq!(stream.next().expect("an answer")["id"], 3, "nothing comes of what was withdrawn");
    // A session of the other way goes on beside it.
    let other = web.begin();
    assert!(web.call(&other, 1, "one__echo", json!({ "text": "x" })).last()["result"].is_object());
    let sessions = || web.ask("GET", "/status", &[], "").last()["sessions"].clone();
    assert_eq!(sessions(), 2);
    drop(stream);
    wait_until("it ends with its stream", PATIENCE, || sessions() == 1);
    assert_eq!(post(request(4, "ping", &json!({}))), 404);
    finish(process, &sandbox);
}

#[test]
fn our_own_client_finds_the_way_whether_it_is_told_or_not() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = closed(&sandbox);
    let url = format!("http://{}/sse", web.address());
    for transport in ["transport = 'sse'", ""] {
        let headers = "headers = { Authorization = 'Bearer one-0123456789abcdef' }";
        let text = format!("[servers.old]\nurl = '{url}'\n{transport}\n{headers}\n");
        fs::write(sandbox.path().join("client.toml"), text).expect("a file");
        let mut command = sandbox.unhang();
        command.args(["call", "--config", "client.toml", "old", "one__echo", "text=hello"]);
        let (code, stdout, stderr) = run_to_end(command);
        assert!(code == 0 && stdout.contains("hello"), "{transport}: {code} {stdout} {stderr}");
    }
    let (code, _, stderr) = {
        let mut command = sandbox.unhang();
        command.args(["call", &url, "one__echo", "text=hello"]);
        run_to_end(command)
    };
    assert!(code == 3 && stderr.contains("requires a login"), "{code} {stderr}");
    finish(process, &sandbox);
}

#[test]
fn at_the_end_what_is_in_flight_is_answered_on_the_stream() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, "", &["--sse"]);
    let (endpoint, mut stream) = open(&web);
    let post = |message: String| web.ask("POST", &endpoint, &[], &message).status;
    let client = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": { "name": "old", "version": "1" } });
    assert_eq!(post(request(0, "initialize", &client)), 202);
    stream.next().expect("an answer");
    let params = |ms: u32| json!({ "name": "one__sleep", "arguments": { "ms": ms } });
    assert_eq!(post(request(1, "tools/call", &params(1000))), 202);
    assert_eq!(post(request(2, "tools/call", &params(60_000))), 202);
    let in_flight = || web.ask("GET", "/status", &[], "").last()["servers"][0]["inFlight"] == 2;
    wait_until("both are asked", PATIENCE, in_flight);
    process.signal(rustix::process::Signal::TERM);
    let answers = stream.all();
    let told: Vec<(&Value, bool)> =
        answers.iter().map(|answer| (&answer["id"], answer["result"].is_object())).collect();
    assert_eq!(told, [(&json!(1), true), (&json!(2), false)], "{answers:?}");
    assert_eq!(answers[1]["error"]["code"], -31008, "{answers:?}");
    finish(process, &sandbox);
}
