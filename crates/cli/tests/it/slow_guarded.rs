//! Slow calls behind `unhang wrap`: what the guard adds to what its server has, and what it leaves alone (issue 7). What is the same behind
//! `unhang serve` is tested with that.

use std::fs;

use serde_json::{Value, json};

use crate::{
    callers::{Calls, StdioCaller, both, handed_over, lasting},
    harness::{Client, PATIENCE, Sandbox, lab_program, wait_until},
};

/// What a list of tools names.
#[track_caller]
fn names(client: &mut Client, cursor: &Value) -> (Vec<String>, Value) {
    let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
    let listed = client.ask("tools/list", params)["result"].clone();
    let tools = listed["tools"].as_array().unwrap_or_else(|| panic!("a list: {listed}"));
    let names = tools.iter().map(|tool| tool["name"].as_str().expect("text").to_owned()).collect();
    (names, listed["nextCursor"].clone())
}

/// A guard with these flags in front of this command.
fn guard(sandbox: &Sandbox, flags: &[&str], command: &[&str]) -> Client {
    let mut wrap = sandbox.unhang();
    wrap.args(["-v", "wrap", "--name", "srv"]).args(flags).arg("--").args(command);
    let mut client = Client::start(wrap);
    client.initialize();
    client
}

#[test]
fn the_tools_about_jobs_come_behind_the_last_page_and_nothing_is_opened_for_them() {
    let sandbox = Sandbox::with_jobs();
    let mut client = guard(&sandbox, &[], &[lab_program(), "zoo", "well-behaved", "--page", "4"]);
    let (mut all, mut pages, mut cursor) = (Vec::new(), 0, Value::Null);
    loop {
        let (names, next) = names(&mut client, &cursor);
        all.extend(names);
        pages += 1;
        cursor = next;
        if cursor.is_null() {
            break;
        }
    }
    let ours = all.iter().filter(|name| name.starts_with("unhang_")).count();
    assert!(pages > 2 && ours == 3 && all[all.len() - 3..].iter().all(|name| name.starts_with("unhang_")));
    client.tool_text("echo", json!({ "text": "fast" }));
    client.finish();
    let files = sandbox.files();
    assert!(files.iter().all(|file| file.starts_with("state/logs")), "{files:?}");
    sandbox.assert_nothing_left();
}

#[test]
fn f_73_a_client_that_follows_its_list_has_the_tools_with_its_first_job() {
    let sandbox = Sandbox::with_jobs();
    let mut wrap = sandbox.unhang();
    wrap.args(["-v", "wrap", "--promote-after", "1s", "--", lab_program(), "zoo", "slow-answers"]);
    let mut client = Client::start(wrap);
    let introduced = client.initialize_as("2025-06-18", "Visual Studio Code");
    assert_eq!(introduced["capabilities"]["tools"]["listChanged"], true, "{introduced}");
    let (before, _) = names(&mut client, &Value::Null);
    assert!(before.iter().all(|name| !name.starts_with("unhang_")), "{before:?}");
    let job = handed_over(&client.result("slow", lasting(2.0, "x")));
    let index = |what: &dyn Fn(&Value) -> bool| client.seen().iter().position(what);
    let told = index(&|message| message["method"] == "notifications/tools/list_changed");
    let answered = index(&|message| message["result"].to_string().contains(job.as_str().expect("an id")));
    assert!(told.is_some() && told < answered, "it is told before its model hears of the tools");
    let (after, _) = names(&mut client, &Value::Null);
    let ours = ["unhang_get_job_status", "unhang_get_job_results", "unhang_terminate_job"];
    assert_eq!(after[..before.len()], before);
    assert_eq!(after[before.len()..], ours);
    let params = json!({ "job_id": job, "wait_seconds": 20 });
    assert_eq!(client.result("unhang_get_job_status", params)["structuredContent"]["status"], "completed");
    // There may be no list of resources here, so that something else names the jobs.
    let unknown = client.ask("resources/read", json!({ "uri": "job://aaaaaaaaaaaa" }));
    let told = unknown["error"]["message"].as_str().expect("it is not there");
    assert!(told.contains("unhang_list_jobs") && !told.contains("resources/list"), "{told}");
    // What is not listed is answered all the same.
    let listed = client.result("unhang_list_jobs", json!({}));
    assert_eq!(listed["structuredContent"]["jobs"][0]["job_id"], job, "{listed}");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_guard_behind_a_guard_has_tools_of_other_names() {
    let sandbox = Sandbox::with_jobs();
    let unhang = env!("CARGO_BIN_EXE_unhang");
    let inner = [unhang, "wrap", "--promote-after", "1s", "--", lab_program(), "zoo", "slow-answers"];
    let mut client = guard(&sandbox, &["--promote-after", "2s"], &inner);
    let (all, _) = names(&mut client, &Value::Null);
    for name in ["unhang_get_job_results", "unhang2_get_job_results"] {
        assert_eq!(all.iter().filter(|listed| *listed == name).count(), 1, "{all:?}");
    }
    let job = handed_over(&client.result("slow", lasting(2.0, "x")));
    for prefix in ["unhang_", "unhang2_"] {
        let params = json!({ "job_id": job, "wait_seconds": 1 });
        let told = client.result(&format!("{prefix}get_job_status"), params);
        assert!(
            told["content"][0]["text"]
                .as_str()
                .is_some_and(|text| text.contains(job.as_str().expect("an id")))
        );
    }
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_client_that_never_lists_reaches_the_servers_own_tools_about_jobs() {
    let sandbox = Sandbox::with_jobs();
    let tee = [lab_program(), "zoo", "tee", "asked", "said", "--"];
    let inner = [env!("CARGO_BIN_EXE_unhang"), "wrap", "--promote-after", "1h", "--"];
    let server = [lab_program(), "zoo", "slow-answers"];
    let mut client = guard(&sandbox, &["--promote-after", "1s"], &[&tee[..], &inner, &server].concat());
    let listed = client.result("unhang_list_jobs", json!({}));
    assert_eq!(listed["structuredContent"]["jobs"], json!([]), "{listed}");
    let asked = || fs::read_to_string(sandbox.path().join("asked")).expect("it was written");
    assert!(asked().contains("unhang_list_jobs"), "the server has a tool of that name: {}", asked());
    let promoted = client.result("slow", lasting(3.0, "x"));
    let (job, told) = (handed_over(&promoted), promoted.to_string());
    assert!(told.contains("unhang2_get_job_status") && !told.contains("unhang_get_job_status"), "{told}");
    let params = json!({ "job_id": job, "wait_seconds": 20 });
    assert_eq!(client.result("unhang2_get_job_status", params)["structuredContent"]["status"], "completed");
    assert_eq!(asked().matches("tools/list").count(), 1, "it is asked for its tools once");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn where_calls_are_not_to_become_jobs_a_guard_leaves_everything_as_it_is() {
    let sandbox = Sandbox::with_jobs();
    let talk = |flags: &[&str], file: &str| {
        let (asked, said) = (format!("asked-{file}"), format!("said-{file}"));
        let mut client = guard(
            &sandbox,
            flags,
            &[lab_program(), "zoo", "tee", &asked, &said, "--", lab_program(), "zoo", "slow-answers"],
        );
        client.ask("tools/list", json!({}));
        client.ask("tools/call", json!({ "name": "slow", "arguments": lasting(1.0, "x") }));
        client.finish();
        let received: Vec<Value> = client.seen().to_vec();
        let read = |file: &str| fs::read_to_string(sandbox.path().join(file)).expect("it was written");
        let said: Vec<Value> =
            read(&said).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (read(&asked), said, received)
    };
    let (asked, said, received) = talk(&["--promote-after", "off"], "off");
    assert_eq!(said, received, "what the server says is what its client hears");
    assert!(!format!("{received:?}").contains("unhang_"));
    let (asked_too, said_too, received_too) = talk(&[], "on");
    assert_eq!((asked, said), (asked_too, said_too), "the server never notices");
    assert_ne!(received, received_too);
}

#[test]
fn a_server_that_has_tasks_keeps_them_behind_a_guard() {
    let sandbox = Sandbox::with_jobs();
    let mut bare = sandbox.bare(&["tasks-legacy"]);
    let own = bare.initialize()["capabilities"].clone();
    bare.finish();
    let mut wrap = sandbox.unhang();
    wrap.args(["-v", "wrap", "--promote-after", "1s", "--", lab_program(), "zoo", "tasks-legacy"]);
    let mut client = Client::start(wrap);
    assert_eq!(client.initialize()["capabilities"], own);
    let params =
        json!({ "name": "batch_compute", "arguments": { "seconds": 0.3, "label": "a" }, "task": {} });
    let task = client.ask("tools/call", params)["result"]["task"]["taskId"].clone();
    let result = client.ask("tasks/result", json!({ "taskId": task }));
    assert_eq!(result["result"]["content"][0]["text"], "computed a", "{result}");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_server_asks_its_client_about_a_call_that_is_a_job() {
    let sandbox = Sandbox::with_jobs();
    let mut client = StdioCaller::new(&sandbox, true, &[]);
    client.initialize();
    let job = client.becomes_a_job(json!({ "seconds": 4, "ask": true, "label": "late" }));
    let question = client.find("a question", |message| message["method"] == "elicitation/create");
    client.respond(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
    let content = client.whole(&job);
    assert!(content[1]["text"].as_str().is_some_and(|received| received.contains("Ada")), "{content:?}");
    client.finish();
    sandbox.assert_nothing_left();
}

/// The params of a request of a client without a handshake, which copes with tasks and can be asked something.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "unhang-test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    params
}

#[test]
fn a_task_behind_a_guard_is_followed_and_has_what_it_asks_for() {
    let sandbox = Sandbox::with_jobs();
    let mut client = StdioCaller::new(&sandbox, true, &[]);
    let arguments = json!({ "seconds": 4, "ask": true, "size": 20 });
    let created = client.ask("tools/call", modern(json!({ "name": "slow", "arguments": arguments })));
    let task = created["result"]["taskId"].clone();
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    let filter = json!({ "notifications": { "taskIds": [task] } });
    let listen = client.request("subscriptions/listen", modern(filter));
    client.find("an acknowledgement", |message| {
        message["method"] == "notifications/subscriptions/acknowledged"
            && message["params"]["notifications"]["taskIds"] == json!([task])
    });
    let told = client.find("that it asks", |message| message["params"]["status"] == "input_required");
    assert_eq!(told["method"], "notifications/tasks", "{told}");
    let name = told["params"]["inputRequests"].as_object().and_then(|asked| asked.keys().next().cloned());
    let name = name.unwrap_or_else(|| panic!("a question: {told}"));
    let response = json!({ "action": "accept", "content": { "name": "Ada" } });
    client.ask("tasks/update", modern(json!({ "taskId": task, "inputResponses": { name: response } })));
    let told = client.find("the end", |message| message["params"]["status"] == "completed");
    let content = &told["params"]["result"]["content"];
    assert!(content[1]["text"].as_str().is_some_and(|received| received.contains("Ada")), "{told}");
    assert_eq!(client.answers_to(listen), 0, "a subscription lasts");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_task_for_a_client_that_has_declared_none_is_told_as_a_fault_of_the_server() {
    let sandbox = Sandbox::with_jobs();
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t","status":"working"}}"#;
    let script = format!("read -r line; echo '{answer}'; cat > /dev/null");
    let mut command = sandbox.unhang();
    command.args(["-v", "wrap", "--name", "srv", "--", "sh", "-c", &script]);
    let mut client = Client::start(command);
    let params = json!({ "name": "slow", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let id = client.request("tools/call", params);
    assert_eq!(client.answer(id)["result"]["taskId"], "t", "what the server says is passed on");
    client.finish();
    assert!(
        sandbox.log().contains("but the client declared no support for tasks; this is a fault of the server")
    );
    sandbox.assert_nothing_left();
}

#[test]
fn where_no_job_can_be_kept_a_call_stays_one_and_its_client_is_told_why_when_it_asks() {
    let sandbox = Sandbox::with_jobs();
    let mut client = StdioCaller::new(&sandbox, true, &[]);
    client.initialize();
    // A file where the folder of jobs is to be.
    fs::write(sandbox.path().join("state/jobs"), "").expect("a file");
    let result = client.result("srv__slow", json!({ "seconds": 2, "size": 20 }));
    assert_eq!(result["content"][0]["text"].as_str().map(str::len), Some(20), "{result}");
    let told = client.result("list_jobs", json!({}));
    assert_eq!(told["isError"], true, "{told}");
    wait_until("it is told", PATIENCE, || sandbox.log().contains("cannot become a job"));
    client.finish();
    sandbox.assert_nothing_left();
}

/// The finding: it failed with a deadline, and advised what could not help.
#[test]
fn who_waits_for_a_job_for_longer_than_a_call_may_take_is_told_in_time_where_it_is() {
    both(&[("call-timeout", "2s")], |_, mut client| {
        let job = client.becomes_a_job(lasting(60.0, "long"));
        let told = client.result("get_job_status", json!({ "job_id": job, "wait_seconds": 20 }));
        assert_eq!(told["structuredContent"]["status"], "running", "{told}");
        client.result("terminate_job", json!({ "job_id": job }));
        client.finish();
    });
}

/// The finding: they were sent to a shell that they do not have.
#[test]
fn an_agent_that_asks_for_a_job_that_is_not_there_is_told_of_tools_alone() {
    both(&[], |_, mut client| {
        let ids = if client.is_guarded { "the answer to the call has the id" } else { "list_jobs" };
        for tool in ["get_job_status", "get_job_results", "get_job_logs", "terminate_job"] {
            let told = client.result(tool, json!({ "job_id": "aaaaaaaaaaaa" }));
            let text = told["content"][0]["text"].as_str().expect("text");
            assert!(text.contains(ids) && !text.contains("unhang job"), "{tool}: {text}");
        }
        client.finish();
    });
}
