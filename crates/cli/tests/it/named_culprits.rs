//! Errors name their culprit, and say what to write (F-79).

use std::{fs, net::TcpListener};

use crate::harness::{Sandbox, run_to_end};

#[test]
fn f_79_every_error_names_its_culprit() {
    let sandbox = Sandbox::with_jobs();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let port = format!("port {} is in use", address.rsplit(':').next().expect("a port"));
    for (name, text) in [
        ("misspelt.toml", "[servers.a]\ncomand = 'x'\n"),
        ("tool.toml", "[tools.a]\ncommnd = ['x']\n"),
        ("misspelt.json", "{\"mcpServers\": {\"a\": {\"comand\": \"x\"}}}"),
        ("keys.json", "{\"mcpServer\": {}}"),
        ("list.json", "{\"servers\": []}"),
        ("empty.toml", ""),
    ] {
        fs::write(sandbox.path().join(name), text).expect("a file");
    }
    let variable = [("UNHANG_CALL_TIMEOUT", "abc")];
    for (variables, words, expect) in [
        (&variable[..], &["tools", "a"][..], "for the variable UNHANG_CALL_TIMEOUT"),
        (&variable, &["tools", "a", "--call-timeout", "abc"], "for '--call-timeout <TIME>'"),
        (&variable, &["wrap", "--", "true", "--call-timeout"], "for the variable UNHANG_CALL_TIMEOUT"),
        (&[("UNHANG_MAX_CONCURRENT", "0")], &["job", "list"], "for the variable UNHANG_MAX_CONCURRENT"),
        (&[], &["job", "list", "--max-concurrent", "0"], "write a whole number of 1 or more"),
        (&[], &["job", "list", "--limit", "x"], "write a whole number from 1 to 1000"),
        (&[], &["tools", "--config", "misspelt.toml"], "`comand` is not known: did you mean `command`?"),
        (&[], &["serve", "--config", "tool.toml"], "`commnd` is not known: did you mean `command`?"),
        (&[], &["ping", "a", "--config", "misspelt.json"], "did you mean `command`?"),
        (&[], &["tools", "--config", "keys.json"], "did you mean `mcpServers`?"),
        (&[], &["tools", "--config", "list.json"], "list.json:1:2: servers: is an empty list"),
        (&[], &["wrap", "https://example.org/mcp?key=secret"], "`https://example.org/mcp` is a URL"),
        (&[], &["serve", "--config", "empty.toml", "--http", &address], &port),
    ] {
        let mut command = sandbox.unhang();
        command.args(words).envs(variables.iter().copied());
        let (code, stdout, stderr) = run_to_end(command);
        assert_eq!((code, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(expect), "{words:?}: {expect}: {stderr}");
        for leaked in ["is not in 1..", "invalid digit", "secret"] {
            assert!(!stderr.contains(leaked), "{words:?}: {stderr}");
        }
    }
    let mut command = sandbox.unhang();
    command.args(["zoo", "--help"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert!(
        code == 0 && stdout.contains("Usage: unhang zoo") && stderr.is_empty(),
        "{code} {stdout} {stderr}"
    );
}
