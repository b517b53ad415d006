//! `unhang serve` as a client sees it, with real jobs behind it.

use std::fs;

use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, run_to_end, wait_until},
    jobs::{Jobs, called, ended},
};

const FILE: &str = r#"
[jobs]
max-concurrent = 2

[tools.simulate]
description = "Simulates the digester."
command = ["sh", "-c", 'echo "cod $1"; echo "{\"digester\": {\"ch4\": $1}}" > "$2/results.json"', "sh", "{args.cod}", "{job_dir}"]
mode = "job"
input-schema = { properties = { cod = { type = "number" } }, required = ["cod"] }
results = "results.json"
state = { field = "simulation_results", pointer = "/digester" }

[tools.from_state]
command = ["sh", "-c", "exit 0"]
mode = "job"
inputs = { "basis.json" = "never_set" }

[tools.greet]
command = ["sh", "-c", 'echo "hello $1 from $GREETER"', "sh", "{args.name}"]
input-schema = { properties = { name = { type = "string" } }, required = ["name"] }
env = { GREETER = "${GREETER:-nobody}" }

[tools.stuck]
command = ["sh", "-c", "exec sleep 600"]
env = { UNHANG_TEST_MARKER = "${UNHANG_TEST_MARKER}" }

[tools.fails]
command = ["sh", "-c", "echo broken >&2; exit 3"]
"#;

fn served(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Client {
    fs::write(sandbox.path().join("unhang.toml"), FILE).expect("the sandbox can be written");
    let mut command = sandbox.unhang();
    command.arg("serve").envs(variables.iter().copied());
    let mut client = Client::start(command);
    client.initialize();
    client
}

#[test]
fn j_13_a_job_is_started_followed_and_lands_in_the_state() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox, &[]);
    let started = called(&mut client, "simulate", json!({ "cod": 2.5 }))["structuredContent"].clone();
    let job = started["job_id"].clone();
    assert_eq!(ended(&mut client, &job), "completed");
    let results =
        called(&mut client, "get_job_results", json!({ "job_id": job }))["structuredContent"].clone();
    assert_eq!(results["results"], json!({ "digester": { "ch4": 2.5 } }), "{results}");
    assert_eq!((&results["state_applied"], &results["exit_code"]), (&json!(true), &json!(0)), "{results}");
    let log = called(&mut client, "get_job_logs", json!({ "job_id": job }))["structuredContent"].clone();
    assert_eq!((&log["text"], &log["eof"]), (&json!("cod 2.5\n"), &json!(true)));
    let state = called(&mut client, "get_state", json!({ "field": "simulation_results" }));
    assert_eq!(state["structuredContent"]["value"], json!({ "ch4": 2.5 }));
    let jobs = called(&mut client, "list_jobs", json!({ "status_filter": "completed" }));
    assert_eq!(jobs["structuredContent"]["jobs"][0]["job_id"], job);
    assert_eq!(jobs["structuredContent"]["max_concurrent"], 2);
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    sandbox.assert_nothing_left();
}

#[test]
fn f_10_a_log_that_is_gone_is_told_of_by_tools_and_command_line() {
    let jobs = Jobs::new();
    let mut client = served(&jobs.sandbox, &[]);
    let submitted = |client: &mut Client| {
        let started = called(client, "simulate", json!({ "cod": 2.5 }));
        let job = started["structuredContent"]["job_id"].clone();
        assert_eq!(ended(client, &job), "completed");
        job.as_str().expect("an id").to_owned()
    };
    let job = submitted(&mut client);
    let log = jobs.folder(&job).join("stdout.log").display().to_string();
    fs::remove_file(&log).expect("it was there");
    let told = called(&mut client, "get_job_logs", json!({ "job_id": job }));
    let text = told["content"][0]["text"].as_str().expect("text");
    assert!(
        told["isError"] == true && text.contains(&format!("the log {log} of job {job} is gone")),
        "{told}"
    );
    let results = called(&mut client, "get_job_results", json!({ "job_id": job }));
    let fields = &results["structuredContent"];
    assert_eq!(
        (&fields["gone"], &fields["results"]["digester"]["ch4"]),
        (&json!([log]), &json!(2.5)),
        "{results}"
    );
    for words in
        [&["job", "logs", &job][..], &["job", "logs", &job, "-f"], &["job", "logs", &job, "--output", "json"]]
    {
        let (_, stderr) = jobs.demand(1, words);
        assert!(stderr.contains(&log) && stderr.contains("is gone"), "{words:?}: {stderr}");
    }
    let (_, stderr) = jobs.demand(0, &["job", "logs", &job, "--stderr"]);
    assert_eq!(stderr, "", "that one is there, and empty");
    let job = submitted(&mut client);
    fs::remove_dir_all(jobs.folder(&job)).expect("it was there");
    for (tool, words) in
        [("get_job_logs", ["job", "logs", &job]), ("get_job_results", ["job", "result", &job])]
    {
        let told = called(&mut client, tool, json!({ "job_id": job }));
        let (_, stderr) = jobs.demand(1, &words);
        for text in [told["content"][0]["text"].as_str().expect("text"), &stderr] {
            assert!(text.contains("is gone, with its logs and results"), "{tool}: {text}");
        }
    }
    client.finish();
    jobs.sandbox.assert_nothing_left();
}

#[test]
fn f_11_an_answer_that_leaves_out_results_names_their_file_and_the_next_arguments() {
    let jobs = Jobs::new();
    let script = r#"awk 'BEGIN { printf "["; for (i = 0; i < 500000; i++) printf "%d,", i; print "0]" }' > "$UNHANG_JOB_DIR/results.json""#;
    let job = jobs.submit(&["--result", "results.json"], script);
    jobs.demand(0, &["job", "wait", &job]);
    let mut client = served(&jobs.sandbox, &[]);
    let told = called(&mut client, "get_job_results", json!({ "job_id": job }));
    let (text, fields) = (told["content"][0]["text"].as_str().expect("text"), &told["structuredContent"]);
    let file = jobs.folder(&job).join("work/results.json").display().to_string();
    let next = format!("get_job_results(job_id=\"{job}\", offset={})", fields["next_offset"]);
    assert!(text.contains(&file) && text.contains(&next), "{}", &text[..1000]);
    let answer =
        called(&mut client, "get_job_results", json!({ "job_id": job, "offset": fields["next_offset"] }));
    assert_eq!(answer["structuredContent"]["offset"], fields["next_offset"]);
    client.finish();
    jobs.sandbox.assert_nothing_left();
}

#[test]
fn j_17_a_job_whose_state_is_missing_is_no_job() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox, &[]);
    let refused = called(&mut client, "from_state", json!({}));
    let text = refused["content"][0]["text"].as_str().expect("text");
    assert!(text.starts_with("Job submission failed: ") && text.contains("`never_set`"), "{text}");
    assert_eq!(refused["isError"], true);
    assert_eq!(called(&mut client, "list_jobs", json!({}))["structuredContent"]["jobs"], json!([]));
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_child_answers_when_it_ends_and_its_argument_stays_one_item() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox, &[("GREETER", "me")]);
    let name = "a b; $(touch pwned) \"'";
    let answer = called(&mut client, "greet", json!({ "name": name }))["structuredContent"].clone();
    assert_eq!(answer["stdout_tail"], format!("hello {name} from me\n"));
    assert!(!sandbox.path().join("pwned").exists());
    let failed = called(&mut client, "fails", json!({}));
    assert_eq!((&failed["isError"], &failed["structuredContent"]["exit_code"]), (&json!(true), &json!(3)));
    assert_eq!(failed["structuredContent"]["stderr_tail"], "broken\n");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_child_that_is_cancelled_is_ended_and_another_that_is_stuck_delays_nobody() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox, &[]);
    let stuck = client.call("stuck", json!({}));
    assert!(called(&mut client, "greet", json!({ "name": "you" }))["isError"].is_null());
    client.notify("notifications/cancelled", json!({ "requestId": stuck }));
    wait_until("the job of the cancelled call ends", PATIENCE, || {
        let jobs = called(&mut client, "list_jobs", json!({ "status_filter": "cancelled" }));
        jobs["structuredContent"]["jobs"] != json!([])
    });
    assert_eq!(client.answers_to(stuck), 0);
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn x_03_the_mode_is_overridden_by_the_environment() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox, &[("UNHANG_TOOL_MODE", "greet=job,nosuch=job")]);
    let started = called(&mut client, "greet", json!({ "name": "you" }))["structuredContent"].clone();
    assert_eq!(ended(&mut client, &started["job_id"]), "completed");
    assert!(client.stderr().contains("there is no tool `nosuch`"), "{}", client.stderr());
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn a_limit_of_the_environment_goes_before_the_file() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox, &[("UNHANG_MAX_CONCURRENT", "1")]);
    let jobs = called(&mut client, "list_jobs", json!({}));
    assert_eq!(jobs["structuredContent"]["max_concurrent"], 1);
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn f_80_what_jobs_would_end_with_is_told_with_the_first_job_and_in_the_status_of_the_system() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), FILE).expect("the sandbox can be written");
    let mut client = Client::start(sandbox.below_a_job("unhang serve"));
    client.initialize();
    let told = "every process below `mcp-job-of-test` ends with it";
    let system = called(&mut client, "get_system_status", json!({}));
    let (fields, text) = (&system["structuredContent"], &system["content"][0]["text"]);
    assert_eq!(fields["outlives"], false, "{fields}");
    assert!(fields["ends_with"].as_array().is_some_and(|ties| ties.contains(&told.into())), "{fields}");
    assert!(text.as_str().is_some_and(|text| text.contains(told)), "{text}");
    let percent = fields["system"]["memory_percent"].as_f64().expect("a number");
    assert!((percent * 10.0 - (percent * 10.0).round()).abs() < 1e-9, "{percent}");
    // F-12: the memory that is in use, of which that is a part, and not that of this program, which has some megabytes.
    let used = fields["system"]["memory_mb"].as_f64().expect("a number");
    let total = used / percent * 100.0;
    assert!(used > 64.0 && total > 256.0, "{used} MiB are {percent} %");
    assert!(!client.stderr().contains(told), "no job was accepted: {}", client.stderr());
    for _ in 0..2 {
        let started = called(&mut client, "simulate", json!({ "cod": 1 }));
        assert_eq!(ended(&mut client, &started["structuredContent"]["job_id"]), "completed");
    }
    client.finish();
    assert_eq!(client.stderr().matches(told).count(), 1, "{}", client.stderr());
    sandbox.assert_nothing_left();
}

#[test]
fn promise_7_a_job_outlives_the_server_that_accepted_it() {
    let sandbox = Sandbox::with_jobs();
    let mut client = served(&sandbox, &[("UNHANG_TOOL_MODE", "stuck=job")]);
    let job = called(&mut client, "stuck", json!({}))["structuredContent"]["job_id"].clone();
    client.signal(rustix::process::Signal::KILL);
    client.drain();
    let mut client = served(&sandbox, &[]);
    let id = client.call("terminate_job", json!({ "job_id": job }));
    let answer = client.answer_within(id, PATIENCE);
    assert_eq!(answer["result"]["structuredContent"]["status"], "cancelled", "{answer}");
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn what_is_wrong_in_the_file_ends_the_start_with_its_place() {
    let sandbox = Sandbox::with_jobs();
    let serve = || {
        let mut command = sandbox.unhang();
        command.arg("serve");
        command
    };
    let (code, out, err) = run_to_end(serve());
    assert!(
        code == 2
            && out.is_empty()
            && err.contains("there is no unhang.toml in ~/.config/unhang")
            && err.contains("--config FILE"),
        "{err}"
    );
    fs::write(sandbox.path().join("unhang.toml"), "[tools.a]\n\ncommand = [\"${NOWHERE}\"]")
        .expect("written");
    let (code, out, err) = run_to_end(serve());
    let told = "unhang: unhang.toml:3:12: tools.a.command[0]: the variable NOWHERE is not set";
    assert!(code == 2 && out.is_empty() && err.starts_with(told), "{err}");
    let mut schema = sandbox.unhang();
    schema.args(["serve", "--print-config-schema"]);
    let (code, out, _) = run_to_end(schema);
    let schema: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &schema["properties"]["jobs"]["type"]), (0, &json!("object")));
    assert_eq!(
        out,
        include_str!("../../../../docs/reference/unhang.schema.json"),
        "write it anew: unhang serve --print-config-schema > docs/reference/unhang.schema.json"
    );
}

#[test]
fn a_data_folder_that_cannot_be_used_is_told_and_the_session_goes_on() {
    let sandbox = Sandbox::with_jobs();
    let home = sandbox.path().join("no_folder");
    fs::write(&home, "a file where the folder is to be").expect("written");
    let mut client = served(&sandbox, &[("UNHANG_HOME", home.to_str().expect("text"))]);
    for (tool, arguments) in [("list_jobs", json!({})), ("greet", json!({ "name": "you" }))] {
        let answer = called(&mut client, tool, arguments);
        let text = answer["content"][0]["text"].as_str().expect("text");
        assert!(answer["isError"] == true && text.contains("no_folder"), "{text}");
    }
    client.finish();
    sandbox.assert_nothing_left();
}
