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
        for (number, client) in clients.iter_mut().enumerate() {
            // It takes longer than any test waits, and shorter than calls are waited for.
            let created = compute(client, 40.0, knows_tasks());
            assert_eq!(created["resultType"], "task", "{created}");
            wait_until("the task says what its server says", PATIENCE, || {
                let told = client.ask_as("tasks/get", json!({ "taskId": created["taskId"] }), knows_tasks());
                // The leader polls the task. It tells a follower that the task exists, and nothing else.
                number == 1 || told["result"]["statusMessage"] == "It is being worked on"
            });
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

/// A server of 2026-07-28 whose only tool is a task. It ends at the second look at the task, in the way that its argument says.
const MORTAL: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
refuse() { printf '{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"%s"%s}}\n' "$id" "$1" "$2" "$3"; }
[ "$1" = broken ] && [ -e died ] && exit 9
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"server/discover"'*) answer '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*io.modelcontextprotocol/tasks*|*io.modelcontextprotocol/tasks*'"tools/call"'*)
      answer '{"resultType":"task","taskId":"1","status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":null,"pollIntervalMs":100}' ;;
    *'"tools/call"'*) refuse -32021 no ',"data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}' ;;
    *'"tasks/get"'*)
      if [ ! -e seen ]; then
        : > seen
        answer '{"resultType":"complete","taskId":"1","status":"working","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":null,"pollIntervalMs":100}'
      elif [ ! -e died ]; then
        : > died
        echo 'out of paper' >&2
        [ "$1" = killed ] && kill -9 $$
        exit 3
      elif [ "$1" = keeps ]; then
        answer '{"resultType":"complete","taskId":"1","status":"completed","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":null,"result":{"content":[{"type":"text","text":"worked"}]}}'
      else
        refuse -32602 'Task not found'
      fi ;;
    *'"id"'*) refuse -32601 no ;;
  esac
done
"#;

/// That server, which ends in this way, for a client that knows tasks or one that does not.
fn mortal(sandbox: &Sandbox, way: &str, knows: bool) {
    let path = sandbox.path().join("server.sh");
    fs::write(&path, MORTAL).expect("a file");
    // unhang declares tasks for a client that knows none where the call can become a job.
    let more = if knows { "job-timeout = \"8s\", promote-after = \"off\", " } else { "" };
    let configured = format!(
        "[servers.srv]\ncommand = \"sh\"\nargs = [{path:?}, {way:?}]\nlimits = {{ {more}restart-delay = \"1ms\" }}\n"
    );
    fs::write(sandbox.path().join("unhang.toml"), configured).expect("a file");
}

/// The answer to the call of that server's tool, for a client that knows no tasks, or as the end of the client's task.
fn end_of_work(sandbox: &Sandbox, knows: bool) -> Value {
    let call = json!({ "name": "srv__work", "arguments": {} });
    if !knows {
        let mut client = window(sandbox, &[]);
        let id = client.request("tools/call", call);
        let answer = client.answer_within(id, PATIENCE);
        finish(client, sandbox);
        return answer;
    }
    let mut client = modern(sandbox);
    let created = client.ask_as("tools/call", call, knows_tasks())["result"].clone();
    let mut told = Value::Null;
    wait_until("the task ends", PATIENCE, || {
        let asked = json!({ "taskId": created["taskId"] });
        told = client.ask_as("tasks/get", asked, knows_tasks())["result"].clone();
        told["status"] != "working"
    });
    finish(end(client), sandbox);
    told
}

#[test]
fn a_server_that_ends_during_a_task_of_its_own_is_told_with_its_exit_and_its_last_words() {
    for (way, exit, since) in [
        ("loses", "exit code 3", "it no longer knows the task: Task not found"),
        ("killed", "signal 9", "it no longer knows the task: Task not found"),
        ("broken", "exit code 3", "unhang could not ask it for the task again in time"),
    ] {
        // Behind a server that does not come back, a client that knows no tasks has a job after a while.
        for knows in [false, true].into_iter().filter(|knows| *knows || way != "broken") {
            let sandbox = Sandbox::with_jobs();
            mortal(&sandbox, way, knows);
            let told = end_of_work(&sandbox, knows);
            let error = &told["error"];
            let message = error["message"].as_str().unwrap_or_else(|| panic!("an error: {told}"));
            let begins = format!("`srv` ended ({exit}");
            assert!(message.starts_with(&begins) && message.contains(since), "{way} {knows}: {message}");
            assert!(message.contains("during its task for `tools/call`"), "{message}");
            assert!(message.contains("out of paper"), "{message}");
            let data = &error["data"];
            assert_eq!((&data["server"], &data["method"]), (&json!("srv"), &json!("tools/call")), "{error}");
            assert!(data["exit"].as_str().is_some_and(|told| told.starts_with(exit)), "{error}");
            assert_eq!(data["stderrTail"][0], "out of paper", "{error}");
            assert_eq!(error["code"], -31002, "{error}");
        }
    }
}

#[test]
fn a_task_that_its_server_still_knows_after_a_restart_goes_on() {
    for knows in [false, true] {
        let sandbox = Sandbox::with_jobs();
        mortal(&sandbox, "keeps", knows);
        let told = end_of_work(&sandbox, knows);
        assert_eq!(told["result"]["content"][0]["text"], "worked", "{told}");
    }
}

#[test]
fn a_task_that_is_late_says_after_how_long_and_what_limit_that_was() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { job-timeout = \"2s\", promote-after = \"off\" }";
    fs::write(sandbox.path().join("unhang.toml"), server("srv", &["tasks-modern"], limits)).expect("a file");
    let mut client = modern(&sandbox);
    let created = compute(&mut client, 40.0, knows_tasks());
    let mut told = Value::Null;
    wait_until("the task ends", PATIENCE, || {
        let asked = json!({ "taskId": created["taskId"] });
        told = client.ask_as("tasks/get", asked, knows_tasks())["result"].clone();
        told["status"] != "working"
    });
    let message = told["error"]["message"].as_str().unwrap_or_else(|| panic!("an error: {told}"));
    assert!(message.starts_with("the task of `srv` for `tools/call` did not end within "), "{message}");
    assert!(
        message.ends_with("unhang cancelled the task; raise job-timeout if it needs longer"),
        "{message}"
    );
    assert_eq!(told["error"]["code"], -31001, "{told}");
    finish(end(client), &sandbox);
}
