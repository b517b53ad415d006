//! What commands print to, which may take nothing.

use std::fs;

use crate::{
    harness::{Client, run_to_end},
    jobs::Jobs,
};

const UNHANG: &str = env!("CARGO_BIN_EXE_unhang");

#[test]
fn what_cannot_be_printed_is_told_once() {
    let jobs = Jobs::new();
    let sandbox = &jobs.sandbox;
    fs::write(
        sandbox.path().join("unhang.toml"),
        format!("[servers.demo]\ncommand = {UNHANG:?}\nargs = [\"zoo\", \"well-behaved\"]\n"),
    )
    .expect("a file");
    let id = jobs.submit(&[], "echo printed");
    jobs.demand(0, &["job", "wait", &id]);
    jobs.demand(0, &["state", "set", "field", "1"]);
    for words in [
        "call demo echo text=a",
        "call demo echo text=a --raw",
        "read demo zoo://numbers/3 --raw",
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
