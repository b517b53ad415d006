//! One server that is in no file: `unhang bridge URL`, and `unhang serve --http ADDRESS -- CMD`.

use std::{fs, process::Command};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    gateway::listed,
    gateway_http,
    harness::{Client, PATIENCE, Sandbox, Web, lab_program, run_to_end, wait_until},
};

/// A command of unhang in a sandbox.
fn unhang(sandbox: &Sandbox, words: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.args(words);
    command
}

/// Serves a well-behaved server over HTTP, by its command alone.
fn served(sandbox: &Sandbox, flags: &[&str]) -> (Client, Web) {
    let behind = [flags, &["--", lab_program(), "zoo", "well-behaved"]].concat();
    let (process, web) = Web::start_with(sandbox, &["-v"], &behind);
    wait_until("it has come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    (process, web)
}

/// The names of the tools that a bridge offers.
fn tools(client: &mut Client) -> Vec<String> {
    listed(client, "tools/list", "tools", "name")
}

#[test]
fn a_command_is_served_over_http_without_a_file_and_its_tools_keep_their_names() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = served(&sandbox, &[]);
    let (code, stdout, stderr) = run_to_end(unhang(&sandbox, &["call", &web.url(), "echo", "text=hello"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("hello"), "{stdout}");
    // There is no file that could have changed.
    process.signal(Signal::HUP);
    let told = || process.stderr().contains("the command line was read again, and nothing has changed");
    wait_until("it says so", PATIENCE, told);
    let status = web.ask("GET", "/status", &[], "").last();
    assert_eq!(status["servers"][0]["starts"], 1, "{status}");
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_token_file_of_a_served_command_is_read_again() {
    let sandbox = Sandbox::with_jobs();
    let tokens = sandbox.path().join("tokens");
    let write = |token: &str| {
        fs::write(&tokens, format!("{token}\n")).expect("a file");
        run_to_end(sandbox.shell("chmod 600 tokens"));
    };
    let (first, second) = ("first-token-of-this-test", "second-token-of-this-test");
    write(first);
    let behind = ["--token-file", "tokens", "--", lab_program(), "zoo", "well-behaved"];
    let (process, web) = Web::start_with(&sandbox, &["-v"], &behind);
    let is_admitted = |token: &str| web.with_token(token).ask("GET", "/status", &[], "").status == 200;
    assert!(is_admitted(first) && !is_admitted(second));
    write(second);
    process.signal(Signal::HUP);
    wait_until("the new token counts", PATIENCE, || is_admitted(second));
    assert!(!is_admitted(first));
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_bridge_offers_a_server_on_the_network_as_a_stdio_server() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = served(&sandbox, &[]);
    let mut client = Client::start(unhang(&sandbox, &["-v", "bridge", "--promote-after", "off", &web.url()]));
    client.initialize();
    let names = tools(&mut client);
    assert!(names.contains(&"echo".to_owned()), "{names:?}");
    // What a call of it needs: no job, no tool about jobs but those of the server itself.
    assert_eq!(names.iter().filter(|name| name.starts_with("get_job_status")).count(), 1, "{names:?}");
    assert_eq!(client.tool_text("echo", json!({ "text": "hello" })), "hello");
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_bridge_connects_again_when_its_server_comes_back() {
    let sandbox = Sandbox::with_jobs();
    let (mut process, web) = served(&sandbox, &[]);
    let url = web.url();
    let mut client = Client::start(unhang(&sandbox, &["-v", "bridge", &url]));
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({ "text": "one" })), "one");
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143);
    let id = client.call("echo", json!({ "text": "gone" }));
    let error = client.answer(id)["error"].clone();
    assert!(error["message"].as_str().is_some_and(|message| message.contains(&url)), "{error}");
    let again = ["serve", "--http", web.address(), "--", lab_program(), "zoo", "well-behaved"];
    let (process, _) = Web::start_as(unhang(&sandbox, &again));
    wait_until("it answers again", PATIENCE, || {
        let id = client.call("echo", json!({ "text": "two" }));
        client.answer(id)["result"]["content"][0]["text"] == "two"
    });
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_bridge_ends_with_a_hang_up() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = served(&sandbox, &[]);
    let mut client = Client::start(unhang(&sandbox, &["bridge", &web.url()]));
    client.initialize();
    client.signal(Signal::HUP);
    assert_eq!(client.exit_code(), 143, "{}", client.stderr());
    gateway_http::finish(process, &sandbox);
}

#[test]
fn a_bridge_sends_its_headers_and_shows_none_of_them() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("tokens"), "secret-of-the-bridge\n").expect("a file");
    run_to_end(sandbox.shell("chmod 600 tokens"));
    let (process, web) = served(&sandbox, &["--token-file", "tokens"]);
    let url = web.url();
    let header = "Authorization: Bearer secret-of-the-bridge";
    let mut client = Client::start(unhang(&sandbox, &["-v", "bridge", "--header", header, &url]));
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({ "text": "hello" })), "hello");
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    assert!(!client.stderr_at_the_end().contains("secret-of"), "{}", client.stderr());
    let mut refused = Client::start(unhang(&sandbox, &["-v", "bridge", &url]));
    refused.initialize();
    let id = refused.call("echo", json!({ "text": "hello" }));
    let message = refused.answer(id)["error"]["message"].as_str().unwrap_or_default().to_owned();
    // What it says can be typed.
    assert!(message.contains(&format!("unhang login {url}")), "{message}");
    refused.close_stdin();
    assert_eq!(refused.exit_code(), 0);
    gateway_http::finish(process, &sandbox);
    assert!(!sandbox.log().contains("secret-of"), "{}", sandbox.log());
}

#[test]
fn who_types_the_wrong_command_is_told_the_right_one() {
    let sandbox = Sandbox::new();
    let url = "https://mcp.example.org/mcp";
    let to_bridge = "`unhang bridge URL` offers";
    for (words, told) in [
        (&["wrap", url][..], to_bridge),
        (&["serve", url], to_bridge),
        (&[url], to_bridge),
        (&["npx", "-y", "server"], "`unhang wrap --`"),
        (&["serve", "npx", "-y", "server"], "`unhang serve --http ADDRESS -- CMD`"),
        (&["serve", "--", "npx", "-y", "server"], "`unhang wrap -- CMD` serves the client that starts it"),
        (&["bridge", "npx"], "`unhang wrap -- CMD` guards a command"),
        (&["bridge", "npx", "-y", "server"], "`unhang wrap -- CMD` guards a command"),
        (&["serve", "--http", "127.0.0.1:0", "--", url], "is a URL and no command"),
        (&["bridge", "--header", "Bearer s3cret-value", url], "(not shown)"),
        (&["bridge", "ftp://example.org"], "`ftp://` is not http:// or https://"),
    ] {
        let (code, stdout, stderr) = run_to_end(unhang(&sandbox, words));
        assert_eq!((code, &*stdout), (2, ""), "{words:?}: {stderr}");
        assert!(stderr.contains(told) && !stderr.contains("s3cret"), "{words:?}: {stderr}");
    }
}
