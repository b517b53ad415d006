//! Errors of `unhang serve`: whether they say what happened, what to do, and nothing that is not for whoever reads them.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session},
    gateway::{gateway, server, window},
    gateway_access::{ONE, TWO},
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, wait_until},
};

/// What the server writes to its stderr about somebody.
const SECRET: &str = "the account of alice";

/// A server of handshakes that does one thing at a time: `nap` and `hang` write to stderr first, `die` does it last.
const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
[ -n "$2" ] && sleep "$2"
if [ -e broken ]; then exit 9; fi
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"hang","inputSchema":{"type":"object"}},{"name":"nap","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}},{"name":"late","inputSchema":{"type":"object"}},{"name":"mute","inputSchema":{"type":"object"}},{"name":"deaf","inputSchema":{"type":"object"}}]}' ;;
    *'"server/discover"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
    *'"name":"hang"'*) echo 'the account of alice' >&2; echo 'junk of the account of alice' ;;
    *'"name":"nap"'*) : > napping; sleep 1.2; answer '{"content":[]}' ;;
    *'"name":"late"'*) sleep 1; echo 'the account of alice' >&2; exit 3 ;;
    *'"name":"mute"'*) exec >&-; sleep 600 ;;
    *'"name":"deaf"'*) exec <&-; sleep 600 ;;
    *'"name":"die"'*) echo 'the account of alice' >&2; exit 3 ;;
  esac
done
"#;

/// That server under this name, with these lines in its table, after so many seconds.
fn script(sandbox: &Sandbox, name: &str, delay: &str, more: &str) -> String {
    fs::write(sandbox.path().join("server.sh"), SERVER).expect("a file");
    let path = sandbox.path().join("server.sh");
    format!("[servers.{name}]\ncommand = \"sh\"\nargs = [{path:?}, \"-\", {delay:?}]\n{more}\n")
}

/// A gateway with two tokens, of which the first is an operator's.
fn guarded(sandbox: &Sandbox, servers: &str) -> (Client, Web) {
    let tokens = format!("[http]\ntokens = [{{ token = {ONE:?}, operator = true }}, {TWO:?}]\n");
    fs::write(sandbox.path().join("unhang.toml"), format!("{servers}{tokens}")).expect("a file");
    Web::start(sandbox)
}

fn failed(session: &mut Session, tool: &str, code: i32) -> Value {
    let answer = session.ask("tools/call", json!({ "name": tool, "arguments": {} }));
    assert_eq!(answer["error"]["code"], code, "{tool}: {answer}");
    answer["error"].clone()
}

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap_or_else(|| panic!("no message: {error}"))
}

#[track_caller]
fn is_hidden(error: &Value) {
    assert!(!error.to_string().contains("alice"), "it is for operators alone: {error}");
    assert_eq!((&error["data"]["stderrTail"], &error["data"]["junk"]), (&json!([]), &json!([])), "{error}");
}

#[test]
fn what_a_shared_server_wrote_is_in_the_errors_of_operators_alone() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { call-timeout = \"1s\", promote-after = \"off\", restart-delay = \"1ms\", breaker-failures = 2, breaker-cooldown = \"1m\" }";
    let frail =
        format!("[servers.frail]\ncommand = \"sh\"\nargs = [\"-c\", \"echo '{SECRET}' >&2; exit 3\"]\n");
    let servers = [
        script(&sandbox, "all", "", limits),
        script(&sandbox, "own", "", &format!("per-session = true\n{limits}")),
        script(&sandbox, "job", "", "limits.promote-after = \"300ms\""),
        frail,
    ];
    let (process, web) = guarded(&sandbox, &servers.concat());
    wait_until("all have been tried", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    let [mut one, mut two] = [ONE, TWO].map(|token| Session::begin(&web.with_token(token), "client"));

    let late = failed(&mut two, "all__hang", -31001);
    is_hidden(&late);
    assert!(message(&late).contains("an operator sees its stderr at /status"), "{late}");
    let late = failed(&mut one, "all__hang", -31001);
    assert!(late["data"]["stderrTail"].to_string().contains(SECRET), "{late}");
    assert!(late["data"]["junk"].to_string().contains(SECRET), "{late}");

    let dead = failed(&mut two, "all__die", -31002);
    is_hidden(&dead);
    assert!(message(&dead).contains("/status") && message(&dead).contains("exit code 3"), "{dead}");
    let dead = failed(&mut one, "all__die", -31002);
    assert!(message(&dead).contains(SECRET), "{dead}");

    // Left alone, with the last trouble; one next step, and what was asked for.
    for (session, is_operator) in [(&mut two, false), (&mut one, true)] {
        let fenced = failed(session, "all__nap", -31004);
        assert_eq!(fenced.to_string().contains(SECRET), is_operator, "{fenced}");
        assert!(message(&fenced).contains("the last failure: `all` ended (exit code 3)"), "{fenced}");
        assert_eq!(fenced["data"]["method"], "tools/call", "{fenced}");
        assert!(fenced["data"]["retryAfterMs"].is_u64(), "{fenced}");
        assert!(
            message(&fenced).contains("ask again in") && !message(&fenced).contains("send the request"),
            "{fenced}"
        );
    }

    // A server of the caller's own tells its caller.
    let own = failed(&mut two, "own__die", -31002);
    assert!(
        message(&own).contains(SECRET) && own["data"]["stderrTail"].to_string().contains(SECRET),
        "{own}"
    );

    // A server that has never come up.
    for (session, is_operator) in [(&mut two, false), (&mut one, true)] {
        let answer = session.ask("tools/call", json!({ "name": "frail__x", "arguments": {} }));
        assert!(message(&answer["error"]).contains("`frail`"), "{answer}");
        assert_eq!(answer.to_string().contains(SECRET), is_operator, "{answer}");
    }

    // A job of the caller's.
    for (session, is_operator) in [(&mut two, false), (&mut one, true)] {
        let job = session.result("job__late", json!({}))["structuredContent"]["job_id"].clone();
        let told = session.at_its_end(&job);
        assert_eq!(
            (&told["status"], told.to_string().contains(SECRET)),
            (&json!("failed"), is_operator),
            "{told}"
        );
        let result = session.result("get_job_results", json!({ "job_id": job }));
        assert_eq!(result.to_string().contains(SECRET), is_operator, "{result}");
    }
    finish(process, &sandbox);
}

#[test]
fn where_nobody_is_asked_who_they_are_errors_tell_what_the_server_wrote() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits.promote-after = \"off\"";
    let mut client = gateway(&sandbox, &[script(&sandbox, "all", "", limits)]);
    let answer = client.ask("tools/call", json!({ "name": "all__die", "arguments": {} }));
    assert!(message(&answer["error"]).contains(SECRET), "{answer}");
    client.finish();
}

#[test]
fn a_call_that_waited_for_its_turn_says_so_at_its_deadline() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { max-in-flight = 1, call-timeout = \"2s\", promote-after = \"off\" }\ntools.late.call-timeout = \"500ms\"";
    let mut client = gateway(&sandbox, &[script(&sandbox, "all", "", limits)]);
    let nap = client.call("all__nap", json!({}));
    wait_until("it is with the server", PATIENCE, || sandbox.path().join("napping").exists());
    let [hang, queued] = ["all__hang", "all__late"].map(|tool| client.call(tool, json!({})));
    let [answer, late, overloaded] = client.answers([nap, hang, queued]);
    assert!(answer["result"].is_object(), "{answer}");
    let error = late["error"].clone();
    assert_eq!(error["code"], -31001, "{error}");
    let told = message(&error);
    assert!(told.contains("within 2s: the request waited 1."), "{error}");
    assert!(told.contains("for its turn behind other calls, and `all` had it for "), "{error}");
    assert!(error["data"]["hint"].as_str().is_some_and(|hint| hint.contains("max-in-flight")), "{error}");
    let error = overloaded["error"].clone();
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-31005), &json!("overloaded")), "{error}");
    client.finish();
}

#[test]
fn a_call_that_becomes_a_job_before_its_turn_says_that_it_waits() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { max-in-flight = 1, promote-after = \"500ms\" }";
    let mut client = gateway(&sandbox, &[script(&sandbox, "all", "", limits)]);
    let [first, second] = [(); 2].map(|()| client.call("all__hang", json!({})));
    let [first, second] = client.answers([first, second]);
    let text =
        |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    let mut texts = [text(&first), text(&second)];
    texts.sort();
    let works = texts.iter().filter(|text| text.contains("has been working for")).count();
    let waits: Vec<_> = texts.iter().filter(|text| text.contains("waits for its turn")).collect();
    assert_eq!((works, waits.len()), (1, 1), "{texts:?}");
    assert!(waits[0].contains("does not have the call yet"), "{texts:?}");
    for answer in [first, second] {
        // It would go on without its client.
        let job = &answer["result"]["structuredContent"]["job_id"];
        client.ask("tools/call", json!({ "name": "terminate_job", "arguments": { "job_id": job } }));
    }
    client.finish();
}

#[test]
fn an_unknown_tool_of_a_server_that_starts_names_it_and_how_long_that_took() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[script(&sandbox, "late", "2", "")]);
    let answer = client.ask("tools/call", json!({ "name": "late__none", "arguments": {} }));
    let data = &answer["error"]["data"];
    assert_eq!((&answer["error"]["code"], &data["server"]), (&json!(-32602), &json!("late")), "{answer}");
    assert!(data["elapsedMs"].as_u64().is_some_and(|elapsed| elapsed >= 1000), "{answer}");
    client.finish();
}

#[test]
fn a_server_whose_tools_stay_listed_is_not_told_as_missing() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { restart-delay = \"1ms\", breaker-failures = 1, breaker-cooldown = \"200ms\", promote-after = \"off\" }";
    let mut client = gateway(&sandbox, &[script(&sandbox, "all", "", limits)]);
    let answer = client.ask("tools/call", json!({ "name": "all__nap", "arguments": {} }));
    assert!(answer["result"].is_object(), "{answer}");
    fs::write(sandbox.path().join("broken"), "").expect("a file");
    for _ in 0..3 {
        // As soon as it may be tried once more, which fails.
        wait_until("it is tried", PATIENCE, || {
            let answer = client.ask("tools/call", json!({ "name": "all__die", "arguments": {} }));
            answer["error"]["code"] != -31004
        });
    }
    let listed = client.ask("tools/list", json!({}));
    assert!(listed.to_string().contains("all__die"), "{listed}");
    client.close_stdin();
    client.exit_code();
    let told = client.stderr_at_the_end();
    assert!(!told.contains("is not there"), "{told}");
}

#[test]
fn set_state_tells_the_time_that_get_state_tells() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    for value in 0..5 {
        let set = client.result("set_state", json!({ "field": "result", "value": value }));
        let got = client.result("get_state", json!({ "field": "result" }));
        let at = |told: &Value| told["structuredContent"]["updated_at"].clone();
        assert!(at(&set).is_string() && at(&set) == at(&got), "{set} {got}");
    }
    client.finish();
}

#[test]
fn a_call_whose_question_the_client_leaves_unanswered_says_so() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { call-timeout = \"1s\", promote-after = \"off\" }";
    for faulty_server in [&["slow-answers", "--era", "legacy"][..], &["slow-answers"]] {
        let mut client = gateway(&sandbox, &[server("srv", faulty_server, limits)]);
        let call = client.call("srv__ask", json!({ "method": "elicitation/create" }));
        client.find("the question", |message| message["method"] == "elicitation/create");
        let error = client.answer(call)["error"].clone();
        assert_eq!(error["code"], -31001, "{error}");
        assert!(message(&error).contains("the client's answer to `elicitation/create`"), "{error}");
        assert!(!message(&error).contains("did not answer"), "{error}");
        client.finish();
    }
}

/// What unhang does to a server is not told as something that the server did.
#[test]
fn a_server_that_is_ended_because_it_closed_a_pipe_is_told_with_the_reason() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[script(&sandbox, "srv", "", "limits.stop-grace = \"200ms\"")]);
    for (tool, told) in [("mute", "stdout"), ("deaf", "stdin")] {
        let answer = client.ask("tools/call", json!({ "name": format!("srv__{tool}"), "arguments": {} }));
        let told = format!("`srv` closed its {told}, and unhang ended it (signal 15 (SIGTERM)) ");
        assert!(message(&answer["error"]).starts_with(&told), "{answer}");
    }
    client.finish();
}

#[test]
fn a_message_whose_id_is_none_is_refused_without_one() {
    let sandbox = Sandbox::with_jobs();
    let servers = server("one", &["well-behaved"], "");
    fs::write(sandbox.path().join("unhang.toml"), &servers).expect("a file");
    let (mut process, web) = Web::start(&sandbox);
    let ids = [r#"{"a":1}"#, "[1]", "true", "1e400"];
    let line = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let session = web.begin();
    for id in ids {
        let answer = web.ask("POST", "/mcp", &[("mcp-session-id", &session)], &line(id)).last();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(-32600), &Value::Null),
            "{id}: {answer}"
        );
    }
    process.signal(Signal::TERM);
    process.exit_code();
    let mut stdio = window(&sandbox, &[]);
    let mut wrap = sandbox.wrap(&[], &["well-behaved"]);
    wrap.initialize();
    for client in [&mut stdio, &mut wrap] {
        for id in ids {
            client.send(&line(id));
            let answer = client.find("a refusal", |message| message["error"].is_object());
            assert_eq!(
                (&answer["error"]["code"], &answer["id"]),
                (&json!(-32600), &Value::Null),
                "{id}: {answer}"
            );
        }
        client.finish();
    }
}

/// The finding: the state and the arguments of jobs had an approximation of such a number.
#[test]
fn own_tools_refuse_a_whole_number_that_they_would_change() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[server("one", &["well-behaved"], "")]);
    client.send(
        r#"{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"set_state","arguments":{"field":"result","value":{"a":18446744073709551616}}}}"#,
    );
    let answer = client.find("the answer", |message| message["id"] == "big");
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(message(&answer["error"]).contains("18446744073709551616"), "{answer}");
    client.finish();
}
