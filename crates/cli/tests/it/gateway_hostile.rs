//! The gateway over HTTP as a page, a neighbour or a client that means no good meets it.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::{
    gateway::server,
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, run_to_end, wait_until},
};

/// A gateway over HTTP in front of these, once all have come up.
fn gateway(sandbox: &Sandbox, servers: &str) -> (Client, Web) {
    fs::write(sandbox.path().join("unhang.toml"), servers).expect("a file");
    let (process, web) = Web::start(sandbox);
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    (process, web)
}

#[test]
fn f_25_a_page_of_another_port_of_this_machine_calls_no_tool() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &server("one", &["well-behaved"], ""));
    let session = web.begin();
    let own = format!("http://{}", web.address());
    let by_tls = format!("https://{}", web.address());
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    for (origin, status) in [
        ("http://localhost:3000", 403),
        ("http://127.0.0.1", 403),
        ("null", 403),
        (&by_tls, 403),
        (&own, 200),
    ] {
        let answer =
            web.post(&[("host", web.address()), ("mcp-session-id", &session), ("origin", origin)], &message);
        assert_eq!(answer.status, status, "{origin}");
        assert_eq!(answer.header("access-control-allow-origin").is_some(), status == 200, "{origin}");
    }
    finish(process, &sandbox);
}

#[test]
fn whom_a_request_asks_is_said_once_and_by_its_target_where_that_is_absolute() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &server("one", &["well-behaved"], ""));
    for (target, hosts, status) in [
        ("/health", &["localhost"][..], "200"),
        ("/health", &["localhost", "evil.com"], "400"),
        ("/health", &["evil.com", "localhost"], "400"),
        ("http://evil.com/status", &["localhost"], "403"),
        ("http://localhost/status", &["localhost"], "200"),
        ("http://localhost/status", &["localhost", "localhost"], "400"),
    ] {
        let hosts: String = hosts.iter().map(|host| format!("Host: {host}\r\n")).collect();
        let mut stream = TcpStream::connect(web.address()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let request = format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request}: {answer}");
    }
    finish(process, &sandbox);
}

#[test]
fn f_36_what_a_server_refuses_in_a_session_is_an_answer_and_what_we_refuse_a_status() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &server("one", &["server-error", "32600"], ""));
    let session = web.begin();
    let answer = web.call(&session, 7, "one__echo", json!({}));
    assert_eq!(answer.status, 200);
    let answer = answer.last();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32600)), "{answer}");
    let ours = json!({ "jsonrpc": "1.0", "id": 9, "method": "tools/list" });
    assert_eq!(web.post(&[("mcp-session-id", &session)], &ours).status, 400);
    finish(process, &sandbox);
}

/// A server with two resources and no tools: of one resource it never says whether it tells of it.
fn half_deaf(sandbox: &Sandbox) -> String {
    let script = r#"say() { printf '%s\n' "{\"jsonrpc\":\"2.0\",\"id\":$id,$1}"; }
while IFS= read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *server/discover*) say '"error":{"code":-32601,"message":"no"}';;
    *'"initialize"'*) say '"result":{"protocolVersion":"2025-11-25","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"s","version":"1"}}';;
    *notifications/*) ;;
    *resources/subscribe*zoo:silent*) : > ASKED;;
    *resources/subscribe*|*resources/unsubscribe*) say '"result":{}';;
    *resources/list*) say '"result":{"resources":[{"uri":"zoo:silent","name":"a"},{"uri":"zoo:well","name":"b"}]}';;
    *) say '"error":{"code":-32601,"message":"no"}';;
  esac
done"#;
    let path = sandbox.path().join("half-deaf.sh");
    let asked = sandbox.path().join("asked").display().to_string();
    fs::write(&path, script.replace("ASKED", &asked)).expect("a file");
    format!("[servers.half]\ncommand = \"sh\"\nargs = [{path:?}]\nlimits = {{ request-timeout = \"10m\" }}\n")
}

#[test]
fn f_33_a_resource_that_a_server_is_silent_about_keeps_nobody_from_another() {
    let sandbox = Sandbox::with_jobs();
    let asked = sandbox.path().join("asked");
    let (process, web) = gateway(&sandbox, &half_deaf(&sandbox));
    let (first, second) = (web.begin(), web.begin());
    let subscribe = |uri: &str| json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": { "uri": uri } });
    let body = subscribe("zoo:silent").to_string();
    let mut waiting = TcpStream::connect(web.address()).expect("a connection");
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json, \
         text/event-stream\r\nmcp-session-id: {first}\r\ncontent-length: {}\r\n\r\n{body}",
        web.address(),
        body.len()
    );
    waiting.write_all(request.as_bytes()).expect("it is read");
    wait_until("the server is asked for the one", PATIENCE, || asked.exists());
    // Longer than this test has patience the first is waited for.
    let answer = web.post(&[("mcp-session-id", &second)], &subscribe("zoo:well"));
    assert_eq!(answer.last()["result"], json!({}));
    let ended: Value = {
        let end = json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/unsubscribe", "params": { "uri": "zoo:well" } });
        web.post(&[("mcp-session-id", &second)], &end).last()
    };
    assert_eq!(ended["result"], json!({}));
    drop(waiting);
    for session in [&first, &second] {
        assert_eq!(web.ask("DELETE", "/mcp", &[("mcp-session-id", session)], "").status, 200);
    }
    finish(process, &sandbox);
}

#[test]
fn a_server_without_tools_that_refuses_to_list_them_has_its_resources() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &half_deaf(&sandbox));
    let session = web.begin();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {} });
    let listed = web.post(&[("mcp-session-id", &session)], &list).last();
    assert_eq!(listed["result"]["resources"][0]["uri"], "zoo:silent", "{listed}");
    assert!(!process.stderr().contains("is not available"), "{}", process.stderr());
    finish(process, &sandbox);
    let mut tools = sandbox.unhang();
    tools.args(["tools", "half", "--config", "unhang.toml", "--output", "json"]);
    assert_eq!(run_to_end(tools), (0, "[]\n".to_owned(), String::new()));
}
