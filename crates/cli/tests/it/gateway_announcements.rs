//! `unhang serve` in front of servers that announce changes of their lists, although the lists are the same: clients hear of it as they do
//! without unhang, and are not woken without end.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{finish, gateway as over_a_pipe, listed, server, window},
    gateway_http::{finish as finish_web, gateway as over_http, listen, modern_call},
    harness::{Client, PATIENCE, Sandbox, WebAnswer, signal, timed, wait_until},
};

/// The kind of list that a message says has changed.
fn kind(message: &Value) -> Option<&str> {
    message["method"].as_str()?.strip_prefix("notifications/")?.strip_suffix("/list_changed")
}

/// A client that has the lists of these servers.
fn client(sandbox: &Sandbox, servers: &[String]) -> Client {
    let mut client = over_a_pipe(sandbox, servers);
    listed(&mut client, "tools/list", "tools", "name");
    client
}

/// Lets the server announce a change of this list.
fn announce(client: &mut Client, list: &str) {
    client.tool_text("srv__announce", json!({ "text": list }));
}

/// Waits until a client that had seen so many messages has heard so many announcements since then, and gives their kinds.
#[track_caller]
fn heard_since(client: &mut Client, before: usize, count: usize) -> Vec<String> {
    loop {
        let heard = client.seen()[before..].iter().filter_map(kind);
        let heard: Vec<String> = heard.map(str::to_owned).collect();
        if heard.len() >= count {
            return heard;
        }
        assert!(client.next_message(PATIENCE).is_some(), "no announcement: {heard:?}, {}", client.stderr());
    }
}

/// The kinds of the next so many messages, in the order of the alphabet.
fn kinds(stream: &mut WebAnswer, count: usize) -> Vec<String> {
    let messages = (0..count).map(|_| stream.next().expect("a message"));
    let mut kinds: Vec<String> =
        messages.map(|message| kind(&message).unwrap_or_else(|| panic!("{message}")).to_owned()).collect();
    kinds.sort();
    kinds
}

#[test]
fn a_client_hears_what_its_server_announces_and_nothing_of_a_restart() {
    let sandbox = Sandbox::with_jobs();
    let mut client = client(&sandbox, &[server("srv", &["announces-lists"], "")]);
    let before = client.seen().len();
    for (number, list) in ["prompts", "resources"].into_iter().enumerate() {
        announce(&mut client, list);
        assert_eq!(heard_since(&mut client, before, number + 1)[number..], [list]);
    }
    let pid = client.tool_text("srv__pid", json!({}));
    signal(pid.parse().expect("a number"), Signal::KILL);
    wait_until("it is started again", PATIENCE, || {
        let id = client.call("srv__pid", json!({}));
        client.answer(id)["result"]["content"][0]["text"].as_str().is_some_and(|new| new != pid)
    });
    // The server was listed anew, and what is heard next is what it announces then.
    announce(&mut client, "prompts");
    assert_eq!(heard_since(&mut client, before, 3), ["prompts", "resources", "prompts"]);
    finish(client, &sandbox);
}

#[test]
fn sessions_and_subscribers_hear_what_is_announced_in_their_era() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = over_http(&sandbox, &[server("srv", &["well-behaved"], "")]);
    let session = web.begin();
    let mut heard = web.ask("GET", "/mcp", &[("mcp-session-id", &session)], "");
    let mut of_tools = listen(&web, &json!({ "toolsListChanged": true }));
    let mut of_all = listen(
        &web,
        &json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true }),
    );
    let told = web.call(&session, 1, "srv__notify-list-changed", json!({})).last();
    assert!(told["result"].is_object(), "{told}");
    assert_eq!(kinds(&mut heard, 3), ["prompts", "resources", "tools"]);
    // Until a client of 2026-07-28 calls something, there is only the process of the other era. The second process tells subscribers alone,
    // and unhang subscribes when it has read the lists.
    wait_until("unhang has subscribed", PATIENCE, || {
        let told = modern_call(&web, 2, "srv__state", &json!({}));
        let state = told["result"]["content"][0]["text"].as_str().expect("a text");
        serde_json::from_str::<Value>(state).expect("JSON")["listens"] == 1
    });
    let told = modern_call(&web, 3, "srv__notify-list-changed", &json!({}));
    assert!(told["result"].is_object(), "{told}");
    assert_eq!(kinds(&mut of_all, 3), ["prompts", "resources", "tools"]);
    assert_eq!(kinds(&mut of_tools, 1), ["tools"]);
    assert_eq!(web.ask("DELETE", "/mcp", &[("mcp-session-id", &session)], "").status, 200);
    assert_eq!(heard.all(), Vec::<Value>::new(), "the other process announced that, to others");
    finish_web(process, &sandbox);
}

#[test]
fn a_session_hears_what_its_own_instance_announces_in_its_first_call() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = over_http(&sandbox, &[server("srv", &["announces-lists"], "per-session = true")]);
    let sessions = [web.begin(), web.begin()];
    let mut heard =
        sessions.each_ref().map(|session| web.ask("GET", "/mcp", &[("mcp-session-id", session)], ""));
    for (number, list) in [(0, "prompts"), (1, "tools")] {
        let told = web.call(&sessions[number], 1, "srv__announce", json!({ "text": list })).last();
        assert!(told["result"].is_object(), "{told}");
        assert_eq!(kinds(&mut heard[number], 1), [list], "its own, and no other session's");
    }
    finish_web(process, &sandbox);
}

#[test]
fn a_server_that_announces_without_end_is_told_of_once_a_second() {
    let sandbox = Sandbox::with_jobs();
    let mut client = client(&sandbox, &[server("srv", &["announces-lists", "--every", "10"], "")]);
    let first = client.seen().len();
    heard_since(&mut client, first, 1);
    let before = client.seen().len();
    let (heard, took) = timed(|| heard_since(&mut client, before, 4));
    assert_eq!(heard, ["tools"; 4]);
    assert!(took > Duration::from_millis(3500), "{took:?}");
    finish(client, &sandbox);
}

#[test]
fn an_announcement_is_told_once_the_server_has_given_its_lists() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { breaker-cooldown = \"1s\" }";
    let faulty_server = ["announces-lists", "--refuses-until", "go"];
    let mut client = client(&sandbox, &[server("srv", &faulty_server, limits)]);
    let before = client.seen().len();
    announce(&mut client, "tools");
    wait_until("its lists cannot be had", PATIENCE, || sandbox.log().contains("`srv` cannot be listed"));
    client.round_trip();
    assert_eq!(client.seen()[before..].iter().find_map(kind), None, "they are not known yet");
    fs::write(sandbox.path().join("go"), "").expect("a file");
    assert_eq!(heard_since(&mut client, before, 1), ["tools"]);
    finish(client, &sandbox);
}

#[test]
fn windows_hear_what_is_announced_once_whichever_of_them_leads() {
    let sandbox = Sandbox::with_jobs();
    let mut leader = client(&sandbox, &[server("srv", &["announces-lists"], "")]);
    let mut follower = window(&sandbox, &[]);
    listed(&mut follower, "tools/list", "tools", "name");
    let before = [&leader, &follower].map(|client| client.seen().len());
    let lists = ["tools", "prompts", "resources", "tools", "prompts", "resources"];
    for (number, list) in lists.into_iter().enumerate() {
        announce(&mut follower, list);
        for (client, before) in [&mut leader, &mut follower].into_iter().zip(before) {
            let heard = heard_since(client, before, number + 1);
            assert_eq!(heard, lists[..=number], "once, and there is no echo");
        }
    }
    finish_window(follower);
    finish(leader, &sandbox);
}

fn finish_window(mut client: Client) {
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
}
