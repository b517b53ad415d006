//! Servers that speak both eras: each client is served in its own.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use crate::{
    gateway::{gateway as over_a_pipe, server},
    gateway_http::{finish, gateway, modern_call},
    harness::{Client, PATIENCE, Sandbox, Web, lab_program, wait_until},
};

/// A server that keeps each line that it was sent in a file of its own, so that two processes do not mix them.
fn kept_to(era: &str) -> String {
    let line =
        format!("exec {} zoo tee said-$$ /dev/null -- {} zoo well-behaved", lab_program(), lab_program());
    format!("[servers.srv]\ncommand = \"sh\"\nargs = [\"-c\", {line:?}]\n{era}\n")
}

/// The first request that each process of the server was sent.
fn greetings(sandbox: &Sandbox) -> Vec<String> {
    let is_kept = |file: &std::path::PathBuf| file.to_string_lossy().starts_with("said-");
    let files = sandbox.files().into_iter().filter(is_kept);
    let text = files.map(|file| fs::read_to_string(sandbox.path().join(file)).unwrap_or_default());
    let method = |text: String| {
        let line: Value = serde_json::from_str(text.lines().next()?).ok()?;
        Some(line["method"].as_str()?.to_owned())
    };
    let mut greetings: Vec<String> = text.filter_map(method).collect();
    greetings.sort();
    greetings
}

fn status(web: &Web) -> Value {
    web.ask("GET", "/status", &[], "").last()["servers"][0].clone()
}

#[test]
fn a_client_over_a_pipe_has_one_process_in_its_own_era() {
    for (is_modern, greeting) in [(false, "initialize"), (true, "server/discover")] {
        let sandbox = Sandbox::with_jobs();
        let mut client = match is_modern {
            false => over_a_pipe(&sandbox, &[kept_to("")]),
            true => {
                fs::write(sandbox.path().join("unhang.toml"), kept_to("")).expect("a file");
                let mut command = sandbox.unhang();
                command.arg("serve");
                Client::start(command)
            }
        };
        let params = json!({ "text": "x" });
        let id = if is_modern {
            client.modern_call("srv__echo", params)
        } else {
            client.call("srv__echo", params)
        };
        assert_eq!(client.answer(id)["result"]["content"][0]["text"], "x");
        assert_eq!(greetings(&sandbox), [greeting], "one process, and it was greeted in the client's era");
        crate::gateway::finish(client, &sandbox);
    }
}

#[test]
fn clients_of_both_eras_have_a_process_each_and_one_era_alone_has_one() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[kept_to("")]);
    let session = web.begin();
    let text = |answer: &Value| {
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let legacy = text(&web.call(&session, 1, "srv__pid", json!({})).last());
    wait_until("the process that nobody uses has gone", PATIENCE, || status(&web)["instances"] == 1);
    assert_eq!(greetings(&sandbox), ["initialize", "server/discover"]);
    assert_eq!(status(&web)["eras"], json!(["legacy"]));
    // A call of the other era starts it again, and both stay.
    let modern = text(&modern_call(&web, 2, "srv__pid", &json!({})));
    assert_ne!(modern, legacy);
    assert_eq!(text(&web.call(&session, 3, "srv__pid", json!({})).last()), legacy);
    assert_eq!(text(&modern_call(&web, 4, "srv__pid", &json!({}))), modern);
    assert_eq!(
        (&status(&web)["instances"], &status(&web)["eras"]),
        (&json!(2), &json!(["legacy", "modern"]))
    );
    finish(process, &sandbox);
}

#[test]
fn a_server_that_asks_in_a_call_asks_a_client_of_its_era_through_the_gateway() {
    let sandbox = Sandbox::with_jobs();
    let mut client = over_a_pipe(&sandbox, &[server("srv", &["well-behaved"], "")]);
    let call = client.call("srv__ask", json!({ "method": "elicitation/create" }));
    let asked = client.find("a question", |message| message["method"] == "elicitation/create");
    client.respond(&asked["id"], &json!({ "action": "accept", "content": { "name": "Ada" } }));
    let answer = client.answer(call);
    assert!(answer["result"].to_string().contains("Ada"), "{answer}");
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}
