//! Servers over HTTP, asked through the real binary: what is understood, what reaches the server, and what is left at the end.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Remote, Sandbox, run_to_end, timed, wait_until};

/// Runs `unhang WORDS` to its end, each `URL` in them being that of the server.
#[track_caller]
fn ask(sandbox: &Sandbox, remote: &Remote, words: &[&str]) -> (i32, String, String) {
    let mut command = sandbox.unhang();
    command.args(words.iter().map(|word| word.replace("URL", &remote.url)));
    run_to_end(command)
}

/// Demands exit code 0, and returns what it says as JSON.
#[track_caller]
fn answer(sandbox: &Sandbox, remote: &Remote, words: &[&str]) -> Value {
    let (code, stdout, stderr) = ask(sandbox, remote, words);
    assert_eq!(code, 0, "{words:?}: {stderr}{:#?}", remote.seen());
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {stdout}"))
}

/// The ways of HTTP, and whether answers come as streams.
const DIALECTS: [&[&str]; 5] = [
    &["--dialect", "modern"],
    &["--dialect", "modern", "--stream", "yes"],
    &["--dialect", "session"],
    &["--dialect", "session", "--stream", "yes"],
    &["--dialect", "sse"],
];

#[test]
fn every_dialect_is_found_out_and_spoken() {
    for dialect in DIALECTS {
        let sandbox = Sandbox::new();
        let remote = Remote::start(&sandbox, &[&["http-well-behaved"], dialect].concat());
        let tools = answer(&sandbox, &remote, &["tools", "URL"]);
        assert_eq!(tools[0]["name"], "echo", "{dialect:?}");
        let result = answer(&sandbox, &remote, &["call", "URL", "echo", "text=h\u{e9}llo"]);
        assert_eq!(result["content"][0]["text"], "h\u{e9}llo", "{dialect:?}");
        let pinged = answer(&sandbox, &remote, &["ping", "URL"]);
        assert_eq!(pinged["server"], remote.url, "{dialect:?}");
        let (code, _, stderr) = ask(&sandbox, &remote, &["call", "URL", "ecco", "text=x"]);
        assert_eq!(code, 6, "{dialect:?}");
        assert!(stderr.contains("has no tool `ecco`\nhint: did you mean `echo`?"), "{stderr}");
    }
}

#[test]
fn a_server_without_sessions_is_told_all_in_headers_and_nothing_else() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-well-behaved"]);
    let words = ["call", "URL", "echo", "text=x", "region=Z\u{fc}rich"];
    answer(&sandbox, &remote, &words);
    // It compares them with the body, and would have refused.
    let call = remote.wait_for("the call", |seen| seen["rpc"] == "tools/call");
    assert_eq!(
        (&call["headers"]["mcp-name"], &call["headers"]["mcp-param-region"]),
        (&json!("echo"), &json!("=?base64?WsO8cmljaA==?="))
    );
    let verbs: Vec<_> = remote.asked().iter().map(|asked| asked["verb"].clone()).collect();
    assert!(verbs.iter().all(|verb| verb == "POST"), "no stream and no end of a session: {verbs:?}");
    assert!(remote.asked().iter().all(|asked| asked["headers"]["mcp-session-id"].is_null()));
}

/// Who does not say that it knows tasks is given none.
#[test]
fn a_server_with_tasks_is_asked_as_any_other() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-tasks-modern"]);
    for (words, text) in
        [(["greet", "name=Ada"], "Hello, Ada!"), (["slow_compute", "seconds=0.1"], "computed nothing")]
    {
        let result = answer(&sandbox, &remote, &[&["call", "URL"], &words[..]].concat());
        assert_eq!(result["content"][0]["text"], text, "{words:?}");
    }
}

#[test]
fn a_session_is_named_in_every_request_and_deleted_at_the_end() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", "session"]);
    answer(&sandbox, &remote, &["call", "URL", "echo", "text=x"]);
    remote.wait_for("the end of the session", |seen| seen["verb"] == "DELETE");
    let asked = remote.asked();
    let began = asked.iter().position(|asked| asked["rpc"] == "initialize").expect("a handshake");
    assert_eq!(asked[began + 1]["rpc"], "notifications/initialized", "before all else: {asked:#?}");
    for asked in &asked[began + 1..] {
        let told = (&asked["headers"]["mcp-session-id"], &asked["headers"]["mcp-protocol-version"]);
        assert_eq!(told, (&json!("session-1"), &json!("2025-11-25")), "{asked}");
    }
    assert!(asked.iter().any(|asked| asked["verb"] == "GET"), "a stream for what it says unasked");
    assert_eq!(asked.last().expect("some")["verb"], "DELETE");
}

#[test]
fn a_server_of_old_is_asked_without_detours_where_its_way_is_configured() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", "sse"]);
    let config = format!("[servers.old]\nurl = '{}'\ntransport = 'sse'\n", remote.url);
    fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
    let result = answer(&sandbox, &remote, &["call", "old", "echo", "text=x"]);
    assert_eq!(result["content"][0]["text"], "x");
    let asked = remote.asked();
    assert_eq!((&asked[0]["verb"], &asked[0]["path"]), (&json!("GET"), &json!("/sse")));
    assert!(asked[1..].iter().all(|asked| asked["path"] == "/messages?session=0"), "{asked:#?}");
    assert!(asked.iter().all(|asked| asked["headers"]["mcp-protocol-version"].is_null()), "it knows none");
}

#[test]
fn secrets_of_a_server_are_in_its_requests_and_in_no_output() {
    for (faulty_server, code) in [
        (&["http-well-behaved", "--dialect", "session"][..], 0),
        (&["http-refuses-calls"], 3),
        (&["http-redirects-elsewhere"], 3),
        (&["http-half-answer"], 3),
    ] {
        let sandbox = Sandbox::new();
        let remote = Remote::start(&sandbox, faulty_server);
        let config = format!(
            "[servers.far]\nurl = '{}?key=HUSH'\nheaders = {{ Authorization = 'Bearer ${{TOKEN}}' }}\n",
            remote.url
        );
        fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
        for words in
            [&["-v", "call", "far", "echo", "text=x"][..], &["servers"], &["-v", "ping", "URL?key=HUSH"]]
        {
            let mut command = sandbox.unhang();
            command.args(words.iter().map(|word| word.replace("URL", &remote.url)));
            command.env("TOKEN", "SILENCE").env("UNHANG_LOG", "trace").env("RUST_LOG", "trace");
            let (found, stdout, stderr) = run_to_end(command);
            if words[0] == "-v" && words[1] == "call" {
                assert_eq!(found, code, "{faulty_server:?}: {stderr}");
            }
            for secret in ["HUSH", "SILENCE"] {
                assert!(!stdout.contains(secret) && !stderr.contains(secret), "{words:?}: {stdout}{stderr}");
            }
        }
        let first = &remote.asked()[0];
        assert_eq!(first["headers"]["authorization"], "Bearer SILENCE", "it goes to the server alone");
        assert_eq!(first["path"], "/mcp?key=HUSH");
        assert_eq!(remote.count(|seen| seen["did"] == "followed"), 0, "nobody else was asked");
    }
}

#[test]
fn a_call_that_takes_too_long_is_withdrawn() {
    for dialect in ["session", "sse", "modern"] {
        let sandbox = Sandbox::new();
        let remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", dialect]);
        let words = ["call", "URL", "wait", "--call-timeout", "1s"];
        let ((code, _, stderr), took) = timed(|| ask(&sandbox, &remote, &words));
        let sentence = format!(
            "unhang: `{}` did not answer `tools/call` within 1s; unhang cancelled the call; raise \
             --call-timeout if it needs longer\n",
            remote.url
        );
        assert_eq!((code, &*stderr), (4, &*sentence), "{dialect}");
        assert!(took < Duration::from_secs(10), "{dialect}: {took:?}");
        let call = remote.wait_for("the call", |seen| seen["rpc"] == "tools/call");
        if dialect == "modern" {
            let is_closed = |seen: &Value| seen["did"] == "closed" && seen["id"] == call["id"];
            remote.wait_for("its stream is closed", is_closed);
            assert_eq!(remote.count(|seen| seen["rpc"] == "notifications/cancelled"), 0);
        } else {
            let told = remote.wait_for("it is told", |seen| seen["rpc"] == "notifications/cancelled");
            assert_eq!(told["params"]["requestId"], call["id"]);
        }
    }
}

/// Whoever interrupts a command withdraws its call too.
#[test]
fn a_signal_withdraws_the_call_and_gives_its_exit_code() {
    for dialect in ["session", "modern"] {
        let sandbox = Sandbox::new();
        let remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", dialect]);
        let mut command = sandbox.unhang();
        command.args(["call", &remote.url, "wait"]);
        let mut client = Client::start(command);
        let call = remote.wait_for("the call", |seen| seen["rpc"] == "tools/call");
        client.signal(Signal::INT);
        let (code, took) = timed(|| client.exit_code());
        assert_eq!(code, 130, "{}", client.stderr());
        assert!(took < Duration::from_secs(4), "{took:?}");
        if dialect == "session" {
            let told = remote.wait_for("it is told", |seen| seen["rpc"] == "notifications/cancelled");
            assert_eq!(told["params"]["requestId"], call["id"]);
            remote.wait_for("the end of the session", |seen| seen["verb"] == "DELETE");
        }
        if dialect == "modern" {
            let is_closed = |seen: &Value| seen["did"] == "closed" && seen["id"] == call["id"];
            remote.wait_for("its stream is closed", is_closed);
        }
    }
}

#[test]
fn many_calls_run_side_by_side_and_all_come_back() {
    for (dialect, jobs, calls) in [
        (&["--dialect", "modern"][..], "32", 400),
        (&["--dialect", "session", "--stream", "yes"], "32", 400),
        (&["--dialect", "sse"], "32", 400),
        (&["--dialect", "session"], "1000", 1000),
    ] {
        let sandbox = Sandbox::new();
        let remote = Remote::start(&sandbox, &[&["http-well-behaved"], dialect].concat());
        let file = sandbox.path().join("in.jsonl");
        let line = |number: usize| {
            let arguments = json!({ "text": number.to_string() });
            format!("{}\n", json!({ "server": remote.url, "tool": "echo", "arguments": arguments }))
        };
        fs::write(&file, (1..=calls).map(line).collect::<String>()).expect("a file");
        // Fewer descriptors than calls.
        let mut command = sandbox.shell(&format!("ulimit -n 512; exec unhang batch -j {jobs} in.jsonl"));
        command.current_dir(sandbox.path());
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!(code, 0, "{dialect:?}: {stderr} {stdout:.2000}");
        assert_eq!(stderr, format!("unhang: {calls} ok, 0 failed\n"));
        for line in stdout.lines() {
            let outcome: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(outcome["result"]["content"][0]["text"], outcome["line"].to_string(), "{outcome}");
        }
        let listed = remote.count(|seen| seen["rpc"] == "tools/list");
        assert!(listed <= 1, "{dialect:?}: it was asked for its tools {listed} times");
    }
}

/// However many are asked for at the same time.
#[test]
fn calls_that_all_wait_end_at_their_deadline_and_not_for_want_of_descriptors() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", "session"]);
    let line = format!("{}\n", json!({ "server": remote.url, "tool": "wait" }));
    fs::write(sandbox.path().join("in.jsonl"), line.repeat(600)).expect("a file");
    let words = "batch -j 600 --call-timeout 3s in.jsonl";
    let (code, stdout, stderr) = run_to_end(sandbox.shell(&format!("ulimit -n 512; exec unhang {words}")));
    assert_eq!((code, &*stderr), (1, "unhang: 0 ok, 600 failed\n"));
    let late = stdout.lines().filter(|line| line.contains("did not answer `tools/call` within 3s")).count();
    assert_eq!(late, 600, "{stdout:.2000}");
}

/// Calls that wait for ever take no connection from those that do not, and not every descriptor.
#[test]
fn calls_that_wait_do_not_keep_the_others_from_their_answers() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", "session"]);
    let file = sandbox.path().join("in.jsonl");
    let line = |number: usize| {
        let tool = if number < 100 { "wait" } else { "echo" };
        format!("{}\n", json!({ "server": remote.url, "tool": tool, "arguments": { "text": "x" } }))
    };
    fs::write(&file, (0..300).map(line).collect::<String>()).expect("a file");
    let words = ["batch", "-j", "300", "--call-timeout", "5s", "in.jsonl"];
    let (code, stdout, stderr) = ask(&sandbox, &remote, &words);
    assert_eq!((code, &*stderr), (1, "unhang: 200 ok, 100 failed\n"), "{stdout:.2000}");
    let told = |seen: &Value| seen["rpc"] == "notifications/cancelled";
    wait_until("all were withdrawn", PATIENCE, || remote.count(told) == 100);
}

#[test]
fn two_servers_are_asked_in_one_batch_and_one_that_fails_spoils_no_other() {
    let sandbox = Sandbox::new();
    let well = Remote::start(&sandbox, &["http-well-behaved", "--dialect", "session"]);
    let ill = Remote::start(&sandbox, &["http-refuses-calls", "502"]);
    let line =
        |url: &str| format!("{}\n", json!({ "server": url, "tool": "echo", "arguments": { "text": "x" } }));
    let lines: String =
        (0..20).map(|number| line(if number % 2 == 0 { &well.url } else { &ill.url })).collect();
    fs::write(sandbox.path().join("in.jsonl"), lines).expect("a file");
    let (code, stdout, stderr) = ask(&sandbox, &well, &["batch", "in.jsonl"]);
    assert_eq!((code, &*stderr), (1, "unhang: 10 ok, 10 failed\n"), "{stdout}");
    let failed = stdout.lines().find(|line| line.contains("\"ok\":false")).expect("some");
    assert!(failed.contains("HTTP 502: the server is being replaced"), "{failed}");
}

#[test]
fn the_end_takes_no_longer_than_it_may_whatever_the_server_does() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-ignores-delete"]);
    let mut command = sandbox.unhang();
    command.args(["call", &remote.url, "echo", "text=x", "--output", "text"]);
    let mut client = Client::start(command);
    assert_eq!(client.next_line(PATIENCE).as_deref(), Some("x\n"), "{}", client.stderr());
    let (code, took) = timed(|| client.exit_code());
    assert_eq!(code, 0);
    assert!(took < Duration::from_secs(3), "from the answer to the end: {took:?}");
    let is_delete = |seen: &Value| seen["did"] == "asked" && seen["verb"] == "DELETE";
    assert_eq!(remote.count(is_delete), 1, "it was asked to end the session");
}

#[test]
fn a_server_that_asks_is_answered_wherever_it_asks() {
    for elsewhere in [&[][..], &["--elsewhere", "yes"], &["--elsewhere", "late"]] {
        for (method, expect) in [("ping", r#""result":{}"#), ("elicitation/create", r#""action":"decline""#)]
        {
            let sandbox = Sandbox::new();
            let remote = Remote::start(&sandbox, &[&["http-asks-client", method], elsewhere].concat());
            let words = ["call", "URL", "echo", "text=x", "--output", "text", "--call-timeout", "10s"];
            let (code, stdout, stderr) = ask(&sandbox, &remote, &words);
            assert_eq!(code, 0, "{method} {elsewhere:?}: {stderr}");
            assert!(stdout.contains(expect), "{method} {elsewhere:?}: {stdout}");
        }
    }
}

#[test]
fn tools_with_headers_that_break_the_rules_are_left_out_and_told_of() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-odd-headers"]);
    let (code, stdout, stderr) = ask(&sandbox, &remote, &["-v", "tools", "URL"]);
    assert_eq!(code, 0, "{stderr}");
    let tools: Value = serde_json::from_str(&stdout).expect("JSON");
    let names: Vec<_> = tools.as_array().expect("a list").iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["echo", "pid", "wait"]);
    assert!(
        stderr.contains("the tool `odd-1` of") && stderr.contains("`two words` cannot be the name"),
        "{stderr}"
    );
    let result = answer(&sandbox, &remote, &["call", "URL", "echo", "text=x"]);
    assert_eq!(result["content"][0]["text"], "x");
}

#[test]
fn a_tool_whose_headers_have_changed_is_listed_and_called_again() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-changes-headers"]);
    let result = answer(&sandbox, &remote, &["call", "URL", "echo", "text=x", "region=eu"]);
    assert_eq!(result["content"][0]["text"], "x");
    let rpc: Vec<_> = remote.asked().iter().map(|asked| asked["rpc"].clone()).collect();
    assert_eq!(rpc, ["server/discover", "tools/list", "tools/call", "tools/list", "tools/call"]);
}
