//! Calls that ask for a task (2025-11-25) and get one whatever their tools do: the task goes out before the server is asked anything.

use std::fs;

use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller, slow_server},
    gateway::{gateway, listed, server, window},
    gateway_http::finish,
    harness::{Client, Sandbox, Web, lab_program},
};

/// Calls of one tool: whichever of task and answer is quicker, one of them is not.
const CALLS: usize = 8;

/// How a question begins.
const ASKED: &str = "elicitation/create";

/// A server that answers in this era.
fn answers(era: &str) -> String {
    server("srv", &["slow-answers", "--era", era], "")
}

/// The id of the task that a call gets that asks for one.
#[track_caller]
fn task_of(created: &Value) -> Value {
    let task = &created["result"]["task"];
    assert!(task["taskId"].is_string() && task["status"] == "working", "a task: {created:.500}");
    task["taskId"].clone()
}

/// Each call of a tool that answers at once is a task, and its result comes by `tasks/result`.
#[track_caller]
fn each_is_a_task(client: &mut impl Calls) {
    for call in 0..CALLS {
        let arguments = json!({ "seconds": 0, "size": 20, "label": call.to_string() });
        let params = json!({ "name": client.named("srv__slow"), "arguments": arguments, "task": {} });
        let about = json!({ "taskId": task_of(&client.ask("tools/call", params)) });
        let result = client.ask("tasks/result", about.clone());
        assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"], about, "{result}");
        assert_eq!(result["result"]["content"][0]["text"].as_str().map(str::len), Some(20), "{result}");
        assert_eq!(client.ask("tasks/get", about)["result"]["status"], "completed");
    }
}

/// What a server asks as soon as it is called is asked of whoever follows the task, and is answered.
#[track_caller]
fn each_asks_its_follower(client: &mut Client, tool: &str) {
    for call in 0..CALLS {
        let arguments = json!({ "seconds": 0, "ask": true, "label": call.to_string() });
        let id = client.request("tools/call", json!({ "name": tool, "arguments": arguments, "task": {} }));
        let first = client.find("a task", |message| message["id"] == id || message["method"] == ASKED);
        let about = json!({ "taskId": task_of(&first) });
        let id = client.request("tasks/result", about.clone());
        let question = client.find("a question", |message| message["id"] == id || message["method"] == ASKED);
        assert_eq!(question["method"], ASKED, "call {call}: {question}");
        let meta = &question["params"]["_meta"]["io.modelcontextprotocol/related-task"];
        assert_eq!(*meta, about, "{question}");
        client.respond(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
        let result = client.answer(id)["result"].clone();
        assert!(result["content"].to_string().contains("Ada"), "call {call}: {result:.500}");
    }
}

/// A window that leads, and one that follows it.
fn windows(sandbox: &Sandbox, era: &str) -> [Client; 2] {
    fs::write(sandbox.path().join("unhang.toml"), answers(era)).expect("a file");
    [(); 2].map(|()| {
        let mut client = window(sandbox, &[]);
        listed(&mut client, "tools/list", "tools", "name");
        client
    })
}

fn end(windows: [Client; 2], sandbox: &Sandbox) {
    for mut client in windows.into_iter().rev() {
        client.finish();
    }
    sandbox.assert_nothing_left();
}

/// `unhang wrap` in front of a server of this era.
fn guard(sandbox: &Sandbox, era: &str) -> StdioCaller {
    let mut command = sandbox.unhang();
    command.args(["-v", "wrap", "--name", "srv", "--", lab_program(), "zoo", "slow-answers", "--era", era]);
    let mut caller = StdioCaller { client: Client::start(command), is_guarded: true };
    caller.initialize();
    caller
}

/// A session over HTTP of a client that can be asked.
struct ElicitingSession {
    web: Web,
    session: String,
}

impl ElicitingSession {
    fn begin(web: &Web) -> ElicitingSession {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": { "name": "t", "version": "1" } });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let session = web.post(&[], &message).header("mcp-session-id").expect("a name").to_owned();
        let said = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(web.post(&[("mcp-session-id", &session)], &said).status, 202);
        ElicitingSession { web: web.clone(), session }
    }

    fn post(&self, message: &Value) -> crate::harness::WebAnswer {
        self.web.post(&[("mcp-session-id", &self.session)], message)
    }
}

impl Calls for ElicitingSession {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })).last()
    }
}

#[test]
fn a_call_that_asks_for_a_task_is_one_however_fast_its_tool_is() {
    let sandbox = Sandbox::with_jobs();
    let mut both = windows(&sandbox, "dual");
    both.iter_mut().for_each(|client| each_is_a_task(client));
    end(both, &sandbox);
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), answers("dual")).expect("a file");
    let (process, web) = Web::start(&sandbox);
    each_is_a_task(&mut ElicitingSession::begin(&web));
    finish(process, &sandbox);
}

#[test]
fn a_call_that_asks_for_a_task_is_one_behind_a_guard_too() {
    let sandbox = Sandbox::with_jobs();
    let mut caller = guard(&sandbox, "dual");
    each_is_a_task(&mut caller);
    caller.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn what_a_server_asks_at_once_is_asked_of_whoever_follows_the_task() {
    for era in ["legacy", "dual"] {
        let sandbox = Sandbox::with_jobs();
        let mut both = windows(&sandbox, era);
        both.iter_mut().for_each(|client| each_asks_its_follower(client, "srv__slow"));
        end(both, &sandbox);
    }
}

#[test]
fn what_a_server_asks_at_once_is_asked_beside_the_result_over_http() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), answers("legacy")).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let mut client = ElicitingSession::begin(&web);
    for call in 0..CALLS {
        let arguments = json!({ "seconds": 0, "ask": true, "label": call.to_string() });
        let params = json!({ "name": "srv__slow", "arguments": arguments, "task": {} });
        let about = json!({ "taskId": task_of(&client.ask("tools/call", params)) });
        let mut stream =
            client.post(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": about }));
        let question = stream.next().expect("a question");
        assert_eq!(question["method"], ASKED, "{question}");
        assert_eq!(question["params"]["_meta"]["io.modelcontextprotocol/related-task"], about, "{question}");
        let accepted = json!({ "action": "accept", "content": { "name": "Ada" } });
        let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": accepted });
        assert_eq!(client.post(&reply).status, 202);
        let result = stream.last();
        assert!(result["result"]["content"].to_string().contains("Ada"), "{result:.500}");
    }
    finish(process, &sandbox);
}

#[test]
fn what_a_server_asks_at_once_behind_a_guard_is_asked_about_the_task() {
    let sandbox = Sandbox::with_jobs();
    let mut caller = guard(&sandbox, "legacy");
    for call in 0..CALLS {
        let arguments = json!({ "seconds": 0, "ask": true, "label": call.to_string() });
        let id = caller.request("tools/call", json!({ "name": "slow", "arguments": arguments, "task": {} }));
        let first = caller.find("a task", |message| message["id"] == id || message["method"] == ASKED);
        let about = json!({ "taskId": task_of(&first) });
        let question = caller.find("a question", |message| message["method"] == ASKED);
        let meta = &question["params"]["_meta"]["io.modelcontextprotocol/related-task"];
        assert_eq!(*meta, about, "{question}");
        caller.respond(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
        let result = caller.ask("tasks/result", about);
        assert!(result["result"]["content"].to_string().contains("Ada"), "call {call}: {result:.500}");
    }
    caller.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_call_that_cannot_be_kept_as_a_task_is_refused_behind_the_gateway_too() {
    let sandbox = Sandbox::with_jobs();
    let mut caller = gateway(&sandbox, &[slow_server("")]);
    assert_eq!(caller.counted(), [0, 0, 0]);
    // A file where the folder of jobs is to be.
    fs::remove_dir_all(sandbox.path().join("state/jobs")).expect("removed");
    fs::write(sandbox.path().join("state/jobs"), "").expect("a file");
    let params = json!({ "name": "srv__slow", "arguments": { "seconds": 0, "size": 20 }, "task": {} });
    let refused = caller.ask("tools/call", params)["error"].clone();
    assert_eq!(refused["code"], -31005, "{refused}");
    assert!(
        refused["message"].as_str().is_some_and(|text| text.contains("cannot store the call")),
        "{refused}"
    );
    caller.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_call_that_cannot_be_kept_as_a_task_is_refused_and_its_server_hears_nothing_of_it() {
    let sandbox = Sandbox::with_jobs();
    let mut caller = guard(&sandbox, "dual");
    // A file where the folder of jobs is to be.
    fs::write(sandbox.path().join("state/jobs"), "").expect("a file");
    let params = json!({ "name": "slow", "arguments": { "seconds": 0, "size": 20 }, "task": {} });
    let refused = caller.ask("tools/call", params)["error"].clone();
    assert_eq!(refused["code"], -31005, "{refused}");
    let words = refused["message"].as_str().unwrap_or_default();
    assert!(
        words.contains("unhang did not call `slow`, because it cannot store the call as a task"),
        "{refused}"
    );
    assert_eq!(caller.counted(), [0, 0, 0], "it was not called");
    caller.finish();
    sandbox.assert_nothing_left();
}
