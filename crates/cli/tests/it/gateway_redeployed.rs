//! Servers over HTTP that are deployed anew in another era, and say so with HTTP 200 and an error of JSON-RPC alone.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde_json::{Value, json};

use crate::{
    callers::Calls,
    gateway::{finish, gateway},
    harness::{PATIENCE, Sandbox, wait_until},
};

/// What stands behind the URL at the moment.
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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let deployment =
            Deployment { is_modern, knows_ping: true, refusal, was_greeted: false, asked: Vec::new() };
        let deployed = Arc::new(Mutex::new(deployment));
        let behind = Arc::clone(&deployed);
        // It ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let behind = Arc::clone(&behind);
                thread::spawn(move || serve(&client, &behind));
            }
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

/// Answers the one request of a connection.
fn serve(mut client: &TcpStream, behind: &Mutex<Deployment>) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let (mut verb, mut line, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut verb).ok()?;
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(("content-length", value)) = line.to_ascii_lowercase().split_once(':') {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = match request.get("id") {
        _ if !verb.starts_with("POST") => ("405 Method Not Allowed", String::new()),
        None => ("202 Accepted", String::new()),
        Some(id) => {
            let mut answer = behind.lock().unwrap_or_else(PoisonError::into_inner).answer(&request);
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = id.clone();
            ("200 OK", answer.to_string())
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    client.write_all(format!("{head}{answer}").as_bytes()).ok()
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
