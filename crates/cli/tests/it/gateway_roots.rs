//! `unhang serve` in front of a server that speaks to its client outside calls: it asks for roots, and tells of the end of a visit.

use std::{
    fs, panic,
    thread::{self, JoinHandle},
};

use serde_json::{Value, json};

use crate::{
    gateway::{finish, gateway, server, window},
    gateway_http,
    harness::{Client, PATIENCE, Sandbox, Web, wait_until},
};

/// A server that asks for roots after its handshake, and when they have changed.
fn asks(name: &str, more: &str) -> String {
    server(name, &["requests-to-client", "--mode", "roots"], more)
}

const CHANGED: &str = "notifications/roots/list_changed";

fn roots(uri: &str) -> Value {
    json!({ "roots": [{ "uri": uri }] })
}

/// Answers the next request for roots.
#[track_caller]
fn give_roots(client: &mut Client, uri: &str) {
    let question = client.find("a request for roots", |message| message["method"] == "roots/list");
    client.respond(&question["id"], &roots(uri));
}

/// Reads the report of a server on its questions and their answers.
fn told(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_server_that_asks_for_roots_outside_calls_has_those_of_the_only_client_and_hears_of_changes() {
    let sandbox = Sandbox::with_jobs();
    let mut client = gateway(&sandbox, &[asks("srv", "")]);
    give_roots(&mut client, "file:///one");
    client.notify(CHANGED, json!({}));
    give_roots(&mut client, "file:///two");
    let mut answers = Value::Null;
    wait_until("both answers are there", PATIENCE, || {
        answers = told(&client.tool_text("srv__echo", json!({})))["answers"].clone();
        answers.as_array().is_some_and(|answers| answers.len() == 2)
    });
    assert_eq!(
        [&answers[0]["result"], &answers[1]["result"]],
        [&roots("file:///one"), &roots("file:///two")]
    );
    finish(client, &sandbox);
}

/// A server of 2025-11-25 that never answers a call, and asks for roots when the call is cancelled.
const ASKS_AFTER_CANCEL: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$1"
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\),"method".*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"slow","inputSchema":{"type":"object"}}]}' ;;
    *'"notifications/cancelled"'*) printf '{"jsonrpc":"2.0","id":"q","method":"roots/list"}\n' ;;
  esac
done
"#;

#[test]
fn a_server_that_never_answers_a_cancelled_call_can_still_ask_the_only_client() {
    let sandbox = Sandbox::with_jobs();
    let [path, heard] = ["server.sh", "heard"].map(|name| sandbox.path().join(name));
    fs::write(&path, ASKS_AFTER_CANCEL).expect("a file");
    let config = format!("[servers.srv]\ncommand = \"sh\"\nargs = [{path:?}, {heard:?}]\n");
    let mut client = gateway(&sandbox, &[config]);
    let has_heard = |text: &str| fs::read_to_string(&heard).is_ok_and(|heard| heard.contains(text));
    let id = client.call("srv__slow", json!({}));
    wait_until("the server has the call", PATIENCE, || has_heard("tools/call"));
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    wait_until("the server has heard that nobody waits", PATIENCE, || has_heard("notifications/cancelled"));
    give_roots(&mut client, "file:///left");
    wait_until("the server has the roots", PATIENCE, || has_heard("file:///left"));
    finish(client, &sandbox);
}

/// A session over HTTP that answers each request for roots with its name. Such a request comes on the session's stream, or on that of a
/// call that happens to be running.
struct AnsweringSession {
    client: RootsClient,
    answering: JoinHandle<()>,
}

#[derive(Clone)]
struct RootsClient {
    web: Web,
    name: String,
}

impl AnsweringSession {
    fn begin(web: &Web) -> AnsweringSession {
        let client = RootsClient { web: web.clone(), name: web.begin() };
        let mut received = web.ask("GET", "/mcp", &[("mcp-session-id", &client.name)], "");
        let listening = client.clone();
        let answering = thread::spawn(move || {
            while let Some(message) = received.next() {
                listening.give_roots(&message);
            }
        });
        AnsweringSession { client, answering }
    }

    fn name(&self) -> &str {
        &self.client.name
    }

    fn roots_changed(&self) {
        self.client.post(&json!({ "jsonrpc": "2.0", "method": CHANGED }));
    }

    /// Whether the server has roots of this session.
    fn is_known_to(&self, server: &str) -> bool {
        self.told(server)["answers"].to_string().contains(self.name())
    }

    fn told(&self, server: &str) -> Value {
        let RootsClient { web, name } = &self.client;
        let mut received = web.call(name, 1, &format!("{server}__echo"), json!({}));
        loop {
            let message = received.next().expect("an answer");
            if message["method"].is_null() {
                let text = &message["result"]["content"][0]["text"];
                return told(text.as_str().unwrap_or_else(|| panic!("{message}")));
            }
            self.client.give_roots(&message);
        }
    }

    /// Waits for the end of the stream, and passes on what went wrong there.
    fn end(self) {
        if let Err(panic) = self.answering.join() {
            panic::resume_unwind(panic);
        }
    }
}

impl RootsClient {
    /// Answers a request for roots. Lists of the starting servers and progress are told as well.
    fn give_roots(&self, message: &Value) {
        if message["id"].is_null() {
            return;
        }
        assert_eq!(message["method"], "roots/list", "{message}");
        self.post(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": roots(&self.name) }));
    }

    fn post(&self, message: &Value) {
        assert_eq!(self.web.post(&[("mcp-session-id", &self.name)], message).status, 202);
    }
}

#[test]
fn of_several_sessions_a_shared_server_asks_none_outside_calls_and_an_instance_asks_its_own() {
    let sandbox = Sandbox::with_jobs();
    let servers = [asks("srv", ""), asks("own", "per-session = true")];
    let (process, web) = gateway_http::gateway(&sandbox, &servers);
    let alice = AnsweringSession::begin(&web);
    // The server has started, so that it hears of the change.
    alice.told("srv");
    alice.roots_changed();
    wait_until("it has heard of the change, and has the roots", PATIENCE, || {
        alice.told("srv")["asked"] == 2 && alice.is_known_to("srv")
    });
    let bob = AnsweringSession::begin(&web);
    // The instances have started.
    alice.told("own");
    bob.told("own");
    alice.roots_changed();
    wait_until("the instance has the roots", PATIENCE, || alice.is_known_to("own"));
    assert_eq!(alice.told("srv")["asked"], 2, "the roots of one of its clients are not those of the other");
    assert!(!bob.told("own")["answers"].to_string().contains(alice.name()));
    gateway_http::finish(process, &sandbox);
    alice.end();
    bob.end();
}

#[test]
fn a_completed_elicitation_is_announced_to_the_client_of_its_call_in_any_window() {
    let sandbox = Sandbox::with_jobs();
    let mut leader = gateway(&sandbox, &[server("srv", &["requests-to-client", "--mode", "url"], "")]);
    leader.tool_text("srv__echo", json!({ "text": "it is there" }));
    let follower = window(&sandbox, &[]);
    let mut windows = [leader, follower];
    for client in &mut windows {
        let id = client.call("srv__echo", json!({ "text": "a" }));
        let over = client.find("the completion", |message| {
            message["method"] == "notifications/elicitation/complete" || message["id"] == id
        });
        assert_eq!(over["params"], json!({ "elicitationId": "visit-1" }), "{over}");
        client.answer(id);
    }
    let [leader, mut follower] = windows;
    follower.close_stdin();
    assert_eq!(follower.exit_code(), 0, "{}", follower.stderr());
    finish(leader, &sandbox);
}
