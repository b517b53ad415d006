//! Headers that repeat arguments of a tool (`Mcp-Param-*`, 2026-07-28): the gateway compares them before it asks a server.

use std::{fs, thread};

use serde_json::{Value, json};

use crate::{
    gateway::server,
    gateway_http::{finish, gateway},
    harness::{PATIENCE, Remote, Sandbox, Web, WebAnswer, lab_program, run_to_end, wait_until},
};

/// Posts a request of 2026-07-28 with these headers beside those of every request.
fn post(web: &Web, method: &str, mut params: Value, headers: &[(&str, &str)]) -> WebAnswer {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut all = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    all.extend(Some(("mcp-name", &*name)).filter(|(_, name)| !name.is_empty()));
    all.extend(headers);
    web.post(&all, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
}

fn call(web: &Web, tool: &str, region: &Value, headers: &[(&str, &str)]) -> WebAnswer {
    post(web, "tools/call", json!({ "name": tool, "arguments": { "text": "x", "region": region } }), headers)
}

#[track_caller]
fn assert_refused(answer: WebAnswer, why: &str) {
    assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/json")));
    let answer = answer.last();
    assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32020), &json!(1)), "{answer}");
    let message = answer["error"]["message"].as_str().expect("a sentence");
    assert!(message.contains(&format!("the header mcp-param-region {why}")), "{message}");
    assert!(message.contains("list the tools again"), "{message}");
    assert!(!answer.to_string().contains("SECRET"), "no value is shown: {answer}");
}

#[test]
fn headers_are_compared_with_the_arguments_that_a_tool_marks_wherever_its_server_is() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-well-behaved"]);
    let servers = [
        server("local", &["conformance-fixture"], ""),
        server("near", &["conformance-fixture"], "prefix = \"\""),
        format!("[servers.web]\nurl = '{}'\n", remote.url),
        format!("[servers.far]\nurl = '{}'\nprefix = ''\n", remote.url),
    ];
    let (process, web) = gateway(&sandbox, &servers);
    let listed = post(&web, "tools/list", json!({}), &[]).last();
    let session = web.begin();
    let tools = ["local__test_mirrored_argument", "test_mirrored_argument", "web__echo", "echo"];
    for tool in tools {
        let item =
            listed["result"]["tools"].as_array().expect("tools").iter().find(|item| item["name"] == tool);
        let mark = &item.expect("it is listed")["inputSchema"]["properties"]["region"]["x-mcp-header"];
        assert_eq!(mark, "Region", "clients see the mark of {tool}");
        let secret = json!("SECRET");
        let differs = "is not equal to the argument `region`";
        let malformed = "has characters that a header cannot have, or base64 that is not valid";
        let region = "Mcp-Param-Region";
        for (value, headers, why) in [
            (&secret, &[][..], "is missing, but the argument `region` has a value"),
            (&secret, &[(region, "SECRETS")], differs),
            (&secret, &[(region, "=?base64?U0VDUkVUUw==?=")], differs),
            (&secret, &[(region, "=?base64?U0VDUkVU?")], differs),
            (&secret, &[(region, "=?base64?U0VDUkVUUw?=")], malformed),
            (&secret, &[(region, "S\u{c9}CRET")], malformed),
            (&secret, &[(region, "SECRET"), ("mcp-param-region", "SECRET")], "came more than once"),
            (&Value::Null, &[(region, "SECRET")], "came, but the argument `region` has no value"),
        ] {
            assert_refused(call(&web, tool, value, headers), why);
        }
        for (value, headers) in [
            (&json!("eu"), &[(region, "eu"), ("mcp-param-other", "x")][..]),
            (&json!("eu"), &[("MCP-PARAM-REGION", "=?base64?ZXU=?=")]),
            (&json!("Z\u{fc}rich"), &[(region, "=?base64?WsO8cmljaA==?=")]),
            (&Value::Null, &[]),
        ] {
            let answer = call(&web, tool, value, headers);
            assert_eq!(answer.status, 200, "{tool} {headers:?}");
            let answer = answer.last();
            assert!(answer["result"]["content"].is_array(), "{tool} {headers:?}: {answer}");
        }
        // A session has no such headers.
        let answer = web.call(&session, 2, tool, json!({ "text": "x", "region": "eu" })).last();
        assert!(answer["result"]["content"].is_array(), "{tool}: {answer}");
    }
    let asked = remote.asked();
    let calls = asked.iter().filter(|asked| asked["rpc"] == "tools/call");
    let regions: Vec<&Value> = calls.map(|call| &call["headers"]["mcp-param-region"]).collect();
    let once = [json!("eu"), json!("eu"), json!("=?base64?WsO8cmljaA==?="), Value::Null, json!("eu")];
    let expect: Vec<&Value> = once.iter().chain(&once).collect();
    assert_eq!(regions, expect, "nothing that was refused has reached it");
    drop(remote);
    finish(process, &sandbox);
}

#[test]
fn a_call_that_waits_for_its_server_gets_its_status_when_its_headers_were_compared() {
    let sandbox = Sandbox::with_jobs();
    assert_eq!(run_to_end(sandbox.shell("mkfifo gate")).0, 0);
    let line = format!("read line < gate; exec {} zoo conformance-fixture", lab_program());
    let config = format!("[servers.late]\ncommand = \"sh\"\nargs = [\"-c\", {line:?}]\n");
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let wait = |text: &str| {
        let page = || web.ask("GET", "/metrics", &[], "").text();
        wait_until("the calls wait", PATIENCE, || page().lines().any(|line| line == text));
    };
    let (tool, region) = ("late__test_mirrored_argument", json!("SECRET"));
    // Clients that prefer a stream wait for the status as well.
    let events = ("accept", "text/event-stream");
    thread::scope(|scope| {
        let differs = scope.spawn(|| call(&web, tool, &region, &[("mcp-param-region", "x"), events]));
        let repeats = scope.spawn(|| call(&web, tool, &region, &[("mcp-param-region", "SECRET"), events]));
        wait("unhang_requests_without_session 2");
        fs::write(sandbox.path().join("gate"), "open\n").expect("it is read");
        assert_refused(differs.join().expect("no panic"), "is not equal to the argument `region`");
        let answer = repeats.join().expect("no panic");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
        assert!(answer.last()["result"]["content"].is_array());
    });
    finish(process, &sandbox);
}
