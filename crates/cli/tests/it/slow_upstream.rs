//! Servers that go on with calls as tasks of theirs, behind clients that know nothing of tasks, or the other dialect (issue 7, protocol.md 2).

use serde_json::{Value, json};

use crate::{
    callers::{Calls, handed_over},
    gateway::{gateway, server},
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, wait_until},
};

/// One server of each dialect.
fn both(sandbox: &Sandbox, limits: &str) -> Client {
    gateway(sandbox, &[server("new", &["tasks-modern"], limits), server("old", &["tasks-legacy"], limits)])
}

/// How the server's own tasks are, by the name of their tool.
fn statuses(client: &mut Client, server: &str, tool: &str) -> Vec<String> {
    let result = client.result(&format!("{server}__seen"), json!({}));
    let seen: Value =
        serde_json::from_str(result["content"][0]["text"].as_str().expect("text")).expect("JSON");
    let tasks = seen["tasks"].as_array().expect("tasks").iter().filter(|task| task["tool"] == tool);
    tasks.map(|task| task["status"].as_str().expect("a word").to_owned()).collect()
}

#[test]
fn a_server_that_gives_out_tasks_is_of_use_to_clients_that_know_nothing_of_them() {
    let sandbox = Sandbox::with_jobs();
    let mut client = both(&sandbox, "limits.promote-after = \"1s\"");
    let result = client.result("new__slow_compute", json!({ "seconds": 0.2, "label": "a" }));
    assert_eq!(result["content"][0]["text"], "computed a", "{result}");
    assert!(statuses(&mut client, "new", "slow_compute").is_empty(), "its client has declared no tasks");
    for server in ["new", "old"] {
        // The tool is nothing but a task.
        let tool = "batch_compute";
        let result = client.result(&format!("{server}__{tool}"), json!({ "seconds": 0.2, "label": "a" }));
        assert_eq!(result["content"][0]["text"], "computed a", "{result}");
        assert_eq!(result.get("_meta"), None, "its name for the task is for nobody else: {result}");
        let failed = client.result(&format!("{server}__failing_job"), json!({ "seconds": 0.1 }));
        assert_eq!(failed["isError"], true, "{failed}");
        let broken = client.ask(
            "tools/call",
            json!({ "name": format!("{server}__protocol_error_job"), "arguments": { "seconds": 0.1 } }),
        );
        assert_eq!(broken["error"]["code"], -32603, "{broken}");

        // What takes longer becomes a job of ours, whatever it is to its server.
        let job =
            handed_over(&client.result(&format!("{server}__{tool}"), json!({ "seconds": 2, "label": "b" })));
        assert_eq!(client.whole(&job), [json!({ "type": "text", "text": "computed b" })]);

        // Whoever does not want it any more is heard by the server.
        let job = handed_over(&client.result(&format!("{server}__{tool}"), json!({ "seconds": 600 })));
        let ended = client.result("terminate_job", json!({ "job_id": job }));
        assert_eq!(ended["structuredContent"]["status"], "cancelled", "{ended}");
        wait_until("the server has heard of it", PATIENCE, || {
            statuses(&mut client, server, tool).contains(&"cancelled".to_owned())
        });
    }
    finish(client, &sandbox);
}

#[test]
fn what_a_task_of_a_server_asks_is_asked_of_whoever_called() {
    let sandbox = Sandbox::with_jobs();
    let mut client = both(&sandbox, "limits.promote-after = \"20s\"");
    // It says what it can do, anew.
    client.send(
        r#"{"jsonrpc":"2.0","id":"again","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"unhang-test","version":"1"}}}"#,
    );
    client.answer("again");
    for server in ["new", "old"] {
        let call = client.request(
            "tools/call",
            json!({ "name": format!("{server}__confirm_delete"), "arguments": { "filename": "f", "seconds": 0.1 } }),
        );
        let question = client.find("a question", |message| message["method"] == "elicitation/create");
        assert_eq!(question["params"].get("_meta"), None, "{question}");
        let answer = json!({ "action": "accept", "content": { "confirm": true } });
        client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }).to_string());
        let answer = client.answer(call);
        assert_eq!(answer["result"]["content"][0]["text"], "deleted f", "{answer}");
    }
    finish(client, &sandbox);
}

#[test]
fn where_nothing_becomes_a_job_servers_are_not_asked_for_tasks() {
    let sandbox = Sandbox::with_jobs();
    let mut client = both(&sandbox, "limits.promote-after = \"off\"");
    let refused =
        client.ask("tools/call", json!({ "name": "old__batch_compute", "arguments": { "seconds": 0.1 } }));
    assert_eq!(refused["error"]["code"], -32601, "it is nothing else: {refused}");
    let waited = client.result("new__slow_compute", json!({ "seconds": 0.2, "label": "a" }));
    assert_eq!(waited["content"][0]["text"], "computed a", "without a task: {waited}");
    assert_eq!(statuses(&mut client, "new", "slow_compute"), Vec::<String>::new());
    finish(client, &sandbox);
}
