//! Questions of a server's task that the task no longer needs answered: they are withdrawn from the client.

use std::fs;

use serde_json::{Value, json};

use crate::{
    callers::StdioCaller,
    gateway::{finish, gateway},
    harness::{Client, PATIENCE, Sandbox, wait_until},
    slow_tasks::{EXTENSION, Modern},
};

/// A server of 2026-07-28 that continues each call as a task. The files of its folder say what the task needs: two answers, one, none; and
/// when it is done.
const SERVER: &str = r#"
ask() { printf '"%s":{"method":"elicitation/create","params":{"mode":"form","message":"%s","requestedSchema":{"type":"object","properties":{}}}}' "$1" "$1"; }
task() { printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"%s","taskId":"t","createdAt":"2026-07-28T00:00:00Z","lastUpdatedAt":"2026-07-28T00:00:00Z","ttlMs":600000,"pollIntervalMs":100,%s}}\n' "$id" "$1" "$2"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"server/discover"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}\n' "$id" ;;
    *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[{"name":"work","inputSchema":{"type":"object"}}]}}\n' "$id" ;;
    *'"tools/call"'*) rm -f one none done; task task '"status":"working"' ;;
    *'"tasks/get"'*)
      if [ -e done ]; then task complete '"status":"completed","result":{"content":[]}'
      elif [ -e none ]; then task complete '"status":"working"'
      elif [ -e one ]; then task complete "\"status\":\"input_required\",\"inputRequests\":{$(ask b)}"
      else task complete "\"status\":\"input_required\",\"inputRequests\":{$(ask a),$(ask b)}"; fi ;;
    *'"subscriptions/listen"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
    *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}\n' "$id" ;;
  esac
done
"#;

/// That server, in a folder of the sandbox.
fn server(sandbox: &Sandbox) -> String {
    let folder = sandbox.path();
    fs::write(folder.join("server.sh"), SERVER).expect("a file");
    format!("[servers.srv]\ncommand = \"sh\"\nargs = [\"server.sh\"]\ncwd = {folder:?}\nera = \"modern\"\n")
}

fn needs(sandbox: &Sandbox, what: &str) {
    fs::write(sandbox.path().join(what), "").expect("a file");
}

/// The id of the next question that says this.
fn asked(client: &mut Client, message: &str) -> Value {
    let is_it = |question: &Value| {
        question["method"] == "elicitation/create" && question["params"]["message"] == message
    };
    let seen = client.seen().iter().find(|question| is_it(question)).cloned();
    seen.unwrap_or_else(|| client.find(message, is_it))["id"].clone()
}

fn next_withdrawn(client: &mut Client) -> Value {
    client.find("a withdrawal", |message| message["method"] == "notifications/cancelled")["params"]["requestId"]
        .clone()
}

#[test]
fn a_question_that_a_task_no_longer_asks_is_withdrawn_from_a_client_that_waits() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server(&sandbox)]);
    let call = client.call("srv__work", json!({}));
    let [one, other] = ["a", "b"].map(|message| asked(&mut client, message));
    needs(&sandbox, "one");
    assert_eq!(next_withdrawn(&mut client), one);
    needs(&sandbox, "none");
    assert_eq!(next_withdrawn(&mut client), other);
    needs(&sandbox, "done");
    assert!(client.answer(call)["result"].is_object());
    finish(client, &sandbox);
}

#[test]
fn a_question_that_a_task_no_longer_asks_is_not_shown_to_a_client_of_the_task() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), server(&sandbox)).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    let mut client = Modern::Pipes(StdioCaller::at(Client::start(command)));
    let capabilities = || json!({ "elicitation": {}, "extensions": { EXTENSION: {} } });
    let call = json!({ "name": "srv__work", "arguments": {} });
    let task = client.ask_as("tools/call", call, capabilities())["result"]["taskId"].clone();
    let mut until = |status: &str, questions: usize| {
        wait_until(status, PATIENCE, || {
            let told = client.ask_as("tasks/get", json!({ "taskId": task }), capabilities());
            let asked = told["result"]["inputRequests"].as_object().map_or(0, serde_json::Map::len);
            told["result"]["status"] == status && asked == questions
        });
    };
    until("input_required", 2);
    needs(&sandbox, "one");
    until("input_required", 1);
    needs(&sandbox, "none");
    until("working", 0);
    needs(&sandbox, "done");
    until("completed", 0);
    let Modern::Pipes(client) = client else { unreachable!("it is a pipe") };
    finish(client.client, &sandbox);
}
