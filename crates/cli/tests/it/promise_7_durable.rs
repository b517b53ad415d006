//! Promise 7: a job whose id was given out is never lost: it outlives whoever submitted it, and whoever waits for it.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::{
    harness::{Client, PATIENCE, is_alive, signal, wait_until},
    jobs::{Jobs, UNTIL_GO},
    processes::{command_line, entry},
};

#[test]
fn a_job_runs_to_its_end_when_its_submitter_has_gone() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], &format!("{UNTIL_GO} echo here; exit 7"));
    let (shim, work) = jobs.processes(&id);
    let names: Vec<_> = jobs.sandbox.survivors().iter().filter_map(|(pid, _)| entry(*pid)).collect();
    assert!(names.iter().all(|entry| entry.name != "unhang"), "no unhang runs: {names:?}");
    assert!(is_alive(shim) && is_alive(work));
    jobs.go();
    let exit = jobs.end(&id);
    assert_eq!((&exit["outcome"], &exit["exit_code"]), (&json!("failed"), &json!(7)));
    assert_eq!(fs::read_to_string(jobs.folder(&id).join("stdout.log")).expect("a log"), "here\n");
    let shown = jobs.json(&["job", "show", &id]);
    assert_eq!((&shown["status"], &shown["exit_code"]), (&json!("failed"), &json!(7)));
}

#[test]
fn whoever_waits_can_be_killed() {
    let jobs = Jobs::new();
    let submitter = Client::start(jobs.command(&["job", "run", "--wait", "--", "sh", "-c", UNTIL_GO]));
    let mut id = String::new();
    wait_until("a job", PATIENCE, || {
        let folder =
            fs::read_dir(jobs.sandbox.path().join("state/jobs")).into_iter().flatten().flatten().next();
        id = folder.map(|folder| folder.file_name().to_string_lossy().into_owned()).unwrap_or_default();
        !id.is_empty()
    });
    let (shim, work) = jobs.processes(&id);
    let waiting = ["wait", "logs"].map(|verb| match verb {
        "logs" => jobs.waiting(&["job", "logs", "-f", &id]),
        verb => jobs.waiting(&["job", verb, &id]),
    });
    for mut client in waiting.into_iter().chain([submitter]) {
        client.signal(Signal::KILL);
        assert_eq!(client.exit_code(), 137);
    }
    assert!(is_alive(shim) && is_alive(work));
    jobs.go();
    assert_eq!(jobs.end(&id)["outcome"], "completed");
    jobs.demand(0, &["job", "wait", &id]);
}

#[test]
fn a_job_whose_supervisor_was_killed_is_lost_and_never_completed() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], &format!("echo before; {UNTIL_GO} echo after"));
    let (shim, _) = jobs.processes(&id);
    let log = jobs.folder(&id).join("stdout.log");
    wait_until("its first line", PATIENCE, || fs::read(&log).is_ok_and(|text| text == b"before\n"));
    signal(shim, Signal::KILL);
    let (stdout, _) = jobs.demand(1, &["job", "wait", &id]);
    assert!(stdout.contains("\"lost\"") && stdout.contains("\"shim_killed\""), "{stdout}");
    jobs.go();
    wait_until("the end of its work", PATIENCE, || jobs.sandbox.survivors().is_empty());
    assert_eq!(jobs.json(&["job", "show", &id])["status"], "lost");
    assert!(jobs.demand(0, &["job", "logs", &id]).0.starts_with("before\n"));
}

/// By hand or by the kernel for want of memory: a shim cannot tell, and its watcher need not.
#[test]
fn f_96_a_killed_supervisor_keeps_neither_processes_nor_the_queue_though_no_unhang_runs() {
    let jobs = Jobs::new();
    let script = "(setsid sleep 3600 &); echo ready; exec sleep 3600";
    let first = jobs.submit(&["--max-concurrent", "1"], script);
    let second = jobs.submit(&["--max-concurrent", "1"], "echo next");
    let (shim, work) = jobs.processes(&first);
    let log = jobs.folder(&first).join("stdout.log");
    wait_until("its processes", PATIENCE, || fs::read(&log).is_ok_and(|text| text == b"ready\n"));
    assert!(jobs.file(&second, "run.json").is_none(), "the queue waits");
    signal(shim, Signal::KILL);
    let ends = [jobs.end(&first), jobs.end(&second)];
    assert_eq!(
        (&ends[0]["outcome"], &ends[0]["reason"], &ends[1]["outcome"]),
        (&json!("lost"), &json!("shim_killed"), &json!("completed"))
    );
    assert!(!is_alive(work));
    wait_until("the end of all", PATIENCE, || jobs.sandbox.survivors().is_empty());
}

#[test]
fn a_queue_drains_in_its_order_with_no_unhang_alive() {
    let jobs = Jobs::new();
    let script = |number: u32| format!("{UNTIL_GO} echo begin {number} >> marks; echo end {number} >> marks");
    let ids: Vec<String> =
        (0..6).map(|number| jobs.submit(&["--max-concurrent", "1"], &script(number))).collect();
    jobs.processes(&ids[0]);
    let running: Vec<_> = jobs.sandbox.survivors();
    assert!(
        running.iter().filter_map(|(pid, _)| entry(*pid)).all(|entry| entry.name != "unhang"),
        "{running:?}"
    );
    jobs.go();
    for id in &ids {
        assert_eq!(jobs.end(id)["outcome"], "completed");
    }
    let expect: String = (0..6).map(|number| format!("begin {number}\nend {number}\n")).collect();
    assert_eq!(fs::read_to_string(jobs.sandbox.path().join("marks")).expect("marks"), expect);
}

#[test]
fn forty_submitters_at_once_all_get_their_job() {
    let jobs = Jobs::new();
    let command = |number: u32| jobs.command(&["job", "run", "--", "echo", &number.to_string()]);
    let clients: Vec<Client> = (0..40).map(|number| Client::start(command(number))).collect();
    for mut client in clients {
        client.close_stdin();
        let code = client.exit_code();
        let stderr = client.stderr_at_the_end();
        assert_eq!((code, stderr.as_str()), (0, ""));
    }
    let listed = jobs.json(&["job", "list", "--limit", "1000"]);
    let ids: Vec<&str> =
        listed.as_array().expect("a list").iter().filter_map(|job| job["job_id"].as_str()).collect();
    assert_eq!(ids.len(), 40);
    let (_, stderr) = jobs.demand(0, &[&["job", "wait", "--timeout", "60s"], ids.as_slice()].concat());
    assert_eq!(stderr, "");
}

#[test]
fn what_sweeps_unhang_away_spares_the_jobs() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], &format!("{UNTIL_GO} :"));
    let (shim, _) = jobs.processes(&id);
    let (name, words) = (entry(shim).expect("it runs").name, command_line(shim));
    assert_eq!(name, "mcp-job");
    assert_eq!(words, ["mcp-job", "mcp-job", &id], "neither `pkill unhang` nor `pkill -f unhang` meets it");
    jobs.go();
    jobs.end(&id);
}

#[test]
fn a_result_is_in_the_state_although_nobody_waited() {
    let jobs = Jobs::new();
    let script = format!(
        "{UNTIL_GO} echo '{{\"digester\": {{\"volume\": 12.5}}}}' > \"$UNHANG_JOB_DIR/results.json\""
    );
    let id = jobs.submit(&["--result", "results.json", "--state", "plant=/digester"], &script);
    jobs.demand(6, &["state", "get", "plant"]);
    jobs.go();
    jobs.end(&id);
    assert_eq!(jobs.json(&["state", "get", "plant"]), json!({"volume": 12.5}));
    assert_eq!(jobs.json(&["job", "show", &id])["state_applied"], true);
}
