//! Slow calls and jobs as tasks, in both dialects (issue 7, protocol.md 2), and whose they are.

#![expect(clippy::needless_pass_by_value, reason = "what is handed in is nearly always a fresh `json!`")]

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session, StdioCaller, both, handed_over, lasting, slow_server, text},
    gateway::gateway,
    gateway_access::{ONE, TWO, closed},
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, wait_until},
};

pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A command as a tool that is always a job: it says what it is given, and leaves a result, once there is a file `go`.
const TOOLS: &str = r#"
[jobs]
memory-limit = 100

[tools.work]
command = ["sh", "-c", 'until [ -e go ]; do sleep 0.02; done; echo "{\"cod\": $1}" > "$2/results.json"', "sh", "{args.cod}", "{job_dir}"]
mode = "job"
input-schema = { properties = { cod = { type = "number" } }, required = ["cod"] }
results = "results.json"

[tools.breaks]
command = ["sh", "-c", "echo broken >&2; exit 3"]
mode = "job"
"#;

/// The code of an error.
#[track_caller]
fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("an error: {answer:.500}"))
}

/// Who speaks 2026-07-28, over pipes or over HTTP.
pub(crate) enum Modern {
    Pipes(StdioCaller),
    Web(Web),
}

impl Modern {
    /// Asks, having declared what a client can do.
    #[track_caller]
    pub(crate) fn ask_as(&mut self, method: &str, mut params: Value, capabilities: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "unhang-test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
        match self {
            Modern::Pipes(client) => {
                let id = client.request(method, params);
                client.answer(id)
            }
            Modern::Web(web) => {
                let name = ["name", "taskId"]
                    .iter()
                    .find_map(|member| params[member].as_str())
                    .unwrap_or_default()
                    .to_owned();
                let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
                if !name.is_empty() {
                    headers.push(("mcp-name", &name));
                }
                web.post(&headers, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
                    .last()
            }
        }
    }

    /// The task that a call has become.
    #[track_caller]
    fn task(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": self.named(tool), "arguments": arguments }));
        let created = &answer["result"];
        assert_eq!(created["resultType"], "task", "{answer}");
        for (member, expect) in
            [("status", json!("working")), ("content", Value::Null), ("task", Value::Null)]
        {
            assert_eq!(created[member], expect, "{answer}");
        }
        for member in ["createdAt", "lastUpdatedAt"] {
            assert!(
                created[member]
                    .as_str()
                    .is_some_and(|moment| moment.starts_with("20") && moment.ends_with('Z')),
                "{answer}"
            );
        }
        assert!(created["ttlMs"].is_u64() && created["pollIntervalMs"].is_u64(), "{answer}");
        created["taskId"].clone()
    }

    /// A task, once it is no more worked on.
    #[track_caller]
    fn at_the_end_of(&mut self, task: &Value) -> Value {
        let mut told = Value::Null;
        wait_until("the end of a task", PATIENCE, || {
            let answer = self.ask("tasks/get", json!({ "taskId": task }));
            told = answer["result"].clone();
            assert_eq!((&told["resultType"], &told["taskId"]), (&json!("complete"), task), "{answer}");
            told["status"] != "working"
        });
        told
    }

    fn end(self) {
        if let Modern::Pipes(mut client) = self {
            client.finish();
        }
    }
}

impl Calls for Modern {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.ask_as(method, params, json!({ "extensions": { EXTENSION: {} } }))
    }

    fn named(&self, tool: &str) -> String {
        match self {
            Modern::Pipes(caller) => caller.named(tool),
            Modern::Web(_) => tool.to_owned(),
        }
    }
}

/// The same over pipes, over HTTP and behind `unhang wrap`, each in front of the slow server.
fn three_ways(test: impl Fn(Modern)) {
    both_ways(|_, client| test(client));
    let sandbox = Sandbox::with_jobs();
    test(Modern::Pipes(StdioCaller::new(&sandbox, true, &[])));
    sandbox.assert_nothing_left();
}

/// The same over pipes and over HTTP, each in front of the slow server and these tools.
fn both_ways(test: impl Fn(&Sandbox, Modern)) {
    let config = slow_server("") + TOOLS;
    {
        let sandbox = Sandbox::with_jobs();
        fs::write(sandbox.path().join("unhang.toml"), &config).expect("a file");
        let mut command = sandbox.unhang();
        command.args(["-v", "serve"]);
        test(&sandbox, Modern::Pipes(StdioCaller::at(Client::start(command))));
        sandbox.assert_nothing_left();
    }
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), &config).expect("a file");
    let (process, web) = Web::start(&sandbox);
    test(&sandbox, Modern::Web(web));
    finish(process, &sandbox);
}

#[test]
fn a_client_that_has_declared_it_gets_a_task() {
    three_ways(|mut client| {
        let discovered = client.ask("server/discover", json!({}));
        assert_eq!(discovered["result"]["capabilities"]["extensions"][EXTENSION], json!({}), "{discovered}");
        // Fast calls are answered, whoever asks.
        let fast = client.result("srv__echo", json!({ "text": "x" }));
        assert_eq!(
            (&fast["resultType"], &fast["content"][0]["text"]),
            (&json!("complete"), &json!("x")),
            "{fast}"
        );
        let task = client.task("srv__slow", json!({ "seconds": 2, "size": 200_000 }));
        let told = client.at_the_end_of(&task);
        assert_eq!(told["status"], "completed", "{told:.500}");
        assert_eq!(
            told["result"]["content"],
            json!([{ "type": "text", "text": text(200_000) }]),
            "{told:.500}"
        );
        assert_eq!(told["result"]["resultType"], "complete", "{told:.500}");
        // What is heard twice is heard.
        for _ in 0..2 {
            let answer = client.ask("tasks/cancel", json!({ "taskId": task }));
            assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        }
        assert_eq!(client.at_the_end_of(&task)["status"], "completed");
        // A result that is an error is one all the same.
        let failing = client.task("srv__slow", json!({ "seconds": 2, "fail": true }));
        let told = client.at_the_end_of(&failing);
        assert_eq!(
            (&told["status"], &told["result"]["isError"]),
            (&json!("completed"), &json!(true)),
            "{told}"
        );
        assert_eq!(client.counted(), [2, 2, 0]);
        client.end();
    });
}

#[test]
fn a_task_that_is_cancelled_ends_and_its_server_is_told() {
    three_ways(|mut client| {
        let task = client.task("srv__slow", lasting(60.0, "long"));
        let answer = client.ask("tasks/cancel", json!({ "taskId": task }));
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        let told = client.at_the_end_of(&task);
        assert_eq!((&told["status"], &told["result"]), (&json!("cancelled"), &Value::Null), "{told}");
        wait_until("the server was told", PATIENCE, || client.counted() == [1, 0, 1]);
        client.end();
    });
}

#[test]
fn whoever_has_not_declared_tasks_is_told_of_none() {
    three_ways(|mut client| {
        client.ask("server/discover", json!({}));
        let task = client.task("srv__slow", lasting(3.0, "x"));
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let params = json!({ "taskId": task, "inputResponses": {} });
            let refused = client.ask_as(method, params, json!({}));
            assert_eq!(code(&refused), -32021, "{refused}");
            let required = &refused["error"]["data"]["requiredCapabilities"];
            assert_eq!(*required, json!({ "extensions": { EXTENSION: {} } }), "{refused}");
        }
        // What it gets instead.
        let params = json!({ "name": client.named("srv__slow"), "arguments": lasting(2.0, "y") });
        let words = client.ask_as("tools/call", params, json!({}));
        assert_eq!(words["result"]["resultType"], "complete", "{words}");
        let job = handed_over(&words["result"]);
        client.whole(&job);
        // There are no others: neither what the other dialect has, nor a task that nobody began.
        for method in ["tasks/list", "tasks/result"] {
            assert_eq!(code(&client.ask(method, json!({ "taskId": task }))), -32601, "{method}");
        }
        for id in ["aaaaaaaaaaaa", "no task at all", "../../etc"] {
            for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
                let refused = client.ask(method, json!({ "taskId": id, "inputResponses": {} }));
                assert_eq!(code(&refused), -32602, "{method} {id}: {refused}");
            }
        }
        // Nobody is asked anything, and an answer to that is heard.
        let answer = client.ask(
            "tasks/update",
            json!({ "taskId": task, "inputResponses": { "nothing": { "action": "accept" } } }),
        );
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        assert_eq!(client.at_the_end_of(&task)["status"], "completed");
        client.end();
    });
}

#[test]
fn a_command_that_is_a_job_is_a_task_as_well() {
    both_ways(|sandbox, mut client| {
        let task = client.task("work", json!({ "cod": 2.5 }));
        let cancelled = client.task("work", json!({ "cod": 3 }));
        client.ask("tasks/cancel", json!({ "taskId": cancelled }));
        assert_eq!(client.at_the_end_of(&cancelled)["status"], "cancelled");
        fs::write(sandbox.path().join("go"), "").expect("a file");
        let told = client.at_the_end_of(&task);
        assert_eq!(told["status"], "completed", "{told}");
        assert_eq!(told["result"]["structuredContent"]["results"], json!({ "cod": 2.5 }), "{told}");
        let broken = client.task("breaks", json!({}));
        let told = client.at_the_end_of(&broken);
        assert_eq!(
            (&told["status"], &told["result"]["isError"]),
            (&json!("completed"), &json!(true)),
            "{told}"
        );
        assert!(
            told["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("broken")),
            "{told}"
        );
        client.end();
    });
}

/// The task of a call that asks for one (2025-11-25).
#[track_caller]
fn wanted_task(client: &mut impl Calls, tool: &str, arguments: Value) -> Value {
    let tool = &client.named(tool);
    let params = json!({ "name": tool, "arguments": arguments, "task": { "ttl": 60_000 } });
    let created = client.ask("tools/call", params);
    let task = &created["result"]["task"];
    assert_eq!(task["status"], "working", "{created}");
    assert!(
        task["ttl"].is_u64() && task["pollInterval"].is_u64() && created["result"]["resultType"].is_null(),
        "{created}"
    );
    let said = created["result"]["_meta"]["io.modelcontextprotocol/model-immediate-response"].as_str();
    assert!(said.is_some_and(|said| said.contains(&**tool)), "{created}");
    task["taskId"].clone()
}

#[test]
fn a_client_of_2025_11_25_gets_a_task_where_it_asks_for_one() {
    for is_guarded in [false, true] {
        let sandbox = Sandbox::with_jobs();
        let mut client = StdioCaller::new(&sandbox, is_guarded, &[]);
        let offered = client.initialize();
        assert_eq!(
            offered["capabilities"]["tasks"],
            json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } })
        );
        let task = wanted_task(&mut client, "srv__slow", json!({ "seconds": 2, "size": 200_000 }));
        let about = json!({ "taskId": task });
        let told = client.ask("tasks/get", about.clone());
        assert_eq!(
            (&told["result"]["taskId"], &told["result"]["status"]),
            (&task, &json!("working")),
            "{told}"
        );
        let listed = client.ask("tasks/list", json!({}));
        assert_eq!(listed["result"]["tasks"][0]["taskId"], task, "{listed}");
        let result = client.ask("tasks/result", about.clone());
        assert_eq!(
            result["result"]["content"],
            json!([{ "type": "text", "text": text(200_000) }]),
            "{result:.500}"
        );
        assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"], about, "{result:.500}");
        assert_eq!(client.ask("tasks/get", about.clone())["result"]["status"], "completed");
        // There is nothing left to end.
        let refused = client.ask("tasks/cancel", about);
        assert_eq!(code(&refused), -32602, "{refused}");
        // A result that is an error is a task that has failed.
        let failing = json!({ "taskId": wanted_task(&mut client, "srv__slow", json!({ "seconds": 1, "fail": true, "size": 20 })) });
        let result = client.ask("tasks/result", failing.clone());
        assert_eq!(
            (&result["result"]["isError"], &result["result"]["content"][0]["text"]),
            (&json!(true), &json!(text(20))),
            "{result}"
        );
        assert_eq!(client.ask("tasks/get", failing)["result"]["status"], "failed");
        // Without asking there is none.
        let words = client.result("srv__slow", lasting(2.0, "x"));
        client.whole(&handed_over(&words));
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            for id in ["aaaaaaaaaaaa", "no task at all"] {
                assert_eq!(code(&client.ask(method, json!({ "taskId": id }))), -32602, "{method} {id}");
            }
        }
        assert_eq!(client.counted(), [3, 3, 0]);
        client.finish();
        sandbox.assert_nothing_left();
    }
}

#[test]
fn the_same_call_that_asks_for_a_task_gets_the_one_that_there_is() {
    both(&[("join-same-call", "true")], |_, mut client| {
        client.ask("tools/list", json!({}));
        let arguments = json!({ "seconds": 2, "size": 20 });
        let task = wanted_task(&mut client, "srv__slow_read", arguments.clone());
        assert_eq!(wanted_task(&mut client, "srv__slow_read", arguments.clone()), task, "while it runs");
        let about = json!({ "taskId": task });
        // Without looking at what it has come to, which would have been read then.
        assert_eq!(client.at_its_end(&task)["status"], "completed");
        let tool = client.named("srv__slow_read");
        let params = json!({ "name": tool, "arguments": arguments, "task": {} });
        let ended = client.ask("tools/call", params)["result"]["task"].clone();
        assert_eq!((&ended["taskId"], &ended["status"]), (&task, &json!("completed")), "{ended}");
        let result = client.ask("tasks/result", about);
        assert_eq!(result["result"]["content"][0]["text"], text(20), "{result}");
        assert_eq!(client.counted(), [1, 1, 0]);
        client.finish();
    });
}

#[test]
fn a_task_of_2025_11_25_is_cancelled_when_that_is_answered() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[slow_server(""), TOOLS.to_owned()]);
    for (tool, arguments) in [("srv__slow", lasting(60.0, "x")), ("work", json!({ "cod": 1 }))] {
        let about = json!({ "taskId": wanted_task(&mut client, tool, arguments) });
        // Somebody waits for what comes of it.
        let waits = client.request("tasks/result", about.clone());
        let cancelled = client.ask("tasks/cancel", about.clone());
        assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
        assert_eq!(client.ask("tasks/get", about.clone())["result"]["status"], "cancelled");
        let result = client.outcome(waits);
        assert!(result["error"].is_object() || tool == "work", "{result}");
        let again = client.ask("tasks/cancel", about);
        assert_eq!(code(&again), -32602, "{again}");
    }
    wait_until("the server was told", PATIENCE, || client.counted() == [1, 0, 1]);
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_task_of_2025_11_25_is_cancelled_behind_a_guard_too() {
    let sandbox = Sandbox::with_jobs();
    let mut client = StdioCaller::new(&sandbox, true, &[]);
    client.initialize();
    let about = json!({ "taskId": wanted_task(&mut client, "srv__slow", lasting(60.0, "x")) });
    let waits = client.request("tasks/result", about.clone());
    let cancelled = client.ask("tasks/cancel", about.clone());
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    assert!(client.outcome(waits)["error"].is_object());
    assert_eq!(code(&client.ask("tasks/cancel", about)), -32602);
    wait_until("the server was told", PATIENCE, || client.counted() == [1, 0, 1]);
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn where_callers_are_not_told_apart_there_is_no_list_of_tasks() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), slow_server("")).expect("a file");
    let (process, web) = Web::start(&sandbox);
    let mut session = Session::begin(&web, "one");
    assert_eq!(code(&session.ask("tasks/list", json!({}))), -32601);
    let task = wanted_task(&mut session, "srv__slow", lasting(1.0, "x"));
    let result = session.ask("tasks/result", json!({ "taskId": task }));
    assert_eq!(result["result"]["content"][0]["text"], text(64), "{result}");
    finish(process, &sandbox);
}

/// What the tools say of a job to whoever asks: nothing that is told of one that never was.
#[track_caller]
fn is_not_there(session: &mut Session, job: &Value) {
    let nobodys = json!("aaaaaaaaaaaa");
    for tool in ["get_job_status", "get_job_results", "get_job_logs", "terminate_job"] {
        let [theirs, none] = [job, &nobodys].map(|job| {
            let told = session.result(tool, json!({ "job_id": job }));
            assert_eq!(told["isError"], true, "{tool}: {told}");
            told.to_string().replace(job.as_str().expect("an id"), "ID")
        });
        assert_eq!(theirs, none, "{tool}");
    }
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let [theirs, none] = [job, &nobodys].map(|job| {
            let told = session.ask(method, json!({ "taskId": job }));
            assert_eq!(code(&told), -32602, "{method}: {told}");
            told.to_string().replace(job.as_str().expect("an id"), "ID")
        });
        assert_eq!(theirs, none, "{method}");
    }
    for tool in ["list_jobs", "get_system_status"] {
        let told = session.result(tool, json!({}));
        assert_eq!(told["structuredContent"]["jobs"], json!([]), "{tool}: {told}");
        assert!(!told.to_string().contains(job.as_str().expect("an id")), "{tool}: {told}");
    }
    let listed = session.ask("tasks/list", json!({}));
    assert_eq!(listed["result"]["tasks"], json!([]), "{listed}");
    let mut modern = Modern::Web(session.web.clone());
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let told = modern.ask(method, json!({ "taskId": job, "inputResponses": {} }));
        assert_eq!(code(&told), -32602, "{method}: {told}");
    }
}

#[test]
fn a_job_is_there_for_whoever_began_it_alone() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = closed(&sandbox, "127.0.0.1:0", &(slow_server("") + TOOLS), "");
    let [mut one, mut two] = [ONE, TWO].map(|token| Session::begin(&web.with_token(token), "same"));
    let arguments = lasting(8.0, "same");
    let call = one.becomes_a_job(arguments.clone());
    let task = wanted_task(&mut one, "srv__slow", lasting(60.0, "task"));
    let command = one.result("work", json!({ "cod": 1 }))["structuredContent"]["job_id"].clone();
    for job in [&call, &task, &command] {
        is_not_there(&mut two, job);
        // Nobody else has ended it.
        let told = one.result("get_job_status", json!({ "job_id": job }))["structuredContent"].clone();
        assert!(
            ["running", "starting", "queued"].contains(&told["status"].as_str().expect("a word")),
            "{told}"
        );
    }
    // The same call of somebody else is not the same.
    let other = two.becomes_a_job(arguments);
    assert_ne!(other, call);
    fs::write(sandbox.path().join("go"), "").expect("a file");
    for job in [&call, &command] {
        assert_eq!(one.at_its_end(job)["status"], "completed");
    }
    // Without an end they would go on without the gateway.
    one.result("terminate_job", json!({ "job_id": task }));
    two.result("terminate_job", json!({ "job_id": other }));
    finish(process, &sandbox);
}

#[test]
fn a_job_is_its_owners_in_the_next_run_as_well() {
    let sandbox = Sandbox::with_jobs();
    let config = slow_server("") + TOOLS;
    let (mut process, web) = closed(&sandbox, "127.0.0.1:0", &config, "");
    let mut one = Session::begin(&web.with_token(ONE), "same");
    let done = one.becomes_a_job(lasting(1.0, "done"));
    assert_eq!(one.at_its_end(&done)["status"], "completed");
    let left = one.becomes_a_job(lasting(60.0, "left"));
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    let (process, web) = closed(&sandbox, "127.0.0.1:0", &config, "");
    let [mut one, mut two] = [ONE, TWO].map(|token| Session::begin(&web.with_token(token), "same"));
    assert_eq!(one.whole(&done), [json!({ "type": "text", "text": text(64) })]);
    let told = one.result("get_job_status", json!({ "job_id": left }))["structuredContent"].clone();
    assert_eq!(told["status"], "running", "it goes on without its gateway: {told}");
    for job in [&done, &left] {
        is_not_there(&mut two, job);
    }
    one.result("terminate_job", json!({ "job_id": left }));
    assert_eq!(one.at_its_end(&left)["status"], "cancelled");
    finish(process, &sandbox);
}

#[test]
fn a_client_that_goes_away_leaves_its_jobs_to_its_next_session() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = closed(&sandbox, "127.0.0.1:0", &slow_server("era = \"modern\""), "");
    let web = web.with_token(ONE);
    let mut gone = Session::begin(&web, "same");
    let job = gone.becomes_a_job(json!({ "seconds": 3, "size": 5000, "label": "session" }));
    gone.end();
    // One without a session, whose connection goes with its answer.
    let mut alone = Modern::Web(web.clone());
    let task = alone.task("srv__slow", json!({ "seconds": 3, "size": 5000, "label": "alone" }));
    let mut next = Session::begin(&web, "same");
    for job in [&job, &task] {
        assert_eq!(next.whole(job), [json!({ "type": "text", "text": text(5000) })]);
    }
    assert_eq!(next.counted(), [2, 2, 0]);
    // Whoever looks at the headers alone reads of the same task.
    let params = json!({ "taskId": task, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { EXTENSION: {} } },
    } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params });
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tasks/get")];
    let other = [&headers[..], &[("mcp-name", "aaaaaaaaaaaa")]].concat();
    for headers in [&headers[..], &other] {
        let refused = web.post(headers, &message);
        assert_eq!(refused.status, 400);
        assert_eq!(code(&refused.last()), -32020);
    }
    finish(process, &sandbox);
}
