//! Servers over HTTP that are deployed anew in another era, and say so with HTTP 200 and an error of JSON-RPC alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::{
    callers::Calls,
    gateway::{finish, gateway},
    harness::{PATIENCE, PostAnswer, Sandbox, serve_posts, wait_until},
};

/// The deployment that serves the URL now.
struct Deployment {
    is_modern: bool,
    knows_ping: bool,
    /// The code of the error for a request of the other era, or before the handshake.
    refusal: i64,
    was_greeted: bool,
    /// The methods that it was asked for.
    asked: Vec<String>,
}

impl Deployment {
    fn answer(&mut self, request: &Value) -> Value {
        let method = request["method"].as_str().unwrap_or_default();
        self.asked.push(method.to_owned());
        let is_of_now = request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
        let refused = |code: i64| json!({ "error": { "code": code, "message": "not here" } });
        let done = |mut result: Value| {
            if self.is_modern {
                result["resultType"] = json!("complete");
            }
            json!({ "result": result })
        };
        let capabilities = json!({ "tools": {} });
        match method {
            "server/discover" if self.is_modern => {
                done(json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities }))
            }
            "initialize" if !self.is_modern => {
                self.was_greeted = true;
                json!({ "result": {
                    "protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "serverInfo": { "name": "s", "version": "1" },
                } })
            }
            "server/discover" | "initialize" => refused(-32601),
            "ping" if self.is_modern || !self.knows_ping => refused(-32601),
            _ if self.is_modern != is_of_now || !(self.is_modern || self.was_greeted) => {
                refused(self.refusal)
            }
            "ping" => done(json!({})),
            "tools/list" => {
                let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
                done(json!({ "tools": [tool("echo"), tool("none")] }))
            }
            "tools/call" if request["params"]["name"] == "echo" => {
                done(json!({ "content": [{ "type": "text", "text": "x" }] }))
            }
            "tools/call" => refused(-32602),
            _ => refused(-32601),
        }
    }
}

/// A server that answers every request with HTTP 200, and has no sessions.
struct Lenient {
    url: String,
    deployed: Arc<Mutex<Deployment>>,
}

impl Lenient {
    fn start(is_modern: bool, refusal: i64) -> Lenient {
        let deployment =
            Deployment { is_modern, knows_ping: true, refusal, was_greeted: false, asked: Vec::new() };
        let deployed = Arc::new(Mutex::new(deployment));
        let behind = Arc::clone(&deployed);
        let url = serve_posts(move |posted| {
            if !posted.is_post {
                return Some(PostAnswer::empty("405 Method Not Allowed"));
            }
            let Some(id) = posted.message.get("id") else { return Some(PostAnswer::empty("202 Accepted")) };
            let mut answer = behind.lock().unwrap_or_else(PoisonError::into_inner).answer(&posted.message);
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = id.clone();
            Some(PostAnswer::json("200 OK", answer.to_string()))
        });
        Lenient { url, deployed }
    }

    fn now(&self) -> MutexGuard<'_, Deployment> {
        self.deployed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked_for(&self, method: &str) -> usize {
        self.now().asked.iter().filter(|asked| *asked == method).count()
    }
}

#[test]
fn a_server_that_is_deployed_anew_and_refuses_with_http_200_is_greeted_anew() {
    for (first, later) in [(false, true), (true, false), (false, false)] {
        for refusal in [-32601, -32600, -32602] {
            let sandbox = Sandbox::with_jobs();
            let server = Lenient::start(first, refusal);
            let mut client = gateway(&sandbox, &[format!("[servers.srv]\nurl = {:?}\n", server.url)]);
            assert_eq!(client.tool_text("srv__echo", json!({})), "x");
            {
                let mut now = server.now();
                // A server of handshakes that has never been greeted knows the method of a ping at least.
                (now.is_modern, now.was_greeted, now.refusal) = (later, false, refusal);
                if !first && !later && refusal == -32601 {
                    now.refusal = -32600;
                }
            }
            let mut last = Value::Null;
            wait_until("it is greeted anew", PATIENCE, || {
                last = client.ask("tools/call", json!({ "name": "srv__echo", "arguments": {} }));
                last["result"]["content"][0]["text"] == "x"
            });
            finish(client, &sandbox);
        }
    }
}

#[test]
fn a_server_whose_refusals_are_its_usual_ones_is_asked_once_and_keeps_its_session() {
    for is_modern in [false, true] {
        let sandbox = Sandbox::with_jobs();
        let server = Lenient::start(is_modern, -32600);
        // Some servers have never heard of a ping.
        server.now().knows_ping = false;
        let mut client = gateway(&sandbox, &[format!("[servers.srv]\nurl = {:?}\n", server.url)]);
        assert_eq!(client.tool_text("srv__echo", json!({})), "x");
        let [greeted, discovered] = ["initialize", "server/discover"].map(|method| server.asked_for(method));
        for _ in 0..20 {
            let refused = client.ask("tools/call", json!({ "name": "srv__none", "arguments": {} }));
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            assert_eq!(client.tool_text("srv__echo", json!({})), "x");
        }
        wait_until("it is asked", PATIENCE, || server.asked_for("server/discover") > discovered);
        assert_eq!(server.asked_for("server/discover"), discovered + 1);
        assert_eq!(server.asked_for("ping"), usize::from(!is_modern));
        assert_eq!(client.tool_text("srv__echo", json!({})), "x");
        assert_eq!(server.asked_for("initialize"), greeted);
        finish(client, &sandbox);
    }
}
