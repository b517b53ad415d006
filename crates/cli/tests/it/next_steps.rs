//! What errors tell beside what happened: the true cause, who said what, and what to do next.

use std::{fs, process::Command};

use crate::{
    harness::{Client, Remote, Sandbox, lab_program, run_to_end},
    jobs::Jobs,
};

const UNHANG: &str = env!("CARGO_BIN_EXE_unhang");

/// Runs `unhang WORDS` to its end, demands an exit code, and returns stderr.
#[track_caller]
fn told(code: i32, mut command: Command, words: &[&str]) -> String {
    command.args(words);
    let (found, stdout, stderr) = run_to_end(command);
    assert_eq!((found, &*stdout), (code, ""), "{words:?}: {stderr}");
    stderr
}

#[test]
fn a_home_that_is_no_whole_path_is_not_called_unset() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.env_remove("UNHANG_HOME").env("HOME", "rel");
    let stderr = told(2, command, &["job", "list"]);
    assert!(
        stderr.contains("HOME is `rel`, which is not an absolute path") && !stderr.contains("neither"),
        "{stderr}"
    );
}

#[test]
fn lines_that_are_of_no_use_are_not_called_stdout_or_no_messages() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-wrong-ids"]);
    let words = ["call", &remote.url, "echo", "text=a", "--call-timeout", "1s"];
    let of_a_url = told(4, sandbox.unhang(), &words);
    let words =
        ["call", "echo", "text=a", "--max-message", "10B", "--", lab_program(), "zoo", "well-behaved"];
    let too_long = told(5, sandbox.unhang(), &words);
    for stderr in [of_a_url, too_long] {
        assert!(
            stderr.contains("it sent lines that unhang could not use, the last of them:\n  | "),
            "{stderr}"
        );
        assert!(!stderr.contains("stdout") && !stderr.contains("no messages"), "{stderr}");
    }
}

#[test]
fn a_scheme_may_be_written_in_upper_case() {
    let sandbox = Sandbox::new();
    let remote = Remote::start(&sandbox, &["http-well-behaved"]);
    let mut command = sandbox.unhang();
    command.args(["call", &remote.url.replacen("http://", "HTTP://", 1), "echo", "text=a"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert!(code == 0 && stdout.contains("\"a\""), "{code} {stdout} {stderr}");
}

#[test]
fn an_agent_is_pointed_to_its_own_tool_and_a_person_to_the_command() {
    let jobs = Jobs::new();
    fs::write(jobs.sandbox.path().join("u.toml"), "[tools.t]\ncommand = [\"true\"]\n").expect("a file");
    let ask = ["call", "get_job_results", "job_id=aaaaaaaaaaaa", "--output", "text", "--"];
    let words = [&ask[..], &[UNHANG, "serve", "--own", "--config", "u.toml"]].concat();
    let stderr = told(1, jobs.command(&[]), &words);
    assert!(stderr.contains("there is no job aaaaaaaaaaaa; list_jobs lists all jobs"), "{stderr}");
    let stderr = told(6, jobs.command(&[]), &["job", "show", "aaaaaaaaaaaa"]);
    assert!(stderr.contains("hint: `unhang job list` shows the jobs"), "{stderr}");
}

#[test]
fn whoever_types_json_is_told_of_output_json() {
    let sandbox = Sandbox::new();
    for words in
        ["tools", "servers", "ping", "job list", "state list", "batch in.jsonl", "trust --list", "login x"]
    {
        let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        let stderr = told(2, sandbox.unhang(), &words);
        assert!(stderr.contains("hint: write `--output json` for JSON"), "{words:?}: {stderr}");
    }
}

#[test]
fn a_value_that_is_wrong_is_told_with_what_it_belongs_to_and_what_is_right() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.env("UNHANG_QUIET", "maybe");
    let stderr = told(2, command, &["wrap", "--", "true"]);
    assert!(stderr.contains("UNHANG_QUIET: `maybe` is neither true nor false; write true, yes"), "{stderr}");
    for (words, expect) in [
        (
            &["call", "a", "b", "--call-timeout", "-5s"][..],
            "'-5s' for '--call-timeout <TIME>': `-5s` is not a length",
        ),
        (&["wrap", "--max-message", "-1MiB", "--", "true", "-5"], "'-1MiB' for '--max-message <SIZE>'"),
        (
            &["job", "list", "--limit", "-5"],
            "'-5' for '--limit <COUNT>': write a whole number from 1 to 1000",
        ),
    ] {
        let stderr = told(2, sandbox.unhang(), words);
        assert!(stderr.contains(expect), "{words:?}: {stderr}");
    }
}

#[test]
fn a_guard_without_its_server_says_what_to_do_to_a_person() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["wrap", "--eof-grace", "1s", "--", "/no/such/program"]);
    let mut guard = Client::start(command);
    guard.close_stdin();
    assert_eq!(guard.exit_code(), 3);
    let stderr = guard.stderr_at_the_end();
    assert!(
        stderr.contains("; check the command after `unhang wrap --` by running it in a terminal"),
        "{stderr}"
    );
}

#[test]
fn only_commands_that_people_know_are_suggested() {
    let sandbox = Sandbox::new();
    let stderr = told(2, sandbox.unhang(), &["tool"]);
    assert!(stderr.contains("'tools'") && !stderr.contains("zoo"), "{stderr}");
}

#[test]
fn the_help_of_a_batch_says_that_outcomes_are_json() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["batch", "--help"]);
    let (code, stdout, _) = run_to_end(command);
    let help = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(code == 0 && help.contains("outcomes are always lines of JSON"), "{help}");
}

#[test]
fn a_job_that_was_a_call_shows_no_empty_command() {
    let jobs = Jobs::new();
    let call =
        ["call", "slow", "seconds=1.5", "--", UNHANG, "wrap", "--name", "srv", "--promote-after", "300ms"];
    let mut command = jobs.command(&call);
    command.args(["--", lab_program(), "zoo", "slow-answers"]);
    let (code, _, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
    let (shown, _) = jobs.demand(0, &["job", "show", "last", "--output", "text"]);
    assert!(shown.contains("\nworks in") && !shown.contains("\ncommand"), "{shown}");
}
