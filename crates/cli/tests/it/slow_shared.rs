//! Jobs of calls behind `unhang serve` in the store of many machines: another machine sees them, cancels them and reads their answers, whatever
//! becomes of the gateway and of the database. Each data folder stands for a machine.

use std::os::unix::process::CommandExt;

use rustix::process::Signal;
use serde_json::{Value, json};
use unhang_zoo::private_postgres::ServerEnd;

use crate::{
    callers::{Calls, StdioCaller, text},
    harness::{Client, PATIENCE, Sandbox, run_to_end, wait_until},
    slow_gateway_outlives::configure,
    slow_outlives::{Scene, until_go},
    workers::SharedStore,
};

/// A gateway on this machine whose jobs are in the store.
fn gateway(sandbox: &Sandbox, store: &SharedStore) -> StdioCaller {
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]).env("UNHANG_JOBS_STORE", store.url()).process_group(0);
    StdioCaller::at(Client::start(command))
}

/// A machine of its own with such a gateway, and a server that waits for `go`.
fn machine(store: &SharedStore) -> Scene {
    let sandbox = Sandbox::with_shown_calls();
    configure(&sandbox, "limits.stop-grace = \"500ms\"\n");
    let client = gateway(&sandbox, store);
    Scene::of_caller(sandbox, client)
}

/// Returns the status of a job on the other machine; `Null` if that machine does not know the job.
fn seen(store: &SharedStore, job: &Value) -> Value {
    let (_, stdout, _) = run_to_end(store.command(&["job", "show", id(job)]));
    serde_json::from_str(&stdout).unwrap_or_default()
}

#[track_caller]
fn until_seen(store: &SharedStore, job: &Value, status: &str) -> Value {
    let mut shown = Value::Null;
    wait_until(&format!("the other machine sees that it is {status}"), PATIENCE, || {
        shown = seen(store, job);
        shown["status"] == status
    });
    shown
}

fn id(job: &Value) -> &str {
    job.as_str().expect("an id")
}

/// The jobs that this machine lists, with those of the store.
fn listed(scene: &Scene, store: &SharedStore) -> Vec<Value> {
    let mut command = scene.sandbox.unhang();
    command.args(["job", "list", "--output", "json"]).env("UNHANG_JOBS_STORE", store.url());
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stdout}{stderr}");
    serde_json::from_str(&stdout).expect("a list")
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn promise_7_a_slow_call_is_seen_on_another_machine_with_its_log_and_the_answer_of_its_server() {
    let store = SharedStore::new("slow-calls");
    let mut scene = machine(&store);
    let mut failing = until_go("two", 64);
    failing["fail"] = json!(true);
    let [job, failed] = [until_go("one", 5000), failing].map(|arguments| scene.job(arguments));
    let shown = until_seen(&store, &job, "running");
    assert_eq!((&shown["kind"], &shown["server"]), (&json!("call"), &json!("srv")), "{shown}");
    assert!(shown["worker"].is_string() && shown.get("job_folder").is_none(), "{shown}");
    until_seen(&store, &failed, "running");
    wait_until("its log", PATIENCE, || {
        store.demand(0, &["job", "logs", id(&job)]).0.contains("part 5 of 10")
    });
    assert_eq!(store.json(&["job", "list"]).as_array().map(Vec::len), Some(2));
    assert_eq!(listed(&scene, &store).len(), 2);

    scene.go();
    assert_eq!(store.json(&["job", "wait", id(&job)])[0]["status"], "completed");
    until_seen(&store, &failed, "failed");
    assert_eq!(store.json(&["job", "result", id(&job)]), scene.unhang_job(&["result", id(&job)])["results"]);
    assert!(store.demand(0, &["job", "logs", id(&job)]).0.contains("part 10 of 10"));
    // The tools of the other machine give what the server gave.
    configure(store.sandbox(), "");
    let mut other = gateway(store.sandbox(), &store);
    other.initialize();
    assert_eq!(other.whole(&job), [json!({ "type": "text", "text": text(5000) })]);
    let told = other.result("get_job_results", json!({ "job_id": failed }));
    let own = scene.client.result("get_job_results", json!({ "job_id": failed }));
    // The first block is the head of the job.
    let blocks = |told: &Value| told["content"].as_array().expect("blocks")[1..].to_vec();
    assert_eq!((&told["isError"], blocks(&told)), (&json!(true), blocks(&own)), "{told}");
    assert!(!blocks(&told).is_empty(), "{told}");
    other.finish();
    let all = listed(&scene, &store);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.iter().all(|job| job.get("worker").is_none()), "the record of this machine counts: {all:?}");
    scene.client.finish();
    scene.sandbox.assert_nothing_left();
    store.sandbox().assert_nothing_left();
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_slow_call_is_cancelled_from_another_machine() {
    let store = SharedStore::new("slow-cancel");
    let mut scene = machine(&store);
    let job = scene.job(until_go("one", 64));
    until_seen(&store, &job, "running");
    store.demand(0, &["job", "cancel", id(&job)]);
    assert_eq!(seen(&store, &job)["status"], "cancelled");
    assert_eq!(scene.shown(&job)["status"], "cancelled");
    wait_until("the server hears of it", PATIENCE, || scene.asked(&["notifications/cancelled"]) == 1);
    scene.client.finish();
    scene.sandbox.assert_nothing_left();
}

/// The call holder goes on with the call, and knows no store.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn promise_7_the_next_gateway_of_a_machine_delivers_the_end_of_a_call_whose_gateway_was_killed() {
    let store = SharedStore::new("slow-killed");
    let mut scene = machine(&store);
    let [job, other] = ["one", "two"].map(|label| scene.job(until_go(label, 5000)));
    until_seen(&store, &job, "running");
    until_seen(&store, &other, "running");
    scene.kill();
    scene.unhang_job(&["cancel", id(&other)]);
    scene.go();
    assert_eq!(scene.ended(&job)["status"], "completed", "{:.3000}", scene.sandbox.log());
    // The store does not have the end yet.
    assert_eq!(seen(&store, &job)["status"], "running");
    let mut next = gateway(&scene.sandbox, &store);
    until_seen(&store, &job, "completed");
    until_seen(&store, &other, "cancelled");
    assert_eq!(store.json(&["job", "result", id(&job)]), scene.unhang_job(&["result", id(&job)])["results"]);
    assert!(store.demand(0, &["job", "logs", id(&job)]).0.contains("part 10 of 10"));
    next.close_stdin();
    assert_eq!(next.exit_code(), 0, "{}", next.stderr());
    scene.sandbox.assert_nothing_left();
}

/// Two gateways have one data folder. The second one tells of the calls when the first one has gone.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn another_gateway_of_the_machine_takes_over_and_tells_the_store_of_the_calls() {
    let store = SharedStore::new("slow-taken");
    let mut scene = machine(&store);
    let job = scene.job(until_go("one", 64));
    until_seen(&store, &job, "running");
    let mut second = gateway(&scene.sandbox, &store);
    second.initialize();
    scene.client.signal(Signal::KILL);
    scene.client.exit_code();
    scene.holder();
    store.demand(0, &["job", "cancel", id(&job)]);
    assert_eq!(scene.shown(&job)["status"], "cancelled");
    second.finish();
    scene.sandbox.assert_nothing_left();
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn promise_7_no_slow_call_waits_for_the_database_and_all_are_there_when_it_is_back() {
    let mut store = SharedStore::new("slow-outage");
    let mut scene = machine(&store);
    let job = scene.job(until_go("one", 5000));
    until_seen(&store, &job, "running");
    store.server.stop(ServerEnd::Killed);
    // The id of another call goes out all the same.
    let other = scene.job(until_go("two", 64));
    scene.go();
    for job in [&job, &other] {
        assert_eq!(scene.ended(job)["status"], "completed", "{:.3000}", scene.sandbox.log());
    }
    store.server.resume().expect("a server");
    for job in [&job, &other] {
        until_seen(&store, job, "completed");
        assert!(store.demand(0, &["job", "logs", id(job)]).0.contains("part 10 of 10"));
    }
    assert_eq!(store.json(&["job", "result", id(&job)]), scene.unhang_job(&["result", id(&job)])["results"]);
    scene.client.finish();
    scene.sandbox.assert_nothing_left();
}
