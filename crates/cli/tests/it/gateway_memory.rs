//! What is kept of servers from one run of `unhang serve` to the next.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::json;

use crate::{
    gateway::{finish, gateway, listed, server},
    harness::{Client, PATIENCE, Sandbox, lab_program, wait_until},
};

/// A server that comes up once the file `go` is there, and is then what the file `which` says.
fn late(more: &str) -> String {
    let line = format!("until [ -e go ]; do sleep 0.02; done; exec {} zoo $(cat which)", lab_program());
    format!("[servers.srv]\ncommand = \"sh\"\nargs = [\"-c\", {line:?}]\n{more}\n")
}

fn write(sandbox: &Sandbox, name: &str, text: &str) {
    fs::write(sandbox.path().join(name), text).expect("written");
}

/// The file in which it is kept what the only server offers.
fn kept(sandbox: &Sandbox) -> Option<PathBuf> {
    let is_kept =
        |file: &PathBuf| file.starts_with("state/lists") && file.extension().is_some_and(|end| end == "json");
    sandbox.files().into_iter().find(is_kept).map(|file| sandbox.path().join(file))
}

/// A window whose client is of 2026-07-28, so that servers are asked for both eras.
fn modern_window(sandbox: &Sandbox, servers: &[String]) -> Client {
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    let mut client = Client::start(command);
    let id = client.modern("tools/list", json!({}));
    client.answer(id);
    client
}

/// One run in which the server comes up at once; the text of what is kept of it afterwards.
fn learn(sandbox: &Sandbox, which: &str, is_kept: impl Fn(&str) -> bool) -> String {
    write(sandbox, "which", which);
    write(sandbox, "go", "");
    let client = modern_window(sandbox, &[late("")]);
    let text = || kept(sandbox).map(|path| fs::read_to_string(path).expect("text")).unwrap_or_default();
    wait_until("it is kept", PATIENCE, || is_kept(&text()));
    finish(client, sandbox);
    fs::remove_file(sandbox.path().join("go")).expect("removed");
    text()
}

fn tools(client: &mut Client) -> Vec<String> {
    listed(client, "tools/list", "tools", "name")
}

fn has(tools: &[String], name: &str) -> bool {
    tools.iter().any(|tool| tool == name)
}

fn was_told_of_changes(client: &Client) -> bool {
    client.seen().iter().any(|message| message["method"] == "notifications/tools/list_changed")
}

#[test]
fn the_lists_of_the_last_run_are_there_before_the_servers() {
    let sandbox = Sandbox::with_jobs();
    learn(&sandbox, "well-behaved", |text| text.contains("\"echo\""));
    let mut client = gateway(&sandbox, &[late("")]);
    let listed_tools = tools(&mut client);
    assert!(has(&listed_tools, "srv__echo"), "{listed_tools:?}");
    assert!(has(&listed(&mut client, "resources/list", "resources", "uri"), "zoo://numbers/1"));
    assert!(has(&listed(&mut client, "prompts/list", "prompts", "name"), "srv__greeting"));
    // The call is there before the server, and waits for it.
    let call = client.call("srv__echo", json!({ "text": "x" }));
    let unknown = client.call("srv__dance", json!({}));
    write(&sandbox, "go", "");
    let [answer, refusal] = client.answers([call, unknown]);
    assert_eq!(answer["result"]["content"][0]["text"], "x");
    assert_eq!(refusal["error"]["code"], -32602);
    assert_eq!(tools(&mut client), listed_tools);
    assert!(!was_told_of_changes(&client), "nothing has changed");
    finish(client, &sandbox);
}

#[test]
fn rules_of_today_hold_for_the_lists_of_the_last_run_and_another_command_is_another_server() {
    let sandbox = Sandbox::with_jobs();
    learn(&sandbox, "well-behaved", |text| text.contains("\"echo\""));
    let rules = "deny = [\"pid\"]\n[servers.srv.tools.echo]\ndescription = \"says it again\"\n";
    let mut client = gateway(&sandbox, &[late(rules)]);
    let id = client.request("tools/list", json!({}));
    let answer = client.answer(id)["result"].to_string();
    assert!(answer.contains("srv__echo") && answer.contains("says it again"), "{answer}");
    assert!(!answer.contains("srv__pid"), "{answer}");
    finish(client, &sandbox);

    let mut client = gateway(&sandbox, &[late("env = { TOKEN = \"another\" }\n")]);
    assert!(!has(&tools(&mut client), "srv__echo"), "nothing is known of that one");
    finish(client, &sandbox);
}

#[test]
fn whoever_has_changed_since_the_last_run_is_told_of_and_spoken_to_as_it_is_now() {
    let sandbox = Sandbox::with_jobs();
    let was = learn(&sandbox, "ignores-stdin-close", |text| text.contains("\"echo\""));
    assert!(was.contains("\"revision\":\"2025-"), "{was}");
    write(&sandbox, "which", "modern-only");
    let mut client = gateway(&sandbox, &[late("")]);
    assert!(has(&tools(&mut client), "srv__echo"));
    write(&sandbox, "go", "");
    let id = client.modern_call("srv__echo", json!({ "text": "x" }));
    assert_eq!(client.answer(id)["result"]["content"][0]["text"], "x");
    let now = || fs::read_to_string(kept(&sandbox).expect("it is kept")).expect("text");
    wait_until("it is kept what it is now", PATIENCE, || now().contains("\"revision\":\"2026-07-28\""));
    finish(client, &sandbox);

    learn(&sandbox, "well-behaved", |text| text.contains("\"sleep\""));
    let mut client = gateway(&sandbox, &[late("")]);
    write(&sandbox, "which", "modern-only");
    assert!(has(&tools(&mut client), "srv__sleep"));
    write(&sandbox, "go", "");
    client.find("a change", |message| message["method"] == "notifications/tools/list_changed");
    assert!(!has(&tools(&mut client), "srv__sleep"));
    finish(client, &sandbox);
}

#[test]
fn a_server_of_old_is_greeted_in_its_own_way_at_the_next_start() {
    let sandbox = Sandbox::with_jobs();
    let tee = ["tee", "said", "/dev/null", "--", lab_program(), "zoo", "ignores-stdin-close"];
    let said = || fs::read_to_string(sandbox.path().join("said")).unwrap_or_default();
    for is_known in [false, true] {
        let before = said().len();
        let mut client = modern_window(&sandbox, &[server("srv", &tee, "")]);
        let id = client.modern_call("srv__echo", json!({ "text": "x" }));
        assert_eq!(client.answer(id)["result"]["content"][0]["text"], "x");
        // It keeps what was said before.
        assert_eq!(said()[before..].contains("server/discover"), !is_known, "{}", said());
        wait_until("it is kept", PATIENCE, || kept(&sandbox).is_some());
        finish(client, &sandbox);
    }
}

#[test]
fn a_file_that_is_torn_is_passed_over_and_made_anew() {
    let sandbox = Sandbox::with_jobs();
    let whole = learn(&sandbox, "well-behaved", |text| text.contains("\"echo\""));
    let path = kept(&sandbox).expect("it is kept");
    fs::write(&path, &whole[..whole.len() / 2]).expect("torn");
    write(&sandbox, "go", "");
    let client = modern_window(&sandbox, &[late("")]);
    wait_until("it is whole", PATIENCE, || fs::read_to_string(&path).is_ok_and(|text| text == whole));
    assert!(sandbox.log().contains("is damaged in line 1"), "{}", sandbox.log());
    finish(client, &sandbox);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}
