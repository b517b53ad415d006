//! Servers that ask without end: what waits for them is bounded (promise 3), and whoever calls has an answer all the same (promise 1).

use std::time::Duration;

use serde_json::json;

use crate::{
    gateway::{finish, gateway, server},
    harness::{Client, PATIENCE, Remote, Sandbox, memory, peak_memory, timed, wait_until},
};

/// What unhang may use at its worst (design 1, promise 3). Code is not counted, of which a debug build has several times as much.
const WORST: u64 = 100 << 20;

#[track_caller]
fn assert_bounded(client: &Client) {
    let [peak, code] = [peak_memory(client.pid()), memory(client.pid(), "RssFile:")];
    let peak = peak.expect("it is there") - code.expect("it is there");
    assert!(peak <= WORST, "{} MiB", peak >> 20);
}

#[test]
fn a_server_that_asks_and_reads_no_answer_is_held_back_and_ends_as_one_that_hangs() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { call-timeout = \"3s\", health-interval = \"500ms\", promote-after = \"off\" }";
    let faulty_server = ["floods-requests-to-client", "2000000000"];
    let mut client = gateway(&sandbox, &[server("srv", &faulty_server, limits)]);
    let id = client.call("srv__echo", json!({ "text": "x" }));
    let answer = client.answer(id);
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
    wait_until("it is ended", PATIENCE, || {
        sandbox.log().contains("health checks unanswered, and unhang ended it")
    });
    assert_eq!(sandbox.log().matches("sends requests and does not read the answers").count(), 1);
    assert_bounded(&client);
    finish(client, &sandbox);
}

#[test]
fn a_server_over_http_that_asks_faster_than_it_takes_answers_costs_little_and_answers_calls() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-asks-client", "ping", "--endless", "yes"]);
    let mut client = gateway(&sandbox, &[format!("[servers.srv]\nurl = \"{}\"\n", remote.url)]);
    let told =
        |times: &str| sandbox.log().contains(&format!(" unhang left {times} of its requests unanswered"));
    wait_until("it has asked far too much", PATIENCE, || told("10000"));
    assert_eq!(client.tool_text("srv__echo", json!({ "text": "x" })), "x");
    assert_bounded(&client);
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    drop(remote);
    sandbox.assert_nothing_left();
}

#[test]
fn a_command_ends_however_often_it_is_asked_and_whoever_reads_of_it() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-asks-client", "elicitation/create", "--endless", "listing"]);
    let mut command = sandbox.unhang();
    command.args(["tools", &remote.url, "--request-timeout", "3s"]);
    let (mut client, _unheard) = Client::start_unheard(command);
    let (code, took) = timed(|| client.exit_code_within(PATIENCE));
    assert_eq!(code, 4);
    assert!(took < Duration::from_secs(15), "{took:?}");
}
