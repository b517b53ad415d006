//! Rows of the contract that nothing else shows, each by what a user of the binary sees (`docs/reference/contract.md`).
//!
//! Invariants: each test is named by the id of what it holds. A time that the contract asks for is asked for until it is kept, with a
//! generous limit: a busy machine is slow now and then, and what is too slow by itself is so each time.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use unhang::clients::CLOCKS;

use crate::{
    harness::{Client, PATIENCE, Sandbox, figure, lab_program, run_to_end, timed, wait_until, write_program},
    jobs::{Jobs, called},
};

/// A server with one tool, a job that runs until [`Jobs::go`].
fn served(jobs: &Jobs) -> Client {
    let lab = lab_program();
    let file = format!(
        "[jobs]\nmax-concurrent = 2\n[tools.slow]\ncommand = [{lab:?}, \"zoo\", \"slow\", \"--gate\", \"go\"]\nmode = \"job\"\n\
         results = \"results.json\"\nstate = {{ field = \"kept\", pointer = \"\" }}\n"
    );
    fs::write(jobs.sandbox.path().join("unhang.toml"), file).expect("the sandbox can be written");
    let mut server = Client::start(jobs.command(&["serve", "--config", "unhang.toml"]));
    server.initialize();
    server
}

/// What a tool answers, as data.
#[track_caller]
fn told(server: &mut Client, tool: &str, arguments: Value) -> Value {
    called(server, tool, arguments)["structuredContent"].clone()
}

/// Measures until the time is kept, and shows each.
#[track_caller]
pub(crate) fn keeps(what: &str, limit: Duration, mut measure: impl FnMut() -> Duration) {
    wait_until(what, PATIENCE, || {
        let took = measure();
        figure(&format!(
            "{what}: {:.1} ms; the contract allows {:.0} ms",
            took.as_secs_f64() * 1e3,
            limit.as_secs_f64() * 1e3
        ));
        took < limit
    });
}

#[test]
fn j_14_the_id_comes_within_a_tenth_of_a_second() {
    let jobs = Jobs::new();
    let mut server = served(&jobs);
    jobs.go();
    keeps("j_14: the id of a job", Duration::from_millis(100), || {
        let (started, took) = timed(|| told(&mut server, "slow", json!({})));
        assert!(started["job_id"].is_string(), "{started}");
        took
    });
    wait_until("all have ended", PATIENCE, || {
        told(&mut server, "get_system_status", json!({}))["jobs"] == json!([])
    });
    server.finish();
}

#[test]
fn j_15_five_polls_in_a_row_take_less_than_a_tenth_of_a_second_each() {
    let jobs = Jobs::new();
    let mut server = served(&jobs);
    let id = told(&mut server, "slow", json!({}))["job_id"].clone();
    keeps("j_15: the slowest of five polls of a running job", Duration::from_millis(100), || {
        let poll = || {
            let (status, took) = timed(|| told(&mut server, "get_job_status", json!({ "job_id": id })));
            assert_eq!(status["job_id"], id, "{status}");
            took
        };
        std::iter::repeat_with(poll).take(5).max().expect("five of them")
    });
    jobs.go();
    jobs.demand(0, &["job", "wait", id.as_str().expect("text")]);
    server.finish();
}

#[test]
fn j_120_the_state_is_there_in_a_twentieth_of_a_second() {
    let jobs = Jobs::new();
    let mut server = served(&jobs);
    jobs.go();
    let id = told(&mut server, "slow", json!({}))["job_id"].clone();
    jobs.demand(0, &["job", "wait", id.as_str().expect("text")]);
    keeps("j_120: the state with a job's result", Duration::from_millis(50), || {
        let (state, took) = timed(|| told(&mut server, "get_state", json!({ "field": "kept" })));
        assert_eq!(state["value"]["answer"], 42, "{state}");
        took
    });
    server.finish();
}

#[test]
fn j_31_how_many_jobs_may_run_can_be_changed_in_three_ways() {
    for (flags, variable, file, expect) in [
        (&["--max-concurrent", "7"][..], Some("5"), "max-concurrent = 3", 7),
        (&[], Some("5"), "max-concurrent = 3", 5),
        (&[], None, "max-concurrent = 3", 3),
    ] {
        let sandbox = Sandbox::with_jobs();
        let file = format!("[jobs]\n{file}\n[tools.a]\ncommand = [\"true\"]\n");
        fs::write(sandbox.path().join("unhang.toml"), file).expect("a file");
        let mut command = sandbox.unhang();
        command.args(["-v", "serve", "--config", "unhang.toml"]).args(flags);
        command.envs(variable.map(|number| ("UNHANG_MAX_CONCURRENT", number)));
        let (code, _, told) = run_to_end(command);
        assert_eq!(code, 0, "{told}");
        assert!(told.contains(&format!("INFO {expect} jobs may run at the same time")), "{told}");
    }
}

#[test]
fn j_155_the_record_names_the_job_from_before_its_start_until_after_its_end() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(&["--name", "named"], &["slow", "--gate", "go"]);
    let (shim, work) = jobs.processes(&id);
    let record = jobs.file(&id, "job.json").expect("it is there before the work");
    let command = json!([lab_program(), "zoo", "slow", "--gate", "go"]);
    assert_eq!(
        (&record["job_id"], &record["name"], &record["command"]),
        (&json!(id), &json!("named"), &command)
    );
    assert!(record["status"].is_string() && record["created_at"].is_string(), "{record}");
    let folder = jobs.sandbox.path().canonicalize().expect("it is there").display().to_string();
    assert_eq!(record["folder"], folder, "the work's folder");
    assert!(shim > 1 && work > 1, "run.json has both processes");
    jobs.go();
    let exit = jobs.end(&id);
    let record = jobs.file(&id, "job.json").expect("it stays");
    assert_eq!(record["status"], "completed", "j_35: {record}");
    assert!(record["started_at"].is_string() && record["ending"]["completed_at"].is_string(), "{record}");
    assert_eq!(record["ending"]["exit_code"], 0, "{exit}");
}

#[test]
fn j_80_a_list_has_the_jobs_and_how_many_may_run() {
    let jobs = Jobs::new();
    let mut server = served(&jobs);
    let none = told(&mut server, "list_jobs", json!({}));
    assert_eq!((&none["jobs"], &none["max_concurrent"]), (&json!([]), &json!(2)), "{none}");
    let id = told(&mut server, "slow", json!({}))["job_id"].clone();
    let one = told(&mut server, "list_jobs", json!({}));
    assert_eq!((&one["jobs"][0]["job_id"], &one["max_concurrent"]), (&id, &json!(2)), "{one}");
    jobs.go();
    jobs.demand(0, &["job", "wait", id.as_str().expect("text")]);
    server.finish();
}

#[test]
fn j_81_the_status_of_the_system_has_jobs_processor_and_memory() {
    let jobs = Jobs::new();
    let mut server = served(&jobs);
    let id = told(&mut server, "slow", json!({}))["job_id"].clone();
    let mut system = Value::Null;
    wait_until("it runs", PATIENCE, || {
        system = told(&mut server, "get_system_status", json!({}));
        system["running_jobs"] == 1
    });
    assert_eq!((&system["max_concurrent"], &system["jobs"][0]["job_id"]), (&json!(2), &id), "{system}");
    let of_machine =
        |member: &str| system["system"][member].as_f64().unwrap_or_else(|| panic!("no {member}: {system}"));
    assert!((0.0..=100.0).contains(&of_machine("cpu_percent")), "{system}");
    assert!((0.0..=100.0).contains(&of_machine("memory_percent")), "{system}");
    assert!(of_machine("memory_mb") > 0.0, "{system}");
    // F-72: the counts are those of the list.
    let count = |member: &str| system[member].as_u64();
    assert_eq!((count("running_commands"), count("running_calls")), (Some(1), Some(0)), "{system}");
    assert_eq!((count("queued_jobs"), count("slots_in_use")), (Some(0), Some(1)), "{system}");
    jobs.go();
    jobs.demand(0, &["job", "wait", id.as_str().expect("text")]);
    server.finish();
}

#[test]
fn j_136_a_refusal_for_want_of_memory_names_the_running_jobs() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(&[], &["slow", "--gate", "go"]);
    jobs.processes(&id);
    let folders = || fs::read_dir(jobs.sandbox.path().join("state/jobs")).expect("a folder").count();
    let before = folders();
    let (code, stdout, told) = jobs.run(&["job", "run", "--memory-limit", "1", "--", "true"]);
    assert!(code != 0 && stdout.is_empty(), "{code}: {stdout}");
    assert!(told.contains("of the memory is in use"), "{told}");
    assert!(told.contains("wait for running jobs to end") && told.contains(&id), "{told}");
    assert_eq!(folders(), before, "it leaves no folder");
    jobs.go();
    jobs.demand(0, &["job", "wait", &id]);
}

#[test]
fn j_156_a_sweep_touches_folders_alone_and_minds_none_that_is_gone() {
    let jobs = Jobs::new();
    let (gone, there) = (jobs.submit(&["--wait"], "true"), jobs.submit(&["--wait"], "true"));
    fs::remove_dir_all(jobs.folder(&gone)).expect("somebody was there before");
    let file = jobs.folder("note.txt");
    fs::write(&file, "mine").expect("the folder can be written");
    let (_, told) = jobs.demand(0, &["job", "prune", "--older-than", "1ms"]);
    assert!(!told.contains("cannot"), "{told}");
    assert_eq!(jobs.json(&["job", "list"]), json!([]));
    assert!(!jobs.folder(&there).exists());
    assert_eq!(fs::read_to_string(file).expect("it is not a folder"), "mine");
}

#[test]
fn g_10_prompts_confirmations_and_looks_for_a_terminal_find_nobody() {
    let jobs = Jobs::new();
    for (script, expect) in [
        ("printf 'name? '; read -r name; echo \"read ended with $?\"", "name? read ended with 1\n"),
        (
            "while printf 'sure? [y/n] '; do read -r sure || break; case $sure in y|n) exit 9;; esac; done; echo asked nobody",
            "sure? [y/n] asked nobody\n",
        ),
        ("for fd in 0 1 2; do [ -t $fd ] && echo \"$fd is a terminal\"; done; echo looked", "looked\n"),
    ] {
        let id = jobs.submit(&["--wait"], script);
        assert_eq!(jobs.log(&id, "stdout.log"), expect, "{script}");
    }
}

#[test]
fn l_08_a_reader_that_ends_with_its_server_is_no_error() {
    let sandbox = Sandbox::new();
    let mut wrap = sandbox.wrap(&["-v"], &["well-behaved"]);
    wrap.initialize();
    wrap.tool_text("echo", json!({ "text": "x" }));
    wrap.finish();
    let mut call = sandbox.unhang();
    call.args(["-v", "call", "echo", "text=x", "--", lab_program(), "zoo", "well-behaved"]);
    let (code, _, told) = run_to_end(call);
    assert_eq!(code, 0, "{told}");
    for told in [wrap.stderr(), told] {
        assert!(!told.contains(" ERROR ") && !told.contains(" WARN "), "{told}");
    }
}

#[test]
fn l_09_a_server_is_ready_when_it_has_answered_and_nobody_sleeps_for_it() {
    const LIMIT: Duration = Duration::from_secs(10);
    let sandbox = Sandbox::new();
    for words in [&["well-behaved"][..], &["slow-start", "300"]] {
        let mut command = sandbox.unhang();
        command
            .args(["-v", "call", "echo", "text=x", "--start-timeout", "10s", "--", lab_program(), "zoo"])
            .args(words);
        let ((code, _, told), took) = timed(|| run_to_end(command));
        assert!(code == 0 && took < LIMIT, "{took:?}: {told}");
        assert!(told.contains("`unhang-lab` is ready after "), "{told}");
    }
}

#[test]
fn l_71_a_server_out_of_npm_gets_its_token_and_nobody_else_sees_it() {
    const TOKEN: &str = "xoxb-1234-secret";
    let sandbox = Sandbox::new();
    let bin = sandbox.path().join("bin");
    fs::create_dir(&bin).expect("a folder");
    // npx stands for itself: what it is asked for and given is what counts here, and the registry is not everywhere.
    let npx =
        format!("#!/bin/sh\necho \"$* $SLACK_BOT_TOKEN\" > asked\nexec {} zoo well-behaved\n", lab_program());
    write_program(&bin.join("npx"), &npx);
    let file = "[servers.slack]\ncommand = \"npx\"\nargs = [\"-y\", \"@modelcontextprotocol/server-slack\"]\n\
                env = { SLACK_BOT_TOKEN = \"${SLACK_BOT_TOKEN}\" }\n";
    fs::write(sandbox.path().join("unhang.toml"), file).expect("a file");
    let mut command = sandbox.unhang();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    command.args(["-v", "call", "--config", "unhang.toml", "slack", "echo", "text=x"]);
    command.env("PATH", path).env("SLACK_BOT_TOKEN", TOKEN);
    let (code, stdout, told) = run_to_end(command);
    assert_eq!(code, 0, "{told}");
    let asked = fs::read_to_string(sandbox.path().join("asked")).expect("npx was started");
    assert_eq!(asked, format!("-y @modelcontextprotocol/server-slack {TOKEN}\n"));
    assert!(!stdout.contains(TOKEN) && !told.contains(TOKEN), "{told}");
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn g_24_cursor_is_a_client_by_name_and_windows_a_platform_by_name() {
    assert!(CLOCKS.iter().any(|clock| clock.client == "Cursor" && clock.name == "cursor"));
    let refusal = include_str!("../../../proc/src/lib.rs");
    assert!(refusal.contains("#[cfg(windows)]\ncompile_error!(") && refusal.contains("a Windows port needs"));
}
