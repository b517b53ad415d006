//! What `unhang serve` tells a collector of requests.

use std::{fs, time::Duration};

use data_encoding::HEXLOWER;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use serde_json::json;

use crate::{
    gateway::{finish, gateway, listed, server},
    gateway_http,
    harness::{
        PATIENCE, Sandbox, Web,
        collector::{Collector, noted},
        lab_program, timed, wait_until,
    },
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

fn telemetry(url: &str) -> String {
    format!("[telemetry]\notlp = {url:?}\nheaders = {{ x-key = \"a key\" }}\nservice-name = \"ours\"\n")
}

/// The only span of this name in this trace.
#[track_caller]
fn span(spans: &[Span], name: &str, kind: SpanKind) -> Span {
    let found: Vec<&Span> =
        spans.iter().filter(|span| span.name == name && span.kind == i32::from(kind)).collect();
    match &found[..] {
        [only] => (*only).clone(),
        _ => panic!("{name}: {found:?} of {:?}", spans.iter().map(|span| &span.name).collect::<Vec<_>>()),
    }
}

#[test]
fn a_request_is_told_in_its_clients_trace_and_the_servers_part_in_it() {
    let (sandbox, collector) = (Sandbox::with_jobs(), Collector::start(true));
    let tee = ["tee", "said", "/dev/null", "--", lab_program(), "zoo", "well-behaved"];
    let mut client = gateway(&sandbox, &[server("srv", &tee, ""), telemetry(&collector.url())]);
    listed(&mut client, "tools/list", "tools", "name");
    let meta = json!({ "traceparent": traceparent(), "tracestate": "a=b" });
    let params = json!({ "name": "srv__echo", "arguments": { "text": "x" }, "_meta": meta });
    let id = client.request("tools/call", params);
    assert_eq!(client.answer(id)["result"]["content"][0]["text"], "x");
    client.tool_text("srv__pid", json!({}));
    let id = client.call("srv__dance", json!({}));
    assert_eq!(client.answer(id)["error"]["code"], -32602);
    finish(client, &sandbox);

    let spans = collector.spans();
    let hex = |bytes: &[u8]| HEXLOWER.encode(bytes);
    let (ours, theirs) = (
        span(&spans, "tools/call srv__echo", SpanKind::Server),
        span(&spans, "tools/call echo", SpanKind::Client),
    );
    assert_eq!((hex(&ours.trace_id), hex(&ours.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!((&theirs.trace_id, &theirs.parent_span_id), (&ours.trace_id, &ours.span_id));
    assert_eq!((&*ours.trace_state, &*theirs.trace_state), ("a=b", "a=b"));
    assert!(ours.start_time_unix_nano <= theirs.start_time_unix_nano);
    assert!(theirs.start_time_unix_nano < theirs.end_time_unix_nano);
    assert_eq!(noted(&theirs, "unhang.server").as_deref(), Some("srv"));
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "srv__echo"),
        ("gen_ai.operation.name", "execute_tool"),
        ("network.transport", "pipe"),
        ("mcp.protocol.version", "2025-11-25"),
    ] {
        assert_eq!(noted(&ours, key).as_deref(), Some(value), "{key}");
    }
    // What names no trace is one of its own.
    let alone = span(&spans, "tools/call srv__pid", SpanKind::Server);
    assert!(alone.parent_span_id.is_empty() && alone.trace_id != ours.trace_id && alone.trace_id.len() == 16);
    assert_eq!(
        noted(&span(&spans, "initialize", SpanKind::Server), "mcp.method.name").as_deref(),
        Some("initialize")
    );
    let refused = span(&spans, "tools/call srv__dance", SpanKind::Server);
    assert_eq!(noted(&refused, "rpc.response.status_code").as_deref(), Some("-32602"));
    assert_eq!(noted(&refused, "error.type").as_deref(), Some("-32602"), "it is the server's own");
    assert!(refused.status.is_some_and(|status| status.code == i32::from(StatusCode::Error)));
    let head = &collector.heads()[0];
    assert!(head.starts_with("post /v1/traces ") && head.contains("x-key: a key"), "{head}");
    // The server hears what the client wrote, and nothing of ours.
    let said = fs::read_to_string(sandbox.path().join("said")).expect("text");
    let of =
        |tool: &str| said.lines().find(|line| line.contains(&format!("\"name\":\"{tool}\""))).expect("asked");
    assert!(of("echo").contains(&traceparent()) && !of("pid").contains("traceparent"), "{said}");
}

#[test]
fn over_http_the_trace_may_be_in_the_headers() {
    let (sandbox, collector) = (Sandbox::with_jobs(), Collector::start(true));
    let file = [server("srv", &["well-behaved"], ""), telemetry(&collector.url())].concat();
    fs::write(sandbox.path().join("unhang.toml"), file).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let session = web.begin();
    let params = json!({ "name": "srv__echo", "arguments": { "text": "x" } });
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let parent = traceparent();
    let answer = web.post(&[("mcp-session-id", &session), ("traceparent", &parent)], &call);
    assert_eq!(answer.last()["result"]["content"][0]["text"], "x");
    wait_until("it is told", PATIENCE, || {
        collector.spans().iter().any(|span| span.name == "tools/call srv__echo")
    });
    let told = span(&collector.spans(), "tools/call srv__echo", SpanKind::Server);
    assert_eq!(HEXLOWER.encode(&told.parent_span_id), PARENT);
    assert_eq!(noted(&told, "network.transport").as_deref(), Some("tcp"));
    let shown = noted(&told, "mcp.session.id").expect("it is of a session");
    assert!(session.starts_with(&shown) && shown.len() < session.len(), "it lets nobody in");
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_collector_that_never_answers_delays_no_call_and_no_end() {
    let (sandbox, collector) = (Sandbox::with_jobs(), Collector::start(false));
    let mut client = gateway(&sandbox, &[server("srv", &["well-behaved"], ""), telemetry(&collector.url())]);
    listed(&mut client, "tools/list", "tools", "name");
    for _ in 0..3 {
        assert_eq!(client.tool_text("srv__echo", json!({ "text": "x" })), "x");
    }
    let ((), took) = timed(|| finish(client, &sandbox));
    assert!(took < Duration::from_secs(9), "{took:?}");
    assert!(sandbox.log().contains("the collector had not taken the last spans"), "{}", sandbox.log());
}

#[test]
fn a_collector_that_is_not_there_is_said_to_be_missed() {
    let sandbox = Sandbox::with_jobs();
    let mut client =
        gateway(&sandbox, &[server("srv", &["well-behaved"], ""), telemetry("http://127.0.0.1:1")]);
    listed(&mut client, "tools/list", "tools", "name");
    assert_eq!(client.tool_text("srv__echo", json!({ "text": "x" })), "x");
    let missed = "spans do not reach http://127.0.0.1:1/v1/traces: ";
    wait_until("it is said", PATIENCE, || sandbox.log().contains(missed));
    finish(client, &sandbox);
}
