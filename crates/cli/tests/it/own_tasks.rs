//! Tasks of servers of 2025-11-25. While no client waits for the result of its task, a server asks a question or reports a status.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use crate::{
    callers::StdioCaller,
    gateway::{finish, finish_windows, window},
    harness::{Client, PATIENCE, Sandbox, timed, wait_until},
    slow_tasks::{EXTENSION, Modern},
};

/// A server whose tools are tasks, at which clients should look every ten seconds. `ask` asks something by itself, and ends with the answer.
/// `wait` ends when the file `done` is there, and `tell` tells of that.
const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
task() { printf '{"taskId":"theirs","status":"%s","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttl":600000,"pollInterval":10000}' "$1"; }
tool() { printf '{"name":"%s","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}' "$1"; }
tell() { until [ -e done ]; do sleep 0.05; done; printf '{"jsonrpc":"2.0","method":"notifications/tasks/status","params":%s}\n' "$(task completed)"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer "{\"tools\":[$(tool ask),$(tool wait),$(tool tell)]}" ;;
    *'"tools/call"'*) rm -f done; : > called; answer "{\"task\":$(task working)}"
      case $line in
        *'"name":"ask"'*) echo '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"theirs"}}}}' ;;
        *'"name":"tell"'*) tell & ;;
      esac ;;
    *'"tasks/get"'*) if [ -e done ]; then answer "$(task completed)"; else answer "$(task working)"; fi ;;
    *'"tasks/result"'*) answer "{\"content\":[{\"type\":\"text\",\"text\":\"$(cat done)\"}]}" ;;
    *'"tasks/cancel"'*) : > done; answer "$(task cancelled)" ;;
    *'"id":"q"'*) case $line in *'"accept"'*) echo accepted > done ;; *) echo declined > done ;; esac ;;
    *'"id"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
  esac
done
"#;

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// The time in which a client sees what its server's task has come to.
const SOON: Duration = Duration::from_secs(6);

fn configured() -> Sandbox {
    let sandbox = Sandbox::with_jobs();
    let folder = sandbox.path();
    fs::write(folder.join("server.sh"), SERVER).expect("a file");
    let config = format!("[servers.srv]\ncommand = \"sh\"\nargs = [\"server.sh\"]\ncwd = {folder:?}\n");
    fs::write(folder.join("unhang.toml"), config).expect("a file");
    sandbox
}

/// Lets the task end once the server has the call.
fn is_done(sandbox: &Sandbox) {
    let called = sandbox.path().join("called");
    wait_until("the call", PATIENCE, || called.exists());
    fs::remove_file(called).expect("it is there");
    fs::write(sandbox.path().join("done"), "waited").expect("a file");
}

/// Calls a tool as a task, and returns the id of the task.
fn task(client: &mut Client, tool: &str) -> Value {
    let id = client.request("tools/call", json!({ "name": tool, "arguments": {}, "task": {} }));
    // A question may come earlier.
    let created = client.find("a task", |message| message["id"] == id)["result"]["task"].clone();
    assert!(created["taskId"].is_string(), "{created}");
    created["taskId"].clone()
}

/// The next question, which may have come already, and which is not answered yet.
fn question(client: &mut Client) -> Value {
    client.find("a question", |message| message["method"] == "elicitation/create")
}

fn accept(client: &mut Client, question: &Value) {
    client.respond(&question["id"], &json!({ "action": "accept", "content": {} }));
}

/// Waits until a task has ended, which its client asks for again and again.
fn until_completed(client: &mut Client, task: &Value) {
    wait_until("the task ends", PATIENCE, || {
        let id = client.request("tasks/get", json!({ "taskId": task }));
        client.answer(id)["result"]["status"] == "completed"
    });
}

/// The text of the result of a task.
fn result(client: &mut Client, task: &Value) -> Value {
    let id = client.request("tasks/result", json!({ "taskId": task }));
    client.answer(id)["result"]["content"][0]["text"].clone()
}

#[test]
fn a_server_that_asks_about_its_task_by_itself_asks_the_client_of_the_task_at_once() {
    let sandbox = configured();
    let mut both = [(); 2].map(|()| window(&sandbox, &[]));
    for client in &mut both {
        let task = task(client, "srv__ask");
        let asked = question(client);
        assert_eq!(asked["params"]["_meta"][RELATED], json!({ "taskId": task }), "{asked}");
        accept(client, &asked);
        until_completed(client, &task);
        assert_eq!(result(client, &task), "accepted");
    }
    finish_windows(both, &sandbox);
}

#[test]
fn a_server_that_asks_about_its_task_asks_a_client_that_waits_for_the_call() {
    let sandbox = configured();
    let mut both = [(); 2].map(|()| window(&sandbox, &[]));
    for client in &mut both {
        let call = client.call("srv__ask", json!({}));
        let asked = question(client);
        assert_eq!(asked["params"]["_meta"][RELATED], Value::Null, "the client knows no task: {asked}");
        accept(client, &asked);
        assert_eq!(client.answer_within(call, PATIENCE)["result"]["content"][0]["text"], "accepted");
    }
    finish_windows(both, &sandbox);
}

#[test]
fn a_server_that_asks_about_its_task_by_itself_asks_a_client_of_the_other_era_by_the_task() {
    let sandbox = configured();
    let capabilities = || json!({ "elicitation": {}, "extensions": { EXTENSION: {} } });
    let mut both = [(); 2].map(|()| {
        let mut command = sandbox.unhang();
        command.args(["-v", "serve"]);
        let mut client = Modern::Pipes(StdioCaller::at(Client::start(command)));
        client.ask_as("tools/list", json!({}), capabilities());
        client
    });
    for client in &mut both {
        let call = json!({ "name": "srv__ask", "arguments": {} });
        let created = client.ask_as("tools/call", call, capabilities())["result"].clone();
        assert_eq!(created["resultType"], "task", "{created}");
        let task = created["taskId"].clone();
        let mut told = Value::Null;
        let mut until = |client: &mut Modern, status: &str| {
            wait_until(status, PATIENCE, || {
                told =
                    client.ask_as("tasks/get", json!({ "taskId": task }), capabilities())["result"].clone();
                told["status"] == status
            });
            told.clone()
        };
        let asked = until(client, "input_required")["inputRequests"].clone();
        let (key, request) = asked.as_object().and_then(|asked| asked.iter().next()).expect("a question");
        assert_eq!(
            (&request["params"]["message"], &request["params"]["_meta"][RELATED]),
            (&json!("?"), &Value::Null)
        );
        let responses = json!({ key: { "action": "accept", "content": {} } });
        client.ask_as("tasks/update", json!({ "taskId": task, "inputResponses": responses }), capabilities());
        let ended = until(client, "completed");
        assert_eq!(ended["result"]["content"][0]["text"], "accepted", "{ended}");
    }
    let both = both.map(|client| match client {
        Modern::Pipes(client) => client.client,
        Modern::Web(_) => unreachable!("it is a pipe"),
    });
    finish_windows(both, &sandbox);
}

#[test]
fn the_end_of_a_servers_task_is_seen_by_a_client_that_asks_for_the_task() {
    let sandbox = configured();
    let mut client = window(&sandbox, &[]);
    for asks_for_status in [true, false] {
        let task = task(&mut client, "srv__wait");
        let id = client.request("tasks/get", json!({ "taskId": task }));
        assert_eq!(client.answer(id)["result"]["status"], "working");
        is_done(&sandbox);
        let (text, took) = timed(|| {
            if asks_for_status {
                until_completed(&mut client, &task);
            }
            result(&mut client, &task)
        });
        assert!(text == "waited" && took < SOON, "{text} {took:?}");
    }
    finish(client, &sandbox);
}

#[test]
fn the_end_of_a_task_that_its_server_tells_of_is_seen_at_once() {
    let sandbox = configured();
    let mut client = window(&sandbox, &[]);
    let call = client.call("srv__tell", json!({}));
    let (answer, took) = timed(|| {
        is_done(&sandbox);
        client.answer_within(call, PATIENCE)
    });
    assert!(answer["result"]["content"][0]["text"] == "waited" && took < SOON, "{answer} {took:?}");
    finish(client, &sandbox);
}
