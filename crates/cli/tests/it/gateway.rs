//! `unhang serve` in front of several servers: one list, each call to its own, each fenced off from the others.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use unhang::{
    gateway::{EraPolicy, Scope, ServerEntry, Servers},
    route::rules::ToolRules,
    secrets::Secrets,
};

use crate::{
    callers::Calls,
    client_library::{faulty_server, until},
    harness::{Client, PATIENCE, Sandbox, is_alive, lab_program, run_to_end, signal, timed, wait_until},
};

/// `[servers.NAME]` of a faulty server, with more lines.
pub(crate) fn server(name: &str, faulty_server: &[&str], more: &str) -> String {
    let arguments: Vec<String> =
        ["zoo"].iter().chain(faulty_server).map(|word| format!("{word:?}")).collect();
    format!("[servers.{name}]\ncommand = {:?}\nargs = [{}]\n{more}\n", lab_program(), arguments.join(", "))
}

/// A gateway in front of these, and a client that has shaken hands with it.
pub(crate) fn gateway(sandbox: &Sandbox, servers: &[String]) -> Client {
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    window(sandbox, &[])
}

/// A window on the configuration of a sandbox.
pub(crate) fn window(sandbox: &Sandbox, flags: &[&str]) -> Client {
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]).args(flags);
    let mut client = Client::start(command);
    client.initialize();
    client
}

/// Two windows on servers of these names that know handshakes alone, the leader first. `more` is in the configuration of each server.
pub(crate) fn legacy_windows(sandbox: &Sandbox, names: &[&str], more: &str) -> [Client; 2] {
    let slow = |name: &&str| server(name, &["slow-answers", "--era", "legacy"], more);
    let mut leader = gateway(sandbox, &names.iter().map(slow).collect::<Vec<_>>());
    listed(&mut leader, "tools/list", "tools", "name");
    let mut follower = window(sandbox, &[]);
    listed(&mut follower, "tools/list", "tools", "name");
    [leader, follower]
}

/// Ends both windows, the follower first.
pub(crate) fn finish_windows([leader, mut follower]: [Client; 2], sandbox: &Sandbox) {
    follower.close_stdin();
    assert_eq!(follower.exit_code(), 0, "{}", follower.stderr());
    finish(leader, sandbox);
}

/// What a list names, once the servers have come up.
pub(crate) fn listed(client: &mut Client, method: &str, member: &str, key: &str) -> Vec<String> {
    let id = client.request(method, json!({}));
    let answer = client.answer(id);
    let items = answer["result"][member].as_array().unwrap_or_else(|| panic!("a list: {answer}"));
    items.iter().map(|item| item[key].as_str().expect("text").to_owned()).collect()
}

pub(crate) fn finish(mut client: Client, sandbox: &Sandbox) {
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn f_73_our_tools_come_last_and_only_where_there_is_a_use_for_them() {
    let of_jobs = [
        "get_job_status",
        "get_job_results",
        "get_job_logs",
        "list_jobs",
        "terminate_job",
        "get_system_status",
    ];
    let with_state = "[tools.keep]\ncommand = [\"true\"]\nmode = \"job\"\nresults = \"r.json\"\nstate = { field = \"kept\", pointer = \"\" }\n";
    let off = "limits.promote-after = \"off\"";
    for (tools, server_says, ours, is_told) in [
        ("", "", &of_jobs[..], true),
        ("", off, &[], false),
        ("[tools.greet]\ncommand = [\"echo\"]\n", off, &of_jobs, true),
        (
            with_state,
            off,
            &["get_job_status", "get_system_status", "get_state", "set_state", "list_state"],
            true,
        ),
    ] {
        let sandbox = Sandbox::with_jobs();
        let servers = [server("one", &["well-behaved"], server_says), tools.to_owned()];
        let mut client = gateway(&sandbox, &servers);
        let all = listed(&mut client, "tools/list", "tools", "name");
        let is_ours = |name: &String| !name.starts_with("one__") && name != "greet" && name != "keep";
        let behind = all.iter().skip_while(|name| !is_ours(name)).collect::<Vec<_>>();
        assert!(behind.iter().all(|name| is_ours(name)), "ours come last: {all:?}");
        let is_first = tools.is_empty() || !all[0].starts_with("one__");
        assert!(is_first, "the tools of the file come first: {all:?}");
        assert!(ours.iter().all(|name| all.iter().any(|listed| listed == name)), "{all:?}");
        let expect = if tools == with_state { 9 } else { ours.len() };
        assert_eq!(behind.len(), expect, "{all:?}");
        // Whoever knows of them is answered, whatever is listed.
        let jobs = client.result("list_jobs", json!({}));
        assert_eq!(jobs["structuredContent"]["jobs"], json!([]), "{jobs}");
        let id = client.request(
            "server/discover",
            json!({ "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {} } }),
        );
        let instructions = client.answer(id)["result"]["instructions"].clone();
        assert_eq!(instructions.is_string(), is_told, "{instructions}");
        assert_eq!(instructions.to_string().contains("state fields"), tools == with_state, "{instructions}");
        client.finish();
        sandbox.assert_nothing_left();
    }
}

#[test]
fn several_servers_are_one_list_and_each_request_goes_to_its_own() {
    let sandbox = Sandbox::with_jobs();
    let servers = [
        server("one", &["well-behaved"], ""),
        server("two", &["well-behaved"], "prefix = \"second\""),
        "[tools.greet]\ncommand = [\"echo\", \"hello\"]\n".to_owned(),
    ];
    let mut client = gateway(&sandbox, &servers);
    let tools = listed(&mut client, "tools/list", "tools", "name");
    for name in ["greet", "get_job_status", "one__echo", "second__echo"] {
        assert!(tools.iter().any(|tool| tool == name), "{name}: {tools:?}");
    }
    assert_eq!(client.tool_text("one__echo", json!({ "text": "a" })), "a");
    assert_ne!(client.tool_text("one__pid", json!({})), client.tool_text("second__pid", json!({})));
    assert_eq!(client.tool_text("one__pid", json!({})), client.tool_text("one__pid", json!({})));
    let prompts = listed(&mut client, "prompts/list", "prompts", "name");
    assert!(prompts.contains(&"second__greeting".to_owned()), "{prompts:?}");
    let id =
        client.request("prompts/get", json!({ "name": "second__greeting", "arguments": { "name": "Ada" } }));
    assert!(client.answer(id)["result"]["messages"][0].to_string().contains("Ada"));
    let resources = listed(&mut client, "resources/list", "resources", "uri");
    assert!(resources.contains(&"two+zoo://numbers/1".to_owned()), "{resources:?}");
    let id = client.request("resources/read", json!({ "uri": "two+zoo://numbers/1" }));
    assert!(client.answer(id)["result"]["contents"].is_array());
    let id = client.request("resources/read", json!({ "uri": "zoo://elsewhere" }));
    assert_eq!(client.answer(id)["error"]["code"], -32002);
    let id = client.call("one_echo", json!({}));
    let message = client.answer(id)["error"]["message"].clone();
    assert!(message.as_str().is_some_and(|text| text.contains("did you mean `one__echo`")), "{message}");
    finish(client, &sandbox);
}

#[test]
fn promise_6_a_server_that_dies_in_a_call_costs_that_call_and_comes_back() {
    let sandbox = Sandbox::with_jobs();
    let frail = server("frail", &["well-behaved"], "limits = { restart-delay = \"1s\" }");
    let servers = [frail, server("other", &["well-behaved"], "")];
    let mut client = gateway(&sandbox, &servers);
    listed(&mut client, "tools/list", "tools", "name");
    let stuck = client.call("other__sleep", json!({ "ms": 2000 }));
    let before = client.tool_text("frail__pid", json!({}));
    let dies = client.call("frail__die", json!({ "code": 3 }));
    let error = client.answer(dies)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["server"]), (&json!(-31002), &json!("frail")), "{error}");
    let (after, took) = timed(|| client.tool_text("frail__pid", json!({})));
    assert_ne!(after, before, "it is another process");
    assert!(took > Duration::from_millis(500), "it is not started again at once: {took:?}");
    assert_eq!(client.answer(stuck)["result"]["content"][0]["text"], "slept 2000 ms");
    finish(client, &sandbox);
}

#[test]
fn l_58_a_server_that_hangs_while_nobody_talks_to_it_is_ended_and_started_anew() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { health-interval = \"300ms\", stop-grace = \"200ms\", restart-delay = \"10ms\" }";
    let servers = [
        server("modern", &["well-behaved"], limits),
        server("legacy", &["progress-flood", "1"], limits),
        server("well", &["well-behaved"], limits),
    ];
    let mut client = gateway(&sandbox, &servers);
    let tools = listed(&mut client, "tools/list", "tools", "name");
    assert!(tools.contains(&"legacy__pid".to_owned()), "{tools:?}");
    let mut pids = || {
        ["modern", "legacy", "well"].map(|name| -> i32 {
            let arguments = json!({ "text": "" });
            client.tool_text(&format!("{name}__pid"), arguments).parse().expect("a process id")
        })
    };
    let before = pids();
    before[..2].iter().for_each(|pid| signal(*pid, Signal::STOP));
    wait_until("they are ended", PATIENCE, || before[..2].iter().all(|pid| !is_alive(*pid)));
    let after = pids();
    assert!(after[0] != before[0] && after[1] != before[1], "{before:?} {after:?}");
    assert_eq!(after[2], before[2], "one that answers is left alone");
    for name in ["modern", "legacy"] {
        assert!(
            sandbox.log().contains(&format!("`{name}` left 3 health checks unanswered, and unhang ended it"))
        );
    }
    finish(client, &sandbox);
}

#[test]
fn however_many_servers_there_are_all_come_up() {
    let sandbox = Sandbox::with_jobs();
    // More than may start at the same time, and none of them tells of changes.
    let servers: Vec<String> =
        (0..10).map(|number| server(&format!("s{number}"), &["well-behaved"], "")).collect();
    let mut client = gateway(&sandbox, &servers);
    let mut has_all = || {
        let tools = listed(&mut client, "tools/list", "tools", "name");
        (0..10).all(|number| tools.contains(&format!("s{number}__echo")))
    };
    wait_until("all have come up", PATIENCE, &mut has_all);
    finish(client, &sandbox);
}

#[test]
fn promise_8_servers_that_hang_or_cannot_start_delay_no_other() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { start-timeout = \"30s\", call-timeout = \"1s\" }";
    let mut servers: Vec<String> =
        (0..5).map(|number| server(&format!("mute{number}"), &["silent-at-start"], limits)).collect();
    servers.push("[servers.missing]\ncommand = \"/nowhere/at/all\"\n".to_owned());
    servers.push(server("good", &["well-behaved"], ""));
    let mut client = gateway(&sandbox, &servers);
    let (_, took) = timed(|| listed(&mut client, "tools/list", "tools", "name"));
    assert!(took < Duration::from_secs(10), "a list waits for two seconds: {took:?}");
    let mut has_good =
        || listed(&mut client, "tools/list", "tools", "name").contains(&"good__echo".to_owned());
    wait_until("the good one has come up", PATIENCE, &mut has_good);
    assert_eq!(client.tool_text("good__echo", json!({ "text": "x" })), "x");
    finish(client, &sandbox);
}

#[test]
fn l_56_a_server_that_keeps_failing_is_left_alone_for_a_while() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { breaker-failures = 2, breaker-cooldown = \"2s\", restart-delay = \"10ms\" }";
    let servers = [server("fatal", &["dies-every-call"], limits), server("good", &["well-behaved"], "")];
    let mut client = gateway(&sandbox, &servers);
    listed(&mut client, "tools/list", "tools", "name");
    let code = |client: &mut Client| {
        let id = client.call("fatal__echo", json!({ "text": "x" }));
        client.answer(id)["error"]["code"].as_i64()
    };
    assert_eq!((code(&mut client), code(&mut client)), (Some(-31002), Some(-31002)));
    let id = client.call("fatal__echo", json!({ "text": "x" }));
    let error = client.answer(id)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-31004), &json!("breaker_open")), "{error}");
    let why = "`fatal` failed 2 times in a row, and unhang does not use it for a while; the last failure: `fatal` ended";
    assert!(error["message"].as_str().is_some_and(|message| message.starts_with(why)), "{error}");
    assert_eq!(client.tool_text("good__echo", json!({ "text": "x" })), "x");
    wait_until("it is tried again", PATIENCE, || code(&mut client) == Some(-31002));
    finish(client, &sandbox);
}

#[test]
fn every_client_reaches_every_server_whatever_their_revisions() {
    let sandbox = Sandbox::with_jobs();
    let servers = [server("modern", &["modern-only"], ""), server("legacy", &["ignores-stdin-close"], "")];
    let mut client = gateway(&sandbox, &servers);
    listed(&mut client, "tools/list", "tools", "name");
    for name in ["modern__echo", "legacy__echo"] {
        let id = client.call(name, json!({ "text": "x" }));
        let result = client.answer(id)["result"].clone();
        assert_eq!(
            (&result["content"][0]["text"], &result["resultType"]),
            (&json!("x"), &Value::Null),
            "{result}"
        );
        let id = client.modern_call(name, json!({ "text": "y" }));
        let result = client.answer(id)["result"].clone();
        assert_eq!(
            (&result["content"][0]["text"], &result["resultType"]),
            (&json!("y"), &json!("complete")),
            "{result}"
        );
        // What is of its own era comes as it was written.
        let server = &result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
        assert_eq!(server.is_string(), name == "legacy__echo", "{result}");
    }
    finish(client, &sandbox);
}

#[test]
fn progress_comes_under_the_clients_own_token_and_before_the_answer() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("slow", &["progress-flood", "50"], "")]);
    listed(&mut client, "tools/list", "tools", "name");
    let params =
        json!({ "name": "slow__echo", "arguments": { "text": "x" }, "_meta": { "progressToken": "mine" } });
    let id = client.request("tools/call", params);
    assert_eq!(client.answer(id)["result"]["content"][0]["text"], "x");
    let progress: Vec<&Value> =
        client.seen().iter().filter(|message| message["method"] == "notifications/progress").collect();
    assert!(!progress.is_empty(), "the newest is told");
    assert!(progress.iter().all(|message| message["params"]["progressToken"] == "mine"));
    finish(client, &sandbox);
}

#[test]
fn what_a_server_asks_comes_to_whoever_called_and_the_answer_goes_back() {
    let sandbox = Sandbox::with_jobs();
    let servers = [server("legacy", &["requests-to-client"], ""), server("modern", &["well-behaved"], "")];
    let mut client = gateway(&sandbox, &servers);
    listed(&mut client, "tools/list", "tools", "name");
    // By requests of its own.
    let call = client.call("legacy__echo", json!({ "text": "x" }));
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        let question = client.find(method, |message| message["method"] == method);
        assert!(question["params"].is_object(), "{question}");
        client.send(
            &json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "said": method } }).to_string(),
        );
    }
    assert_eq!(client.answer(call)["result"]["content"][0]["text"], "the client answered 4 questions");
    // By a result that wants more.
    let call = client.call("modern__ask", json!({ "method": "elicitation/create" }));
    let question = client.find("a question", |message| {
        message["method"] == "elicitation/create"
            && message["params"]["message"] == "What is your name?"
            && message["id"] != "unhang-2"
    });
    client.respond(&question["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
    let answer = client.answer(call);
    assert!(
        answer["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains("Ada")),
        "{answer}"
    );
    // Whoever speaks as the server does is given that result, and answers it.
    let id = client.modern_call("modern__ask", json!({ "method": "elicitation/create" }));
    let result = client.answer(id)["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{result}");
    assert_eq!(result["inputRequests"]["question"]["method"], "elicitation/create", "{result}");
    finish(client, &sandbox);
}

#[test]
fn what_a_server_logs_in_a_call_comes_to_whoever_called_if_they_want_it() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    listed(&mut client, "tools/list", "tools", "name");
    let logs = |client: &mut Client| {
        client.seen().iter().filter(|message| message["method"] == "notifications/message").count()
    };
    for (level, count) in [("debug", 3), ("emergency", 0)] {
        let id = client.request("logging/setLevel", json!({ "level": level }));
        assert_eq!(client.answer(id)["result"], json!({}));
        let before = logs(&mut client);
        client.tool_text("one__log", json!({ "count": 3 }));
        assert_eq!(logs(&mut client) - before, count, "{level}");
    }
    finish(client, &sandbox);
}

#[test]
fn who_cannot_be_asked_is_not_and_the_server_hears_why() {
    let sandbox = Sandbox::with_jobs();
    let servers = [
        server("legacy", &["requests-to-client"], ""),
        server("modern", &["well-behaved"], "era = \"modern\""),
    ];
    let mut client = gateway(&sandbox, &servers);
    // Another handshake, in which it offers nothing.
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test" } });
    let id = client.request("initialize", params);
    client.answer(id);
    listed(&mut client, "tools/list", "tools", "name");
    let call = client.call("legacy__echo", json!({ "text": "x" }));
    assert_eq!(client.answer(call)["result"]["content"][0]["text"], "the client answered 4 questions");
    let call = client.call("modern__ask", json!({ "method": "elicitation/create" }));
    let error = client.answer(call)["error"].clone();
    assert!(error["message"].as_str().is_some_and(|text| text.contains("does not offer it")), "{error}");
    assert!(client.seen().iter().all(|message| message["method"] != "elicitation/create"));
    finish(client, &sandbox);
}

#[test]
fn x_05_a_signal_ends_every_server_and_a_second_one_waits_for_none() {
    for (signals, least, most) in [(1, 1500, 5000), (2, 0, 1500)] {
        let sandbox = Sandbox::with_jobs();
        let servers = ["a", "b", "c"].map(|name| server(name, &["ignores-everything"], ""));
        let mut client = gateway(&sandbox, &servers);
        assert_eq!(listed(&mut client, "tools/list", "tools", "name").len(), 6 + 3 * 2);
        client.signal(Signal::TERM);
        if signals > 1 {
            wait_until("the end has begun", PATIENCE, || client.stderr().contains("stopping `a`"));
            client.signal(Signal::TERM);
        }
        let (code, took) = timed(|| client.exit_code());
        assert_eq!(code, 143, "{}", client.stderr());
        let expect = Duration::from_millis(least)..Duration::from_millis(most);
        assert!(expect.contains(&took), "{signals}: {took:?}");
        sandbox.assert_nothing_left_within(Duration::from_secs(5));
    }
}

#[test]
fn the_file_of_a_client_is_served_as_it_is() {
    let sandbox = Sandbox::with_jobs();
    let file = json!({ "mcpServers": {
        "one": { "command": lab_program(), "args": ["zoo", "well-behaved"] },
        "off": { "command": lab_program(), "args": ["zoo", "well-behaved"], "disabled": true },
        "wrong": { "command": "${NOWHERE}" },
    } });
    fs::write(sandbox.path().join("mcp.json"), file.to_string()).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["serve", "--config", "mcp.json"]);
    let mut client = Client::start(command);
    client.initialize();
    let tools = listed(&mut client, "tools/list", "tools", "name");
    assert!(tools.contains(&"one__echo".to_owned()), "{tools:?}");
    assert!(tools.iter().all(|tool| !tool.starts_with("off__") && !tool.starts_with("wrong__")), "{tools:?}");
    wait_until("what is left out is told", PATIENCE, || client.stderr().contains("`wrong` is left out"));
    finish(client, &sandbox);
}

#[test]
fn a_file_of_another_name_is_known_by_what_is_in_it() {
    let sandbox = Sandbox::with_jobs();
    let ours = server("one", &["well-behaved"], "");
    let client =
        json!({ "mcpServers": { "one": { "command": lab_program(), "args": ["zoo", "well-behaved"] } } });
    for text in [ours, format!("// servers\n{client}")] {
        fs::write(sandbox.path().join("servers.conf"), &text).expect("a file");
        let mut command = sandbox.unhang();
        command.args(["servers", "--config", "servers.conf"]);
        let (code, stdout, stderr) = run_to_end(command);
        assert!(code == 0 && stdout.contains("\"one\""), "{text}: {code} {stdout} {stderr}");
        let mut command = sandbox.unhang();
        command.args(["serve", "--config", "servers.conf"]);
        let mut client = Client::start(command);
        client.initialize();
        let tools = listed(&mut client, "tools/list", "tools", "name");
        assert!(tools.contains(&"one__echo".to_owned()), "{text}: {tools:?}");
        finish(client, &sandbox);
    }
}

#[tokio::test]
async fn servers_that_are_dropped_leave_nothing() {
    let sandbox = Sandbox::new();
    let entries = ["a", "b"].map(|name| ServerEntry {
        era: EraPolicy::default(),
        scope: Scope::Everybody,
        spec: faulty_server(&sandbox, name, &["ignores-everything"]),
        prefix: name.to_owned(),
        tool_rules: ToolRules::default(),
        idle_timeout: None,
        instances: 1,
        secrets: Secrets::default(),
        made_from: String::new(),
        memory: None,
        behind: None,
    });
    let servers = Servers::start(entries.to_vec().into());
    let mut known = servers.known();
    let settled = known.wait_for(|known| known.is_settled).await.expect("they are there");
    assert!(settled.catalog.tool("a__echo").is_some() && settled.catalog.tool("b__echo").is_some());
    drop(settled);
    assert!(!sandbox.survivors().is_empty(), "they run");
    drop(servers);
    until("they go", || sandbox.survivors().is_empty()).await;
}

#[test]
fn a_withdrawn_call_is_withdrawn_at_its_server() {
    let sandbox = Sandbox::with_jobs();
    let tee = ["tee", "said", "/dev/null", "--", lab_program(), "zoo", "well-behaved"];
    let mut client = gateway(&sandbox, &[server("srv", &tee, "")]);
    listed(&mut client, "tools/list", "tools", "name");
    let id = client.call("srv__sleep", json!({ "ms": 3_600_000 }));
    let said = || fs::read_to_string(sandbox.path().join("said")).unwrap_or_default();
    wait_until("it is asked", PATIENCE, || said().contains("3600000"));
    client.cancel(id);
    wait_until("it is told", PATIENCE, || said().contains("notifications/cancelled"));
    assert_eq!(client.answers_to(id), 0);
    finish(client, &sandbox);
}
