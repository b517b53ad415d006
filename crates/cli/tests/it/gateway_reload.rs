//! `unhang serve` whose configuration changes while it runs.

use std::{fs, path::Path, thread, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{server, window},
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, is_alive, wait_until},
};

/// Puts a file in the place of the configuration, whole.
fn write(folder: &Path, text: &str) {
    let new = folder.join("unhang.toml.new");
    fs::write(&new, text).expect("a file");
    fs::rename(new, folder.join("unhang.toml")).expect("it is there");
}

fn configured(text: &str) -> (Sandbox, Client) {
    let sandbox = Sandbox::with_jobs();
    write(sandbox.path(), text);
    let client = window(&sandbox, &[]);
    (sandbox, client)
}

fn changed(client: &mut Client) {
    client.find("a change of the tools", |message| message["method"] == "notifications/tools/list_changed");
}

fn tools(client: &mut Client) -> Vec<String> {
    let id = client.request("tools/list", json!({}));
    let listed = client.answer(id)["result"]["tools"].clone();
    let names = listed.as_array().expect("a list").iter();
    names.map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

fn pid(client: &mut Client, server: &str) -> i32 {
    client.tool_text(&format!("{server}__pid"), json!({})).parse().expect("a number")
}

fn said(client: &Client, text: &str) {
    wait_until(text, PATIENCE, || client.stderr().contains(text));
}

fn leave(mut client: Client) {
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
}

#[test]
fn a_hangup_exchanges_servers_and_ends_no_session_and_no_call() {
    let (one, two) = (server("one", &["well-behaved"], ""), server("two", &["well-behaved"], ""));
    let (sandbox, mut client) = configured(&(one.clone() + &two));
    let (kept, leaving) = (pid(&mut client, "one"), pid(&mut client, "two"));
    let in_flight = client.call("two__sleep", json!({ "ms": 3_000 }));
    // The call is with the server before it goes.
    pid(&mut client, "two");
    write(sandbox.path(), &(one + &server("three", &["well-behaved"], "")));
    client.signal(Signal::HUP);
    said(&client, "servers new: `three`, gone: `two`");
    wait_until("the new one is there", PATIENCE, || {
        let tools = tools(&mut client);
        tools.contains(&"three__echo".to_owned()) && !tools.contains(&"two__echo".to_owned())
    });
    assert_eq!(client.tool_text("three__echo", json!({ "text": "hello" })), "hello");
    assert_eq!(pid(&mut client, "one"), kept, "what stays as it was goes on");
    let answer = client.answer(in_flight);
    assert!(answer["result"]["content"].is_array(), "{answer}");
    wait_until("it has gone once it had answered", PATIENCE, || !is_alive(leaving));
    let id = client.call("two__echo", json!({ "text": "x" }));
    assert_eq!(client.answer(id)["error"]["code"], -32602, "nobody has it any more");
    client.signal(Signal::HUP);
    said(&client, "nothing has changed");
    leave(client);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn a_file_that_is_written_is_read_and_one_that_is_wrong_changes_nothing() {
    let good = server("one", &["well-behaved"], "");
    let (sandbox, mut client) = configured(&good);
    let before = pid(&mut client, "one");
    write(sandbox.path(), &format!("{good}\n[servers.two]\ncommand = 5\n"));
    said(&client, "keeps the earlier settings");
    assert!(client.stderr().contains("unhang.toml:"), "it says where: {}", client.stderr());
    assert_eq!(pid(&mut client, "one"), before);
    // A server that is described otherwise is started anew, and stays listed meanwhile.
    write(sandbox.path(), &server("one", &["well-behaved"], "env = { A = \"1\" }\n"));
    said(&client, "servers started anew: `one`");
    assert!(tools(&mut client).contains(&"one__echo".to_owned()));
    let after = pid(&mut client, "one");
    assert_ne!(after, before);
    wait_until("the one before has gone", PATIENCE, || !is_alive(before));
    leave(client);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn tools_of_the_file_come_and_go_too() {
    let tool = |name: &str, text: &str| {
        format!("[tools.{name}]\ncommand = [\"echo\", \"{text}\"]\nmode = \"child\"\n")
    };
    let (sandbox, mut client) = configured(&tool("first", "1"));
    assert_eq!(tools(&mut client)[0], "first");
    write(sandbox.path(), &(tool("first", "2") + &tool("second", "3")));
    client.signal(Signal::HUP);
    changed(&mut client);
    assert_eq!(tools(&mut client)[..2], ["first", "second"]);
    for (name, expect) in [("first", "2"), ("second", "3")] {
        let text = client.tool_text(name, json!({}));
        assert!(text.contains(expect), "{text}");
    }
    leave(client);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn names_follow_the_separator() {
    let one = server("one", &["well-behaved"], "");
    let (sandbox, mut client) = configured(&format!("separator = \".\"\n{one}"));
    assert_eq!(client.tool_text("one.echo", json!({ "text": "a" })), "a");
    write(sandbox.path(), &format!("separator = \"-\"\n{one}"));
    client.signal(Signal::HUP);
    changed(&mut client);
    assert_eq!(client.tool_text("one-echo", json!({ "text": "b" })), "b");
    leave(client);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn a_clock_that_is_said_counts_for_sessions_that_are_there() {
    // Calls are not to become jobs: what is looked at is when they are cut off.
    let one = server("one", &["well-behaved"], "limits = { promote-after = \"off\" }");
    let (sandbox, mut client) = configured(&one);
    assert!(pid(&mut client, "one") > 0);
    write(sandbox.path(), &format!("{one}[clients.Unhang]\ncall-clock = \"1s\"\n"));
    client.signal(Signal::HUP);
    said(&client, "the clocks of clients have changed");
    let slow = client.call("one__sleep", json!({ "ms": 60_000 }));
    let error = client.answer(slow)["error"].clone();
    // What it has waited for its turn is taken off.
    let limit = error["data"]["limitMs"].as_u64().expect("a number");
    assert!(error["code"] == -31001 && limit <= 950, "{error}");
    leave(client);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn a_promotion_that_would_come_too_late_is_told() {
    let limits = "limits = { promote-after = \"10m\" }\ntools.echo = { promote-after = \"6m\", call-timeout = \"7m\" }";
    let (sandbox, client) = configured(&server("one", &["well-behaved"], limits));
    let told =
        "`one`: `promote-after` is 10m, but calls end at `call-timeout` (5m), so no call becomes a job";
    said(&client, told);
    assert!(!client.stderr().contains("`echo` of `one`"), "{}", client.stderr());
    leave(client);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn windows_that_share_servers_change_together_and_go_on_sharing() {
    let (sandbox, mut leader) = configured(&server("one", &["well-behaved"], ""));
    let before = pid(&mut leader, "one");
    let mut follower = window(&sandbox, &[]);
    assert_eq!(pid(&mut follower, "one"), before);
    write(sandbox.path(), &server("two", &["well-behaved"], ""));
    for client in [&leader, &follower] {
        client.signal(Signal::HUP);
    }
    said(&leader, "servers new: `two`, gone: `one`");
    for client in [&mut leader, &mut follower] {
        wait_until("both have the new one", PATIENCE, || tools(client).contains(&"two__pid".to_owned()));
    }
    let shared = pid(&mut leader, "two");
    assert_eq!(pid(&mut follower, "two"), shared);
    // One that comes later meets them, and whoever leads next has what is described now.
    let mut late = window(&sandbox, &[]);
    assert_eq!(pid(&mut late, "two"), shared);
    leader.signal(Signal::KILL);
    let after = pid(&mut follower, "two");
    assert_ne!(after, shared);
    assert_eq!(pid(&mut late, "two"), after);
    leave(late);
    leave(follower);
    drop(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn a_token_that_is_taken_out_lets_nobody_in_and_ends_what_it_began() {
    const ONE: &str = "one-0123456789abcdef";
    const TWO: &str = "two-0123456789abcdef";
    let sandbox = Sandbox::with_jobs();
    let text = |tokens: &[&str]| {
        format!("{}\n[http]\ntokens = {}\n", server("one", &["well-behaved"], ""), json!(tokens))
    };
    write(sandbox.path(), &text(&[ONE, TWO]));
    let mut command = sandbox.unhang();
    command.args(["-v", "serve", "--http", "0.0.0.0:0"]);
    let (process, web) = Web::start_as(command);
    let (first, second) = (web.with_token(ONE), web.with_token(TWO));
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let (gone, stays) = (first.begin(), second.begin());
    let ask = |web: &Web, session: &str, message: &Value| web.post(&[("mcp-session-id", session)], message);
    assert_eq!(ask(&first, &gone, &list).status, 200);
    thread::scope(|scope| {
        let ended = scope.spawn(|| first.call(&gone, 7, "one__sleep", json!({ "ms": 60_000 })).last());
        let works = || second.ask("GET", "/status", &[], "").last()["servers"][0]["inFlight"] == 1;
        wait_until("the server works on the call", PATIENCE, works);
        write(sandbox.path(), &text(&[TWO]));
        process.signal(Signal::HUP);
        let answer = ended.join().expect("the call has an answer");
        let message = answer["error"]["message"].as_str().expect("a text").to_owned();
        assert!(
            message.contains("the session is ending because unhang no longer accepts its token"),
            "{answer}"
        );
    });
    wait_until("the token is not known any more", PATIENCE, || ask(&first, &gone, &list).status == 401);
    assert_eq!(ask(&second, &stays, &list).status, 200);
    wait_until("its session has ended", PATIENCE, || {
        second.ask("GET", "/status", &[], "").last()["sessions"] == 1
    });
    // Without any token other machines could ask.
    write(sandbox.path(), &text(&[]));
    process.signal(Signal::HUP);
    said(&process, "no token and no [http.oauth]");
    assert_eq!(web.post(&[], &list).status, 401);
    assert_eq!(ask(&second, &stays, &list).status, 200);
    finish(process, &sandbox);
}
