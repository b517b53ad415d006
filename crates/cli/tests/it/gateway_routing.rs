//! What `unhang.toml` says of a server behind the gateway: which of its tools are offered, in which words and within which limits; and
//! when it rests.

use std::{fs, ops::RangeInclusive, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{finish, gateway, listed, server},
    harness::{Client, PATIENCE, Sandbox, Web, is_alive, lab_program, run_to_end, wait_until},
};

/// An honest server, of which a file keeps what it is told.
fn teed() -> [&'static str; 7] {
    ["tee", "said", "/dev/null", "--", lab_program(), "zoo", "well-behaved"]
}

/// Returns the lines that the server behind [`teed`] received.
fn said(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.path().join("said")).unwrap_or_default()
}

fn error(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let id = client.call(tool, arguments);
    client.answer(id)["error"].clone()
}

/// A call ended at its limit; what was left of that when the server was asked is told, in milliseconds.
#[track_caller]
fn assert_expired(error: &Value, limit: RangeInclusive<u64>) {
    assert_eq!(error["code"], -31001, "{error}");
    let told = error["data"]["limitMs"].as_u64();
    assert!(told.is_some_and(|told| limit.contains(&told)), "{error}");
}

#[test]
fn a_tool_that_is_not_allowed_is_unknown_and_its_server_hears_nothing_of_it() {
    let sandbox = Sandbox::with_jobs();
    let rules = "allow = [\"e*\", \"notify-list-changed\", \"raed_*\"]\ndeny = [\"environment\"]\n[servers.srv.tools.ehco]";
    let mut client = gateway(&sandbox, &[server("srv", &teed(), rules)]);
    let tools = listed(&mut client, "tools/list", "tools", "name");
    let of_server: Vec<&String> = tools.iter().filter(|tool| tool.starts_with("srv__")).collect();
    assert_eq!(of_server, ["srv__echo", "srv__notify-list-changed"]);
    for (tool, arguments) in [("environment", json!({ "name": "HOME" })), ("pid", json!({}))] {
        let (denied, unknown) = (
            error(&mut client, &format!("srv__{tool}"), arguments.clone()),
            error(&mut client, "srv__nothing-like-it", arguments.clone()),
        );
        assert_eq!(denied["code"], -32602, "{denied}");
        let message = denied["message"].as_str().expect("text");
        assert!(message.contains(&format!("there is no tool `srv__{tool}`")), "{message}");
        let members =
            |error: &Value| error["data"].as_object().map(|data| data.keys().cloned().collect::<Vec<_>>());
        assert_eq!(
            (members(&denied), &denied["data"]["hint"]),
            (members(&unknown), &unknown["data"]["hint"])
        );
        let id = client.modern_call(&format!("srv__{tool}"), arguments);
        assert_eq!(client.answer(id)["error"]["code"], -32602);
    }
    assert_eq!(client.tool_text("srv__echo", json!({ "text": "after that" })), "after that");
    let received = said(&sandbox);
    assert!(received.contains("after that"), "{received}");
    assert!(!received.contains("environment") && !received.contains("\"pid\""), "{received}");

    // What has no effect is told, and once, however often the tools are listed: each time before they are listed again.
    for lists in [2, 3] {
        client.tool_text("srv__notify-list-changed", json!({}));
        wait_until("it is listed again", PATIENCE, || said(&sandbox).matches("tools/list").count() >= lists);
    }
    let stderr = client.stderr();
    for told in [
        "`raed_*` in `allow` of `srv` has no effect: it matches no tool of the server",
        "`ehco` in `tools` of `srv` has no effect: the server has no such tool; did you mean `echo`?",
    ] {
        assert_eq!(stderr.matches(told).count(), 1, "{told}: {stderr}");
    }
    finish(client, &sandbox);
}

#[test]
fn a_description_is_replaced_and_all_else_stays() {
    let sandbox = Sandbox::with_jobs();
    let rules = "[servers.ours.tools.echo]\ndescription = \"Says it \\\"again\\\"\"";
    let servers = [server("ours", &["well-behaved"], rules), server("plain", &["well-behaved"], "")];
    let mut client = gateway(&sandbox, &servers);
    let id = client.request("tools/list", json!({}));
    let tools = client.answer(id)["result"]["tools"].clone();
    let of = |name: &str| {
        let mut tools = tools.as_array().expect("a list").iter();
        tools.find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}: {tools:?}")).clone()
    };
    let (ours, mut expect) = (of("ours__echo"), of("plain__echo"));
    expect["name"] = "ours__echo".into();
    expect["description"] = "Says it \"again\"".into();
    assert_eq!(ours, expect);
    assert_eq!(of("ours__pid")["description"], of("plain__pid")["description"]);
    finish(client, &sandbox);
}

#[test]
fn a_tool_may_have_a_limit_of_its_own_and_a_flag_is_above_it() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { call-timeout = \"1s\" }\ntools.sleep.call-timeout =";
    let servers = [
        server("less", &["well-behaved"], "tools.sleep.call-timeout = \"300ms\""),
        server("more", &["well-behaved"], &format!("{limits} \"20s\"")),
    ];
    let mut client = gateway(&sandbox, &servers);
    listed(&mut client, "tools/list", "tools", "name");
    assert_expired(&error(&mut client, "less__sleep", json!({ "ms": 60_000 })), 0..=300);
    assert_eq!(client.tool_text("more__sleep", json!({ "ms": 1500 })), "slept 1500 ms");
    finish(client, &sandbox);

    let mut command = sandbox.unhang();
    command.args(["serve", "--call-timeout", "2s"]);
    let mut client = Client::start(command);
    client.initialize();
    listed(&mut client, "tools/list", "tools", "name");
    let calls = ["less__sleep", "more__sleep"].map(|tool| client.call(tool, json!({ "ms": 60_000 })));
    for answer in client.answers(calls) {
        assert_expired(&answer["error"], 1000..=2000);
    }
    finish(client, &sandbox);
}

#[test]
fn calls_of_a_tool_with_one_turn_run_one_after_the_other_and_delay_no_other() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("srv", &teed(), "tools.sleep.max-in-flight = 1")]);
    listed(&mut client, "tools/list", "tools", "name");
    let first = client.call("srv__sleep", json!({ "ms": 3_600_000 }));
    wait_until("it is asked", PATIENCE, || said(&sandbox).contains("3600000"));
    let second = client.call("srv__sleep", json!({ "ms": 7 }));
    assert_eq!(client.tool_text("srv__echo", json!({ "text": "beside" })), "beside");
    let received = said(&sandbox);
    assert_eq!(received.matches("\"sleep\"").count(), 1, "{received}");
    client.cancel(first);
    assert_eq!(client.answer(second)["result"]["content"][0]["text"], "slept 7 ms");
    assert_eq!(client.answers_to(first), 0);
    finish(client, &sandbox);
}

#[test]
fn a_pattern_that_is_none_is_refused_with_its_place() {
    let sandbox = Sandbox::new();
    let text = "[servers.srv]\ncommand = \"srv\"\ndeny = [\"a\", \"b[\"]\n";
    fs::write(sandbox.path().join("unhang.toml"), text).expect("a file");
    let mut command = sandbox.unhang();
    command.arg("serve");
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!((code, &*stdout), (2, ""), "{stderr}");
    assert!(stderr.contains("unhang.toml:3:14: servers.srv.deny[1]: `b[` is not a pattern"), "{stderr}");
}

/// How a server is, and how often it was started.
fn state(web: &Web, name: &str) -> (String, u64) {
    let status = web.ask("GET", "/status", &[], "").last();
    let servers = status["servers"].as_array().unwrap_or_else(|| panic!("servers: {status}"));
    let server = servers.iter().find(|server| server["name"] == name).expect("it is there");
    (server["state"].as_str().expect("text").to_owned(), server["starts"].as_u64().expect("a number"))
}

#[test]
fn a_server_that_nobody_asks_anything_rests_until_it_is_asked_and_never_in_a_call() {
    let sandbox = Sandbox::with_jobs();
    let idle = "idle-timeout = \"1s\"\nera = \"modern\"";
    let servers = [
        server("rests", &["well-behaved"], idle),
        server("watched", &["well-behaved"], idle),
        server("stays", &["well-behaved"], "era = \"modern\""),
    ];
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let (mut process, web) = Web::start(&sandbox);
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    let session = web.begin();
    let text = |id: u32, tool: &str, arguments: Value| {
        let answer = web.call(&session, id, tool, arguments).last();
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let ask = |id: u32, method: &str, params: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        web.post(&[("mcp-session-id", &session)], &message).last()
    };
    let watching = ask(1, "resources/subscribe", json!({ "uri": "watched+zoo://numbers/1" }));
    assert_eq!(watching["result"], json!({}), "{watching}");
    let pid: i32 = text(2, "rests__pid", json!({})).parse().expect("a number");
    // On a busy machine each may have rested before.
    let [rests, watched] = ["rests", "watched"].map(|name| state(&web, name).1);
    wait_until("it rests", PATIENCE, || state(&web, "rests") == ("ended".to_owned(), rests));
    wait_until("it has gone", PATIENCE, || !is_alive(pid));
    let tools = ask(3, "tools/list", json!({}))["result"]["tools"].to_string();
    assert!(tools.contains("rests__echo"), "its tools stay: {tools}");
    assert_eq!(text(4, "rests__sleep", json!({ "ms": 3500 })), "slept 3500 ms");
    assert_eq!(state(&web, "rests").1, rests + 1, "a call starts it, and it is not stopped while that runs");
    wait_until("it rests again", PATIENCE, || state(&web, "rests") == ("ended".to_owned(), rests + 1));
    for (name, starts) in [("watched", watched), ("stays", 1)] {
        assert_eq!(state(&web, name), ("running".to_owned(), starts), "{name}");
    }
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn one_that_is_slow_to_stop_is_started_again_when_it_has_gone() {
    let sandbox = Sandbox::with_jobs();
    let slow = server("slow", &["ignores-everything"], "idle-timeout = \"1s\"");
    let mut client = gateway(&sandbox, &[slow]);
    listed(&mut client, "tools/list", "tools", "name");
    wait_until("it is told to stop", PATIENCE, || {
        client.stderr().contains("unhang stops it until the next request")
    });
    assert_eq!(client.tool_text("slow__echo", json!({ "text": "x" })), "x");
    let log = client.stderr();
    let starts: Vec<usize> = log.match_indices("starting `slow`").map(|(offset, _)| offset).collect();
    let stopped = log.find("ended (").unwrap_or(usize::MAX);
    assert!(matches!(starts[..], [_, again] if again > stopped), "{log}");
    finish(client, &sandbox);
}
