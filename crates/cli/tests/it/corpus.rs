//! `unhang-lab zoo run`: that a handful of cases tells the three well-known contenders apart, and that nothing of it is left.
//! The whole corpus is a step of the chores.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Sandbox, lab_program, run_to_end, wait_until};

/// One of each kind, and which of no wrapper, the naive pump and unhang keep it.
const HANDFUL: [(&str, [bool; 3]); 6] = [
    ("honest-call", [true, true, true]),
    ("two-answers", [false, false, true]),
    ("log-lines", [false, false, true]),
    ("own-output", [false, true, true]),
    ("killed-while-deaf", [true, false, true]),
    ("back-after-death", [false, false, true]),
];

/// Runs the corpus, and returns exit code, stdout and stderr.
#[track_caller]
fn run(sandbox: &Sandbox, words: &[&str]) -> (i32, String, String) {
    let mut command = sandbox.lab();
    command.args(["zoo", "run"]).args(words);
    run_to_end(command)
}

fn handful() -> String {
    HANDFUL.map(|(name, _)| name).join(",")
}

#[test]
fn a_handful_of_cases_tells_the_three_contenders_apart() {
    let sandbox = Sandbox::new();
    let only = handful();
    let words = ["--check", "--output", "json", "--patience", "10s", "--only", &only];
    let (code, text, stderr) = run(&sandbox, &words);
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    for (name, contenders) in HANDFUL {
        let cases = report["cases"].as_array().expect("cases");
        let case = cases.iter().find(|case| case["name"] == name).expect("the case was run");
        let verdicts = case["verdicts"].as_array().expect("verdicts");
        assert_eq!(verdicts.len(), contenders.len());
        for (verdict, keeps) in verdicts.iter().zip(contenders) {
            assert_eq!(verdict["verdict"], if keeps { "kept" } else { "broken" }, "{case:#}");
            assert_eq!(verdict["ought_to_be_kept"], keeps, "{case:#}");
            assert_eq!(verdict["reason"].is_null(), keeps, "{case:#}");
        }
    }
    let kept: Vec<_> =
        report["contenders"].as_array().expect("contenders").iter().map(|one| one["kept"].clone()).collect();
    assert_eq!(kept, [json!(2), json!(2), json!(6)]);
    sandbox.assert_nothing_left();
}

#[test]
fn a_wrapper_of_ones_own_gets_its_score_and_its_reasons() {
    let sandbox = Sandbox::new();
    let unhang = env!("CARGO_BIN_EXE_unhang");
    let two = ["--only", "honest-call,two-answers", "--"];
    let (code, text, stderr) = run(&sandbox, &[&two[..], &[unhang, "wrap", "--"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{text}");
    assert!(text.contains("the wrapper 2 of 2"), "{text}");
    let (code, text, stderr) =
        run(&sandbox, &[&two[..], &[lab_program(), "zoo", "naive-pump", "--"]].concat());
    assert_eq!((code, stderr.as_str()), (1, ""), "{text}");
    assert!(text.contains("BROKEN: request 2 was answered twice"), "{text}");
    assert!(text.contains("the wrapper 1 of 2"), "{text}");
    sandbox.assert_nothing_left();
}

#[test]
fn a_wrapper_that_is_none_is_told_apart_from_one_that_breaks_promises() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = run(&sandbox, &["--", "ls", "--no-such-flag"]);
    assert_eq!((code, text.as_str()), (3, ""), "{stderr}");
    assert!(stderr.contains("`ls --no-such-flag`") && stderr.contains("exited with 2"), "{stderr}");
    let (code, _, stderr) = run(&sandbox, &["--", "/no/such/wrapper"]);
    assert!(code == 3 && stderr.contains("starting `/no/such/wrapper`"), "{stderr}");
    let (code, _, stderr) = run(&sandbox, &["--only", "unicorn"]);
    assert!(code == 2 && stderr.contains("`unicorn`"), "{stderr}");
    let (code, text, stderr) = run(&sandbox, &["--check", "--only", "killed", "--promise", "1"]);
    assert_eq!((code, text.as_str()), (2, ""), "a check of nothing: {stderr}");
    sandbox.assert_nothing_left();
}

#[test]
fn an_interrupt_ends_every_trial() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    // The server of this case outlives everything but SIGKILL.
    command.args(["zoo", "run", "--patience", "100s", "--only", "deaf-to-everything"]);
    let mut client = Client::start(command);
    let is_there =
        |sandbox: &Sandbox| sandbox.survivors().iter().any(|(_, words)| words.contains("ignores-everything"));
    wait_until("a server", PATIENCE, || is_there(&sandbox));
    client.signal(Signal::INT);
    assert_eq!(client.exit_code(), 130);
    sandbox.assert_nothing_left();
}
