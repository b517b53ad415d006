//! Under a limit of file sizes (`ulimit -f`) nobody is killed without a word, the limit is named, and nothing partial is left.

use std::{fs, path::Path, process::Command};

use serde_json::json;

use crate::{
    apart::beside,
    harness::{Client, run_to_end},
    jobs::Jobs,
};

/// Too little for anything. The unit of `ulimit -f` is 512 or 1024 bytes.
const TINY: &str = "4";
/// Enough for the database.
const SMALL: &str = "20480";
/// More than that, in bytes.
const LARGE: usize = 24 << 20;

/// The same command, with every file limited.
fn limited(command: &Command, limit: &str) -> Command {
    let mut limited = beside(command, "sh");
    limited.args(["-c", "ulimit -f \"$1\"; shift; exec \"$@\"", "sh", limit]);
    limited.arg(command.get_program()).args(command.get_args());
    limited
}

#[track_caller]
fn refused(jobs: &Jobs, limit: &str, words: &[&str]) {
    let (code, stdout, stderr) = run_to_end(limited(&jobs.command(words), limit));
    assert_eq!((code, stdout.as_str()), (1, ""), "{words:?}: {stderr}");
    assert!(stderr.contains("`ulimit -f` limits the size of files to"), "{words:?}: {stderr}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    entries.map(|name| name.to_string_lossy().into_owned()).collect()
}

#[test]
fn f_95_where_no_database_fits_a_job_is_refused_and_nothing_is_made() {
    let jobs = Jobs::new();
    let state = jobs.sandbox.path().join("state");
    let before = state.exists().then(|| names(&state));
    refused(&jobs, TINY, &["job", "run", "--", "true"]);
    refused(&jobs, TINY, &["job", "list"]);
    refused(&jobs, TINY, &["state", "set", "f", "1"]);
    assert_eq!(state.exists().then(|| names(&state)), before);
}

#[test]
fn f_95_what_is_too_large_is_refused_with_the_limit_and_leaves_nothing() {
    let jobs = Jobs::new();
    let large = format!("\"{}\"", "x".repeat(LARGE));
    fs::write(jobs.sandbox.path().join("large.json"), large).expect("the sandbox can be written");
    refused(&jobs, SMALL, &["job", "run", "--input", "large.json", "--", "true"]);
    refused(&jobs, SMALL, &["state", "set", "f", "@large.json"]);
    assert_eq!(names(&jobs.sandbox.path().join("state/jobs")), [""; 0]);
    assert_eq!(names(&jobs.sandbox.path().join("state/state")), [".lock"]);
}

/// What is started has the signals of a shell.
#[test]
fn f_95_jobs_and_servers_are_ended_by_the_limit_as_elsewhere() {
    let jobs = Jobs::new();
    let script = format!("exec head -c {LARGE} /dev/zero > large");
    let (code, _, stderr) =
        run_to_end(limited(&jobs.command(&["job", "run", "--wait", "--", "sh", "-c", &script]), SMALL));
    assert_eq!(code, 128 + 25, "SIGXFSZ: {stderr}");
    let mut guarded = Client::start(limited(&jobs.sandbox.wrap_command(&[], &["well-behaved"]), TINY));
    guarded.initialize();
    assert_eq!(guarded.tool_text("echo", json!({"text": "hello"})), "hello");
    guarded.finish();
}

#[test]
fn a_guard_under_too_small_a_limit_of_open_files_names_it() {
    let jobs = Jobs::new();
    let mut told = 0;
    for limit in ["10", "12", "14", "16", "18", "20", "22"] {
        let command = jobs.sandbox.wrap_command(&[], &["well-behaved"]);
        let mut limited = beside(&command, "sh");
        limited.args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh", limit]);
        limited.arg(command.get_program()).args(command.get_args());
        let (code, _, stderr) = run_to_end(limited);
        assert_ne!(code, 70, "{limit}: a limit is no bug of unhang: {stderr}");
        if code == 3 && stderr.contains("Too many open files") {
            assert!(stderr.contains("`ulimit -n` limits the number of open files to"), "{limit}: {stderr}");
            told += 1;
        }
    }
    assert!(told > 0, "one of them is too few");
}

/// The finding: "Serialization failed: … Too many open files", without a word of the limit.
#[test]
fn where_too_few_files_may_be_open_the_limit_is_named() {
    let jobs = Jobs::new();
    jobs.demand(0, &["job", "run", "--wait", "--", "true"]);
    let (mut told, mut accepted) = (0, 1);
    for limit in ["12", "14", "16", "18", "20", "22", "24"] {
        let command = jobs.command(&["job", "run", "--", "true"]);
        let mut limited = beside(&command, "sh");
        limited.args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh", limit]);
        limited.arg(command.get_program()).args(command.get_args());
        let (code, _, stderr) = run_to_end(limited);
        assert!(!stderr.contains("Serialization"), "{limit}: {stderr}");
        accepted += usize::from(code == 0);
        let left = names(&jobs.sandbox.path().join("state/jobs"));
        assert_eq!(left.len(), accepted, "{limit}: what was refused leaves nothing: {stderr}");
        if code != 0 && stderr.contains("Too many open files") {
            assert!(stderr.contains("`ulimit -n`"), "{limit}: {stderr}");
            told += 1;
        }
    }
    assert!(told > 0, "one of them is too few");
}

/// The finding: the job stayed `running`, and the queue behind it stood still.
#[test]
fn f_95_a_result_that_fits_into_no_state_ends_its_job_and_the_queue_goes_on() {
    let jobs = Jobs::new();
    let run = |words: &[&str]| {
        let (code, stdout, stderr) = run_to_end(limited(&jobs.command(words), SMALL));
        assert_eq!(code, 0, "{words:?}: {stderr}");
        stdout.trim_end().to_owned()
    };
    let large = jobs.sandbox.path().join("large.json");
    fs::write(&large, format!("\"{}\"", "x".repeat(LARGE))).expect("the sandbox can be written");
    // A link makes the file in the job's folder, since its own writes are limited too.
    let script = format!("ln '{}' \"$UNHANG_JOB_DIR/r.json\"", large.display());
    let flags =
        ["job", "run", "--max-concurrent", "1", "--result", "r.json", "--state", "big", "--", "sh", "-c"];
    let first = run(&[&flags[..], &[script.as_str()]].concat());
    let next = run(&["job", "run", "--max-concurrent", "1", "--", "true"]);
    run(&["job", "wait", &first]);
    run(&["job", "wait", &next]);
    let shown = jobs.json(&["job", "show", &first]);
    assert_eq!(shown["status"], "completed", "{shown}");
    assert!(shown.to_string().contains("`ulimit -f` limits the size of files to"), "{shown}");
}

/// The finding: the job said that unhang had ended before the answer came.
#[test]
fn f_95_an_answer_that_fits_into_no_file_fails_its_job_with_the_limit() {
    let jobs = Jobs::new();
    let guard = jobs.sandbox.wrap_command(&["--promote-after", "300ms"], &["slow-answers"]);
    let mut client = Client::start(limited(&guard, SMALL));
    client.initialize();
    client.tool_text("slow", json!({"seconds": 1.5, "size": LARGE}));
    let listed = jobs.json(&["job", "list"]);
    let id = listed[0]["job_id"].as_str().unwrap_or_else(|| panic!("no job: {listed}")).to_owned();
    jobs.run(&["job", "wait", &id]);
    let shown = jobs.json(&["job", "show", &id]).to_string();
    assert!(shown.contains("results_invalid"), "{shown}");
    assert!(shown.contains("`ulimit -f` limits the size of files to"), "{shown}");
    client.finish();
}
