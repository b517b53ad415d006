//! Extensions and resources that nobody lists, through the gateway: they work as they do directly (issue 23, causes B, G and H).

use std::fs;

use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller},
    gateway::{finish, gateway, listed, server, window},
    harness::{Client, Sandbox},
    slow_tasks::Modern,
};

const SKILLS: &str = "io.modelcontextprotocol/skills";
const VIEWS: &str = "io.modelcontextprotocol/ui";

fn extended(name: &str) -> String {
    server(name, &["offers-extensions", "--name", name], "")
}

/// The URI of the link that a tool returns.
fn link(client: &mut Client, tool: &str, uri: &str) -> String {
    let id = client.call(tool, json!({ "uri": uri }));
    let answer = client.answer(id);
    answer["result"]["content"][0]["uri"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The URI and the text that reading a resource brings.
fn read(client: &mut Client, uri: &str) -> (String, String) {
    let answer = client.ask("resources/read", json!({ "uri": uri }));
    let text = |member: &str| answer["result"]["contents"][0][member].as_str().map(str::to_owned);
    text("uri").zip(text("text")).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_resource_that_nobody_lists_is_read_from_the_only_server_that_can_have_it() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[extended("one"), server("plain", &["modern-only"], "")]);
    // Before all servers are listed, the other one may turn out to have resources.
    listed(&mut client, "tools/list", "tools", "name");
    assert_eq!(link(&mut client, "one__link", "demo://a"), "demo://a");
    let expect = ("demo://a".to_owned(), "one has demo://a".to_owned());
    assert_eq!(read(&mut client, "demo://a"), expect);
    let subscribed = client.ask("resources/subscribe", json!({ "uri": "demo://a" }));
    assert!(subscribed["result"].is_object(), "{subscribed}");
    let refused = client.ask("resources/read", json!({ "uri": "other:a" }));
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(message, "`one` has no other:a", "the server says it: {refused}");
    finish(client, &sandbox);
}

#[test]
fn a_link_of_one_of_two_servers_is_read_from_that_server_in_every_window() {
    let sandbox = Sandbox::with_jobs();
    let leader = gateway(&sandbox, &[extended("one"), extended("two")]);
    let follower = window(&sandbox, &[]);
    assert!(follower.stderr().contains("the gateway that already runs"), "{}", follower.stderr());
    let mut clients = [leader, follower];
    for client in &mut clients {
        for name in ["one", "two"] {
            let public = format!("{name}+demo://a");
            assert_eq!(link(client, &format!("{name}__link"), "demo://a"), public);
            assert_eq!(read(client, &public), (public.clone(), format!("{name} has demo://a")));
            let web = "https://example.com/a";
            assert_eq!(link(client, &format!("{name}__link"), web), web, "clients read it by themselves");
        }
        let refused = client.ask("resources/read", json!({ "uri": "demo://a" }));
        assert_eq!(refused["error"]["code"], -32002, "nobody can tell whose: {refused}");
    }
    let [leader, mut follower] = clients;
    follower.finish();
    finish(leader, &sandbox);
}

/// A session of a client that shows views, or of one that does not.
fn viewing(sandbox: &Sandbox, servers: &[String], shows_views: bool) -> Client {
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    let mut client = Client::start(command);
    let extensions = match shows_views {
        true => {
            json!({ VIEWS: { "mimeTypes": ["text/html;profile=mcp-app"] }, "com.example/own": { "a": 1 } })
        }
        false => json!({}),
    };
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": { "extensions": extensions },
        "clientInfo": { "name": "test", "version": "1" },
    });
    let id = client.request("initialize", hello);
    assert!(client.answer(id)["result"].is_object());
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    client
}

#[test]
fn a_view_of_a_server_is_shown_and_calls_the_tools_of_its_server() {
    for (names, shows_views) in [(&["one"][..], true), (&["one"], false), (&["one", "two"], true)] {
        let sandbox = Sandbox::with_jobs();
        let servers: Vec<String> = names.iter().map(|name| extended(name)).collect();
        let mut client = viewing(&sandbox, &servers, shows_views);
        let listed = client.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().expect("a list").clone();
        let of = |name: &str| tools.iter().find(|tool| tool["name"] == name).cloned().unwrap_or_default();
        for name in names {
            let view = of(&format!("{name}__show"))["_meta"]["ui"]["resourceUri"].clone();
            let expect = if names.len() == 1 {
                "ui://clock/view".to_owned()
            } else {
                format!("ui://{name}+clock/view")
            };
            assert_eq!(view, expect);
            let shown = client.result(&format!("{name}__show"), json!({}));
            let meta = &shown["_meta"];
            assert_eq!((&meta["ui"]["resourceUri"], &meta["ui/resourceUri"]), (&view, &view), "{shown}");
            let text = format!("{name} has ui://clock/view");
            assert_eq!(read(&mut client, &expect), (expect, text));
            let redraw = of(&format!("{name}__redraw"));
            assert_eq!(redraw.is_object(), shows_views, "it is for views alone: {redraw}");
            if shows_views {
                assert_eq!(redraw["_meta"]["ui"]["visibility"], json!(["app"]));
            }
        }
        let called = client.ask("tools/call", json!({ "name": "redraw", "arguments": {} }));
        match names.len() {
            1 => assert_eq!(called["result"]["content"][0]["text"], "one does it", "{called}"),
            _ => assert_eq!(called["error"]["code"], -32602, "nobody can tell whose: {called}"),
        }
        // The server hears what its client can do.
        let declared = client.tool_text("one__declared", json!({}));
        assert!(declared.contains("text/html;profile=mcp-app"), "{declared}");
        assert_eq!(declared.contains("com.example/own"), shows_views, "{declared}");
        finish(client, &sandbox);
    }
}

#[test]
fn skills_of_all_servers_are_one_list_and_each_is_read_from_its_server() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), [extended("one"), extended("two")].concat())
        .expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    let mut client = Modern::Pipes(StdioCaller::at(Client::start(command)));
    let mut ask = |method: &str, params: Value| client.ask_as(method, params, json!({}));
    let listed = ask("skills/list", json!({}));
    let uris: Vec<&str> = listed["result"]["skills"]
        .as_array()
        .unwrap_or_else(|| panic!("{listed}"))
        .iter()
        .filter_map(|skill| skill["uri"].as_str())
        .collect();
    let expect = [
        "one+skill://refunds/SKILL.md",
        "skill://one/SKILL.md",
        "two+skill://refunds/SKILL.md",
        "skill://two/SKILL.md",
    ];
    assert_eq!(uris, expect);
    assert_eq!(listed["result"]["skills"][0]["resources"][0]["uri"], expect[0]);
    let discovered = ask("server/discover", json!({}));
    assert_eq!(discovered["result"]["capabilities"]["extensions"][SKILLS]["directoryRead"], true);
    for (uri, text) in [
        (expect[0], "one has skill://refunds/SKILL.md"),
        (expect[2], "two has skill://refunds/SKILL.md"),
        ("skill://two/never-listed.md", "two has skill://two/never-listed.md"),
    ] {
        let answer = ask("resources/read", json!({ "uri": uri }));
        assert_eq!(answer["result"]["contents"][0]["text"], text, "{answer}");
        assert_eq!(answer["result"]["contents"][0]["uri"], uri);
    }
    let got = ask("skills/get", json!({ "uri": expect[2] }));
    assert_eq!(got["result"]["skill"]["uri"], expect[2], "{got}");
    let children = ask("resources/directory/read", json!({ "uri": "two+skill://refunds" }));
    assert_eq!(children["result"]["resources"][0]["uri"], expect[2], "{children}");
    for (method, uri) in
        [("skills/get", "skill://refunds/SKILL.md"), ("skills/get", "skill://never/SKILL.md")]
    {
        let refused = ask(method, json!({ "uri": uri }));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let Modern::Pipes(client) = client else { unreachable!("it is a pipe") };
    finish(client.client, &sandbox);
}

/// A skill is read by URIs beside its own, which no server lists, and which the template of another server may fit.
#[test]
fn a_skill_that_no_server_lists_is_read_from_the_server_that_gave_it() {
    let sandbox = Sandbox::with_jobs();
    let templated = |name: &str, template: &str| {
        server(name, &["offers-extensions", "--name", name, "--template", template], "")
    };
    let servers = [templated("one", "skill://{name}/SKILL.md"), templated("two", "skill://{+path}")];
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    let mut client = Modern::Pipes(StdioCaller::at(Client::start(command)));
    // Before all servers are listed, nobody knows all templates.
    client.ask_as("skills/list", json!({}), json!({}));
    let mut ask = |method: &str, uri: &str| client.ask_as(method, json!({ "uri": uri }), json!({}));
    for (asked, name) in [("skill://new/SKILL.md", "one"), ("two+skill://new/SKILL.md", "two")] {
        let got = ask("skills/get", asked);
        let uri = got["result"]["skill"]["uri"].as_str().unwrap_or_else(|| panic!("{got}"));
        let (folder, _) = uri.rsplit_once('/').expect("a folder");
        for file in ["SKILL.md", "notes.md"] {
            let read = ask("resources/read", &format!("{folder}/{file}"));
            let text = format!("{name} has skill://new/{file}");
            assert_eq!(read["result"]["contents"][0]["text"], text, "{got} {read}");
        }
        let listed = &got["result"]["skill"]["resources"][0]["uri"];
        assert_eq!(listed, uri, "{got}");
    }
    let Modern::Pipes(client) = client else { unreachable!("it is a pipe") };
    finish(client.client, &sandbox);
}
