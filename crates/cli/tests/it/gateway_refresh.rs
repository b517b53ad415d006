//! `unhang serve` in front of servers that change their lists and announce nothing, or never give one of their lists: clients see what they
//! see without unhang, and wait for no list that nobody gives.

use std::time::Duration;

use serde_json::json;

use crate::{
    gateway::{finish, finish_windows, gateway, listed, server, window},
    gateway_http::{finish as finish_web, gateway as over_http},
    harness::{Client, Sandbox, timed},
};

/// The lists of `changes-lists`, with their members and the beginnings of the public names of what grows.
const LISTS: [(&str, &str, &str, &str); 3] = [
    ("tools/list", "tools", "name", "srv__grown-"),
    ("prompts/list", "prompts", "name", "srv__grown-"),
    ("resources/list", "resources", "uri", "grown://"),
];

/// Checks that each list has this many items that have grown.
#[track_caller]
fn has_grown(client: &mut Client, count: usize) {
    for (method, member, name, beginning) in LISTS {
        let all = listed(client, method, member, name);
        let grown: Vec<_> = all.iter().filter(|name| name.starts_with(beginning)).collect();
        assert_eq!(grown.len(), count, "{method}: {all:?}");
    }
}

#[test]
fn lists_that_a_server_changes_in_silence_are_those_of_the_next_request() {
    // The second server declares that it announces changes, and does not.
    for program in [&["changes-lists"][..], &["changes-lists", "--declares-changes", "true"]] {
        let sandbox = Sandbox::with_jobs();
        let mut client = gateway(&sandbox, &[server("srv", program, ""), server("other", &["honest"], "")]);
        has_grown(&mut client, 1);
        for count in 2..6 {
            client.tool_text("srv__grow", json!({}));
            has_grown(&mut client, count);
        }
        finish(client, &sandbox);
    }
}

#[test]
fn a_tool_that_a_server_has_added_in_silence_is_called_by_its_name() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("srv", &["changes-lists"], "")]);
    has_grown(&mut client, 1);
    client.tool_text("srv__grow", json!({}));
    assert_eq!(client.tool_text("srv__grown-1", json!({})), "grown-1");
    let id = client.call("srv__grown-2", json!({}));
    assert_eq!(client.answer(id)["error"]["code"], -32602);
    finish(client, &sandbox);
}

#[test]
fn windows_see_what_a_shared_server_has_changed_in_silence() {
    let sandbox = Sandbox::with_jobs();
    let mut first = gateway(&sandbox, &[server("srv", &["changes-lists"], "")]);
    let mut second = window(&sandbox, &[]);
    has_grown(&mut second, 1);
    first.tool_text("srv__grow", json!({}));
    has_grown(&mut second, 2);
    second.tool_text("srv__grow", json!({}));
    assert_eq!(second.tool_text("srv__grown-2", json!({})), "grown-2");
    has_grown(&mut first, 3);
    finish_windows([first, second], &sandbox);
}

#[test]
fn sessions_over_http_see_what_their_server_has_changed_in_silence() {
    let sandbox = Sandbox::with_jobs();
    for more in ["", "per-session = true"] {
        let (process, web) = over_http(&sandbox, &[server("srv", &["changes-lists"], more)]);
        let session = web.begin();
        for count in 2..5 {
            let told = web.call(&session, 1, "srv__grow", json!({})).last();
            assert!(told["result"].is_object(), "{told}");
            let ask = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
            let all = web.post(&[("mcp-session-id", &session)], &ask).last();
            let tools = all["result"]["tools"].as_array().expect("a list");
            let names = tools.iter().filter_map(|tool| tool["name"].as_str());
            let grown = names.filter(|name| name.starts_with("srv__grown-")).count();
            assert_eq!(grown, count, "{more} {all}");
        }
        finish_web(process, &sandbox);
    }
}

#[test]
fn a_list_that_never_comes_holds_back_no_other_list() {
    let sandbox = Sandbox::with_jobs();
    let withholding = server("srv", &["changes-lists", "--withholds", "prompts/list"], "");
    let mut client = gateway(&sandbox, &[withholding]);
    let (tools, took) = timed(|| listed(&mut client, "tools/list", "tools", "name"));
    assert!(tools.iter().any(|name| name == "srv__grow"), "{tools:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    client.tool_text("srv__grow", json!({}));
    let (prompts, took) = timed(|| listed(&mut client, "prompts/list", "prompts", "name"));
    assert!(prompts.is_empty() && took < Duration::from_secs(10), "{prompts:?} {took:?}");
    for (method, member, name, beginning) in [LISTS[0], LISTS[2]] {
        let all = listed(&mut client, method, member, name);
        assert_eq!(all.iter().filter(|name| name.starts_with(beginning)).count(), 2, "{method}: {all:?}");
    }
    finish(client, &sandbox);
}

#[test]
fn a_server_that_is_busy_delays_a_list_once() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("srv", &["changes-lists"], "")]);
    listed(&mut client, "tools/list", "tools", "name");
    let call = client.call("srv__block", json!({ "ms": 12_000 }));
    let (tools, took) =
        timed(|| (0..9).map(|_| listed(&mut client, "tools/list", "tools", "name")).last().expect("a list"));
    assert!(tools.iter().any(|name| name == "srv__grow"), "{tools:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert!(client.answer(call)["result"].is_object());
    finish(client, &sandbox);
}

#[test]
fn a_call_of_a_tool_that_a_busy_server_has_just_got_waits_for_the_server() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("srv", &["changes-lists"], "deny = [\"grown-2\"]")]);
    has_grown(&mut client, 1);
    client.tool_text("srv__grow", json!({}));
    client.tool_text("srv__grow", json!({}));
    let busy = client.call("srv__block", json!({ "ms": 4_000 }));
    let (unlisted, denied) = (client.call("srv__grown-1", json!({})), client.call("srv__grown-2", json!({})));
    assert_eq!(client.answer(denied)["error"]["code"], -32602, "clients may not have that");
    assert!(client.answer(busy)["result"].is_object());
    assert_eq!(client.answer(unlisted)["result"]["content"][0]["text"], "grown-1");
    finish(client, &sandbox);
}

#[test]
fn a_server_that_refuses_to_list_its_tools_has_them_all_the_same() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("srv", &["changes-lists", "--refuses", "tools/list"], "")]);
    for (method, member, name, beginning) in [LISTS[1], LISTS[2]] {
        let all = listed(&mut client, method, member, name);
        assert_eq!(all.iter().filter(|name| name.starts_with(beginning)).count(), 1, "{method}: {all:?}");
    }
    assert_eq!(client.tool_text("srv__grown-0", json!({})), "grown-0");
    finish(client, &sandbox);
}
