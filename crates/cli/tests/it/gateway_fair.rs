//! Clients that want the same server: one that floods it is in nobody's way for longer than a turn.

use std::{
    collections::HashMap,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{server, window},
    harness::{Client, PATIENCE, Sandbox, Web, lab_program, wait_until},
};

/// What one client asks for at once.
const FLOOD: u64 = 500;
/// What of that a window has with the gateway at a time: 200 requests, of which one hears of changes.
const AT_ONCE: u64 = 199;
/// What the server is to have at a time.
const LIMIT: usize = 4;
/// A call that takes longer than any test.
const HOUR: u64 = 3_600_000;

/// What the calls that have come to the server are to sleep for, in their order.
fn came(sandbox: &Sandbox) -> Vec<u64> {
    let said = fs::read_to_string(sandbox.path().join("said")).unwrap_or_default();
    let calls = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    calls.filter_map(|call| call["params"]["arguments"]["ms"].as_u64()).collect()
}

fn waiting(web: &Web) -> Value {
    web.ask("GET", "/status", &[], "").last()["servers"][0]["waiting"].clone()
}

#[test]
fn promise_8_who_asks_once_is_next_though_another_asks_five_hundred_times() {
    let sandbox = Sandbox::with_jobs();
    let teed = ["tee", "said", "/dev/null", "--", lab_program(), "zoo", "well-behaved"];
    let limits = format!("era = \"modern\"\nlimits.max-in-flight = {LIMIT}");
    fs::write(sandbox.path().join("unhang.toml"), server("srv", &teed, &limits)).expect("a file");
    let (mut process, web) = Web::start(&sandbox);
    wait_until("it has come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);

    // A window that shares the server, and asks for hours of it.
    let mut window = Client::start({
        let mut command = sandbox.unhang();
        command.arg("serve");
        command
    });
    window.initialize();
    let calls: HashMap<u64, i64> = (0..FLOOD)
        .map(|more| (HOUR + more, window.call("srv__sleep", json!({ "ms": HOUR + more }))))
        .collect();
    let waits = AT_ONCE - LIMIT as u64;
    wait_until("they have come", PATIENCE, || waiting(&web) == waits);
    // The server reads them a moment after unhang has written them.
    wait_until("the server has as many as it may", PATIENCE, || came(&sandbox).len() == LIMIT);

    // And somebody who asks once.
    let session = web.begin();
    thread::scope(|scope| {
        let once = scope.spawn(|| web.call(&session, 1, "srv__sleep", json!({ "ms": 1 })).last());
        wait_until("it waits as well", PATIENCE, || waiting(&web) == waits + 1);
        let one_of_them = came(&sandbox)[0];
        window.cancel(calls[&one_of_them]);
        let answer = once.join().expect("no panic");
        assert_eq!(answer["result"]["content"][0]["text"], "slept 1 ms", "{answer}");
    });
    wait_until("the next one has come", PATIENCE, || came(&sandbox).len() == LIMIT + 2);
    assert_eq!(came(&sandbox)[LIMIT], 1, "it was the next one");

    window.signal(Signal::TERM);
    assert_eq!(window.exit_code(), 143, "{}", window.stderr());
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn promise_8_a_server_that_logs_without_an_end_keeps_no_other_from_its_turn() {
    let sandbox = Sandbox::with_jobs();
    let servers =
        [server("flood", &["notification-flood", "100000000"], ""), server("other", &["well-behaved"], "")];
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let (mut process, web) = Web::start(&sandbox);
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    let (flooded, other) = (web.begin(), web.begin());
    let mut flood = web.call(&flooded, 1, "flood__echo", json!({ "text": "x" }));
    assert_eq!(flood.next().expect("it logs")["method"], "notifications/message");
    // However much of it is read.
    let reader = thread::spawn(move || while flood.next().is_some() {});
    for id in 1..=20 {
        let answer = web.call(&other, id, "other__echo", json!({ "text": "here" })).last();
        assert_eq!(answer["result"]["content"][0]["text"], "here", "{answer}");
    }
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    // However its connection broke.
    let _ended = reader.join();
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

/// Says so when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn promise_8_a_client_that_writes_without_an_end_keeps_no_other_window_from_its_turn() {
    const LIMIT: Duration = Duration::from_secs(10);
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), server("srv", &["well-behaved"], "")).expect("a file");
    let window = || {
        let mut client = window(&sandbox, &[]);
        assert_eq!(client.tool_text("srv__echo", json!({ "text": "here" })), "here");
        client
    };
    // The first one has the server.
    let (mut leader, mut follower) = (window(), window());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let lines = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/nothing\"}\n".repeat(1000);
            while !is_over.load(Ordering::Relaxed) {
                leader.write(lines.as_bytes()).expect("it reads");
            }
        });
        // However this ends.
        let _over = Over(&is_over);
        for _ in 0..20 {
            let id = follower.call("srv__echo", json!({ "text": "here" }));
            let answer = follower.answer_within(id, LIMIT);
            assert!(!flood.is_finished() && answer["result"].is_object(), "{answer}");
        }
    });
    for mut client in [follower, leader] {
        client.close_stdin();
        assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    }
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

/// At the first start nobody knows yet whose tools they are.
#[test]
fn calls_that_wait_for_a_first_start_go_on_in_their_order() {
    let sandbox = Sandbox::with_jobs();
    let teed = ["tee", "said", "/dev/null", "--", lab_program(), "zoo", "slow-start", "500"];
    fs::write(sandbox.path().join("unhang.toml"), server("srv", &teed, "limits.max-in-flight = 1"))
        .expect("a file");
    let mut client = window(&sandbox, &[]);
    let ids: Vec<i64> = (0..12).map(|number| client.call("srv__sleep", json!({ "ms": number }))).collect();
    for id in ids {
        assert!(client.answer(id)["error"].is_null());
    }
    assert_eq!(came(&sandbox), (0..12).collect::<Vec<_>>());
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    sandbox.assert_nothing_left();
}
