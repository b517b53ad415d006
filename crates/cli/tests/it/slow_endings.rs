//! Calls that have become jobs, and whoever goes while they run: the client, the server, unhang, or their time (issue 7).

use std::{fs, process::Command, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    callers::{Calls, both, handed_over, lasting, slow_server},
    gateway::gateway,
    harness::{Client, PATIENCE, Sandbox, Web, is_alive, run_to_end, signal, timed, wait_until},
};

/// A job that a person starts beside the calls.
const COMMAND: &str = r#"
[jobs]
memory-limit = 100

[tools.work]
command = ["sh", "-c", "until [ -e go ]; do sleep 0.02; done"]
mode = "job"
"#;

/// What `unhang job list` says of a job.
#[track_caller]
fn listed(sandbox: &Sandbox, job: &Value) -> Value {
    let mut command = sandbox.unhang();
    command.args(["job", "list", "--output", "json"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
    let jobs: Value = serde_json::from_str(&stdout).expect("JSON");
    let mut jobs = jobs.as_array().expect("a list").iter();
    jobs.find(|listed| listed["job_id"] == *job).unwrap_or_else(|| panic!("{job} is not in {stdout}")).clone()
}

/// Demands that a job has failed for this reason, and that it is said whether to call again.
#[track_caller]
fn failed(told: &Value, reason: &str, advice: &str) {
    assert_eq!((&told["status"], &told["reason"]), (&json!("failed"), &json!(reason)), "{told}");
    assert!(told["detail"].as_str().is_some_and(|detail| detail.contains(advice)), "{told}");
}

const LOOK: &str = "check before you repeat it";
const SAFE: &str = "safe to repeat";

/// A gateway that cannot leave its servers to a call holder, because files may not be as long as what a server may say meanwhile.
fn limited(sandbox: &Sandbox, flags: &str) -> Command {
    // The unit of `ulimit -f` is 512 or 1024 bytes.
    sandbox.shell(&format!("ulimit -f 100000; exec unhang -v serve {flags}"))
}

/// A window on such a gateway.
fn limited_window(sandbox: &Sandbox, servers: &[String]) -> Client {
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let mut client = Client::start(limited(sandbox, ""));
    client.initialize();
    client
}

/// A call of `sleep`, which its server says may be made twice.
#[track_caller]
fn repeatable(client: &mut impl Calls) -> Value {
    let result = client.result("srv__sleep", json!({ "ms": 60_000 }));
    handed_over(&result)
}

#[test]
fn a_client_that_leaves_its_window_ends_its_jobs_with_the_reason() {
    let sandbox = Sandbox::with_jobs();
    let mut client = limited_window(&sandbox, &[slow_server(""), COMMAND.to_owned()]);
    let [job, safe] = [client.becomes_a_job(lasting(60.0, "x")), repeatable(&mut client)];
    let command = client.result("work", json!({}))["structuredContent"]["job_id"].clone();
    let ((), took) = timed(|| client.finish());
    assert!(took < Duration::from_secs(10), "{took:?}");
    failed(&listed(&sandbox, &job), "client_gone", LOOK);
    failed(&listed(&sandbox, &safe), "client_gone", SAFE);
    // A command goes on without anybody.
    assert_eq!(listed(&sandbox, &command)["status"], "running");
    fs::write(sandbox.path().join("go"), "").expect("a file");
    wait_until("the command ends", PATIENCE, || listed(&sandbox, &command)["status"] == "completed");
    sandbox.assert_nothing_left();
}

/// A job would end with the session, and nobody could ask about it.
#[test]
fn a_call_in_flight_when_the_client_ends_its_stdin_is_answered_as_a_call() {
    both(&[("promote-after", "300ms")], |sandbox, mut client| {
        let tool = client.named("srv__slow");
        let id = client.call(&tool, lasting(1.5, "x"));
        client.close_stdin();
        let result = client.answer(id)["result"].take();
        assert_eq!(result["structuredContent"]["job_id"], Value::Null, "{result}");
        assert_eq!(client.exit_code(), 0, "{}", client.stderr());
        let mut command = sandbox.unhang();
        command.args(["job", "list", "--output", "json"]);
        assert_eq!(run_to_end(command).1.trim(), "[]");
    });
}

#[test]
fn a_signal_to_a_window_ends_its_jobs_with_the_reason() {
    let sandbox = Sandbox::with_jobs();
    let mut client = limited_window(&sandbox, &[slow_server("")]);
    let job = client.becomes_a_job(lasting(60.0, "x"));
    client.signal(Signal::TERM);
    assert_eq!(client.exit_code_within(Duration::from_secs(10)), 143, "{}", client.stderr());
    failed(&listed(&sandbox, &job), "unhang_ended", LOOK);
    sandbox.assert_nothing_left();
}

#[test]
fn a_signal_ends_the_jobs_with_the_reason() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), slow_server("")).expect("a file");
    let (mut process, web) = Web::start_as(limited(&sandbox, "--http 127.0.0.1:0"));
    let mut session = crate::callers::Session::begin(&web, "one");
    let job = session.becomes_a_job(lasting(60.0, "x"));
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code_within(Duration::from_secs(10)), 143, "{}", process.stderr());
    failed(&listed(&sandbox, &job), "unhang_ended", LOOK);
    sandbox.assert_nothing_left();
}

#[test]
fn what_was_a_job_when_unhang_was_killed_has_failed_and_a_command_has_not() {
    let sandbox = Sandbox::with_jobs();
    let servers = [slow_server(""), COMMAND.to_owned()];
    let mut client = limited_window(&sandbox, &servers);
    let [job, safe] = [client.becomes_a_job(lasting(60.0, "x")), repeatable(&mut client)];
    let command = client.result("work", json!({}))["structuredContent"]["job_id"].clone();
    wait_until("the command runs", PATIENCE, || listed(&sandbox, &command)["status"] == "running");
    // Whoever looks meanwhile finds it as it is.
    assert_eq!(listed(&sandbox, &job)["status"], "running");
    client.signal(Signal::KILL);
    assert_eq!(client.exit_code(), 128 + 9);
    // Whoever comes first sees it.
    let show = |job: &Value| {
        let mut command = sandbox.unhang();
        command.args(["job", "show", job.as_str().expect("an id"), "--output", "json"]);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<Value>(&stdout).expect("JSON")
    };
    failed(&show(&job), "unhang_ended", LOOK);
    let mut client = limited_window(&sandbox, &servers);
    let told = client.at_its_end(&safe);
    failed(&told, "unhang_ended", SAFE);
    assert_eq!(listed(&sandbox, &command)["status"], "running", "it is not touched");
    fs::write(sandbox.path().join("go"), "").expect("a file");
    assert_eq!(client.at_its_end(&command)["status"], "completed");
    // And it can be called again.
    let again = client.becomes_a_job(lasting(60.0, "x"));
    assert_ne!(again, job);
    client.result("terminate_job", json!({ "job_id": again }));
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_server_that_is_killed_leaves_its_last_words_in_the_job() {
    both(&[], |_, mut client| {
        // What it says of its tools is known to whoever has listed them.
        client.ask("tools/list", json!({}));
        client.result("srv__stderr", json!({ "bytes": 300 }));
        let [job, safe] = [client.becomes_a_job(lasting(60.0, "x")), repeatable(&mut client)];
        let pid = client.of_server()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
        signal(pid, Signal::KILL);
        for (job, advice) in [(&job, LOOK), (&safe, SAFE)] {
            let told = client.at_its_end(job);
            failed(&told, "server_exited", advice);
            let results = client.result("get_job_results", json!({ "job_id": job }));
            let error = &results["structuredContent"]["error"];
            assert_eq!(
                (&error["code"], &error["data"]["server"]),
                (&json!(-31002), &json!("srv")),
                "{results}"
            );
            let tail = error["data"]["stderrTail"].as_array().unwrap_or_else(|| panic!("a tail: {results}"));
            assert!(!tail.is_empty(), "{results}");
        }
        // What failed is not joined: it is tried again, by the server's next process.
        let again = client.becomes_a_job(lasting(60.0, "x"));
        assert_ne!(again, job);
        assert_ne!(client.of_server()["pid"], pid);
        wait_until("it is gone", PATIENCE, || !is_alive(pid));
        // It would go on without its client.
        client.result("terminate_job", json!({ "job_id": again }));
        client.finish();
    });
}

#[test]
fn a_job_that_takes_too_long_ends_and_its_server_is_told() {
    let sandbox = Sandbox::with_jobs();
    let mut client =
        gateway(&sandbox, &[slow_server("limits.job-timeout = \"2s\"\ntools.sleep.job-timeout = \"50s\"")]);
    let other = repeatable(&mut client);
    let job = client.becomes_a_job(lasting(60.0, "x"));
    let told = client.at_its_end(&job);
    failed(&told, "timeout", LOOK);
    failed(&told, "timeout", "raise --job-timeout if it needs longer");
    let elapsed = told["elapsed_time_seconds"].as_f64().expect("a number");
    assert!(elapsed >= 1.5, "{told}");
    wait_until("the server was told", PATIENCE, || client.counted() == [1, 0, 1]);
    let results = client.result("get_job_results", json!({ "job_id": job }));
    assert_eq!(results["structuredContent"]["error"]["code"], -31001, "{results}");
    // One tool may take longer.
    assert_eq!(listed(&sandbox, &other)["status"], "running");
    client.result("terminate_job", json!({ "job_id": other }));
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_job_is_cancelled_from_another_process_and_by_its_agent() {
    both(&[], |sandbox, mut client| {
        let [first, second] = ["first", "second"].map(|label| client.becomes_a_job(lasting(60.0, label)));
        let cancel = |job: &Value| {
            let mut command = sandbox.unhang();
            command.args(["job", "cancel", job.as_str().expect("an id")]);
            run_to_end(command)
        };
        let (code, stdout, stderr) = cancel(&first);
        assert_eq!(code, 0, "{stdout} {stderr}");
        assert_eq!(client.at_its_end(&first)["status"], "cancelled");
        wait_until("the server was told", PATIENCE, || client.counted() == [2, 0, 1]);
        let told = client.result("terminate_job", json!({ "job_id": second }));
        assert_eq!(told["structuredContent"]["status"], "cancelled", "{told}");
        wait_until("the server was told", PATIENCE, || client.counted() == [2, 0, 2]);
        let (code, _, stderr) = cancel(&second);
        assert_eq!(code, 1, "{stderr}");
        // What was cancelled is not joined.
        let again = client.becomes_a_job(lasting(60.0, "first"));
        assert_ne!(again, first);
        client.result("terminate_job", json!({ "job_id": again }));
        client.finish();
    });
}

#[test]
fn a_job_outlives_the_session_of_a_client_that_breaks_off_in_the_middle() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), slow_server("")).expect("a file");
    let (mut process, web) = Web::start(&sandbox);
    let mut next = crate::callers::Session::begin(&web, "same");
    assert_eq!(next.counted(), [0, 0, 0]);
    let mut one = crate::callers::Session::begin(&web, "same");
    let job = one.becomes_a_job(lasting(2.0, "x"));
    // Somebody who goes before it is a job is told of none, and the server is told that nobody waits.
    {
        let params = json!({ "name": "srv__slow", "arguments": lasting(60.0, "nobody") });
        let message = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params });
        let session = [("mcp-session-id", &*one.name)];
        std::thread::scope(|scope| {
            let call = scope.spawn(|| web.post(&session, &message).all());
            wait_until("it has come", PATIENCE, || next.counted()[0] == 2);
            let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
            web.post(&session, &cancel);
            let answers = call.join().expect("no panic");
            if let Some(answer) = answers.last() {
                // It was a job before that was heard.
                assert!(answer["result"].is_object(), "{answer}");
            }
        });
    }
    one.end();
    assert_eq!(next.whole(&job).len(), 1);
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
    sandbox.assert_nothing_left();
}
