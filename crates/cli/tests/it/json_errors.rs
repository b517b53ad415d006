//! With `--output json` what goes wrong is one JSON document on stderr, whoever found it.

use std::fs;

use serde_json::Value;

use crate::{
    harness::{Sandbox, lab_program, run_to_end},
    jobs::Jobs,
};

const UNHANG: &str = env!("CARGO_BIN_EXE_unhang");

#[test]
fn wrong_usage_is_json_where_json_was_asked_for() {
    let sandbox = Sandbox::new();
    for (words, expect) in [
        (
            &[
                "call",
                "echo",
                "text=a",
                "--call-timeout",
                "x",
                "--output",
                "json",
                "--",
                lab_program(),
                "zoo",
                "well-behaved",
            ][..],
            "--call-timeout",
        ),
        (&["job", "show", "--output", "json"], "<ID>"),
        (&["job", "list", "--limit", "0", "--output=json"], "from 1 to 1000"),
        (&["state", "set", "../x", "1", "--output", "json"], "../x"),
        (&["batch", "--output", "json"], "<FILE>"),
        (&["job", "--output", "json"], "requires a subcommand"),
    ] {
        let mut command = sandbox.unhang();
        command.args(words);
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, &*stdout), (2, ""), "{words:?}: {stderr}");
        let told: Value =
            serde_json::from_str(&stderr).unwrap_or_else(|error| panic!("{words:?}: {error}: {stderr}"));
        let error = &told["error"];
        let message = error["message"].as_str().expect("a sentence");
        assert!(message.contains(expect) && !message.contains("unhang: "), "{words:?}: {stderr}");
        let hint = error["data"]["hint"].as_str().expect("a hint");
        assert!(error["kind"] == "usage" && hint.contains("--help` says"), "{words:?}: {stderr}");
    }
}

#[test]
fn a_server_whose_jobs_go_on_has_left_nothing_behind() {
    for format in ["json", "text"] {
        let jobs = Jobs::new();
        let sandbox = &jobs.sandbox;
        fs::write(
            sandbox.path().join("u.toml"),
            "[tools.long]\ncommand = [\"sh\", \"-c\", \"sleep 300\"]\nmode = \"job\"\n",
        )
        .expect("a file");
        let mut command = sandbox.unhang();
        command.args(["call", "long", "--output", format, "--call-timeout", "2s"]);
        command.args(["--", UNHANG, "serve", "--own", "--config", "u.toml"]);
        let (code, _, stderr) = run_to_end(command);
        assert_eq!(code, 4, "{stderr}");
        assert!(!stderr.contains("processes behind"), "{stderr}");
        if format == "json" {
            let told: Value =
                serde_json::from_str(&stderr).unwrap_or_else(|error| panic!("{error}: {stderr}"));
            assert!(told["error"]["message"].is_string(), "{stderr}");
        }
        let job = jobs.json(&["job", "list"])[0].clone();
        assert_eq!(job["status"], "running", "{job}");
        jobs.demand(0, &["job", "cancel", job["job_id"].as_str().expect("an id")]);
    }
}

#[test]
fn what_a_server_leaves_behind_is_in_the_log_where_stderr_is_json() {
    let sandbox = Sandbox::new();
    let call = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(["call", "nosuch"]).args(words);
        command.args(["--", lab_program(), "zoo", "leaves-grandchild", "--marker", sandbox.marker()]);
        run_to_end(command)
    };
    let call_well = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(["call", "echo", "text=a"]).args(words);
        command.args(["--", lab_program(), "zoo", "leaves-grandchild", "--marker", sandbox.marker()]);
        run_to_end(command)
    };
    let (code, _, stderr) = call(&["--output", "json"]);
    assert_eq!(code, 6, "{stderr}");
    serde_json::from_str::<Value>(&stderr).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let (code, _, stderr) = call_well(&["--output", "json"]);
    assert_eq!((code, &*stderr), (0, ""));
    let logs = fs::read_dir(sandbox.path().join("state/logs")).expect("a log");
    let logged: String =
        logs.map(|entry| fs::read_to_string(entry.expect("a file").path()).expect("text")).collect();
    assert!(logged.contains("processes behind"), "{logged}");
    let (code, _, stderr) = call_well(&["--output", "text"]);
    assert!(code == 0 && stderr.contains("processes behind"), "{code} {stderr}");
}

#[test]
fn two_inputs_of_one_name_are_named_both() {
    let jobs = Jobs::new();
    for folder in ["a", "b"] {
        fs::create_dir(jobs.sandbox.path().join(folder)).expect("a folder");
        fs::write(jobs.sandbox.path().join(folder).join("in.json"), "{}").expect("a file");
    }
    let words = ["job", "run", "--input", "a/in.json", "--input", "b/in.json", "--", "true"];
    let (_, stderr) = jobs.demand(2, &words);
    assert!(stderr.contains("--input a/in.json and --input b/in.json: both would be `in.json`"), "{stderr}");
}

#[test]
fn a_data_folder_that_is_no_folder_is_called_so() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["job", "list"]).env("UNHANG_HOME", "/dev/null");
    let (code, _, stderr) = run_to_end(command);
    assert!(code == 2 && stderr.contains("/dev/null is not a folder"), "{code} {stderr}");
    assert!(!stderr.contains("chmod"), "{stderr}");
}

#[test]
fn what_is_not_there_and_was_never_trusted_cannot_be_distrusted() {
    let sandbox = Sandbox::new();
    let remove = |words: &[&str]| {
        let mut command = sandbox.unhang();
        command.args(["trust", "--remove"]).args(words);
        run_to_end(command)
    };
    let (code, stdout, stderr) = remove(&["typo.json"]);
    assert_eq!((code, &*stdout), (6, ""), "{stderr}");
    assert!(stderr.contains("there is no typo.json, and no consent for it"), "{stderr}");
    let (code, _, stderr) = remove(&["typo.json", "--output", "json"]);
    let told: Value = serde_json::from_str(&stderr).expect("JSON");
    assert_eq!((code, told["error"]["kind"].as_str()), (6, Some("no_project_file")), "{stderr}");
}
