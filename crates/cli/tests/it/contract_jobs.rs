//! The contract's own tests of jobs (J-138 to J-140), and what the code behind it was measured to get wrong (contract.md 3.2),
//! each with the sentence that told of it.
//!
//! Every command is a manager of its own here: it opens the data folder, does one thing and goes.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    contract_rows::keeps,
    harness::{Client, PATIENCE, figure, is_alive, lab_program, timed, wait_until},
    jobs::Jobs,
};

/// A server that offers two jobs of the zoo: `slow`, which waits for `go`, and `reads_stdin`.
fn served(jobs: &Jobs) -> Client {
    let program = lab_program();
    let tool = |name: &str, words: &str| {
        format!("[tools.{name}]\ncommand = [\"{program}\", \"zoo\", {words}]\nmode = \"job\"\n")
    };
    let file = tool("slow", "\"slow\", \"--gate\", \"go\"") + &tool("reads_stdin", "\"reads-stdin\"");
    fs::write(jobs.sandbox.path().join("unhang.toml"), file).expect("the sandbox can be written");
    let mut server = Client::start(jobs.command(&["serve"]));
    server.initialize();
    server
}

/// What a tool answers, as data.
fn told(server: &mut Client, tool: &str, arguments: Value) -> Value {
    let id = server.call(tool, arguments);
    server.answer(id)["result"]["structuredContent"].clone()
}

#[test]
fn j_138_t1_five_polls_of_a_running_job_answer_at_once() {
    let jobs = Jobs::new();
    let mut server = served(&jobs);
    let started = told(&mut server, "slow", json!({}));
    let id = started["job_id"].as_str().expect("an id");
    let poll = |server: &mut Client| told(server, "get_job_status", json!({"job_id": id}))["status"].clone();
    wait_until("it runs", PATIENCE, || poll(&mut server) == "running");
    keeps("j_138: the slowest of five polls by the tool", Duration::from_millis(100), || {
        let polls = std::iter::repeat_with(|| timed(|| poll(&mut server))).take(5);
        let took = polls.map(|(status, took)| {
            assert_eq!(status, "running");
            took
        });
        took.max().expect("five of them")
    });
    // A command starts a program first, which takes what the machine takes for it.
    let (shown, took) = timed(|| jobs.json(&["job", "show", id]));
    assert_eq!(shown["status"], "running");
    figure(&format!("j_138: a poll by a command: {:.1} ms", took.as_secs_f64() * 1e3));
    jobs.go();
    jobs.demand(0, &["job", "wait", id]);
    server.finish();
}

#[test]
fn j_139_t2_whoever_sees_completed_finds_the_state_with_its_parts() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(
        &["--result", "results.json", "--state", "simulation_results"],
        &["slow", "--gate", "go"],
    );
    jobs.processes(&id);
    jobs.go();
    wait_until("it completes", PATIENCE, || jobs.json(&["job", "show", &id])["status"] == "completed");
    let state = jobs.json(&["state", "get", "simulation_results"]);
    assert_eq!(state, json!({"answer": 42, "a/b": {"": 7}}));
    assert_eq!(jobs.json(&["job", "result", &id]), state);
}

#[test]
fn j_140_t3_a_new_manager_finds_the_job_of_one_that_was_killed() {
    let jobs = Jobs::new();
    let mut manager = Client::start(jobs.command(&Jobs::zoo(&["--wait"], &["slow", "--gate", "go"])));
    let id = manager.next_line(PATIENCE).expect("an id").trim_end().to_owned();
    jobs.processes(&id);
    manager.signal(Signal::KILL);
    assert_eq!(manager.exit_code(), 137);
    assert_eq!(jobs.json(&["job", "show", &id])["status"], "running");
    jobs.go();
    jobs.demand(0, &["job", "wait", &id]);
    assert_eq!(jobs.json(&["job", "show", &id])["status"], "completed");
}

/// "8 of 8 ran at once": the limit covered only the start.
#[test]
fn of_eight_jobs_three_run_at_once() {
    const LIMIT: usize = 3;
    let jobs = Jobs::new();
    let faulty_server = ["slow", "--gate", "go", "--tally", "tally"];
    let ids: Vec<_> = (0..8).map(|_| jobs.submit_zoo(&["--max-concurrent", "3"], &faulty_server)).collect();
    wait_until("three have begun", PATIENCE, || jobs.tally("tally").len() >= LIMIT);
    let listed = jobs.json(&["job", "list", "--max-concurrent", "3"]);
    let listed = listed.as_array().expect("a list");
    let mut positions: Vec<_> = listed.iter().filter_map(|job| job["queue_position"].as_u64()).collect();
    positions.sort_unstable();
    assert_eq!(positions, [0, 1, 2, 3, 4], "{listed:?}");
    assert_eq!(listed.iter().filter(|job| job["status"] == "running").count(), LIMIT, "8 of 8 ran at once");
    jobs.go();
    jobs.demand(
        0,
        &[&["job", "wait"], ids.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat(),
    );
    let (mut now, mut most, mut begun) = (0, 0, 0);
    for line in jobs.tally("tally") {
        if line == "begin" {
            (now, begun) = (now + 1, begun + 1);
        } else {
            now -= 1;
        }
        most = most.max(now);
    }
    assert_eq!((begun, now), (8, 0));
    assert_eq!(most, LIMIT, "{most} ran at once");
}

/// "50 completed jobs before, 0 after": each was judged anew by a process that had long gone.
#[test]
fn fifty_completed_jobs_are_fifty_after_a_restart_and_after_a_rebuild() {
    let jobs = Jobs::new();
    let ends = jobs.see_all_through(&vec![vec!["exits-with", "0"]; 50]);
    assert!(ends.iter().all(|(code, shown)| *code == 0 && shown["status"] == "completed"));
    let completed = || {
        let listed = jobs.json(&["job", "list", "--status", "completed", "--limit", "1000"]);
        listed.as_array().expect("a list").len()
    };
    assert_eq!(completed(), 50, "50 completed before");
    wait_until("the last shim has gone", PATIENCE, || jobs.sandbox.survivors().is_empty());
    for suffix in ["", "-wal", "-shm"] {
        let _may_be_missing = fs::remove_file(jobs.sandbox.path().join(format!("state/unhang.db{suffix}")));
    }
    jobs.json(&["job", "rebuild"]);
    assert_eq!(completed(), 50, "and 0 after");
}

/// "Of 40 instantly successful jobs, a poll right after exit reported 40 failed": it saw the end before the monitor did.
#[test]
fn of_forty_instantly_successful_jobs_no_poll_sees_one_failed() {
    let jobs = Jobs::new();
    for _ in 0..40 {
        let id = jobs.submit_zoo(&[], &["exits-with", "0"]);
        wait_until("it ends", PATIENCE, || {
            let shown = jobs.json(&["job", "show", &id]);
            let status = shown["status"].as_str().expect("a status");
            assert!(["queued", "starting", "running", "completed"].contains(&status), "40 failed: {shown}");
            status == "completed"
        });
    }
}

/// "A job that printed after the server was killed died on the broken pipe and left no result", and "missed updates are
/// replayed: cannot happen".
#[test]
fn a_job_goes_on_printing_when_its_starter_was_killed_and_its_result_is_not_missed() {
    let jobs = Jobs::new();
    let faulty_server = ["outlives-its-starter", "--pid-file", "starter"];
    let flags = ["--wait", "--result", "results.json"];
    let mut starter = Client::start(jobs.command(&Jobs::zoo(&flags, &faulty_server)));
    let id = starter.next_line(PATIENCE).expect("an id").trim_end().to_owned();
    jobs.processes(&id);
    let also = ["--result", "results.json", "--state", "plant=/answer"];
    let slow = jobs.submit_zoo(&also, &["slow", "--gate", "go"]);
    fs::write(jobs.sandbox.path().join("starter"), format!("{}\n", starter.pid()))
        .expect("it can be written");
    starter.signal(Signal::KILL);
    assert_eq!(starter.exit_code(), 137);
    jobs.go();
    let exit = jobs.end(&id);
    assert_eq!((&exit["outcome"], &exit["exit_code"]), (&json!("failed"), &json!(42)));
    assert_eq!(jobs.log(&id, "stdout.log"), "it lives\nit has died\n");
    assert_eq!(jobs.log(&id, "stderr.log"), "and nobody listens\n");
    assert_eq!(jobs.file(&id, "work/results.json"), Some(json!({"answer": 42})));
    jobs.end(&slow);
    assert_eq!(jobs.json(&["state", "get", "plant"]), json!(42), "the update was missed");
}

/// "A job that read a line got the client's `tools/list`": stdin was inherited.
#[test]
fn a_job_that_reads_takes_nothing_from_the_servers_client() {
    let jobs = Jobs::new();
    let mut server = served(&jobs);
    let started = told(&mut server, "reads_stdin", json!({}));
    let listed = server.request("tools/list", json!({}));
    assert!(server.answer(listed)["result"]["tools"].is_array(), "the job got the client's tools/list");
    let id = started["job_id"].as_str().expect("an id");
    jobs.demand(0, &["job", "wait", id]);
    assert_eq!(jobs.log(id, "stdout.log"), "0 bytes of stdin\n");
    server.finish();
}

/// "Terminate ends the work: the child of the child survived."
#[test]
fn cancelling_ends_the_child_of_the_child_of_the_child() {
    let jobs = Jobs::new();
    let marker = format!("{}-generations", jobs.sandbox.marker());
    let id = jobs.submit_zoo(&[], &["lingers", "--marker", &marker, "--sessions", "3"]);
    let generations = || {
        let all = jobs.sandbox.survivors();
        all.into_iter().filter(|(_, command)| command.contains("lingers")).collect::<Vec<_>>()
    };
    wait_until("four generations", PATIENCE, || generations().len() == 4);
    jobs.demand(0, &["job", "cancel", &id]);
    assert_eq!(generations(), [], "the child of the child survived");
    assert_eq!(jobs.json(&["job", "show", &id])["status"], "cancelled");
}

/// "Server stops on SIGTERM: still alive 1 s after": the handler terminated the jobs and swallowed the signal.
#[test]
fn sigterm_ends_the_one_who_waits_and_not_the_job() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(&[], &["slow", "--gate", "go"]);
    let (shim, work) = jobs.processes(&id);
    for mut manager in [jobs.waiting(&["job", "wait", &id]), served(&jobs)] {
        manager.signal(Signal::TERM);
        assert_eq!(manager.exit_code(), 143, "it swallowed the signal");
        assert!(is_alive(shim) && is_alive(work), "it ended the job");
    }
    jobs.go();
    jobs.demand(0, &["job", "wait", &id]);
}

/// "`/x/a~1b` fails (no unescaping); `/` returns the whole document in place of the member with the empty name."
#[test]
fn pointers_find_what_they_point_to() {
    let jobs = Jobs::new();
    jobs.go();
    for (pointer, found) in [
        ("/a~1b", Some(json!({"": 7}))),
        ("/a~1b/", Some(json!(7))),
        ("/", None),
        ("/a/b", None),
        ("", Some(json!({"answer": 42, "a/b": {"": 7}}))),
    ] {
        jobs.demand(0, &["state", "set", "field", "\"before\""]);
        let state = format!("field={pointer}");
        let (code, shown) =
            jobs.see_through(&["--result", "results.json", "--state", &state], &["slow", "--gate", "go"]);
        assert_eq!((code, &shown["state_applied"]), (0, &json!(found.is_some())), "{pointer}: {shown}");
        assert_eq!(jobs.json(&["state", "get", "field"]), found.unwrap_or(json!("before")), "{pointer}");
    }
}

#[test]
fn f_05_what_a_server_was_told_holds_for_all_while_it_has_the_folder_open() {
    let jobs = Jobs::new();
    let file = "[jobs]\nmax-concurrent = 1\nretention = \"30d\"\n";
    fs::write(jobs.sandbox.path().join("strict.toml"), file).expect("a file");
    let ended = jobs.submit(&["--wait"], "true");
    let server = |jobs: &Jobs| {
        let mut server = Client::start(jobs.command(&["serve", "--stdio", "--config", "strict.toml"]));
        server.initialize();
        told(&mut server, "list_jobs", json!({}));
        server
    };
    let mut strict = server(&jobs);
    let flags = &["--max-concurrent", "4"];
    let ids = [(); 3].map(|()| jobs.submit_zoo(flags, &["slow", "--gate", "go"]));
    let running = || {
        let all = jobs.json(&["job", "list", "--retention", "1ms"]);
        all.as_array().expect("jobs").iter().filter(|job| job["status"] == "running").count()
    };
    wait_until("the first runs", PATIENCE, || running() == 1);
    // The sweep of whoever comes with a shorter retention is over when that one ends.
    assert_eq!(jobs.json(&["job", "show", &ended])["status"], "completed");
    assert_eq!(running(), 1, "the others wait");
    strict.finish();
    // What it was told holds no more.
    jobs.submit_zoo(flags, &["slow", "--gate", "go"]);
    wait_until("as many run as those who sent them allow", PATIENCE, || running() == 4);
    wait_until("what is due is removed", PATIENCE, || {
        jobs.run(&["job", "show", &ended, "--retention", "1ms"]).0 == 6
    });
    jobs.go();
    let words: Vec<&str> = ["job", "wait"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    jobs.demand(0, &words);
}

#[test]
fn a_job_outlives_the_command_that_started_its_server() {
    let jobs = Jobs::new();
    let file = "[tools.long]\ncommand = [\"sleep\", \"600\"]\nmode = \"job\"\n";
    fs::write(jobs.sandbox.path().join("unhang.toml"), file).expect("the sandbox can be written");
    let program = env!("CARGO_BIN_EXE_unhang");
    jobs.demand(4, &["call", "long", "--call-timeout", "3s", "--", program, "serve"]);
    let listed = jobs.json(&["job", "list"]);
    let job = &listed[0];
    assert_eq!(job["status"], "running", "{listed}");
    jobs.demand(0, &["job", "cancel", job["job_id"].as_str().expect("an id")]);
    jobs.sandbox.assert_nothing_left_within(PATIENCE);
}
