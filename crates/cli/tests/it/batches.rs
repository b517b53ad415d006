//! `unhang batch`: one request a line in, one outcome a line out, whatever ends it (C-28 to C-35).

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Sandbox, lab_program, peak_memory, run_to_end, wait_until};

/// `unhang batch WORDS -- unhang-lab zoo PROGRAM…`.
fn batch(sandbox: &Sandbox, words: &[&str], faulty_server: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.arg("batch").args(words).args(["--", lab_program(), "zoo"]).args(faulty_server);
    command
}

/// A file with these lines.
fn lines(sandbox: &Sandbox, lines: impl IntoIterator<Item = Value>) -> PathBuf {
    let path = sandbox.path().join("in.jsonl");
    let text: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, text).expect("a file");
    path
}

fn echo(number: usize) -> Value {
    json!({ "tool": "echo", "arguments": { "text": number.to_string() } })
}

/// The outcomes by their lines.
fn outcomes(text: &str) -> HashMap<u64, Value> {
    let read = |line: &str| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let all: Vec<Value> = text.lines().map(read).collect();
    let by_line: HashMap<u64, Value> =
        all.iter().map(|outcome| (outcome["line"].as_u64().expect("a number"), outcome.clone())).collect();
    assert_eq!(by_line.len(), all.len(), "each once: {text}");
    by_line
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn every_line_has_its_outcome_and_a_wrong_one_stops_no_other() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("in.jsonl");
    let mut input: String = (0..50).map(|number| format!("{}\n", echo(number))).collect();
    input.push_str("\n{\n{\"id\":\"x\",\"tool\":\"fail\",\"arguments\":{\"text\":\"no\"}}\n{\"id\":7,\"uri\":\"nowhere:/x\"}\n");
    input.push_str("{\"server\":\"zzz\",\"tool\":\"echo\"}\n{\"tool\":5}\n{\"prompt\":\"greeting\"}");
    fs::write(&file, input).expect("a file");
    let (code, stdout, stderr) = run_to_end(batch(&sandbox, &[text(&file)], &["well-behaved"]));
    assert_eq!(code, 1, "{stderr}");
    let done = outcomes(&stdout);
    for number in 0..50_u64 {
        let outcome = &done[&(number + 1)];
        let expect = (&json!(true), &json!(number.to_string()));
        assert_eq!((&outcome["ok"], &outcome["result"]["content"][0]["text"]), expect, "{outcome}");
        assert!(outcome.get("id").is_none() && outcome["ms"].as_f64().is_some(), "{outcome}");
    }
    assert!(!done.contains_key(&51), "an empty line asks for nothing");
    for (line, kind, id) in [
        (52, "bad_line", Value::Null),
        (54, "server_error", json!(7)),
        (55, "no_such_server", Value::Null),
        (56, "bad_line", Value::Null),
    ] {
        let outcome = &done[&line];
        assert_eq!(
            (&outcome["ok"], &outcome["error"]["kind"], &outcome["id"]),
            (&json!(false), &json!(kind), &id),
            "{outcome}"
        );
    }
    let message = done[&52]["error"]["message"].as_str().expect("a sentence");
    assert!(message.starts_with("line 52: is not JSON"), "{message}");
    assert_eq!(
        (&done[&53]["ok"], &done[&53]["result"]["isError"], &done[&53]["id"]),
        (&json!(false), &json!(true), &json!("x"))
    );
    assert_eq!(done.len(), 56);
    let well = done.values().filter(|outcome| outcome["ok"] == true).count();
    assert!(stderr.ends_with(&format!("unhang: {well} ok, {} failed\n", 56 - well)), "{stderr}");
}

#[test]
fn all_being_well_is_exit_code_0_also_from_stdin() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(batch(&sandbox, &["-", "-j", "1"], &["well-behaved"]));
    for number in 0..3 {
        client.send(&echo(number).to_string());
        // One at a time and in order, and each as soon as it is done.
        let line = client.next_line(PATIENCE).expect("an outcome");
        let outcome: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(outcome["result"]["content"][0]["text"], number.to_string());
    }
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    assert_eq!(client.stderr_at_the_end(), "unhang: 3 ok, 0 failed\n");
}

#[test]
fn requests_run_side_by_side_and_no_more_than_are_asked_for() {
    let sandbox = Sandbox::new();
    let slow = (0..8).map(|_| json!({ "tool": "sleep", "arguments": { "ms": 1000 } }));
    let file = lines(&sandbox, slow);
    let took = |jobs: &str| {
        let (code, stdout, stderr) =
            run_to_end(batch(&sandbox, &[text(&file), "-j", jobs], &["well-behaved"]));
        assert_eq!(code, 0, "{stderr}");
        let ends: f64 =
            outcomes(&stdout).values().map(|outcome| outcome["ms"].as_f64().expect("a number")).sum();
        assert!(ends >= 8000.0, "{stdout}");
    };
    let (_, all_at_once) = crate::harness::timed(|| took("8"));
    let (_, in_fours) = crate::harness::timed(|| took("2"));
    assert!(
        all_at_once < Duration::from_secs(4) && in_fours >= Duration::from_secs(4),
        "{all_at_once:?} {in_fours:?}"
    );
}

#[test]
fn resume_goes_on_where_an_earlier_run_was_stopped() {
    let sandbox = Sandbox::new();
    let file = lines(&sandbox, (0..10).map(echo));
    let out = sandbox.path().join("out.jsonl");
    // Two of them done, one of them not well, and the last line torn.
    fs::write(&out, "{\"line\":1,\"ok\":true,\"kept\":1}\n{\"line\":2,\"ok\":false}\n{\"line\":3,\"ok\":true}\n{\"line\":4,\"o").expect("a file");
    let words = [text(&file), "--resume", text(&out)];
    let (code, stdout, stderr) = run_to_end(batch(&sandbox, &words, &["well-behaved"]));
    assert_eq!((code, &*stdout), (0, ""), "{stderr}");
    assert_eq!(stderr, "unhang: 8 ok, 0 failed, 2 done before\n");
    let written = fs::read_to_string(&out).expect("it is there");
    assert!(written.starts_with("{\"line\":1,\"ok\":true,\"kept\":1}\n{\"line\":2,\"ok\":false}\n{\"line\":3,\"ok\":true}\n{\"line\":"), "{written}");
    let well = written
        .lines()
        .filter(|line| serde_json::from_str::<Value>(line).expect("JSON")["ok"] == true)
        .count();
    assert_eq!(well, 10);
    let (code, _, stderr) = run_to_end(batch(&sandbox, &words, &["well-behaved"]));
    assert_eq!((code, &*stderr), (0, "unhang: 0 ok, 0 failed, 10 done before\n"));
}

/// A batch in which the first is done and the second never is.
fn stuck(sandbox: &Sandbox, words: &[&str]) -> Client {
    let never = json!({ "tool": "sleep", "arguments": { "ms": 3_600_000 } });
    let file = lines(sandbox, [echo(0), never.clone(), never, echo(3)]);
    Client::start(batch(sandbox, &[&[text(&file), "-j", "2"], words].concat(), &["well-behaved"]))
}

#[test]
fn c_30_an_abort_cleans_up_tells_what_was_done_and_can_be_gone_on_from() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let sandbox = Sandbox::new();
        let out = sandbox.path().join("out.jsonl");
        let mut client = stuck(&sandbox, &["--resume", text(&out)]);
        wait_until("the first is done", PATIENCE, || fs::read(&out).is_ok_and(|text| text.ends_with(b"\n")));
        client.signal(signal);
        assert_eq!(client.exit_code(), code, "{}", client.stderr());
        let told = client.stderr_at_the_end();
        assert!(told.contains("unhang: 1 ok, 0 failed, 3 not done\n"), "{told}");
        sandbox.assert_nothing_left_within(Duration::from_secs(3));
        let file = lines(&sandbox, (0..4).map(echo));
        let (code, _, stderr) =
            run_to_end(batch(&sandbox, &[text(&file), "--resume", text(&out)], &["well-behaved"]));
        assert_eq!((code, &*stderr), (0, "unhang: 3 ok, 0 failed, 1 done before\n"));
    }
}

#[test]
fn an_abort_tells_what_was_begun_where_nobody_knows_how_much_there_is() {
    let sandbox = Sandbox::new();
    let mut client = Client::start(batch(&sandbox, &["-"], &["well-behaved"]));
    client.send(&json!({ "tool": "sleep", "arguments": { "ms": 3_600_000 } }).to_string());
    client.send(&echo(0).to_string());
    assert!(client.next_line(PATIENCE).expect("an outcome").contains("\"line\":2,\"ok\":true"));
    client.signal(Signal::INT);
    assert_eq!(client.exit_code(), 130);
    let told = client.stderr_at_the_end();
    assert!(told.contains("unhang: 1 ok, 0 failed, 1 begun but not done\n"), "{told}");
}

#[test]
fn c_34_the_batch_has_a_limit_only_where_one_is_given() {
    let sandbox = Sandbox::new();
    let mut client = stuck(&sandbox, &["--timeout", "2s"]);
    assert_eq!(client.exit_code(), 4, "{}", client.stderr());
    let told = client.stderr_at_the_end();
    assert!(
        told.contains("the batch was not done within 2s") && told.contains("1 ok, 0 failed, 3 not done"),
        "{told}"
    );
    let mut client = stuck(&sandbox, &["--call-timeout", "300ms"]);
    assert_eq!(client.exit_code(), 1, "{}", client.stderr());
    assert_eq!(client.stderr_at_the_end(), "unhang: 2 ok, 2 failed\n", "each has its own limit");
}

#[test]
fn fail_fast_stops_at_the_first_that_fails() {
    let sandbox = Sandbox::new();
    let fail = json!({ "tool": "fail", "arguments": { "text": "no" } });
    let file = lines(&sandbox, [echo(0), fail].into_iter().chain((2..100).map(echo)));
    let (code, stdout, stderr) =
        run_to_end(batch(&sandbox, &[text(&file), "-j", "1", "--fail-fast"], &["well-behaved"]));
    assert_eq!((code, stdout.lines().count()), (1, 2), "{stdout}");
    assert_eq!(stderr, "unhang: 1 ok, 1 failed, 98 not done\n");
}

#[test]
fn a_blank_line_is_not_called_undone() {
    let sandbox = Sandbox::new();
    let file = sandbox.path().join("in.jsonl");
    let fail = json!({ "tool": "fail", "arguments": { "text": "no" } });
    fs::write(&file, format!("{fail}\n\n \t\n{}\n\n", echo(0))).expect("a file");
    let words = [text(&file), "-j", "1", "--fail-fast"];
    let (code, _, stderr) = run_to_end(batch(&sandbox, &words, &["well-behaved"]));
    assert_eq!((code, &*stderr), (1, "unhang: 0 ok, 1 failed, 1 not done\n"));
}

#[test]
fn a_server_that_dies_in_the_middle_fails_what_it_had_and_is_started_again() {
    let sandbox = Sandbox::new();
    let die = json!({ "tool": "die", "arguments": { "code": 3 } });
    let file = lines(&sandbox, [echo(0), die, echo(2)]);
    let (code, stdout, stderr) = run_to_end(batch(&sandbox, &[text(&file), "-j", "1"], &["well-behaved"]));
    assert_eq!(code, 1, "{stderr}");
    let done = outcomes(&stdout);
    assert_eq!(
        (&done[&1]["ok"], &done[&2]["error"]["kind"], &done[&3]["ok"]),
        (&json!(true), &json!("server_exited"), &json!(true))
    );
}

#[test]
fn c_76_memory_stays_flat_over_a_hundred_thousand_lines() {
    let sandbox = Sandbox::new();
    let peak = |count: usize| {
        let file = lines(&sandbox, (0..count).map(echo));
        // It waits for more at the end, so that we can look at it.
        let mut client = Client::start(batch(&sandbox, &["-", "-j", "32"], &["well-behaved"]));
        let input = fs::read(file).expect("the file");
        client.write(&input).expect("it reads");
        for _ in 0..count {
            assert!(client.next_line(PATIENCE).is_some(), "{}", client.stderr());
        }
        let peak = peak_memory(client.pid()).expect("it lives");
        client.close_stdin();
        assert_eq!(client.exit_code(), 0);
        peak
    };
    let (few, many) = (peak(1_000), peak(100_000));
    crate::harness::figure(&format!("peak memory: {few} bytes with 1,000 lines, {many} with 100,000"));
    assert!(many < few + (4 << 20), "{few} {many}");
}

#[test]
fn what_cannot_be_used_is_told_before_anything_starts() {
    let sandbox = Sandbox::new();
    let file = lines(&sandbox, [echo(0)]);
    for (words, expect) in [
        (&["nowhere.jsonl"][..], "nowhere.jsonl cannot be used: No such file"),
        (&[text(&file), "--resume", "/nowhere/out"], "/nowhere/out cannot be used"),
        (&[text(&file), "-j", "0"], "write a whole number from 1 to 1000"),
    ] {
        let (code, _, stderr) = run_to_end(batch(&sandbox, words, &["well-behaved"]));
        assert!(code == 2 && stderr.contains(expect), "{words:?}: {code} {stderr}");
    }
    // The configuration is read once, before the first line.
    fs::write(sandbox.path().join("unhang.toml"), "[servers.x]\ncommand = 5\n").expect("a file");
    let mut command = sandbox.unhang();
    command.args(["batch", text(&file)]).current_dir(sandbox.path());
    let (code, stdout, stderr) = run_to_end(command);
    assert!(code == 2 && stdout.is_empty() && stderr.contains("unhang.toml:2:"), "{code} {stdout} {stderr}");
    // Nobody reading is a quiet end.
    let (mut client, unread) = Client::start_unread(batch(&sandbox, &[text(&file)], &["well-behaved"]));
    drop(unread);
    assert_eq!(client.exit_code(), 0);
}

#[test]
fn a_file_that_holds_no_outcomes_is_not_added_to() {
    let sandbox = Sandbox::new();
    let file = lines(&sandbox, [echo(0)]);
    let other = sandbox.path().join("other.toml");
    fs::write(&other, "[servers.x]\ncommand = \"true\"").expect("a file");
    let link = sandbox.path().join("link.jsonl");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    for (out, expect) in [
        (&file, "is the file of the requests"),
        (&link, "is the file of the requests"),
        (&other, "does not have outcomes of a batch"),
        (&sandbox.path().to_owned(), "is not a regular file"),
    ] {
        let before = fs::read(out).ok();
        let (code, stdout, stderr) =
            run_to_end(batch(&sandbox, &[text(&file), "--resume", text(out)], &["well-behaved"]));
        assert_eq!((code, &*stdout), (2, ""), "{}: {stderr}", out.display());
        assert!(stderr.contains(expect), "{}: {stderr}", out.display());
        assert_eq!(fs::read(out).ok(), before, "{}: it is as it was", out.display());
    }
    // One that a run was ended in before its first outcome was whole.
    for begun in ["", "{\"line\":1,\"ok\":tr", "{\"id\":\"a\",\"li"] {
        let out = sandbox.path().join("out.jsonl");
        fs::write(&out, begun).expect("a file");
        let (code, _, stderr) =
            run_to_end(batch(&sandbox, &[text(&file), "--resume", text(&out)], &["well-behaved"]));
        assert_eq!((code, &*stderr), (0, "unhang: 1 ok, 0 failed\n"), "{begun}");
    }
}
