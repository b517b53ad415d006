//! `unhang batch --resume` knows lines by their ids, so that no two may have the same; and what else it cannot read is told before it begins.

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::harness::{Client, Sandbox, lab_program, run_to_end};

const TWICE: &str = "{\"tool\":\"echo\",\"arguments\":{\"text\":\"a\"},\"id\":\"dup\"}\n{\"tool\":\"fail\",\"arguments\":{\"text\":\"bad\"},\"id\":\"dup\"}\n";

fn batch(sandbox: &Sandbox, words: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.arg("batch").args(words).args(["--", lab_program(), "zoo", "well-behaved"]);
    command
}

fn file(sandbox: &Sandbox, text: &str) -> PathBuf {
    let path = sandbox.path().join("in.jsonl");
    fs::write(&path, text).expect("a file");
    path
}

#[test]
fn an_id_that_stands_in_two_lines_of_a_file_is_refused_before_anything_is_sent() {
    let sandbox = Sandbox::new();
    file(&sandbox, TWICE);
    for _ in 0..2 {
        let words = ["--resume", "out.jsonl", "-j1", "in.jsonl"];
        let (code, stdout, stderr) = run_to_end(batch(&sandbox, &words));
        assert_eq!((code, &*stdout), (2, ""), "{stderr}");
        assert!(stderr.contains("in.jsonl: the id \"dup\" is in line 1 and in line 2"), "{stderr}");
        assert!(!sandbox.path().join("out.jsonl").exists(), "nothing is begun");
    }
    // Without --resume nobody is confused by it.
    let (code, stdout, stderr) = run_to_end(batch(&sandbox, &["in.jsonl"]));
    assert_eq!((code, stdout.lines().count()), (1, 2), "{stderr}");
}

#[test]
fn an_id_that_comes_again_through_a_pipe_fails_each_time() {
    let sandbox = Sandbox::new();
    for before in ["unhang: 1 ok, 1 failed\n", "unhang: 0 ok, 1 failed, 1 done before\n"] {
        let mut client = Client::start(batch(&sandbox, &["--resume", "out.jsonl", "-j1", "-"]));
        client.write(TWICE.as_bytes()).expect("it reads");
        client.close_stdin();
        assert_eq!(client.exit_code(), 1, "{}", client.stderr());
        assert_eq!(client.stderr_at_the_end(), before);
    }
    let out = fs::read_to_string(sandbox.path().join("out.jsonl")).expect("outcomes");
    let last: Value = serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["id"], &last["line"], &last["ok"]), (&json!("dup"), &json!(2), &json!(false)));
    let message = last["error"]["message"].as_str().expect("a sentence");
    assert!(message.contains("the id \"dup\" is in line 1 and in line 2"), "{message}");
}

#[test]
fn a_folder_is_no_batch() {
    let sandbox = Sandbox::new();
    let path = sandbox.path().to_str().expect("text").to_owned();
    let (code, stdout, stderr) = run_to_end(batch(&sandbox, &[&path]));
    assert_eq!((code, &*stdout), (2, ""), "{stderr}");
    assert!(stderr.contains(&format!("{path} cannot be used: is a directory")), "{stderr}");
}

#[test]
fn a_number_that_does_not_fit_fails_its_line_alone() {
    let sandbox = Sandbox::new();
    file(
        &sandbox,
        "{\"id\":1,\"tool\":\"echo\",\"arguments\":{\"text\":\"a\",\"n\":12345678901234567890123}}\n{\"tool\":\"echo\",\"arguments\":{\"text\":\"12345678901234567890123\"}}\n",
    );
    let (code, stdout, stderr) = run_to_end(batch(&sandbox, &["-j1", "in.jsonl"]));
    assert_eq!((code, &*stderr), (1, "unhang: 1 ok, 1 failed\n"));
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let message = lines[0]["error"]["message"].as_str().expect("a sentence");
    assert!(message.contains("12345678901234567890123") && message.contains("as a text"), "{message}");
    assert_eq!(lines[1]["result"]["content"][0]["text"], "12345678901234567890123");
}

#[test]
fn a_pipe_without_a_writer_is_waited_for_as_long_as_a_server() {
    let sandbox = Sandbox::new();
    assert_eq!(run_to_end(sandbox.shell("mkfifo ff")).0, 0);
    let (code, stdout, stderr) = run_to_end(batch(&sandbox, &["ff", "--request-timeout", "1s"]));
    assert_eq!((code, &*stdout), (4, ""), "{stderr}");
    assert!(stderr.contains("ff could not be read to its end within 1s"), "{stderr}");
    let mut call = sandbox.unhang();
    call.args([
        "call",
        "echo",
        "--json",
        "@ff",
        "--call-timeout",
        "1s",
        "--",
        lab_program(),
        "zoo",
        "well-behaved",
    ]);
    let (code, stdout, stderr) = run_to_end(call);
    assert_eq!((code, &*stdout), (4, ""), "{stderr}");
    assert!(stderr.contains("ff could not be read to its end within 1s"), "{stderr}");
    // One that is written to is read.
    let line = "echo '{\"text\": \"through\"}' > ff & unhang call echo --json @ff --output text -- unhang zoo well-behaved";
    let (code, stdout, stderr) = run_to_end(sandbox.shell(line));
    assert_eq!((code, &*stdout), (0, "through\n"), "{stderr}");
}
