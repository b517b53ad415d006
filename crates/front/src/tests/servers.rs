//! Servers behind a front, as far as the session knows of them.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::value::RawValue;
use unhang_bridge::Era;

use super::*;
use unhang_core::clients::Clocks;
use unhang_gateway::{
    KnownAnnouncements, KnownServers, RequestTimeouts, ServerAnswer, ServerRequest, UnlistedServer,
    route::{
        catalog::{Catalog, CatalogSource, ListedItems},
        names::Style,
    },
};
use unhang_upstream::client::{Error, ServerError};

pub(super) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

pub(super) fn known(tools: &[&str], is_settled: bool) -> KnownServers {
    known_at(0, tools, is_settled)
}

/// A server that is listed, under its own name.
pub(super) fn source<'a>(server_index: usize, name: &'a str, offered: &'a ListedItems) -> CatalogSource<'a> {
    CatalogSource { server_index, name, prefix: name, offered, is_awaited: false }
}

/// The same with a server at this index.
pub(super) fn known_at(server_index: usize, tools: &[&str], is_settled: bool) -> KnownServers {
    let offered = ListedItems {
        tools: tools.iter().map(|tool| raw(tool)).collect(),
        prompts: vec![raw(r#"{"name":"hello"}"#)],
        resources: vec![raw(r#"{"uri":"note:1"}"#)],
        templates: vec![raw(r#"{"uriTemplate":"note:{number}"}"#)],
        declares_resources: true,
        ..ListedItems::default()
    };
    // Two servers have resources, so that nobody can tell whose a resource is that nobody lists.
    let bare = ListedItems { declares_resources: true, ..ListedItems::default() };
    let tools = BTreeMap::from([("quick".to_owned(), seconds(5))]);
    let timeouts =
        RequestTimeouts { call: seconds(60), tools, request: seconds(20), ..RequestTimeouts::default() };
    let sources = [source(server_index, "srv", &offered), source(server_index + 1, "bare", &bare)];
    KnownServers {
        announced: KnownAnnouncements::default(),
        catalog: Arc::new(Catalog::new(&Style::default(), &["echo"], &sources)),
        timeouts: Arc::new([(server_index, timeouts)].into()),
        clocks: Clocks::default(),
        is_settled,
        was_settled: is_settled,
        follows: false,
        has_lists: is_settled,
        absent: if is_settled { Arc::default() } else { absent("", None) },
    }
}

/// One server of which nobody knows what it offers.
fn absent(beginning: &str, why: Option<&str>) -> Arc<Vec<UnlistedServer>> {
    let (server, beginning) = ("late".to_owned(), beginning.to_owned());
    Arc::new(vec![UnlistedServer { server, beginning, why: why.map(str::to_owned) }])
}

#[test]
fn f_52_a_name_waits_only_for_a_server_that_it_could_be_of() {
    let late = KnownServers { absent: absent("late__", None), ..known(&[TOOL], false) };
    let mut front = fronted(late.clone());
    ask(&mut front, 1, "tools/call", r#"{"name":"srv__nothing"}"#);
    assert_eq!(front.received()[0]["error"]["code"], -32602, "its server is listed");
    ask(&mut front, 2, "tools/call", r#"{"name":"late__tool"}"#);
    assert!(front.received().is_empty(), "it may come");
    let why = Some("`late` could not be started: no such file");
    front.mcp_session.servers_changed(
        front.now,
        &KnownServers { is_settled: true, absent: absent("late__", why), ..late },
        &mut front.effects,
    );
    let error = front.received()[0]["error"].clone();
    let message = error["message"].as_str().unwrap_or_default();
    assert!(error["code"] == -32602 && message.contains("no such file"), "f_56: {error}");
}

pub(super) const TOOL: &str = r#"{"name":"now","inputSchema":{"type":"object"},"x":1.0e0}"#;

pub(super) fn fronted(known: KnownServers) -> TestSession {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known);
    front.says(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"test"}}}"#,
    );
    let capabilities = front.received()[0]["result"]["capabilities"].clone();
    assert_eq!(capabilities["tools"], json!({ "listChanged": true }));
    front
}

/// The one thing that a server is asked.
#[track_caller]
pub(super) fn asked(front: &mut TestSession) -> (CallKey, ServerRequest) {
    match &front.actions()[..] {
        [SessionAction::Ask { key, asked, .. }] => (*key, ServerRequest::clone(asked)),
        other => panic!("{other:?}"),
    }
}

pub(super) fn answered(era: Era, outcome: Result<Box<RawValue>, Error>) -> ServerAnswer {
    ServerAnswer {
        era,
        server_info: Some(r#"{"name":"s","version":"1"}"#.to_owned()),
        outcome,
        asked_for: None,
    }
}

pub(super) fn ask(front: &mut TestSession, id: u32, method: &str, params: &str) {
    front.says(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
}

#[test]
fn what_servers_have_is_listed_behind_ours_and_asked_of_them() {
    let mut front = fronted(known(&[TOOL], true));
    ask(&mut front, 1, "tools/list", "{}");
    let line = front.effects.received.pop().expect("an answer");
    assert!(line.contains(r#"{"name":"srv__now","inputSchema":{"type":"object"},"x":1.0e0}]"#), "{line}");
    assert!(line.contains(r#""name":"echo""#), "{line}");
    ask(
        &mut front,
        2,
        "tools/call",
        r#"{ "name":"srv__now", "arguments":{"x":1.0e0}, "_meta":{"progressToken":"p"} }"#,
    );
    let (key, asked) = asked(&mut front);
    assert_eq!((asked.method, asked.server, asked.wants_progress), ("tools/call", 0, true));
    assert_eq!(&*asked.params, r#"{ "name":"now", "arguments":{"x":1.0e0}, "_meta":{"progressToken":"p"} }"#);
    assert_eq!(asked.limit, seconds(60));
    front.mcp_session.progressed(
        front.now,
        key,
        &raw(r#"{"progressToken":7,"progress":1.0e0}"#),
        &mut front.effects,
    );
    assert_eq!(
        front.effects.received.pop().as_deref(),
        Some(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1.0e0}}"#
        )
    );
    let result = raw("{\"content\":[ ],\n\"v\":1.0e0}");
    front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(result)), &mut front.effects);
    let expect = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[ ], "v":1.0e0}}"#;
    assert_eq!(front.effects.received.pop().as_deref(), Some(expect));
    front.mcp_session.progressed(front.now, key, &raw("{}"), &mut front.effects);
    assert!(front.received().is_empty(), "it is over");
}

#[test]
fn a_tool_may_have_a_limit_of_its_own_which_a_clients_clock_shortens() {
    let quick = r#"{"name":"quick"}"#;
    for (client, tool, expect) in [
        ("test", "quick", 5_000),
        ("test", "now", 60_000),
        ("langflow", "quick", 5_000),
        ("langflow", "now", 28_500),
    ] {
        let mut front = fronted(known(&[TOOL, quick], true));
        ask(
            &mut front,
            1,
            "initialize",
            &format!(r#"{{"protocolVersion":"2025-11-25","clientInfo":{{"name":"{client}"}}}}"#),
        );
        ask(&mut front, 2, "tools/call", &format!(r#"{{"name":"srv__{tool}"}}"#));
        let (_, asked) = asked(&mut front);
        assert_eq!(asked.limit, Duration::from_millis(expect), "{client} {tool}");
        assert_eq!(asked.tool.as_deref(), Some(tool));
    }
}

#[test]
fn the_clock_is_that_of_the_configuration_and_of_the_clients_version() {
    let of_session = |client: &str| {
        let mut front = fronted(KnownServers {
            clocks: Clocks::with([("langflow".to_owned(), Some(seconds(20)))]),
            ..known(&[TOOL], true)
        });
        ask(
            &mut front,
            1,
            "initialize",
            &format!(r#"{{"protocolVersion":"2025-11-25","clientInfo":{client}}}"#),
        );
        // Somebody else's clock, on the same pipe, changes nothing.
        let of_another = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"nanobot"}}}"#;
        ask(&mut front, 2, "tools/list", of_another);
        ask(&mut front, 3, "tools/call", r#"{"name":"srv__now"}"#);
        asked(&mut front).1.limit
    };
    for (client, expect) in [
        (r#"{"name":"langflow"}"#, seconds(19)),
        (r#"{"name":"codex-mcp-client"}"#, seconds(57)),
        (r#"{"name":"codex-mcp-client","version":"0.152.1"}"#, seconds(60)),
        (r#"{"name":"nobody"}"#, seconds(60)),
    ] {
        assert_eq!(of_session(client), expect, "{client}");
    }
}

#[test]
fn prompts_resources_and_completions_go_to_whose_they_are() {
    let mut front = fronted(known(&[], true));
    for (method, params, expect) in [
        ("prompts/get", r#"{"name":"srv__hello"}"#, r#"{"name":"hello"}"#),
        ("resources/read", r#"{"uri":"note:1"}"#, r#"{"uri":"note:1"}"#),
        ("resources/read", r#"{"uri":"srv+note:7"}"#, r#"{"uri":"note:7"}"#),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"srv__hello"},"argument":{}}"#,
            r#"{"ref":{"type":"ref/prompt","name":"hello"},"argument":{}}"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"note:{number}"}}"#,
            r#"{"ref":{"type":"ref/resource","uri":"note:{number}"}}"#,
        ),
    ] {
        ask(&mut front, 1, method, params);
        let (key, asked) = asked(&mut front);
        assert_eq!((asked.method, &*asked.params, asked.limit), (method, expect, seconds(20)));
        front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
        assert_eq!(front.received()[0]["id"], 1);
    }
    for (method, params, code, words) in [
        ("prompts/get", r#"{"name":"hello"}"#, -32602, "there is no prompt `hello`"),
        ("prompts/get", "{}", -32602, "has no name in params.name"),
        ("resources/read", r#"{"uri":"nobody:1"}"#, -32002, "there is no resource `nobody:1`"),
        ("completion/complete", r#"{"ref":{"type":"ref/prompt"}}"#, -32602, "params.ref.name"),
        ("tools/call", r#"{"name":"srv_now"}"#, -32602, "there is no tool `srv_now`"),
        ("tasks/list", "{}", -32601, "does not offer the method"),
    ] {
        ask(&mut front, 9, method, params);
        let error = front.heard_fault(9, code);
        assert!(error["message"].as_str().is_some_and(|text| text.contains(words)), "{error}");
        assert!(front.actions().is_empty());
    }
}

#[test]
fn a_list_waits_for_servers_and_not_for_ever() {
    let mut front = fronted(known(&[], false));
    ask(&mut front, 1, "tools/list", "{}");
    ask(&mut front, 2, "resources/list", "{}");
    assert!(front.received().is_empty());
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    front.mcp_session.servers_changed(front.now, &known(&[TOOL], true), &mut front.effects);
    let received = front.received();
    assert_eq!(received[0]["method"], "notifications/tools/list_changed");
    assert_eq!(
        (&received[1]["id"], received[1]["result"]["tools"].as_array().map(Vec::len)),
        (&json!(1), Some(2))
    );
    assert_eq!(received.len(), 2, "the other was withdrawn, and its list is the same: {received:?}");
    let mut front = fronted(known(&[], false));
    ask(&mut front, 1, "prompts/list", "{}");
    front.wait(Duration::from_millis(1900));
    assert!(front.received().is_empty());
    front.wait(Duration::from_millis(200));
    assert_eq!(front.received()[0]["result"]["prompts"][0]["name"], "srv__hello");
}

#[test]
fn what_is_known_from_the_last_run_is_listed_at_once_and_is_not_all_that_there_may_be() {
    let remembered = KnownServers { has_lists: true, ..known(&[TOOL], false) };
    let mut front = fronted(known(&[], false));
    ask(&mut front, 1, "tools/list", "{}");
    assert!(front.received().is_empty());
    front.mcp_session.servers_changed(front.now, &remembered, &mut front.effects);
    assert_eq!(front.received().len(), 2, "it has changed, and here it is");
    ask(&mut front, 2, "tools/list", "{}");
    assert_eq!(front.received()[0]["result"]["tools"].as_array().map(Vec::len), Some(2));
    ask(&mut front, 3, "tools/call", r#"{"name":"srv__new","arguments":{}}"#);
    assert!(front.received().is_empty(), "the server may have got another tool since");
    ask(&mut front, 4, "tools/call", r#"{"name":"srv__now","arguments":{}}"#);
    assert_eq!(asked(&mut front).1.method, "tools/call");
    front.mcp_session.servers_changed(front.now, &known(&[TOOL], true), &mut front.effects);
    front.heard_fault(3, -32602);
}

#[test]
fn what_nobody_has_yet_waits_for_whoever_may_have_it() {
    let mut front = fronted(known(&[], false));
    ask(&mut front, 1, "tools/call", r#"{"name":"srv__now","arguments":{}}"#);
    ask(&mut front, 2, "tools/call", r#"{"name":"srv__no","arguments":{}}"#);
    ask(&mut front, 3, "resources/read", r#"{"uri":"note:one:two"}"#);
    ask(&mut front, 4, "resources/read", r#"{"uri":"other:1"}"#);
    // What has no name waits for nobody, and neither does what is known.
    ask(&mut front, 5, "tools/call", "{}");
    front.heard_fault(5, -32602);
    assert!(
        matches!(&front.actions()[..], [SessionAction::Ask { asked, .. }] if asked.method == "resources/read")
    );
    front.wait(seconds(12));
    front.mcp_session.servers_changed(front.now, &known(&[TOOL], false), &mut front.effects);
    let (key, asked) = asked(&mut front);
    assert_eq!(&*asked.params, r#"{"name":"now","arguments":{}}"#);
    let limits = (asked.limit, asked.waited);
    assert_eq!(
        limits,
        (seconds(60), seconds(12)),
        "what it has waited is part of its limit, which is told whole"
    );
    front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
    let is_of = |received: &[Value], id: u32| received.iter().any(|message| message["id"] == id);
    let received = front.received();
    assert!(is_of(&received, 1) && !is_of(&received, 2), "{received:?}");
    front.mcp_session.servers_changed(front.now, &known(&[TOOL], true), &mut front.effects);
    let received = front.received();
    let codes: Vec<_> = received.iter().filter_map(|message| message["error"]["code"].as_i64()).collect();
    assert_eq!((is_of(&received, 2), is_of(&received, 4)), (true, true), "{received:?}");
    assert_eq!(codes.len(), 2, "{received:?}");

    let mut front = fronted(known(&[], false));
    ask(&mut front, 1, "prompts/get", r#"{"name":"srv__nobodys"}"#);
    front.wait(seconds(31));
    let fault = front.heard_fault(1, -31001);
    assert!(fault.to_string().contains("still starting"), "{fault}");
}

#[test]
fn each_client_is_told_in_its_own_era() {
    let mut front = fronted(known(&[TOOL], true));
    let modern = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"srv__now","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    front.says(modern);
    let (key, asked_modern) = asked(&mut front);
    assert_eq!(asked_modern.client, Era::Modern);
    front.mcp_session.answered(
        front.now,
        key,
        &answered(Era::Legacy, Ok(raw(r#"{"content":[]}"#))),
        &mut front.effects,
    );
    let result = front.received()[0]["result"].clone();
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "s");
    ask(&mut front, 6, "tools/call", r#"{"name":"srv__now"}"#);
    let (key, _) = asked(&mut front);
    let result = raw(r#"{"content":[],"resultType":"complete"}"#);
    front.mcp_session.answered(front.now, key, &answered(Era::Modern, Ok(result)), &mut front.effects);
    assert_eq!(front.received()[0]["result"], json!({ "content": [] }));
    ask(&mut front, 7, "tools/call", r#"{"name":"srv__now"}"#);
    let (key, _) = asked(&mut front);
    let error = ServerError::read("srv", "tools/call", r#"{"code":-32021,"message":"m","data":[1.0e0]}"#);
    let outcome = Err(Error::Server(Box::new(error)));
    front.mcp_session.answered(front.now, key, &answered(Era::Modern, outcome), &mut front.effects);
    let expect = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"m","data":[1.0e0]}}"#;
    assert_eq!(front.effects.received.pop().as_deref(), Some(expect));
}

#[test]
fn a_result_that_is_not_complete_is_not_taken_for_one() {
    let mut front = fronted(known(&[TOOL], true));
    for (result, why) in [
        (r#"{"resultType":"task","taskId":"t"}"#, "a task, but the request declared"),
        (r#"{"resultType":"later"}"#, "not complete"),
        ("[]", "not an object"),
    ] {
        ask(&mut front, 1, "tools/call", r#"{"name":"srv__now"}"#);
        let (key, _) = asked(&mut front);
        front.mcp_session.answered(
            front.now,
            key,
            &answered(Era::Modern, Ok(raw(result))),
            &mut front.effects,
        );
        let error = front.heard_fault(1, -31007);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("`srv__now` answered") && message.contains(why), "{error}");
        assert!(message.contains("fault of the server"), "{error}");
    }
}

#[test]
fn what_is_withdrawn_or_late_is_cancelled_and_its_answer_dropped() {
    let mut front = fronted(known(&[TOOL], true));
    ask(&mut front, 1, "tools/call", r#"{"name":"srv__now"}"#);
    let (key, _) = asked(&mut front);
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    front.mcp_session.abandoned(front.now, key, &mut front.effects);
    ask(&mut front, 2, "tools/call", r#"{"name":"srv__now"}"#);
    let (key, _) = asked(&mut front);
    front.wait(seconds(61));
    front.heard_fault(2, -31001);
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
    assert!(front.received().is_empty());
}
