//! `unhang serve --http`: one endpoint for clients of every revision, in front of servers that they share.

use std::{fs, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    gateway::server,
    harness::{Client, PATIENCE, Remote, Sandbox, Web, WebAnswer, run_to_end, timed, wait_until},
};

/// A gateway over HTTP in front of these, once all have come up.
pub(crate) fn gateway(sandbox: &Sandbox, servers: &[String]) -> (Client, Web) {
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let (process, web) = Web::start(sandbox);
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    (process, web)
}

pub(crate) fn finish(mut process: Client, sandbox: &Sandbox) {
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

fn text(answer: WebAnswer) -> String {
    let answer = answer.last();
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a result: {answer}")).to_owned()
}

/// What each server has not answered.
pub(crate) fn in_flight(web: &Web) -> Vec<u64> {
    let status = web.ask("GET", "/status", &[], "").last();
    let servers = status["servers"].as_array().unwrap_or_else(|| panic!("servers: {status}"));
    servers.iter().map(|server| server["inFlight"].as_u64().expect("a number")).collect()
}

/// A subscription of a client of 2026-07-28 to these changes.
pub(crate) fn listen(web: &Web, filter: &Value) -> WebAnswer {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "notifications": filter, "_meta": meta });
    let message =
        json!({ "jsonrpc": "2.0", "id": "mine", "method": "subscriptions/listen", "params": params });
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let mut stream = web.post(&headers, &message);
    assert_eq!(stream.next().expect("a message")["params"]["notifications"], *filter);
    stream
}

#[test]
fn clients_of_both_eras_share_one_process_of_a_server_that_is_kept_to_one_era() {
    let sandbox = Sandbox::with_jobs();
    let one = server("one", &["well-behaved"], "era = \"legacy\"");
    let (process, web) = gateway(&sandbox, &[one, server("modern", &["modern-only"], "")]);
    let (first, second) = (web.begin(), web.begin());
    let pid = text(web.call(&first, 1, "one__pid", json!({})));
    assert_eq!(text(web.call(&second, 1, "one__pid", json!({}))), pid);
    // The command line speaks the newest revision.
    for (tool, arguments) in [("one__pid", &[][..]), ("modern__echo", &["text=x"])] {
        let mut command = sandbox.unhang();
        command.args(["call", &web.url(), tool, "--output", "json"]).args(arguments);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!(code, 0, "{stderr}");
        let result: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(result["resultType"], "complete", "{result}");
        let said = &result["content"][0]["text"];
        assert_eq!(said, if tool == "one__pid" { &*pid } else { "x" }, "{result}");
    }
    let status = web.ask("GET", "/status", &[], "").last();
    assert_eq!((&status["servers"][0]["starts"], &status["sessions"]), (&json!(1), &json!(2)), "{status}");
    finish(process, &sandbox);
}

/// How often the thread that serves everything has slept.
fn sleeps(process: &Client) -> usize {
    let status = fs::read_to_string(format!("/proc/{0}/task/{0}/status", process.pid())).expect("it runs");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.expect("it is counted").trim().parse().expect("a number")
}

#[test]
fn calls_that_are_over_leave_nothing_to_be_woken_for() {
    const CALLS: u32 = 150;
    for stream in ["no", "yes"] {
        let sandbox = Sandbox::with_jobs();
        let remote =
            Remote::start(&sandbox, &["http-well-behaved", "--dialect", "session", "--stream", stream]);
        let (mut process, web) = gateway(&sandbox, &[format!("[servers.one]\nurl = \"{}\"\n", remote.url)]);
        let session = web.begin();
        for id in 0..CALLS {
            assert_eq!(text(web.call(&session, id, "one__echo", json!({"text": "x"}))), "x");
        }
        let before = sleeps(&process);
        // What would be left of a call is there for a second, and nobody tells of its end.
        assert_eq!(process.next_line(Duration::from_secs(2)), None, "stdout is nobody's");
        let woken = sleeps(&process) - before;
        assert!(woken < 40, "woken {woken} times after {CALLS} calls, streams: {stream}");
        drop(remote);
        finish(process, &sandbox);
    }
}

#[test]
fn promise_8_a_server_that_is_killed_in_a_call_costs_that_call_and_nothing_else() {
    let sandbox = Sandbox::with_jobs();
    let servers = [server("frail", &["well-behaved"], ""), server("other", &["well-behaved"], "")];
    let (process, web) = gateway(&sandbox, &servers);
    let (one, two) = (web.begin(), web.begin());
    let pid: i32 = text(web.call(&one, 1, "frail__pid", json!({}))).parse().expect("a number");
    let (dies, stays) = thread::scope(|scope| {
        let dies = scope.spawn(|| web.call(&one, 2, "frail__sleep", json!({ "ms": 60_000 })).last());
        let stays = scope.spawn(|| text(web.call(&two, 2, "other__sleep", json!({ "ms": 1500 }))));
        wait_until("both are asked", PATIENCE, || in_flight(&web) == [1, 1]);
        let pid = Pid::from_raw(pid).expect("a pid");
        kill_process(pid, Signal::KILL).expect("it is ours");
        (dies.join().expect("no panic"), stays.join().expect("no panic"))
    });
    assert_eq!((&dies["error"]["code"], &dies["id"]), (&json!(-31002), &json!(2)), "{dies}");
    assert_eq!(stays, "slept 1500 ms");
    assert_eq!(text(web.call(&one, 3, "frail__echo", json!({ "text": "again" }))), "again");
    finish(process, &sandbox);
}

#[test]
fn what_belongs_to_one_client_comes_to_no_other() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("slow", &["progress-flood", "50"], "")]);
    let sessions: Vec<String> = (0..4).map(|_| web.begin()).collect();
    // The same id and the same token in each.
    let answers: Vec<Vec<Value>> = thread::scope(|scope| {
        let asked: Vec<_> = sessions
            .iter()
            .map(|session| {
                let web = &web;
                scope.spawn(move || web.call(session, 1, "slow__echo", json!({ "text": session })).all())
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().expect("no panic")).collect()
    });
    for (session, messages) in sessions.iter().zip(answers) {
        let (answer, before) = messages.split_last().expect("an answer");
        assert_eq!(answer["result"]["content"][0]["text"], **session, "{answer}");
        assert!(!before.is_empty(), "progress comes on the stream of its call");
        for message in before {
            assert_eq!(message["method"], "notifications/progress", "{message}");
            assert_eq!(message["params"]["progressToken"], 1, "{message}");
        }
    }
    finish(process, &sandbox);
}

/// Calls a server that asks its client three things, answers them, and gives the answer.
fn called_and_asked(web: &Web, session: &str, tool: &str) -> Value {
    let mut stream = web.call(session, 1, tool, json!({ "text": "x" }));
    for number in 0..3 {
        let question = stream.next().expect("a question");
        assert!(question["method"].is_string(), "the {number}th of {session}: {question}");
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "by": session } });
        assert_eq!(web.post(&[("mcp-session-id", session)], &answer).status, 202);
    }
    stream.last()
}

#[test]
fn questions_come_on_the_stream_of_the_call_that_they_are_about() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("asks", &["requests-to-client"], "")]);
    let sessions: Vec<String> = (0..4).map(|_| web.begin()).collect();
    let text = "the client answered 4 questions";
    // It is seen to ask, and from then on has one call at a time, for nothing it says tells which of several it asks about.
    assert_eq!(called_and_asked(&web, &sessions[0], "asks__echo")["result"]["content"][0]["text"], text);
    thread::scope(|scope| {
        for session in &sessions {
            let web = &web;
            scope.spawn(move || {
                let answer = called_and_asked(web, session, "asks__echo");
                assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
            });
        }
    });
    finish(process, &sandbox);
}

#[test]
fn f_90_what_is_asked_about_a_call_that_was_given_up_comes_to_nobody_else() {
    let sandbox = Sandbox::with_jobs();
    let names = ["late", "cancelled", "left"];
    let limits = "limits = { call-timeout = \"1s\", promote-after = \"off\" }";
    let servers: Vec<String> = names
        .iter()
        .map(|name| server(name, &["asks-late"], if *name == "late" { limits } else { "" }))
        .collect();
    let (process, web) = gateway(&sandbox, &servers);
    for name in names {
        let (alice, bob) = (web.begin(), web.begin());
        let tool = format!("{name}__echo");
        thread::scope(|scope| {
            let hers = scope.spawn(|| web.call(&alice, 1, &tool, json!({ "text": "alice" })).all());
            match name {
                "late" => {}
                "cancelled" => {
                    wait_until("it is asked", PATIENCE, || in_flight(&web).iter().sum::<u64>() == 1);
                    let params = json!({ "requestId": 1 });
                    let notice =
                        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
                    assert_eq!(web.post(&[("mcp-session-id", &alice)], &notice).status, 202);
                }
                _ => {
                    wait_until("it is asked", PATIENCE, || in_flight(&web).iter().sum::<u64>() == 1);
                    assert_eq!(web.ask("DELETE", "/mcp", &[("mcp-session-id", &alice)], "").status, 200);
                }
            }
            hers.join().expect("no panic");
        });
        wait_until("nobody waits for it", PATIENCE, || in_flight(&web).iter().sum::<u64>() == 0);
        let mut told = web.call(&bob, 1, &tool, json!({ "text": "bob" })).all();
        let answer = told.pop().expect("an answer");
        assert_eq!(told, Vec::<Value>::new(), "{name}: neither the question nor the line of a log is his");
        let received = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(received.contains("is declined"), "{name}: {answer}");
    }
    finish(process, &sandbox);
}

/// A call of a client of 2026-07-28 that can be asked anything.
pub(crate) fn modern_call(web: &Web, id: u32, tool: &str, more: &Value) -> Value {
    modern_post(web, id, tool, more).last()
}

/// The same, of which the answer is still to be read.
pub(crate) fn modern_post(web: &Web, id: u32, tool: &str, more: &Value) -> WebAnswer {
    let mut params = json!({
        "name": tool,
        "arguments": { "text": "x" },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "sampling": {}, "elicitation": {}, "roots": {} },
        },
    });
    for (member, value) in more.as_object().expect("members") {
        params[member] = value.clone();
    }
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    web.post(&headers, &json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
}

#[test]
fn a_client_without_a_session_is_asked_by_its_answers() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("asks", &["requests-to-client"], "")]);
    let mut answer = modern_call(&web, 1, "asks__echo", &json!({}));
    let mut asked = Vec::new();
    for round in 2..6 {
        let result = &answer["result"];
        if result["resultType"] != "input_required" {
            break;
        }
        let requests = result["inputRequests"].as_object().expect("questions");
        asked.extend(
            requests.values().map(|request| request["method"].as_str().expect("a method").to_owned()),
        );
        let responses: Value = requests.keys().map(|name| (name.clone(), json!({ "said": name }))).collect();
        let more = json!({ "requestState": result["requestState"], "inputResponses": responses });
        answer = modern_call(&web, round, "asks__echo", &more);
    }
    assert_eq!(answer["result"]["content"][0]["text"], "the client answered 4 questions", "{answer}");
    assert_eq!(asked, ["sampling/createMessage", "elicitation/create", "roots/list"]);
    // What answers nothing is no call.
    for more in [json!({ "requestState": "x" }), json!({ "inputResponses": {} })] {
        let error = modern_call(&web, 9, "asks__echo", &more)["error"].clone();
        assert_eq!(error["code"], -32602, "{error}");
    }
    finish(process, &sandbox);
}

#[test]
fn promise_8_who_does_not_come_back_with_an_answer_keeps_the_server_from_no_other() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { call-timeout = \"20s\" }";
    let (process, web) = gateway(&sandbox, &[server("asks", &["requests-to-client"], limits)]);
    let session = web.begin();
    let text = "the client answered 4 questions";
    assert_eq!(called_and_asked(&web, &session, "asks__echo")["result"]["content"][0]["text"], text);
    let left = modern_call(&web, 1, "asks__echo", &json!({}));
    assert_eq!(left["result"]["resultType"], "input_required", "{left}");
    let (answer, took) = timed(|| called_and_asked(&web, &session, "asks__echo"));
    assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
    assert!(took < Duration::from_secs(15), "a tenth of a call's limit is enough: {took:?}");
    // Whoever comes back later still hears what came of the call.
    let more = json!({ "requestState": left["result"]["requestState"], "inputResponses": {} });
    let late = modern_call(&web, 2, "asks__echo", &more);
    assert_eq!(late["result"]["content"][0]["text"], text, "{late}");
    finish(process, &sandbox);
}

#[test]
fn who_listens_hears_that_a_list_has_changed() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), server("late", &["slow-start", "3000"], ""))
        .expect("a file");
    let (process, web) = Web::start(&sandbox);
    let session = web.begin();
    let mut listened = web.ask("GET", "/mcp", &[("mcp-session-id", &session)], "");
    assert_eq!((listened.status, listened.header("content-type")), (200, Some("text/event-stream")));
    let message = listened.next().expect("a message");
    assert_eq!(message["method"], "notifications/tools/list_changed");
    let tools = web
        .post(&[("mcp-session-id", &session)], &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    assert!(tools.last().to_string().contains("late__echo"));
    // The end of the session is the end of its stream.
    assert_eq!(web.ask("DELETE", "/mcp", &[("mcp-session-id", &session)], "").status, 200);
    wait_until("the stream ends", PATIENCE, || listened.next().is_none());
    finish(process, &sandbox);
}

#[test]
fn a_change_of_a_resource_comes_to_whoever_wants_to_hear_of_it() {
    let sandbox = Sandbox::with_jobs();
    let servers = ["one", "two"].map(|name| server(name, &["well-behaved"], "era = \"modern\""));
    let (process, web) = gateway(&sandbox, &servers);
    let sessions: Vec<String> = (0..3).map(|_| web.begin()).collect();
    let mut listened: Vec<WebAnswer> =
        sessions.iter().map(|session| web.ask("GET", "/mcp", &[("mcp-session-id", session)], "")).collect();
    let ask = |session: &str, method: &str| {
        let params = json!({ "uri": "two+zoo://numbers/1" });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        web.post(&[("mcp-session-id", session)], &message).last()
    };
    let listens = || {
        let state = text(web.call(&sessions[2], 3, "two__state", json!({})));
        serde_json::from_str::<Value>(&state).expect("JSON")["listens"].as_u64().expect("a number")
    };
    let before = listens();
    // Two of three, and one without a session.
    for session in &sessions[..2] {
        assert_eq!(ask(session, "resources/subscribe")["result"], json!({}));
    }
    let filter = json!({ "resourceSubscriptions": ["two+zoo://numbers/1"] });
    let mut alone = listen(&web, &filter);
    wait_until("it is asked once for all of them", PATIENCE, || listens() == before + 1);
    let changes = |server: &str| {
        let tool = format!("{server}__notify-resource-updated");
        web.call(&sessions[2], 2, &tool, json!({ "uri": "zoo://numbers/1" })).last()
    };
    let (mine, others) = (changes("two"), changes("one"));
    assert!(mine["result"].is_object() && others["result"].is_object(), "{mine} {others}");
    for stream in &mut listened[..2] {
        let told = stream.next().expect("a message");
        assert_eq!(told["method"], "notifications/resources/updated");
        assert_eq!(told["params"]["uri"], "two+zoo://numbers/1", "{told}");
    }
    let told = alone.next().expect("a message");
    assert_eq!(told["params"]["uri"], "two+zoo://numbers/1", "{told}");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "mine", "{told}");
    // Once nobody hears of it the server is told, and whoever did not ask has heard nothing at all.
    drop(alone);
    for session in &sessions[..2] {
        assert_eq!(ask(session, "resources/unsubscribe")["result"], json!({}));
    }
    wait_until("nobody hears of it", PATIENCE, || listens() == before);
    assert_eq!(web.ask("DELETE", "/mcp", &[("mcp-session-id", &sessions[2])], "").status, 200);
    assert!(listened.pop().expect("the third").all().is_empty());
    finish(process, &sandbox);
}

#[test]
fn x_05_a_signal_gives_what_is_in_flight_its_time() {
    let sandbox = Sandbox::with_jobs();
    let (mut process, web) = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    let session = web.begin();
    let _listened = web.ask("GET", "/mcp", &[("mcp-session-id", &session)], "");
    let (answers, took) = timed(|| {
        thread::scope(|scope| {
            let short = scope.spawn(|| web.call(&session, 1, "one__sleep", json!({ "ms": 2000 })).last());
            let long = scope.spawn(|| web.call(&session, 2, "one__sleep", json!({ "ms": 60_000 })).last());
            wait_until("both are asked", PATIENCE, || in_flight(&web) == [2]);
            process.signal(Signal::TERM);
            (short.join().expect("no panic"), long.join().expect("no panic"))
        })
    });
    assert_eq!(answers.0["result"]["content"][0]["text"], "slept 2000 ms", "{}", answers.0);
    assert_eq!(answers.1["error"]["code"], -31008, "{}", answers.1);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn it_listens_where_only_this_machine_can_ask() {
    let sandbox = Sandbox::with_jobs();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("an address");
    for (address, why) in [
        ("0.0.0.0:0", "other machines"),
        ("[::]:0", "other machines"),
        ("8808", "127.0.0.1:8808"),
        (&taken.1, "in use"),
    ] {
        fs::write(sandbox.path().join("unhang.toml"), "").expect("a file");
        let mut command = sandbox.unhang();
        command.args(["serve", "--http", address]);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, &*stdout), (2, ""), "{address}: {stderr}");
        assert!(stderr.contains(why), "{address}: {stderr}");
    }
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}
