//! What commands read, which may never come, and what they print to, which may take nothing.

use std::{fs, process::Command, time::Duration};

use rustix::process::Signal;

use crate::{
    harness::{Client, PATIENCE, Sandbox, lab_program, run_to_end, wait_until},
    jobs::Jobs,
};

/// How long the end of a command may take that waits for nothing but its input.
const SOON: Duration = Duration::from_secs(5);

/// `unhang WORDS -- unhang-lab zoo well-behaved`.
fn asking(sandbox: &Sandbox, words: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.args(words).args(["--", lab_program(), "zoo", "well-behaved"]);
    command
}

/// Makes a pipe with a name, to which nobody writes.
#[track_caller]
fn pipe(sandbox: &Sandbox) {
    let (code, _, stderr) = run_to_end(sandbox.shell("mkfifo pipe"));
    assert_eq!(code, 0, "{stderr}");
}

/// Waits until a process catches the signals that end it.
fn wait_until_it_hears(process: &Client) {
    wait_until("it hears of signals", PATIENCE, || {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
        let bit = |signal: Signal| 1 << (signal.as_raw() - 1);
        caught & bit(Signal::INT) != 0 && caught & bit(Signal::TERM) != 0
    });
}

#[test]
fn a_command_whose_input_does_not_come_ends_at_a_signal_and_has_started_nothing() {
    for words in [
        &["call", "echo", "--json", "-"][..],
        &["call", "echo", "--json", "@pipe"],
        &["batch", "pipe"],
        &["batch", "-", "--resume", "pipe"],
    ] {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let sandbox = Sandbox::new();
            pipe(&sandbox);
            if words.contains(&"--resume") {
                // It is refused before anything is read.
                let (code, _, stderr) = run_to_end(asking(&sandbox, words));
                assert!(code == 2 && stderr.contains("is not a regular file"), "{words:?}: {code} {stderr}");
                continue;
            }
            let mut command = Client::start(asking(&sandbox, words));
            wait_until_it_hears(&command);
            let alive = sandbox.survivors();
            assert!(alive.len() <= 1, "no server is needed yet: {alive:?}");
            command.signal(signal);
            assert_eq!(command.exit_code_within(SOON), code, "{words:?}: {}", command.stderr());
        }
    }
}

/// The command waits for a silent writer of stdin as long as for the writer of a pipe.
#[test]
fn json_from_stdin_is_waited_for_within_the_limit() {
    let sandbox = Sandbox::new();
    let words = ["call", "echo", "--json", "-", "--request-timeout", "500ms"];
    let mut command = Client::start(asking(&sandbox, &words));
    assert_eq!(command.exit_code_within(SOON), 4, "{}", command.stderr());
    let told = command.stderr_at_the_end();
    assert!(told.contains("stdin could not be read to its end within 500ms"), "{told}");
}

#[test]
fn json_that_is_too_long_is_refused_and_not_cut() {
    let sandbox = Sandbox::new();
    let script = "{ printf '{\"text\":\"hi\"}'; head -c 67108864 /dev/zero | tr '\\0' ' '; printf 'GARBAGE {'; } > big.json";
    let (code, _, stderr) = run_to_end(sandbox.shell(script));
    assert_eq!(code, 0, "{stderr}");
    let (code, stdout, stderr) = run_to_end(asking(&sandbox, &["call", "echo", "--json", "@big.json"]));
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(stderr.contains("big.json has more than 64 MiB"), "{stderr}");
}

#[test]
fn what_a_server_wrote_in_place_of_an_answer_is_shown() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["tools", "--output", "text", "--", "sh", "-c", "echo usage: foo [--bar]"]);
    let (code, _, stderr) = run_to_end(command);
    assert_ne!(code, 0, "{stderr}");
    assert!(stderr.contains("it sent lines that unhang could not use"), "{stderr}");
    assert!(stderr.contains("  | usage: foo [--bar]"), "{stderr}");
}

#[test]
fn the_limit_of_a_batch_counts_while_its_file_does_not_come() {
    let sandbox = Sandbox::new();
    pipe(&sandbox);
    let mut command = Client::start(asking(&sandbox, &["batch", "--timeout", "500ms", "pipe"]));
    assert_eq!(command.exit_code_within(SOON), 4, "{}", command.stderr());
    let told = command.stderr_at_the_end();
    assert!(told.contains("the batch was not done within 500ms"), "{told}");
}

#[test]
fn what_cannot_be_printed_is_told_once() {
    let jobs = Jobs::new();
    let sandbox = &jobs.sandbox;
    fs::write(
        sandbox.path().join("unhang.toml"),
        format!("[servers.demo]\ncommand = {:?}\nargs = [\"zoo\", \"well-behaved\"]\n", lab_program()),
    )
    .expect("a file");
    let call = r#"{"server": "demo", "tool": "echo", "arguments": {"text": "a"}}"#;
    fs::write(sandbox.path().join("calls.jsonl"), call).expect("a file");
    let id = jobs.submit(&[], "echo printed");
    jobs.demand(0, &["job", "wait", &id]);
    jobs.demand(0, &["state", "set", "field", "1"]);
    for words in [
        "call demo echo text=a",
        "call demo echo text=a --raw",
        "read demo zoo://numbers/3 --raw",
        "batch calls.jsonl",
        "tools",
        "tools --output text",
        "servers",
        "job list",
        &format!("job logs {id}"),
        "doctor demo --json",
        "state get field",
        "--help",
        "call --help",
        "completions bash",
    ] {
        let (code, _, stderr) = run_to_end(sandbox.shell(&format!("unhang {words} > /dev/full")));
        assert_eq!(code, 1, "{words}: {stderr}");
        let told =
            stderr.lines().filter(|line| line.contains("stdout") && line.contains("No space left")).count();
        assert_eq!(told, 1, "{words}: {stderr}");
        let (mut unheard, unread) = Client::start_unread(sandbox.shell(&format!("exec unhang {words}")));
        drop(unread);
        unheard.close_stdin();
        let code = unheard.exit_code();
        assert!(!unheard.stderr_at_the_end().contains("stdout"), "{words}: {}", unheard.stderr());
        assert_eq!(code, 0, "{words}: nobody reading is a quiet end");
    }
}
