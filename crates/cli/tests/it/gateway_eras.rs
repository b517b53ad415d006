//! Servers that speak both eras: each client is served in its own.

use std::{
    fs, io,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{gateway as over_a_pipe, server},
    gateway_http::{finish, gateway, modern_call},
    harness::{Client, PATIENCE, Remote, Sandbox, Web, lab_program, signal, wait_until},
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

/// A server that is another one at its second start and later.
fn changing(first: &str, later: &str) -> String {
    let lab = lab_program();
    let line = format!("test -e again && exec {lab} zoo {later}; touch again; exec {lab} zoo {first}");
    format!("[servers.srv]\ncommand = \"sh\"\nargs = [\"-c\", {line:?}]\nlimits.restart-delay = \"10ms\"\n")
}

#[test]
fn a_server_that_changes_its_era_between_two_starts_is_asked_in_the_new_one() {
    let legacy = "well-behaved --era legacy";
    for (first, later) in
        [("modern-only", "era-ambiguous"), ("era-ambiguous", "modern-only"), (legacy, "modern-only")]
    {
        let sandbox = Sandbox::with_jobs();
        let mut client = over_a_pipe(&sandbox, &[changing(first, later)]);
        let pid: i32 = client.tool_text("srv__pid", json!({})).parse().expect("a number");
        signal(pid, Signal::KILL);
        let mut last = Value::Null;
        wait_until("the new one answers", PATIENCE, || {
            let id = client.call("srv__echo", json!({ "text": "x" }));
            last = client.answer_within(id, PATIENCE);
            last["result"]["content"][0]["text"] == "x"
        });
        crate::gateway::finish(client, &sandbox);
    }
}

/// Passes each connection to the server that is behind it at the moment, until it is dropped.
struct Switch {
    url: String,
    behind: Arc<AtomicU16>,
}

impl Switch {
    fn to(remote: &Remote) -> Switch {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let switch = Switch { url, behind: Arc::default() };
        switch.lead_to(remote);
        let behind = Arc::clone(&switch.behind);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let port = behind.load(Ordering::Relaxed);
                if port == 0 {
                    return;
                }
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                for (mut from, mut to) in [
                    (client.try_clone().expect("a socket"), server.try_clone().expect("a socket")),
                    (server, client),
                ] {
                    thread::spawn(move || {
                        // Either side may have gone.
                        let _gone = io::copy(&mut from, &mut to);
                        let _gone = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        switch
    }

    fn lead_to(&self, remote: &Remote) {
        let port = remote.url.split([':', '/']).filter_map(|part| part.parse().ok()).next();
        self.behind.store(port.expect("a port"), Ordering::Relaxed);
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.behind.store(0, Ordering::Relaxed);
        // The thread waits for a connection.
        let address = self.url.trim_start_matches("http://").trim_end_matches("/mcp");
        let _gone = TcpStream::connect(address);
    }
}

#[test]
fn a_server_over_http_that_is_deployed_anew_in_another_era_is_asked_in_the_new_one() {
    for (first, later) in [("session", "modern"), ("modern", "session")] {
        let sandbox = Sandbox::with_jobs();
        let mut remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", first]);
        let switch = Switch::to(&remote);
        let mut client = over_a_pipe(&sandbox, &[format!("[servers.srv]\nurl = {:?}\n", switch.url)]);
        assert_eq!(client.tool_text("srv__echo", json!({ "text": "x" })), "x");
        let next = Remote::start(&sandbox, &["http-well-behaved", "--dialect", later]);
        switch.lead_to(&next);
        drop(std::mem::replace(&mut remote, next));
        let mut last = Value::Null;
        wait_until("the new one answers", PATIENCE, || {
            let id = client.call("srv__echo", json!({ "text": "x" }));
            last = client.answer_within(id, PATIENCE);
            last["result"]["content"][0]["text"] == "x"
        });
        drop((switch, remote));
        crate::gateway::finish(client, &sandbox);
    }
}

#[test]
fn a_server_that_answers_the_handshake_with_a_revision_that_nobody_knows_is_named() {
    let sandbox = Sandbox::with_jobs();
    let line = r#"while read -r line; do id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/'); case "$line" in *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"1999-01-01","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}';; *'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}';; esac; done"#;
    let configured = format!("[servers.srv]\ncommand = \"sh\"\nargs = [\"-c\", {line:?}]\n");
    let mut client = over_a_pipe(&sandbox, &[configured]);
    let id = client.call("srv__echo", json!({}));
    let answer = client.answer_within(id, PATIENCE);
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(message.contains("`srv`") && message.contains("1999-01-01"), "{message}");
    crate::gateway::finish(client, &sandbox);
}
