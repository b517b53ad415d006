//! Extensions that servers declare: MCP Apps and skills.

use std::sync::Arc;

use super::{
    offers::promoting,
    promotion::BEHIND,
    servers::{TOOL, answered, ask, asked, fronted, known, raw, source},
    *,
};
use unhang_bridge::{Era, tasks};
use unhang_core::promotion::Promotion;
use unhang_gateway::{
    KnownServers,
    route::{
        catalog::{Catalog, ListedItems},
        names::Style,
    },
};

const SKILLS: &str = "io.modelcontextprotocol/skills";

/// A client of 2026-07-28 with these capabilities.
fn alone(capabilities: &Value, params: &str) -> String {
    format!(
        r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}{params}}}"#
    )
}

/// The server of [`known`] with these extensions, a tool for views alone, and a skill.
fn extended(extensions: &Value, base: KnownServers) -> KnownServers {
    let offered = ListedItems {
        tools: vec![
            raw(TOOL),
            raw(r#"{"name":"redraw","_meta":{"ui":{"resourceUri":"ui://a","visibility":["app"]}}}"#),
        ],
        skills: vec![raw(r#"{"uri":"skill://pdf/SKILL.md","resources":"dynamic"}"#)],
        extensions: extensions.as_object().cloned().unwrap_or_default(),
        declares_resources: true,
        ..ListedItems::default()
    };
    let source = source(0, "srv", &offered);
    KnownServers { catalog: Arc::new(Catalog::new(&Style::default(), &[], &[source])), ..base }
}

fn front(extensions: &Value) -> TestSession {
    fronted(extended(extensions, known(&[TOOL], true)))
}

fn result(front: &mut TestSession, method: &str, params: &str) -> Value {
    ask(front, 1, method, params);
    front.received().remove(0)["result"].clone()
}

#[test]
fn what_servers_declare_is_declared_to_clients() {
    let declared =
        json!({ SKILLS: { "directoryRead": true }, tasks::EXTENSION: {}, "com.example/a": { "b": 1 } });
    let without_tasks = json!({ SKILLS: { "directoryRead": true } });
    let mut plain = front(&declared);
    let discovered = result(&mut plain, "server/discover", &alone(&json!({}), ""));
    assert_eq!(discovered["capabilities"]["extensions"], without_tasks, "nobody keeps jobs");
    // Nothing becomes a job by time, and tasks of servers do.
    for (servers, expect) in [(&declared, true), (&without_tasks, false)] {
        let mut front = fronted(extended(servers, promoting(Promotion::Off, &[], &[TOOL])));
        front.mcp_session.jobs = BEHIND;
        let discovered = result(&mut front, "server/discover", &alone(&json!({}), ""));
        let tasks = &discovered["capabilities"]["extensions"][tasks::EXTENSION];
        assert_eq!(tasks.is_object(), expect, "{servers}");
    }
}

#[test]
fn a_client_that_looks_for_extensions_waits_until_servers_are_listed_but_not_for_ever() {
    let declared = json!({ SKILLS: {} });
    let hello = |capabilities: Value| {
        json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities }).to_string()
    };
    let discover = || ("server/discover", alone(&json!({}), ""));
    let views = || ("initialize", hello(json!({ "extensions": { "io.modelcontextprotocol/ui": {} } })));
    let plain = || ("initialize", hello(json!({ "extensions": {} })));
    for ((method, params), waits) in [(discover(), true), (views(), true), (plain(), false)] {
        for come in [true, false] {
            let mut front = TestSession::new(Limits::default());
            front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], false));
            ask(&mut front, 1, method, &params);
            let mut received = front.received();
            assert_eq!(received.is_empty(), waits, "{method} {params}");
            if waits && come {
                let known = extended(&declared, known(&[TOOL], true));
                front.mcp_session.servers_changed(front.now, &known, &mut front.effects);
                received = front.received();
            } else if waits {
                front.wait(seconds(2));
                received = front.received();
            }
            let answer = received.iter().find(|message| message["id"] == 1).expect("an answer");
            let has_skills = answer["result"]["capabilities"]["extensions"][SKILLS].is_object();
            assert_eq!(has_skills, waits && come, "{answer}");
        }
    }
}

#[test]
fn a_tool_for_views_alone_is_listed_to_clients_that_show_views() {
    let views = json!({ "extensions": { "io.modelcontextprotocol/ui": { "mimeTypes": [] } } });
    let mut front = front(&json!({}));
    for (capabilities, expect) in [(&json!({}), 2), (&views, 3), (&json!({ "extensions": 5 }), 2)] {
        let listed = result(&mut front, "tools/list", &alone(capabilities, ""));
        assert_eq!(listed["tools"].as_array().map(Vec::len), Some(expect), "{capabilities}: {listed}");
    }
    // A client of the handshake era has said it there.
    assert_eq!(result(&mut front, "tools/list", "{}")["tools"].as_array().map(Vec::len), Some(2));
    let mut session = TestSession::new(Limits::default());
    session.mcp_session = session.mcp_session.with_servers(extended(&json!({}), known(&[TOOL], true)));
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": views, "clientInfo": { "name": "c" } });
    ask(&mut session, 0, "initialize", &hello.to_string());
    session.received();
    assert_eq!(result(&mut session, "tools/list", "{}")["tools"].as_array().map(Vec::len), Some(3));
    // A view calls it by its own name.
    ask(&mut session, 2, "tools/call", r#"{"name":"redraw"}"#);
    assert_eq!(asked(&mut session).1.tool.as_deref(), Some("redraw"));
}

#[test]
fn skills_are_listed_and_asked_for_where_a_server_offers_them() {
    let without = result_code(&mut front(&json!({})), "skills/list", "");
    assert_eq!(without, json!(-32601));
    let mut front = front(&json!({ SKILLS: {} }));
    let listed = result(&mut front, "skills/list", &alone(&json!({}), ""));
    assert_eq!(listed["skills"], json!([{ "uri": "skill://pdf/SKILL.md", "resources": "dynamic" }]));
    assert_eq!((&listed["resultType"], &listed["ttlMs"]), (&json!("complete"), &json!(0)));
    for (method, uri) in [
        ("skills/get", "skill://pdf/SKILL.md"),
        ("resources/directory/read", "skill://pdf"),
        ("resources/read", "skill://pdf/a.md"),
    ] {
        ask(&mut front, 1, method, &alone(&json!({}), &format!(r#","uri":"{uri}""#)));
        let (key, asked) = asked(&mut front);
        assert_eq!((asked.method, asked.server), (method, 0));
        front.mcp_session.answered(front.now, key, &answered(Era::Modern, Ok(raw("{}"))), &mut front.effects);
        front.received();
    }
    assert_eq!(result_code(&mut front, "skills/get", ""), json!(-32602), "it names no skill");
}

fn result_code(front: &mut TestSession, method: &str, params: &str) -> Value {
    ask(front, 1, method, &alone(&json!({}), params));
    front.received().remove(0)["error"]["code"].clone()
}
