//! Whoever waits for a job that another process removes right after its end is told so, and does not wait for ever. So is whoever waits while
//! the whole data folder goes.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::{
    harness::{Client, PATIENCE, signal, wait_until},
    jobs::{Jobs, UNTIL_GO},
};

const SAYS: &str = "has ended, and it was removed";

/// Ends the job and removes it while this process sees nothing.
#[track_caller]
fn removed_behind(jobs: &Jobs, pid: i32, id: &str) {
    signal(pid, Signal::STOP);
    jobs.go();
    jobs.end(id);
    jobs.demand(0, &["job", "wait", id]);
    jobs.demand(0, &["job", "remove", id]);
    signal(pid, Signal::CONT);
}

#[test]
fn who_waits_for_a_job_that_is_removed_behind_its_back_is_told_so() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], UNTIL_GO);
    let mut waiter = jobs.waiting(&["job", "wait", &id]);
    removed_behind(&jobs, waiter.pid(), &id);
    assert_eq!(waiter.exit_code(), 6, "{}", waiter.stderr());
    assert!(waiter.stderr().contains(SAYS), "{}", waiter.stderr());
}

#[test]
fn run_wait_of_a_job_that_is_removed_behind_its_back_ends() {
    let jobs = Jobs::new();
    let mut waiter = jobs.waiting(&["job", "run", "--wait", "--", "sh", "-c", UNTIL_GO]);
    let id = waiter.next_line(PATIENCE).expect("an id").trim_end().to_owned();
    removed_behind(&jobs, waiter.pid(), &id);
    assert_eq!(waiter.exit_code(), 6, "{}", waiter.stderr());
    assert!(waiter.stderr().contains(SAYS), "{}", waiter.stderr());
}

#[test]
fn the_caller_of_a_child_tool_whose_job_is_removed_is_answered() {
    let jobs = Jobs::new();
    let file = format!(
        "[tools.child]\ncommand = [\"sh\", \"-c\", {}]\nmode = \"child\"\n",
        json!(format!("cd {}; {UNTIL_GO}", jobs.sandbox.path().display()))
    );
    fs::write(jobs.sandbox.path().join("unhang.toml"), file).expect("the sandbox can be written");
    let mut served = Client::start(jobs.command(&["serve"]));
    served.initialize();
    let call = served.call("child", json!({}));
    let mut id = None;
    wait_until("its job runs", PATIENCE, || {
        let entries = fs::read_dir(jobs.sandbox.path().join("state/jobs")).into_iter().flatten().flatten();
        id = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .find(|id| jobs.file(id, "job.json").is_some_and(|job| job["status"] == "running"));
        id.is_some()
    });
    removed_behind(&jobs, served.pid(), &id.expect("it was found"));
    let answer = served.answer(call)["result"].clone();
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(answer["content"][0]["text"].to_string().contains("has ended"), "{answer}");
    served.finish();
}

/// The finding: each of them waited for ever, and wrote four lines a second about a new database that was not there.
#[test]
fn who_waits_while_the_data_folder_is_moved_away_is_told_so_and_ends() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], UNTIL_GO);
    let mut short = jobs.waiting(&["job", "wait", &id, "--timeout", "2s"]);
    let mut runner = jobs.waiting(&["job", "run", "--wait", "--", "sh", "-c", UNTIL_GO]);
    let own = runner.next_line(PATIENCE).expect("an id").trim_end().to_owned();
    jobs.processes(&own);
    let mut waiter = jobs.waiting(&["job", "wait", &id]);
    let (state, away) = (jobs.sandbox.path().join("state"), jobs.sandbox.path().join("away"));
    fs::rename(&state, &away).expect("it can be moved");
    for (waiter, id) in [(&mut short, &id), (&mut waiter, &id), (&mut runner, &own)] {
        assert_eq!(waiter.exit_code(), 1, "{}", waiter.stderr());
        let told = waiter.stderr_at_the_end();
        let place = format!("the data folder {} has been gone for", state.display());
        for words in [&format!("job {id} cannot be followed any more"), &place, "UNHANG_HOME"] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert!(!told.contains("was replaced") && !told.contains("is running"), "{told}");
    }
    // What is advised helps.
    fs::rename(&away, &state).expect("it can be moved back");
    jobs.go();
    jobs.demand(0, &["job", "wait", &id, &own]);
    jobs.sandbox.assert_nothing_left_within(PATIENCE);
}

#[test]
fn who_waits_is_told_once_of_a_new_data_folder_in_the_place_of_the_old_one() {
    let jobs = Jobs::new();
    let id = jobs.submit(&[], UNTIL_GO);
    jobs.processes(&id);
    let mut waiter = jobs.waiting(&["job", "wait", &id]);
    let state = jobs.sandbox.path().join("state");
    signal(waiter.pid(), Signal::STOP);
    fs::rename(&state, jobs.sandbox.path().join("away")).expect("it can be moved");
    jobs.demand(0, &["job", "list"]);
    signal(waiter.pid(), Signal::CONT);
    assert_eq!(waiter.exit_code(), 6, "{}", waiter.stderr());
    let told = waiter.stderr_at_the_end();
    assert_eq!(told.matches("was replaced").count(), 1, "{told}");
    jobs.go();
    jobs.sandbox.assert_nothing_left_within(PATIENCE);
}
