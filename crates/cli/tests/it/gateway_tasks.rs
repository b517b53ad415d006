//! Tasks of servers behind `unhang serve`: a client that has declared tasks gets one as soon as its server has one (issue 23, cause D).

use std::{collections::BTreeSet, fs, time::Duration};

use serde_json::{Value, json};

use crate::{
    callers::StdioCaller,
    gateway::{finish, server, window},
    harness::{Client, PATIENCE, Sandbox, wait_until},
    slow_tasks::{EXTENSION, Modern},
};

/// The capabilities of a client that knows tasks.
fn knows_tasks() -> Value {
    json!({ "extensions": { EXTENSION: {} } })
}

/// A window whose client speaks 2026-07-28.
fn modern(sandbox: &Sandbox) -> Modern {
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    Modern::Pipes(StdioCaller::at(Client::start(command)))
}

fn end(client: Modern) -> Client {
    let Modern::Pipes(client) = client else { unreachable!("it is a pipe") };
    client.client
}

/// Calls a tool that works for this long, and returns the result.
fn compute(client: &mut Modern, seconds: f64, capabilities: Value) -> Value {
    let arguments = json!({ "seconds": seconds, "label": "x" });
    let call = json!({ "name": "srv__slow_compute", "arguments": arguments });
    let answer = client.ask_as("tools/call", call, capabilities);
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

/// The result of a task, once it is there.
fn outcome(client: &mut Modern, task: &Value) -> Value {
    let mut told = Value::Null;
    wait_until("the task ends", PATIENCE, || {
        told = client.ask_as("tasks/get", json!({ "taskId": task }), knows_tasks())["result"].clone();
        told["status"] == "completed"
    });
    told["result"].clone()
}

#[test]
fn a_task_of_a_server_is_a_task_of_its_client_at_once_and_in_every_window() {
    for limits in ["", "limits.promote-after = \"off\""] {
        let sandbox = Sandbox::with_jobs();
        let configured = server("srv", &["tasks-modern"], limits);
        fs::write(sandbox.path().join("unhang.toml"), configured).expect("a file");
        let mut leader = modern(&sandbox);
        compute(&mut leader, 0.0, json!({}));
        let follower = window(&sandbox, &[]);
        assert!(follower.stderr().contains("the gateway that already runs"), "{}", follower.stderr());
        let mut clients = [leader, Modern::Pipes(StdioCaller::at(follower))];
        for client in &mut clients {
            // It takes longer than any test waits, and shorter than calls are waited for.
            let created = compute(client, 40.0, knows_tasks());
            assert_eq!(created["resultType"], "task", "{created}");
            let cancelled =
                client.ask_as("tasks/cancel", json!({ "taskId": created["taskId"] }), knows_tasks());
            assert!(cancelled["result"].is_object(), "{cancelled}");
            let created = compute(client, 0.5, knows_tasks());
            let result = outcome(client, &created["taskId"]);
            assert_eq!(result["content"][0]["text"], "computed x", "{result}");
            // A client that has not declared tasks gets the result itself.
            let plain = compute(client, 0.3, json!({}));
            assert_eq!(plain["content"][0]["text"], "computed x", "{plain}");
        }
        let [leader, follower] = clients.map(end);
        let mut follower = follower;
        follower.finish();
        finish(leader, &sandbox);
    }
}

#[test]
fn a_tool_that_needs_tasks_is_refused_to_a_client_that_knows_none_and_is_of_use_to_one_of_the_other_era() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), server("srv", &["tasks-modern"], "")).expect("a file");
    let call = || json!({ "name": "srv__batch_compute", "arguments": { "seconds": 0.2, "label": "x" } });
    let mut client = modern(&sandbox);
    let refused = client.ask_as("tools/call", call(), json!({}));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    finish(end(client), &sandbox);
    let mut client = window(&sandbox, &[]);
    let id = client.request("tools/call", call());
    let answer = client.answer_within(id, Duration::from_secs(20));
    assert_eq!(answer["result"]["content"][0]["text"], "computed x", "{answer}");
    finish(client, &sandbox);
}

#[test]
fn many_tasks_that_are_cancelled_at_once_end_as_fast_as_one() {
    const TASKS: usize = 80;
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), server("srv", &["tasks-modern"], "")).expect("a file");
    let mut client = modern(&sandbox);
    let tasks: Vec<Value> =
        (0..TASKS).map(|_| compute(&mut client, 600.0, knows_tasks())["taskId"].clone()).collect();
    let mut client = end(client);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": knows_tasks(),
    });
    let cancel = |task: &Value| json!({ "taskId": task, "_meta": meta });
    let asked: Vec<i64> = tasks.iter().map(|task| client.request("tasks/cancel", cancel(task))).collect();
    let mut waiting: BTreeSet<i64> = asked.into_iter().collect();
    while !waiting.is_empty() {
        // A cancellation that waits for another one of them is late by 15 s.
        let answer = client.next_message(Duration::from_secs(10)).expect("all are answered");
        if answer["id"].as_i64().is_some_and(|id| waiting.remove(&id)) {
            assert!(answer["result"].is_object(), "{answer}");
        }
    }
    for task in &tasks {
        let id = client.request("tasks/get", cancel(task));
        assert_eq!(client.answer(id)["result"]["status"], "cancelled");
    }
    finish(client, &sandbox);
}
