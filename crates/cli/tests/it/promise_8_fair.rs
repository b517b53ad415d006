//! Promise 8: one stuck call delays no other. Busy is not hung: one caller's timeout never takes a server from the others.

#![expect(clippy::disallowed_methods, reason = "that nobody waits for somebody else is the promise")]

use std::{
    fs::{self, File},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, server_pid, signal, wait_until},
    talk::{code, text_of},
};

#[test]
fn a_stuck_call_delays_no_other() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "4s"], &["never-answers", "hang"]);
    client.initialize();
    let stuck = client.call("hang", json!({}));
    for number in 0..50 {
        assert_eq!(client.tool_text("echo", json!({"text": number.to_string()})), number.to_string());
    }
    client.round_trip();
    assert_eq!(client.answers_to(stuck), 0, "all of that went on beside the stuck one");
    client.fault(stuck, code::DEADLINE);
    client.end(&[]);
}

#[test]
fn parallel_calls_stay_parallel() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let start = Instant::now();
    let ids = [0; 3].map(|_| client.call("sleep", json!({"ms": 2000})));
    for id in ids {
        assert_eq!(text_of(&client.outcome(id)), "slept 2000 ms");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "three times 2 s took {:?}", start.elapsed());
    client.end(&[]);
}

#[test]
fn answers_come_in_the_order_in_which_they_are_ready() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let ids = [900, 600, 300, 0].map(|ms| client.call("sleep", json!({"ms": ms})));
    client.outcome(ids[0]);
    let order: Vec<Value> = client.seen()[1..].iter().map(|message| message["id"].clone()).collect();
    let expect: Vec<Value> = ids.iter().rev().map(|id| json!(id)).collect();
    assert_eq!(order, expect);
    client.end(&[]);
}

#[test]
fn a_deadline_takes_the_server_from_nobody() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "2s"], &["well-behaved"]);
    client.initialize();
    let pid = server_pid(&mut client);
    let stuck = client.call("sleep", json!({"ms": 60_000}));
    client.fault(stuck, code::DEADLINE);
    // One that began before the deadline and one that began after it both end well, in the same process.
    let (early, late) =
        (client.call("sleep", json!({"ms": 1000})), client.call("echo", json!({"text": "late"})));
    assert_eq!(text_of(&client.outcome(late)), "late");
    assert_eq!(text_of(&client.outcome(early)), "slept 1000 ms");
    assert_eq!(server_pid(&mut client), pid);
    client.end(&[]);
}

#[test]
fn a_call_in_flight_survives_the_deadline_of_another() {
    let sandbox = Sandbox::new();
    // A list has a shorter limit than a call, so that one expires while the other runs.
    let flags = ["--request-timeout", "1s", "--call-timeout", "20s"];
    let mut client = sandbox.wrap(&flags, &["busy-not-hung", "3000"]);
    client.initialize();
    let call = client.call("echo", json!({"text": "patience"}));
    let lists = [0; 3].map(|_| client.request("tools/list", json!({})));
    for id in lists {
        client.fault(id, code::DEADLINE);
    }
    assert_eq!(text_of(&client.answer(call)), "patience");
    client.end(&[]);
    assert!(sandbox.log().contains("restarts: 0"), "{}", sandbox.log());
}

/// A server that is busy for three seconds, checked often enough that a hung one would have been replaced twice.
#[track_caller]
fn is_not_taken_for_hung(text: &str, waited_for: bool) {
    let sandbox = Sandbox::new();
    let flags = ["--health-interval", "200ms", "--call-timeout", "20s", "--request-timeout", "20s"];
    let mut client = sandbox.wrap(&flags, &["busy-not-hung", "3000"]);
    client.initialize();
    let call = client.call("echo", json!({"text": text}));
    let withdrawn = if waited_for {
        assert_eq!(text_of(&client.answer(call)), text);
        vec![]
    } else {
        // Nobody waits any more, but it is still at work: for us it is idle, and checked. The log tells of its end.
        client.cancel(call);
        wait_until("the late answer", PATIENCE, || sandbox.log().contains("a late answer"));
        vec![call]
    };
    client.round_trip();
    client.end(&withdrawn);
    assert!(sandbox.log().contains("restarts: 0"), "{}", sandbox.log());
    // Late answers to the checks are unhang's own business.
    assert!(
        sandbox.log().contains("junk: 0") && !client.stderr().contains("nobody waits"),
        "{}",
        client.stderr()
    );
}

#[test]
fn l_58_a_server_that_waits_in_a_call_is_not_hung() {
    is_not_taken_for_hung("wait", true);
}

#[test]
fn l_58_a_server_that_burns_in_a_call_is_not_hung() {
    is_not_taken_for_hung("burn", true);
}

#[test]
fn l_58_a_server_that_still_burns_when_nobody_waits_is_not_hung() {
    is_not_taken_for_hung("burn", false);
}

#[test]
fn a_question_that_the_client_does_not_answer_delays_no_call() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let ask = client.call("ask", json!({"method": "elicitation/create"}));
    let question = client.find("the question", |message| message["method"] == "elicitation/create");
    for _ in 0..5 {
        assert_eq!(client.tool_text("echo", json!({"text": "meanwhile"})), "meanwhile");
    }
    assert_eq!(client.answers_to(ask), 0);
    client.respond(&question["id"], &json!({"action": "decline"}));
    assert_eq!(text_of(&client.answer(ask)), r#"{"action":"decline"}"#);
    client.end(&[]);
}

#[test]
fn a_large_answer_delays_the_small_ones_behind_it_only_by_its_bytes() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let large = client.call("big", json!({"bytes": 8_000_000}));
    let small = [0; 10].map(|_| client.call("echo", json!({"text": "small"})));
    for id in small {
        assert_eq!(text_of(&client.answer(id)), "small");
    }
    assert_eq!(client.answers_to(large), 1);
    client.end(&[]);
}

#[test]
fn one_client_that_is_stuck_delays_no_other() {
    let sandbox = Sandbox::new();
    let mut clients = [0; 3].map(|_| sandbox.wrap(&["--call-timeout", "2s"], &["well-behaved"]));
    for client in &mut clients {
        client.initialize();
    }
    let [stuck, stopped, healthy] = &mut clients;
    let id = stuck.call("sleep", json!({"ms": 60_000}));
    let pid = server_pid(stopped);
    signal(pid, rustix::process::Signal::STOP);
    for _ in 0..10 {
        assert_eq!(healthy.tool_text("echo", json!({"text": "well"})), "well");
    }
    stuck.fault(id, code::DEADLINE);
    for client in &mut clients {
        client.end(&[]);
    }
}

/// F-30: what waits for the disk, here for a writer of the state that stands still, waits beside everything else.
#[test]
fn f_30_whoever_waits_for_the_disk_holds_up_nobody_else() {
    const SOON: Duration = Duration::from_secs(5);
    let sandbox = Sandbox::with_jobs();
    let configuration = "[tools.greet]\ncommand = [\"true\"]\ninputs = { \"a.json\" = \"a\" }\n";
    fs::write(sandbox.path().join("unhang.toml"), configuration).expect("the sandbox can be written");
    let mut command = sandbox.unhang();
    command.arg("serve");
    let mut client = Client::start(command);
    client.initialize();
    let lock = sandbox.path().join("state/state/.lock");
    let lock = File::options().write(true).create(true).truncate(false).open(lock).expect("a lock");
    fcntl_lock(&lock, FlockOperation::LockExclusive).expect("it is free");
    let set = client.call("set_state", json!({ "field": "a", "value": 1 }));
    for _ in 0..3 {
        let unknown = client.call("get_job_status", json!({ "job_id": "aaaaaaaaaaaa" }));
        let ping = client.request("ping", json!({}));
        assert_eq!(client.answer_within(ping, SOON)["result"], json!({}));
        let told = client.answer_within(unknown, SOON);
        assert!(text_of(&told).contains("there is no job aaaaaaaaaaaa"), "{told}");
    }
    assert_eq!(client.answers_to(set), 0, "it is not its turn");
    drop(lock);
    let told = client.answer_within(set, PATIENCE)["result"].clone();
    assert!(!told["isError"].as_bool().unwrap_or(false), "{told}");
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    sandbox.assert_nothing_left();
}
