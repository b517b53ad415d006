//! The command line in front of servers that go on with calls in the background: it follows each to its end, and never takes what has not
//! ended for done (F-70).

use std::{fs, process::Command};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, lab_program, run_to_end, wait_until},
};

const UNHANG: &str = env!("CARGO_BIN_EXE_unhang");

/// `unhang WORDS -- unhang wrap --promote-after 300ms -- unhang-lab zoo PROGRAM…`.
fn guarded(sandbox: &Sandbox, words: &[&str], faulty_server: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.args(words).args(["--", UNHANG, "wrap", "--name", "srv", "--promote-after", "300ms"]);
    command.args(["--", lab_program(), "zoo"]).args(faulty_server);
    command
}

/// The text of a result's first content.
fn first(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a text: {result}"))
}

/// What the only line of a batch came to.
#[track_caller]
fn only(text: &str) -> Value {
    serde_json::from_str(text.trim_end()).unwrap_or_else(|error| panic!("one line ({error}): {text}"))
}

#[test]
fn f_70_a_call_that_becomes_a_job_is_followed_to_its_own_answer() {
    for era in ["dual", "legacy"] {
        let sandbox = Sandbox::with_jobs();
        let words = ["call", "slow", "seconds=1.5", "size=60000"];
        let (code, stdout, stderr) = run_to_end(guarded(&sandbox, &words, &["slow-answers", "--era", era]));
        assert_eq!(code, 0, "{era}: {stderr}");
        let result: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(first(&result), crate::callers::text(60_000), "{era}: whole, as if it had come at once");
        let words = ["call", "slow", "seconds=1.5", "fail=true"];
        let (code, stdout, stderr) = run_to_end(guarded(&sandbox, &words, &["slow-answers", "--era", era]));
        assert_eq!(code, 1, "{era}: the outcome is that of the tool: {stdout}{stderr}");
        sandbox.assert_nothing_left();
    }
}

#[test]
fn f_70_a_call_that_has_not_ended_in_time_says_that_its_job_ends_with_its_server() {
    let sandbox = Sandbox::with_jobs();
    let words = ["call", "--call-timeout", "2s", "slow", "seconds=600"];
    let (code, stdout, stderr) = run_to_end(guarded(&sandbox, &words, &["slow-answers"]));
    assert_eq!((code, &*stdout), (4, ""), "{stderr}");
    for expect in ["had not ended within 2s", "it ended with the server", "hint: raise --call-timeout"] {
        assert!(stderr.contains(expect), "{expect}: {stderr}");
    }
    let mut list = sandbox.unhang();
    list.args(["job", "list"]);
    let (_, listed, _) = run_to_end(list);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let job = listed[0]["job_id"].as_str().expect("a job");
    assert!(stderr.contains(job) && listed[0]["status"] == "failed", "it is true: {listed} {stderr}");
    sandbox.assert_nothing_left();
}

#[test]
fn f_70_a_batch_waits_for_jobs_and_calls_nothing_done_that_is_not() {
    let sandbox = Sandbox::with_jobs();
    let file = sandbox.path().join("in.jsonl");
    let run = |seconds: f64, limit: &str| {
        fs::write(&file, format!("{}\n", json!({ "tool": "slow", "arguments": { "seconds": seconds } })))
            .expect("a file");
        let words = ["batch", "--call-timeout", limit, file.to_str().expect("text")];
        run_to_end(guarded(&sandbox, &words, &["slow-answers"]))
    };
    let (code, stdout, stderr) = run(1.5, "60s");
    let done = only(&stdout);
    assert_eq!((code, &done["ok"]), (0, &json!(true)), "{stdout}{stderr}");
    assert_eq!(first(&done["result"]), crate::callers::text(64), "{done}");
    let (code, stdout, stderr) = run(600.0, "2s");
    let late = only(&stdout);
    assert_eq!((code, &late["ok"]), (1, &json!(false)), "{stdout}{stderr}");
    let error = &late["error"];
    assert_eq!((&error["kind"], &error["data"]["goes_on"]), (&json!("deadline"), &json!(false)), "{late}");
    assert!(error["data"]["job_id"].is_string(), "{late}");
    sandbox.assert_nothing_left();
    // The guard may have been killed while it wrote how the job ended.
    sandbox.settle_jobs();
}

#[test]
fn f_70_tasks_of_either_dialect_are_followed() {
    for (faulty_server, tool) in [("tasks-modern", "slow_compute"), ("tasks-legacy", "batch_compute")] {
        let ask = |words: &[&str]| {
            let sandbox = Sandbox::new();
            let mut command = sandbox.unhang();
            command.arg("call").args(words).args(["--", lab_program(), "zoo", faulty_server]);
            run_to_end(command)
        };
        let (code, stdout, stderr) = ask(&[tool, "seconds=1", "label=a"]);
        assert_eq!(code, 0, "{faulty_server}: {stderr}");
        let result: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(first(&result), "computed a", "{faulty_server}: {result}");
        let (code, stdout, stderr) = ask(&["failing_job", "seconds=0.2"]);
        assert_eq!(code, 1, "{faulty_server}: {stdout}{stderr}");
        let (code, _, stderr) = ask(&["protocol_error_job", "seconds=0.2"]);
        assert!(code == 1 && stderr.contains("-32603"), "{faulty_server}: {code} {stderr}");
        let (code, _, stderr) = ask(&["--call-timeout", "1s", tool, "seconds=600"]);
        assert!(
            code == 4 && stderr.contains("no client waits for it any more"),
            "{faulty_server}: {code} {stderr}"
        );
    }
}

/// A command that is a job, which ends when there is a file `go`.
const SIMULATE: &str = r#"
[tools.simulate]
description = "Simulates"
command = ["sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo '{\"a\": 7}' > $UNHANG_JOB_DIR/results.json"]
results = "results.json"
mode = "job"
"#;

#[test]
fn f_70_a_job_that_outlives_the_command_is_named_with_what_fetches_its_result() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), SIMULATE).expect("a file");
    let mut serve = sandbox.unhang();
    serve.env("UNHANG_MEMORY_LIMIT", "100").args([
        "-v",
        "serve",
        "--http",
        "127.0.0.1:0",
        "--config",
        "unhang.toml",
    ]);
    let (process, web) = Web::start_as(serve);
    let run = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(words);
        run_to_end(command)
    };
    let (code, stdout, stderr) = run(&["call", "--call-timeout", "2s", &web.url(), "simulate"]);
    assert_eq!((code, &*stdout), (4, ""), "{stderr}");
    assert!(stderr.contains("; it continues\n"), "{stderr}");
    let (_, hint) = stderr.split_once("hint: unhang ").expect("what fetches the result");
    let words: Vec<&str> = hint.split(" fetches its result").next().expect("a command").split(' ').collect();
    // What fetches the result waits for it, and takes no job that runs for one that is done.
    let (code, stdout, stderr) = run(&[&words[..], &["--call-timeout", "1s"]].concat());
    assert_eq!((code, &*stdout), (4, ""), "{stderr}");
    fs::write(sandbox.path().join("go"), "").expect("a file");
    let (code, stdout, stderr) = run(&words);
    assert!(
        code == 0 && stdout.contains("completed") && stdout.contains('7'),
        "{words:?}: {stdout} {stderr}"
    );
    // One that ends in time is as if it had answered at once.
    let (code, stdout, stderr) = run(&["call", "--call-timeout", "60s", &web.url(), "simulate"]);
    let result: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{code} {stdout} {stderr}"));
    assert_eq!((code, &result["structuredContent"]["results"]), (0, &json!({ "a": 7 })), "{result}");
    finish(process, &sandbox);
}

#[test]
fn f_70_what_becomes_of_a_job_whose_server_ends_with_the_command_is_what_the_folder_says() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("jobs.toml"), SIMULATE).expect("a file");
    let mut command = sandbox.unhang();
    command.env("UNHANG_MEMORY_LIMIT", "100");
    command.args([
        "call",
        "--call-timeout",
        "2s",
        "simulate",
        "--",
        UNHANG,
        "serve",
        "--own",
        "--config",
        "jobs.toml",
    ]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!((code, &*stdout), (4, ""), "{stderr}");
    let mut list = sandbox.unhang();
    list.args(["job", "list"]);
    let listed: Value = serde_json::from_str(&run_to_end(list).1).expect("JSON");
    // Whether jobs outlive a server that a lifeline ends depends on the machine; what is said does not.
    let is_over = ["failed", "cancelled", "lost"].contains(&listed[0]["status"].as_str().expect("a word"));
    assert_eq!(stderr.contains("it ended with the server"), is_over, "{listed} {stderr}");
    assert_eq!(stderr.contains("; it continues"), !is_over, "{listed} {stderr}");
    fs::write(sandbox.path().join("go"), "").expect("a file");
    sandbox.assert_nothing_left();
}

/// A gateway over HTTP whose calls become jobs soon.
fn slow_gateway(sandbox: &Sandbox) -> (Client, Web) {
    let lab = lab_program();
    let file = format!(
        "[servers.slow]\ncommand = {lab:?}\nargs = [\"zoo\", \"slow-answers\"]\nlimits = {{ promote-after = \"300ms\" }}\n"
    );
    fs::write(sandbox.path().join("gateway.toml"), file).expect("a file");
    let mut serve = sandbox.unhang();
    serve.args(["-v", "serve", "--http", "127.0.0.1:0", "--config", "gateway.toml"]);
    let (process, web) = Web::start_as(serve);
    wait_until("it has come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    (process, web)
}

/// The words of the command that a hint says fetches the result, and the id of the job in it.
#[track_caller]
fn hinted(stderr: &str) -> (Vec<&str>, String) {
    let (_, hint) = stderr.split_once("hint: unhang ").unwrap_or_else(|| panic!("a hint: {stderr}"));
    let words: Vec<&str> = hint.split(" fetches its result").next().expect("a command").split(' ').collect();
    let last = words.last().expect("a word");
    let id = last.rsplit(['/', '=']).next().expect("an id").to_owned();
    (words, id)
}

#[test]
fn f_70_a_job_that_did_not_complete_is_read_with_exit_code_1() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = slow_gateway(&sandbox);
    let url = web.url();
    let run = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(words);
        run_to_end(command)
    };
    let begin = |seconds: &str, fail: &str| {
        let (code, _, stderr) = run(&["call", "--call-timeout", "1s", &url, "slow__slow", seconds, fail]);
        assert_eq!(code, 4, "{stderr}");
        stderr
    };
    let failing = begin("seconds=1.5", "fail=true");
    let cancelled = begin("seconds=600", "fail=false");
    let (_, id) = hinted(&cancelled);
    assert_eq!(run(&["job", "cancel", &id]).0, 0, "{cancelled}");
    for (told, status) in [(&failing, "failed"), (&cancelled, "cancelled")] {
        let (_, id) = hinted(told);
        let uri = format!("job://{id}");
        let (code, stdout, stderr) = run(&["read", &url, &uri]);
        assert!(stdout.contains(&id) && stdout.contains(status), "it is printed: {stdout} {stderr}");
        assert_eq!(code, 1, "{stdout} {stderr}");
        assert!(stderr.contains(&format!("job {id} {status}")), "{stderr}");
        let file = sandbox.path().join("in.jsonl");
        fs::write(&file, format!("{}\n", json!({ "server": url, "uri": uri }))).expect("a file");
        let (code, stdout, stderr) = run(&["batch", file.to_str().expect("text")]);
        let outcome = only(&stdout);
        assert_eq!((code, &outcome["ok"]), (1, &json!(false)), "{stdout} {stderr}");
        assert!(outcome["result"]["contents"].is_array(), "{outcome}");
        let message = outcome["error"]["message"].as_str().expect("a reason");
        assert!(message.contains(status), "{outcome}");
    }
    // What the tool said is what `job result` prints, and has for programs.
    let (_, id) = hinted(&failing);
    let (code, stdout, stderr) = run(&["job", "result", &id]);
    assert_eq!((code, &*stdout), (1, &*format!("{}\n", crate::callers::text(64))), "{stderr}");
    assert!(!stderr.contains("hint"), "there is nothing more to see: {stderr}");
    let (code, stdout, _) = run(&["job", "result", "--output", "json", &id]);
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, first(&report["results"])), (1, &*crate::callers::text(64)), "{report}");
    let (_, shown, _) = run(&["job", "show", &id]);
    assert!(shown.contains(&format!("unhang job result {id}")), "{shown}");
    finish(process, &sandbox);
}

#[test]
fn f_70_an_interrupted_call_names_the_job_that_goes_on() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = slow_gateway(&sandbox);
    for (signal, expect) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = sandbox.unhang();
        command.args(["-v", "call", &web.url(), "slow__slow", "seconds=600"]);
        let mut call = Client::start(command);
        wait_until("it is followed as a job", PATIENCE, || {
            call.stderr().contains("continues `slow__slow` as")
        });
        call.signal(signal);
        assert_eq!(call.exit_code(), expect, "{}", call.stderr());
        let stderr = call.stderr_at_the_end();
        assert!(stderr.contains("; it continues\n"), "{stderr}");
        let (words, id) = hinted(&stderr);
        let mut cancel = sandbox.unhang();
        cancel.args(["job", "cancel", &id]);
        assert_eq!(run_to_end(cancel).0, 0, "it went on: {stderr}");
        let mut fetch = sandbox.unhang();
        fetch.args(words);
        let (code, stdout, stderr) = run_to_end(fetch);
        assert!(code == 1 && stdout.contains("cancelled"), "{code} {stdout} {stderr}");
    }
    finish(process, &sandbox);
}

#[test]
fn f_70_an_interrupted_call_says_that_its_job_ends_with_its_server() {
    let sandbox = Sandbox::with_jobs();
    let words = ["-v", "call", "slow", "seconds=600"];
    let mut call = Client::start(guarded(&sandbox, &words, &["slow-answers", "--era", "legacy"]));
    wait_until("it is followed as a job", PATIENCE, || call.stderr().contains("continues `slow` as"));
    call.signal(Signal::INT);
    assert_eq!(call.exit_code(), 130, "{}", call.stderr());
    let stderr = call.stderr_at_the_end();
    assert!(stderr.contains("runs as job") && stderr.contains("; it ended with the server"), "{stderr}");
    sandbox.assert_nothing_left();
}

/// Tools that are jobs: of one that ends at once, one that fails at once, and one with more results than an answer of a tool has room for.
const SHORT: &str = r#"
[tools.instant]
description = "Ends at once"
command = ["true"]
mode = "job"
[tools.fails]
description = "Fails at once"
command = ["sh", "-c", "exit 3"]
mode = "job"
[tools.large]
description = "Leaves much"
command = ["sh", "-c", "printf '\"%030000d\"' 7 > $UNHANG_JOB_DIR/results.json"]
results = "results.json"
mode = "job"
"#;

#[test]
fn f_70_what_has_ended_within_the_limit_is_no_deadline() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("jobs.toml"), SHORT).expect("a file");
    for (tool, expect) in [("instant", 0), ("fails", 1)] {
        let mut command = sandbox.unhang();
        // Shorter than the time that the server asks its clients to leave between two looks.
        command.env("UNHANG_MEMORY_LIMIT", "100").args(["call", "--call-timeout", "1500ms", tool]);
        command.args(["--", UNHANG, "serve", "--stdio", "--config", "jobs.toml"]);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!(code, expect, "{tool}: {stdout} {stderr}");
        assert!(stdout.contains(&format!("exit_code\":{}", 3 * expect)), "{tool}: {stdout} {stderr}");
    }
    sandbox.assert_nothing_left_within(PATIENCE);
}

#[test]
fn f_70_a_result_that_is_too_large_for_a_tools_answer_is_printed_whole() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), SHORT).expect("a file");
    let mut serve = sandbox.unhang();
    serve.env("UNHANG_MEMORY_LIMIT", "100").args(["-v", "serve", "--http", "127.0.0.1:0"]);
    serve.args(["--config", "unhang.toml"]);
    let (process, web) = Web::start_as(serve);
    let run = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(words);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!(code, 0, "{words:?}: {stderr}");
        serde_json::from_str::<Value>(&stdout).expect("JSON")
    };
    let whole = format!("{:030000}", 7);
    let result = run(&["call", &web.url(), "large"]);
    assert!(result["structuredContent"]["results"] == whole, "{result:.500}");
    assert!(first(&result).contains(&whole), "for whoever reads text: {result:.500}");
    let job = result["structuredContent"]["job_id"].as_str().expect("an id").to_owned();
    let read = run(&["read", &web.url(), &format!("job://{job}")]);
    assert!(read["contents"][0]["text"].as_str().is_some_and(|text| text.contains(&whole)), "{read:.500}");
    finish(process, &sandbox);
}
