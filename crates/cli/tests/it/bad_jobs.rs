//! What lies in a job's folder and was not left there by us, and commands that cannot be started: one clear outcome each.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, is_alive, signal, wait_until},
    jobs::{Jobs, UNTIL_GO},
    processes::entry,
};

/// Replaces a file of a job that nobody writes just now.
fn put(jobs: &Jobs, id: &str, name: &str, text: &str) {
    fs::write(jobs.folder(id).join(name), text).expect("the sandbox can be written");
}

/// Kills the shim of a running job, and its watcher first, so that it is left to the next unhang. Returns the pid of the work.
#[track_caller]
fn kill_shim(jobs: &Jobs, id: &str) -> i32 {
    let (shim, work) = jobs.processes(id);
    let watcher = entry(shim).expect("it runs").parent;
    assert_eq!(entry(watcher).expect("it runs").name, "mcp-job-watch");
    signal(watcher, Signal::KILL);
    wait_until("the watcher has gone", PATIENCE, || !is_alive(watcher));
    signal(shim, Signal::KILL);
    wait_until("the shim has gone", PATIENCE, || !is_alive(shim));
    work
}

#[test]
fn a_recycled_pid_is_nobody_we_know() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(&[], &["slow", "--gate", "go"]);
    let mut run = jobs.file(&id, "run.json").unwrap_or_default();
    wait_until("the work runs", PATIENCE, || {
        run = jobs.file(&id, "run.json").unwrap_or_default();
        run["work"].is_object()
    });
    let work = kill_shim(&jobs, &id);
    // A stranger has both pids now, and started at another time.
    let mut other = jobs.sandbox.bare(&["lingers"]);
    let pid = other.pid();
    wait_until("the stranger is itself", PATIENCE, || {
        entry(pid).is_some_and(|entry| entry.name == "unhang-lab")
    });
    for who in ["shim", "work"] {
        run[who]["pid"] = json!(pid);
    }
    put(&jobs, &id, "run.json", &run.to_string());
    let shown = jobs.json(&["job", "show", &id]);
    assert_eq!((&shown["status"], &shown["reason"]), (&json!("lost"), &json!("shim_killed")), "{shown}");
    assert!(other.is_running(), "a stranger was killed for having its pid");
    wait_until("the work has gone", PATIENCE, || !is_alive(work));
    drop(other);
}

/// Work that finds the way to our own files breaks its own job, and no other.
#[test]
fn f_01_a_damaged_lock_stops_no_command() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], "cd \"$UNHANG_JOB_DIR/..\"; rm lock; mkdir lock; kill -9 $PPID");
    jobs.demand(1, &["job", "wait", &id]);
    let listed = jobs.json(&["job", "list"]);
    assert_eq!((&listed[0]["job_id"], &listed[0]["status"]), (&json!(id), &json!("lost")), "{listed}");
    assert_eq!(jobs.json(&["job", "rebuild"])["jobs"], 1);
    jobs.demand(3, &["job", "run", "--wait", "--", "sh", "-c", "exit 3"]);
}

#[test]
fn damaged_orders_fail_their_job_and_no_other() {
    let jobs = Jobs::new();
    let flags = ["--max-concurrent", "1"];
    let first = jobs.submit(&flags, UNTIL_GO);
    jobs.processes(&first);
    let damaged = jobs.submit(&flags, "echo ran > ran");
    let last = jobs.submit(&flags, "true");
    let half = fs::read_to_string(jobs.folder(&damaged).join("launch.json")).expect("it is there");
    put(&jobs, &damaged, "launch.json", &half[..half.len() / 2]);
    // A copy for people, from which nothing is started.
    put(&jobs, &last, "job.json", &half[..half.len() / 2]);
    jobs.go();
    jobs.demand(1, &["job", "wait", &first, &damaged, &last]);
    let shown = jobs.json(&["job", "show", &damaged]);
    let told = (&shown["status"], &shown["reason"]);
    assert_eq!(told, (&json!("failed"), &json!("record_damaged")), "{shown}");
    assert!(shown["detail"].as_str().is_some_and(|detail| detail.contains("launch.json")), "{shown}");
    assert!(!jobs.sandbox.path().join("ran").exists());
    for id in [&first, &last] {
        assert_eq!(jobs.json(&["job", "show", id])["status"], "completed");
    }
}

#[test]
fn a_record_that_is_damaged_after_the_end_changes_nothing() {
    let jobs = Jobs::new();
    let (_, shown) = jobs.see_through(&[], &["exits-with", "3"]);
    let id = shown["job_id"].as_str().expect("an id");
    jobs.end(id);
    for name in ["job.json", "run.json", "exit.json"] {
        put(&jobs, id, name, "{\"format\": 1");
    }
    assert_eq!(jobs.json(&["job", "show", id])["exit_code"], 3);
    assert_eq!(jobs.json(&["job", "list", "--status", "failed"])[0]["job_id"], json!(id));
    let rebuilt = jobs.json(&["job", "rebuild"]);
    assert!(rebuilt["damaged"].to_string().contains(id), "{rebuilt}");
}

/// The work dies with its shim; what it has started does not, and nothing but the job's id leads there any more.
#[test]
fn a_damaged_run_file_of_a_killed_shim_is_lost_and_what_it_left_is_ended() {
    let jobs = Jobs::new();
    let marker = format!("{}-left", jobs.sandbox.marker());
    let id = jobs.submit_zoo(&[], &["slow", "--gate", "go", "--leaves", &marker]);
    let left = || jobs.sandbox.survivors().iter().filter(|(_, command)| command.contains("lingers")).count();
    wait_until("three generations", PATIENCE, || left() == 3);
    kill_shim(&jobs, &id);
    put(&jobs, &id, "run.json", "{\"format\": 1, \"shim\"");
    assert_eq!(left(), 3);
    let shown = jobs.json(&["job", "show", &id]);
    assert_eq!((&shown["status"], &shown["reason"]), (&json!("lost"), &json!("record_damaged")), "{shown}");
    assert_eq!(left(), 0);
}

#[test]
fn what_cannot_be_executed_is_no_job() {
    let jobs = Jobs::new();
    let path = |name: &str| jobs.sandbox.path().join(name);
    fs::write(path("plain"), "no program").expect("the sandbox can be written");
    fs::create_dir(path("folder")).expect("the sandbox can be written");
    for (command, said) in
        [("./plain", "plain"), ("./folder", "folder"), ("./nothing", "nothing"), ("", "not found")]
    {
        let (stdout, stderr) = jobs.demand(1, &["job", "run", "--", command]);
        assert!(stdout.is_empty() && stderr.contains(said), "{command}: {stderr}");
    }
    assert_eq!(jobs.json(&["job", "list"]), json!([]));
}

#[test]
fn what_disappears_while_the_job_waits_is_told_in_its_outcome() {
    let jobs = Jobs::new();
    let path = |name: &str| jobs.sandbox.path().join(name);
    let flags = ["--max-concurrent", "1"];
    let first = jobs.submit(&flags, UNTIL_GO);
    jobs.processes(&first);
    fs::create_dir(path("folder")).expect("the sandbox can be written");
    fs::copy("/bin/true", path("program")).expect("the sandbox can be written");
    let queued = |folder: &Path, program: &str| {
        let mut command = jobs.command(&["job", "run", "--max-concurrent", "1", "--", program]);
        command.current_dir(folder);
        let mut client = Client::start(command);
        let id = client.next_line(PATIENCE).expect("an id").trim_end().to_owned();
        client.finish();
        id
    };
    let ids =
        [(queued(&path("folder"), "true"), "folder"), (queued(jobs.sandbox.path(), "./program"), "program")];
    fs::remove_dir(path("folder")).expect("it is empty");
    fs::remove_file(path("program")).expect("it is there");
    jobs.go();
    for (id, said) in &ids {
        jobs.demand(1, &["job", "wait", id]);
        let shown: Value = jobs.json(&["job", "show", id]);
        let told = (&shown["status"], &shown["reason"]);
        assert_eq!(told, (&json!("failed"), &json!("start_failed")), "{shown}");
        assert!(shown["detail"].as_str().is_some_and(|detail| detail.contains(said)), "{said}: {shown}");
    }
}

/// The finding: such a job was completed, with a result that nobody could ever read.
#[test]
fn a_result_that_cannot_be_read_fails_its_job_with_the_reason() {
    let jobs = Jobs::new();
    let deep = "[".repeat(200) + &"]".repeat(200);
    for result in [deep.as_str(), "1e400", "{", "[18446744073709551616]"] {
        let script = format!("printf %s '{result}' > \"$UNHANG_JOB_DIR/r.json\"");
        let id = jobs.submit(&["--result", "r.json"], &script);
        jobs.demand(1, &["job", "wait", &id]);
        let shown = jobs.json(&["job", "show", &id]);
        assert_eq!(
            (&shown["status"], &shown["reason"]),
            (&json!("failed"), &json!("results_invalid")),
            "{shown}"
        );
        assert!(shown["detail"].to_string().contains("r.json"), "{shown}");
    }
}

#[test]
fn an_input_that_is_too_large_is_refused_with_the_limit() {
    let jobs = Jobs::new();
    let large = jobs.sandbox.path().join("large.bin");
    fs::File::create(&large).and_then(|file| file.set_len(65 << 20)).expect("the sandbox can be written");
    let (_, stderr) = jobs.demand(1, &["job", "run", "--input", "large.bin", "--", "true"]);
    assert!(stderr.contains("an input of a job has 64 MiB at most"), "{stderr}");
    assert!(!stderr.contains("damaged") && !stderr.contains("Serialization"), "{stderr}");
    assert_eq!(fs::read_dir(jobs.sandbox.path().join("state/jobs")).expect("a folder").count(), 0);
}
