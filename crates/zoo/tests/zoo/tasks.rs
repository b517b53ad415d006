//! The servers with tasks, in both dialects: what becomes a task, what it tells, what it refuses, and that it outlives its server.

use serde_json::{Value, json};

use crate::zoo_client::{ZooClient, introduction, marker, wait_until};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Longer than any test waits.
const FOR_EVER: u32 = 3600;

/// Parameters of a client of 2026-07-28 that understands tasks and can be asked.
fn able(params: Value) -> Value {
    with_capabilities(params, json!({"elicitation": {}, "extensions": {EXTENSION: {}}}))
}

fn with_capabilities(mut params: Value, capabilities: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    params
}

fn tool(name: &str, arguments: &Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

fn ask(client: &mut ZooClient, id: u64, method: &str, params: &Value) -> Value {
    client.request(id, method, params);
    client.answer(id)
}

/// Begins a task in the modern way and returns its id.
fn begin(client: &mut ZooClient, id: u64, name: &str, arguments: &Value) -> String {
    let created = ask(client, id, "tools/call", &able(tool(name, arguments)));
    assert_eq!(
        (&created["result"]["resultType"], &created["result"]["status"]),
        (&json!("task"), &json!("working"))
    );
    assert!(
        created["result"]["inputRequests"].is_null() && created["result"]["result"].is_null(),
        "{created}"
    );
    created["result"]["taskId"].as_str().expect("an id").to_owned()
}

/// Polls until a task has this status.
fn until(client: &mut ZooClient, task: &str, status: &str, params: fn(Value) -> Value) -> Value {
    let mut id = 1000;
    wait_until(status, || {
        id += 1;
        let answer = ask(client, id, "tasks/get", &params(json!({"taskId": task})));
        (answer["result"]["status"] == status).then(|| answer["result"].clone())
    })
}

#[test]
fn a_modern_server_decides_what_becomes_a_task() {
    let mut client = ZooClient::meet("tasks-modern --poll 7 --ttl 600000");
    let discovery = ask(&mut client, 1, "server/discover", &able(json!({})));
    assert_eq!(discovery["result"]["capabilities"]["extensions"], json!({EXTENSION: {}}));
    let greeting = ask(&mut client, 2, "tools/call", &able(tool("greet", &json!({"name": "Ada"}))));
    assert_eq!(greeting["result"]["resultType"], "complete");
    assert_eq!(greeting["result"]["content"][0]["text"], "Hello, Ada!");

    let task = begin(&mut client, 3, "slow_compute", &json!({"seconds": 0.1, "label": "sums"}));
    let done = until(&mut client, &task, "completed", able);
    assert_eq!((&done["ttlMs"], &done["pollIntervalMs"]), (&json!(600_000), &json!(7)));
    assert_eq!((&done["resultType"], &done["taskId"]), (&json!("complete"), &json!(task)));
    assert_eq!(done["result"]["content"][0]["text"], "computed sums");
    assert!(done["createdAt"].as_str() < done["lastUpdatedAt"].as_str(), "{done}");

    // An error of the tool is a result, an error of the protocol is none.
    let task = begin(&mut client, 4, "failing_job", &json!({"seconds": 0.1}));
    assert_eq!(until(&mut client, &task, "completed", able)["result"]["isError"], true);
    let task = begin(&mut client, 5, "protocol_error_job", &json!({"seconds": 0.1}));
    let failed = until(&mut client, &task, "failed", able);
    assert_eq!((&failed["error"]["code"], &failed["result"]), (&json!(-32603), &Value::Null));

    let seen = ask(&mut client, 6, "tools/call", &able(tool("seen", &json!({}))));
    let seen: Value =
        serde_json::from_str(seen["result"]["content"][0]["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(seen["pid"], client.pid());
    assert_eq!(seen["tasks"].as_array().map(Vec::len), Some(3));
    assert!(seen["tasks"][0]["polls"].as_u64() >= Some(1), "{seen}");
}

#[test]
fn nobody_gets_a_modern_task_who_does_not_know_them() {
    let mut client = ZooClient::meet("tasks-modern");
    let unable = |params| with_capabilities(params, json!({}));
    let slow = ask(&mut client, 1, "tools/call", &unable(tool("slow_compute", &json!({"seconds": 0.1}))));
    assert_eq!(
        (&slow["result"]["resultType"], &slow["result"]["taskId"]),
        (&json!("complete"), &Value::Null)
    );
    let lacking = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    for (id, (method, params)) in (2..).zip([
        ("tools/call", tool("batch_compute", &json!({}))),
        ("tasks/get", json!({"taskId": "x"})),
        ("tasks/update", json!({"taskId": "x"})),
        ("tasks/cancel", json!({"taskId": "x"})),
        ("subscriptions/listen", json!({"notifications": {"taskIds": ["x"]}})),
    ]) {
        let error = ask(&mut client, id, method, &unable(params))["error"].take();
        assert_eq!((&error["code"], &error["data"]), (&json!(-32021), &lacking), "{method}");
    }
    for (id, method) in (20..).zip(["tasks/get", "tasks/update", "tasks/cancel"]) {
        assert_eq!(ask(&mut client, id, method, &able(json!({"taskId": "x"})))["error"]["code"], -32602);
    }
    for (id, method) in (30..).zip(["tasks/result", "tasks/list", "ping"]) {
        assert_eq!(ask(&mut client, id, method, &able(json!({"taskId": "x"})))["error"]["code"], -32601);
    }
    assert_eq!(ask(&mut client, 40, "initialize", &introduction())["error"]["code"], -32022);
    assert_eq!(ask(&mut client, 41, "tools/list", &json!({}))["error"]["code"], -32602);
    // What is withdrawn is not answered.
    client.request(42, "tools/call", &unable(tool("slow_compute", &json!({"seconds": FOR_EVER}))));
    client.notify("notifications/cancelled", &json!({"requestId": 42}));
    assert_eq!(ask(&mut client, 43, "tools/list", &able(json!({})))["id"], 43);
    client.close_stdin();
    assert!(client.end().success());
    assert!(client.line().is_none());
}

#[test]
fn a_modern_task_is_answered_key_by_key() {
    let mut client = ZooClient::meet("tasks-modern");
    let task = begin(&mut client, 1, "multi_input", &json!({"seconds": 0.1}));
    let asking = until(&mut client, &task, "input_required", able);
    assert_eq!(asking["inputRequests"].as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(asking["inputRequests"]["first"]["method"], "elicitation/create");
    let said = |name: &str| json!({"action": "accept", "content": {"name": name}});
    for (id, (answers, status)) in (2..).zip([
        (json!({"other": {}}), "input_required"),
        (json!({"first": said("Ada")}), "input_required"),
        (json!({"first": said("Eve")}), "input_required"),
        (json!({"second": said("Grace")}), "completed"),
    ]) {
        let update = able(json!({"taskId": task, "inputResponses": answers}));
        let acknowledged = ask(&mut client, id, "tasks/update", &update)["result"].take();
        assert_eq!(
            (&acknowledged["resultType"], &acknowledged["taskId"]),
            (&json!("complete"), &Value::Null)
        );
        let shown = until(&mut client, &task, status, able);
        if id == 3 {
            assert!(
                shown["inputRequests"]["first"].is_null() && shown["inputRequests"]["second"].is_object()
            );
        }
        if status == "completed" {
            assert_eq!(shown["result"]["content"][0]["text"], "First Ada, then Grace");
        }
    }
}

#[test]
fn a_round_before_a_modern_task_is_none_of_it() {
    let mut client = ZooClient::meet("tasks-modern");
    let mut call = able(tool("test_tool_with_task", &json!({"seconds": 0.1})));
    let question = ask(&mut client, 1, "tools/call", &call)["result"].take();
    assert_eq!((&question["resultType"], &question["taskId"]), (&json!("input_required"), &Value::Null));
    call["inputResponses"] = json!({"user_name": {"action": "accept", "content": {"name": "Alice"}}});
    let created = ask(&mut client, 2, "tools/call", &call)["result"].take();
    assert_eq!((&created["resultType"], &created["inputRequests"]), (&json!("task"), &Value::Null));
    let done = until(&mut client, created["taskId"].as_str().expect("an id"), "completed", able);
    assert_eq!(done["result"]["content"][0]["text"], "A task for Alice");
}

#[test]
fn a_modern_task_is_cancelled_once_and_its_listener_hears_of_it() {
    let mut client = ZooClient::meet("tasks-modern");
    let task = begin(&mut client, 1, "slow_compute", &json!({"seconds": FOR_EVER}));
    client.request(2, "subscriptions/listen", &able(json!({"notifications": {"taskIds": [task, "other"]}})));
    let acknowledged = client.json();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"taskIds": [task]}));
    client.request(3, "tasks/cancel", &able(json!({"taskId": task})));
    // The listener may hear of it before whoever cancelled does.
    let mut both = [client.json(), client.json()];
    both.sort_by_key(|message| message["id"].is_null());
    let [acknowledged, news] = both;
    assert_eq!(acknowledged["result"]["resultType"], "complete");
    assert_eq!(
        (&news["method"], &news["params"]["status"]),
        (&json!("notifications/tasks"), &json!("cancelled"))
    );
    assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 2);
    let again = ask(&mut client, 4, "tasks/cancel", &able(json!({"taskId": task})));
    assert_eq!(again["result"]["resultType"], "complete");
    assert_eq!(until(&mut client, &task, "cancelled", able)["taskId"], json!(task));
}

#[test]
fn tasks_outlive_their_server_but_not_their_time() {
    let file = std::env::temp_dir().join(marker("tasks"));
    let line = format!("tasks-modern --state {} --ttl 1000000", file.display());
    let mut first = ZooClient::meet(&line);
    let slow = begin(&mut first, 1, "slow_compute", &json!({"seconds": 0.5, "label": "sums"}));
    let asking = begin(&mut first, 2, "confirm_delete", &json!({"seconds": 0, "filename": "x"}));
    drop(first);
    let mut second = ZooClient::meet(&line);
    assert_eq!(until(&mut second, &slow, "completed", able)["result"]["content"][0]["text"], "computed sums");
    until(&mut second, &asking, "input_required", able);
    drop(second);
    std::fs::remove_file(file).expect("the file can be removed");

    let mut forgetful = ZooClient::meet("tasks-modern --ttl 1");
    let task = begin(&mut forgetful, 1, "slow_compute", &json!({"seconds": FOR_EVER}));
    wait_until("it is forgotten", || {
        let answer = ask(&mut forgetful, 2, "tasks/get", &able(json!({"taskId": task})));
        (answer["error"]["code"] == -32602).then_some(())
    });
}

/// A session of 2025-11-25 with a client that can be asked something.
fn meet_legacy(line: &str) -> ZooClient {
    let mut client = ZooClient::meet(line);
    let mut introduction = introduction();
    introduction["capabilities"] = json!({"elicitation": {}});
    let answer = ask(&mut client, 0, "initialize", &introduction);
    assert_eq!(
        answer["result"]["capabilities"]["tasks"],
        json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
    );
    client.notify("notifications/initialized", &json!({}));
    client
}

/// Begins a task in the way of 2025-11-25 and returns its id.
fn begin_legacy(client: &mut ZooClient, id: u64, name: &str, arguments: &Value) -> String {
    let mut params = tool(name, arguments);
    params["task"] = json!({"ttl": 600_000});
    let created = ask(client, id, "tools/call", &params)["result"].take();
    assert_eq!((&created["task"]["status"], &created["task"]["ttl"]), (&json!("working"), &json!(600_000)));
    assert!(created["_meta"]["io.modelcontextprotocol/model-immediate-response"].is_string(), "{created}");
    created["task"]["taskId"].as_str().expect("an id").to_owned()
}

#[test]
fn a_legacy_server_runs_as_tasks_what_it_is_asked_to() {
    let mut client = meet_legacy("tasks-legacy --poll 7");
    let task = begin_legacy(&mut client, 1, "slow_compute", &json!({"seconds": 1, "label": "sums"}));
    // The result waits for its time, and others do not wait for it.
    client.request(2, "tasks/result", &json!({"taskId": task}));
    let shown = ask(&mut client, 3, "tasks/get", &json!({"taskId": task}))["result"].take();
    assert_eq!((&shown["status"], &shown["pollInterval"]), (&json!("working"), &json!(7)));
    let told = wait_until("it is told", || Some(client.json()).filter(|message| message["id"].is_null()));
    assert_eq!(
        (&told["method"], &told["params"]["status"]),
        (&json!("notifications/tasks/status"), &json!("completed"))
    );
    client.request(4, "tasks/result", &json!({"taskId": task}));
    let done = client.answer(4)["result"].take();
    assert_eq!(done["content"][0]["text"], "computed sums");
    assert_eq!(done["_meta"][RELATED], json!({"taskId": task}));

    let task = begin_legacy(&mut client, 5, "failing_job", &json!({"seconds": 0}));
    // An error of the tool is a failure here.
    until(&mut client, &task, "failed", |params| params);
    assert_eq!(ask(&mut client, 7, "tasks/result", &json!({"taskId": task}))["result"]["isError"], true);
    let task = begin_legacy(&mut client, 8, "protocol_error_job", &json!({"seconds": 0}));
    assert_eq!(ask(&mut client, 9, "tasks/result", &json!({"taskId": task}))["error"]["code"], -32603);
    assert_eq!(ask(&mut client, 10, "tasks/get", &json!({"taskId": "x"}))["error"]["code"], -32602);
    assert_eq!(ask(&mut client, 11, "tasks/result", &json!({"taskId": "x"}))["error"]["code"], -32602);
}

#[test]
fn some_legacy_tools_are_tasks_alone_and_some_are_none() {
    let mut client = meet_legacy("tasks-legacy");
    let list = ask(&mut client, 1, "tools/list", &json!({}))["result"]["tools"].take();
    let support = |name: &str| {
        let tools = list.as_array().expect("tools");
        tools.iter().find(|tool| tool["name"] == name).map(|tool| tool["execution"]["taskSupport"].clone())
    };
    for (name, expected) in
        [("greet", "forbidden"), ("slow_compute", "optional"), ("batch_compute", "required")]
    {
        assert_eq!(support(name), Some(json!(expected)), "{name}");
    }
    let plain = ask(&mut client, 2, "tools/call", &tool("slow_compute", &json!({"seconds": 0.1})));
    assert_eq!(plain["result"]["isError"], false);
    assert_eq!(
        ask(&mut client, 3, "tools/call", &tool("batch_compute", &json!({})))["error"]["code"],
        -32601
    );
    let mut greet = tool("greet", &json!({"name": "Ada"}));
    greet["task"] = json!({});
    assert_eq!(ask(&mut client, 4, "tools/call", &greet)["error"]["code"], -32601);

    // Before 2025-11-25 there are no tasks, and nothing is one.
    let mut older = ZooClient::meet("tasks-legacy");
    let mut params = introduction();
    params["protocolVersion"] = json!("2025-06-18");
    assert_eq!(ask(&mut older, 0, "initialize", &params)["result"]["capabilities"], json!({"tools": {}}));
    let mut call = tool("batch_compute", &json!({"seconds": 0}));
    call["task"] = json!({});
    assert_eq!(ask(&mut older, 1, "tools/call", &call)["result"]["isError"], false);
    assert_eq!(ask(&mut older, 2, "tasks/list", &json!({}))["error"]["code"], -32601);
}

#[test]
fn a_legacy_task_asks_whoever_waits_for_its_result() {
    let mut client = meet_legacy("tasks-legacy");
    let task = begin_legacy(&mut client, 1, "confirm_delete", &json!({"seconds": 0.1, "filename": "x"}));
    until(&mut client, &task, "input_required", |params| params);
    client.request(2, "tasks/result", &json!({"taskId": task}));
    let question =
        wait_until("a question", || Some(client.json()).filter(|message| message["id"].is_string()));
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["_meta"][RELATED], json!({"taskId": task}));
    let said = json!({"action": "accept", "content": {"confirm": true}});
    client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": said}));
    assert_eq!(client.answer(2)["result"]["content"][0]["text"], "deleted x");

    // Whoever cannot be asked has said no.
    let mut mute = ZooClient::meet("tasks-legacy");
    mute.shake_hands();
    let task = begin_legacy(&mut mute, 1, "confirm_delete", &json!({"seconds": 0, "filename": "x"}));
    let kept = ask(&mut mute, 2, "tasks/result", &json!({"taskId": task}));
    assert_eq!(kept["result"]["content"][0]["text"], "kept x");
}

#[test]
fn the_conformance_fixture_does_the_same_work_without_tasks() {
    let mut client = ZooClient::meet("conformance-fixture --works yes");
    let name = |name: &str| json!({"action": "accept", "content": {"name": name}});
    let greeting = ask(&mut client, 1, "tools/call", &able(tool("greet", &json!({"name": "Ada"}))));
    assert_eq!(greeting["result"]["content"][0]["text"], "Hello, Ada!");
    let broken = tool("protocol_error_job", &json!({"seconds": 0.1}));
    assert_eq!(ask(&mut client, 2, "tools/call", &able(broken))["error"]["code"], -32603);
    let mut call = able(tool("multi_input", &json!({"seconds": 0.1})));
    let question = ask(&mut client, 3, "tools/call", &call)["result"].take();
    assert_eq!(question["resultType"], "input_required");
    assert_eq!(question["inputRequests"].as_object().map(serde_json::Map::len), Some(2));
    call["inputResponses"] = json!({"first": name("Ada"), "second": name("Grace")});
    let done = ask(&mut client, 4, "tools/call", &call)["result"].take();
    assert_eq!(done["content"][0]["text"], "First Ada, then Grace");
    let mute = with_capabilities(tool("multi_input", &json!({})), json!({}));
    assert_eq!(ask(&mut client, 5, "tools/call", &mute)["result"]["isError"], true);

    let mut client = ZooClient::meet("conformance-fixture --works yes --era legacy");
    let mut introduction = introduction();
    introduction["capabilities"] = json!({"elicitation": {}});
    ask(&mut client, 0, "initialize", &introduction);
    client.call(1, "multi_input", &json!({"seconds": 0.1}));
    // Both are asked before one is answered.
    let questions = [client.json(), client.json()];
    for (question, said) in questions.iter().zip(["Ada", "Grace"]) {
        client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": name(said)}));
    }
    assert_eq!(client.answer(1)["result"]["content"][0]["text"], "First Ada, then Grace");
    assert_eq!(
        ask(&mut client, 2, "tools/call", &tool("failing_job", &json!({"seconds": 0})))["result"]["isError"],
        true
    );
}

#[test]
fn legacy_tasks_are_listed_and_cancelled() {
    let mut client = meet_legacy("tasks-legacy --page 2");
    let tasks: Vec<_> = (1..=3)
        .map(|id| begin_legacy(&mut client, id, "slow_compute", &json!({"seconds": FOR_EVER})))
        .collect();
    let page = ask(&mut client, 10, "tasks/list", &json!({}))["result"].take();
    let rest = ask(&mut client, 11, "tasks/list", &json!({"cursor": page["nextCursor"]}))["result"].take();
    let listed = [&page, &rest].into_iter().flat_map(|page| page["tasks"].as_array().expect("tasks"));
    let mut listed: Vec<_> = listed.map(|task| task["taskId"].as_str().expect("an id").to_owned()).collect();
    listed.sort_unstable();
    let mut begun = tasks.clone();
    begun.sort_unstable();
    assert_eq!((listed, &rest["nextCursor"]), (begun, &Value::Null));
    assert_eq!(ask(&mut client, 12, "tasks/list", &json!({"cursor": "x"}))["error"]["code"], -32602);

    client.request(13, "tasks/result", &json!({"taskId": tasks[0]}));
    client.request(14, "tasks/cancel", &json!({"taskId": tasks[0]}));
    // Either answer may come first.
    let [mut result, mut cancelled] = [(); 2].map(|()| Value::Null);
    while result.is_null() || cancelled.is_null() {
        let message = client.json();
        match message["id"].as_u64() {
            Some(13) => result = message,
            Some(14) => cancelled = message,
            _ => {}
        }
    }
    assert_eq!(cancelled["result"]["status"], "cancelled");
    assert_eq!(result["error"]["code"], -32603);
    assert_eq!(ask(&mut client, 15, "tasks/cancel", &json!({"taskId": tasks[0]}))["error"]["code"], -32602);
}
