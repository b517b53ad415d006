//! A file of servers that cannot be read: where no other has a server, the error names the file and is one of configuration.

use std::fs;

use serde_json::Value;

use crate::harness::{Sandbox, run_to_end};

/// Runs `unhang WORDS` in a project whose file is broken.
fn run(sandbox: &Sandbox, words: &[&str]) -> (i32, String, String) {
    fs::write(sandbox.path().join(".mcp.json"), "{bad").expect("a file");
    let mut command = sandbox.unhang();
    command.args(words);
    run_to_end(command)
}

#[test]
fn a_broken_file_is_named_where_no_server_is_known() {
    let sandbox = Sandbox::new();
    for words in [
        &["tools", "--trust"][..],
        &["ping", "--trust"],
        &["doctor", "--trust"],
        &["servers"],
        &["servers", "--output", "text"],
        &["tools", "there", "--trust"],
        &["login", "there"],
    ] {
        let (code, stdout, stderr) = run(&sandbox, words);
        assert_eq!((code, &*stdout), (2, ""), "{words:?}: {stderr}");
        assert!(stderr.contains("in a file that can be read: "), "{words:?}: {stderr}");
        assert_eq!(stderr.matches(".mcp.json:").count(), 1, "{words:?}: once: {stderr}");
        assert!(stderr.contains("hint: correct the file"), "{words:?}: {stderr}");
    }
}

#[test]
fn a_broken_file_is_named_in_json_too_and_in_one_document() {
    let sandbox = Sandbox::new();
    let (code, _, stderr) = run(&sandbox, &["tools", "--output", "json"]);
    let told: Value = serde_json::from_str(&stderr).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let message = told["error"]["message"].as_str().expect("a sentence");
    assert!(code == 2 && message.contains(".mcp.json:"), "{code} {stderr}");
}

#[test]
fn a_broken_file_spoils_no_other() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path().join("unhang.toml"), "[servers.good]\ncommand = \"true\"\n").expect("a file");
    let (code, stdout, stderr) = run(&sandbox, &["servers"]);
    assert!(code == 0 && stdout.contains("\"good\""), "{code} {stdout} {stderr}");
    assert_eq!(stderr.matches(".mcp.json:").count(), 1, "{stderr}");
    let (code, _, stderr) = run(&sandbox, &["tools", "bad"]);
    assert_eq!(code, 6, "{stderr}");
}
