//! Servers that refuse the era that they do not speak in unusual ways: at the first greeting, and after they were deployed anew.

use std::{
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde_json::{Value, json};

use crate::{
    callers::Calls,
    gateway::{finish as finish_window, gateway as window},
    gateway_http::{finish, gateway, modern_call},
    harness::{
        PATIENCE, PostAnswer, PostedRequest, Sandbox, lab_program, run_to_end, serve_posts, wait_until,
    },
};

/// How the server refuses a request of an era that it does not speak.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// This status, and these words.
    Plain(&'static str, &'static str),
    /// This status, and a message of JSON-RPC with this member.
    Message(&'static str, &'static str),
    /// The connection closes.
    Hangup,
}

const FORBIDDEN: Refusal = Refusal::Plain("403 Forbidden", "Forbidden");

/// The deployment that serves the URL now.
struct Behind {
    speaks_legacy: bool,
    speaks_modern: bool,
    has_sessions: bool,
    refusal: Refusal,
    /// The era and the method of each request.
    asked: Vec<(bool, String)>,
}

/// A server over HTTP, and the deployment behind its URL.
struct Fickle {
    url: String,
    behind: Arc<Mutex<Behind>>,
}

impl Fickle {
    fn start(speaks_legacy: bool, speaks_modern: bool, refusal: Refusal) -> Fickle {
        let behind = Behind { speaks_legacy, speaks_modern, has_sessions: false, refusal, asked: Vec::new() };
        let behind = Arc::new(Mutex::new(behind));
        let served = Arc::clone(&behind);
        let url =
            serve_posts(move |posted| served.lock().unwrap_or_else(PoisonError::into_inner).answer(posted));
        Fickle { url, behind }
    }

    fn now(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn redeploy(&self, speaks_legacy: bool, speaks_modern: bool) {
        let mut now = self.now();
        (now.speaks_legacy, now.speaks_modern) = (speaks_legacy, speaks_modern);
    }

    fn asked_for(&self, method: &str) -> usize {
        self.now().asked.iter().filter(|(_, asked)| asked == method).count()
    }

    fn configured(&self) -> String {
        format!("[servers.srv]\nurl = {:?}\n", self.url)
    }
}

impl Behind {
    /// Answers a request; `None` closes its connection.
    fn answer(&mut self, posted: &PostedRequest) -> Option<PostAnswer> {
        let (request, is_modern) = (&posted.message, posted.is_modern);
        let method = request["method"].as_str().unwrap_or_default().to_owned();
        self.asked.push((is_modern, method.clone()));
        let id = &request["id"];
        if !posted.is_post {
            return Some(PostAnswer::empty("405 Method Not Allowed"));
        }
        if !(if is_modern { self.speaks_modern } else { self.speaks_legacy }) {
            return match self.refusal {
                Refusal::Plain(status, text) => {
                    let content_type = if text.starts_with('<') { "text/html" } else { "text/plain" };
                    Some(PostAnswer { content_type, body: text.to_owned(), ..PostAnswer::empty(status) })
                }
                Refusal::Message(status, member) => {
                    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},{member}}}"#);
                    Some(PostAnswer::json(status, body))
                }
                Refusal::Hangup => None,
            };
        }
        if id.is_null() {
            return Some(PostAnswer::empty("202 Accepted"));
        }
        let mut answer = answered(&method, &request["params"]);
        if is_modern {
            answer["result"]["resultType"] = json!("complete");
        }
        (answer["jsonrpc"], answer["id"]) = (json!("2.0"), id.clone());
        let begins_session = self.has_sessions && method == "initialize";
        let headers = if begins_session { "mcp-session-id: one\r\n" } else { "" };
        Some(PostAnswer { headers, ..PostAnswer::json("200 OK", answer.to_string()) })
    }
}

fn answered(method: &str, params: &Value) -> Value {
    let capabilities = json!({ "tools": {} });
    match method {
        "server/discover" => {
            json!({ "result": { "supportedVersions": ["2026-07-28"], "capabilities": capabilities } })
        }
        "initialize" => json!({ "result": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": "s", "version": "1" },
        } }),
        "ping" => json!({ "result": {} }),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            json!({ "result": { "tools": [tool("echo"), tool("none")] } })
        }
        "tools/call" if params["name"] == "echo" => {
            json!({ "result": { "content": [{ "type": "text", "text": "x" }] } })
        }
        "tools/call" => json!({ "error": { "code": -32602, "message": "bad arguments" } }),
        _ => json!({ "error": { "code": -32601, "message": "not here" } }),
    }
}

#[test]
fn a_server_that_refuses_to_be_discovered_in_any_way_is_greeted_by_initialize() {
    for refusal in [
        FORBIDDEN,
        Refusal::Message("403 Forbidden", r#""error":{"code":-32000,"message":"Forbidden"}"#),
        Refusal::Message("200 OK", r#""result":{"supportedVersions":["2099-01-01"],"capabilities":{}}"#),
        Refusal::Message(
            "400 Bad Request",
            r#""error":{"code":-32022,"message":"no","data":{"supported":["2099-01-01"]}}"#,
        ),
        Refusal::Message("200 OK", r#""error":{"code":-32022,"message":"no"}"#),
        Refusal::Hangup,
    ] {
        let sandbox = Sandbox::with_jobs();
        let server = Fickle::start(true, false, refusal);
        let mut client = window(&sandbox, &[server.configured()]);
        assert_eq!(client.tool_text("srv__echo", json!({})), "x", "{refusal:?}");
        assert_eq!(server.asked_for("initialize"), 1, "{refusal:?}");
        finish_window(client, &sandbox);
    }
}

#[test]
fn a_server_that_refuses_both_greetings_is_told_of_both() {
    for (refusal, before) in [
        (FORBIDDEN, "answered `server/discover` with HTTP 403: Forbidden"),
        (
            Refusal::Message("200 OK", r#""error":{"code":-32022,"message":"no"}"#),
            "refused `server/discover`: no (error -32022)",
        ),
    ] {
        let sandbox = Sandbox::new();
        let server = Fickle::start(false, false, refusal);
        let mut command = sandbox.unhang();
        command.args(["tools", &server.url]);
        let (code, _, stderr) = run_to_end(command);
        assert_eq!(code, 3, "{stderr}");
        for part in [before, "; before that, ", "`initialize`"] {
            assert!(stderr.contains(part), "{stderr}");
        }
        assert_eq!(stderr.contains("era = \"legacy\""), !before.contains("403"), "{stderr}");
    }
}

/// unhang starts the process once more and counts no failure. The next run begins with `initialize`.
#[test]
fn a_process_that_exits_when_it_is_discovered_is_started_again_and_initialized() {
    let sandbox = Sandbox::with_jobs();
    let script = format!(
        "IFS= read -r line; printf '%s\\n' \"$line\" >> greetings; case $line in *server/discover*) exit 7;; esac; \
         {{ printf '%s\\n' \"$line\"; exec cat; }} | exec {} zoo well-behaved",
        lab_program()
    );
    let configured = [format!("[servers.srv]\ncommand = \"sh\"\nargs = [\"-c\", {script:?}]\n")];
    let greetings = || {
        let text = fs::read_to_string(sandbox.path().join("greetings")).unwrap_or_default();
        let method = |line: &str| {
            serde_json::from_str::<Value>(line).expect("JSON")["method"]
                .as_str()
                .expect("a method")
                .to_owned()
        };
        text.lines().map(method).collect::<Vec<String>>()
    };
    for greeted in [&["server/discover", "initialize"][..], &["initialize"]] {
        let before = greetings().len();
        let (process, web) = gateway(&sandbox, &configured);
        let called = modern_call(&web, 1, "srv__echo", &json!({}));
        assert_eq!(called["result"]["content"][0]["text"], "x", "{called}");
        assert_eq!(greetings()[before..], *greeted);
        let status = web.ask("GET", "/status", &[], "").last();
        let server = &status["servers"][0];
        assert_eq!((&server["failures"], &server["restarts"]), (&json!(0), &json!(0)), "{status}");
        finish(process, &sandbox);
    }
}

/// A process that has read nothing exits for a reason of its own.
#[test]
fn a_process_that_exits_unread_is_not_started_again() {
    let sandbox = Sandbox::new();
    for (reads, starts) in [("IFS= read -r line", 2), ("true", 1)] {
        let mut command = sandbox.unhang();
        let script = format!("echo started >> starts; {reads}; exit 7");
        command.args(["tools", "--", "sh", "-c", &script]);
        let (code, _, stderr) = run_to_end(command);
        assert_eq!(code, 3, "{stderr}");
        assert!(stderr.contains("ended (exit code 7) before it answered anything"), "{stderr}");
        assert_eq!(
            stderr.contains("before that, `sh` ended (exit code 7) at `server/discover`"),
            starts == 2
        );
        let started = fs::read_to_string(sandbox.path().join("starts")).expect("it was started");
        assert_eq!(started.lines().count(), starts, "{stderr}");
        fs::remove_file(sandbox.path().join("starts")).expect("it was there");
    }
}

/// After a refusal of any status, the greeting of the other era shows that the server speaks that era.
#[test]
fn a_server_that_is_deployed_anew_and_refuses_with_any_status_is_greeted_anew() {
    thread::scope(|scope| {
        for refusal in [
            FORBIDDEN,
            Refusal::Plain("406 Not Acceptable", "no"),
            Refusal::Plain("410 Gone", "no"),
            Refusal::Plain("415 Unsupported Media Type", "no"),
            Refusal::Plain("426 Upgrade Required", "no"),
            Refusal::Plain("500 Internal Server Error", "no"),
            Refusal::Message("500 Internal Server Error", r#""error":{"code":-32603,"message":"no"}"#),
            Refusal::Plain("501 Not Implemented", "no"),
            Refusal::Plain("503 Service Unavailable", "no"),
            Refusal::Plain("200 OK", "<html>no</html>"),
            Refusal::Plain("202 Accepted", ""),
        ] {
            scope.spawn(move || {
                for (becomes_modern, has_sessions) in [(false, false), (true, false), (true, true)] {
                    let sandbox = Sandbox::with_jobs();
                    let server = Fickle::start(becomes_modern, !becomes_modern, refusal);
                    server.now().has_sessions = has_sessions;
                    let mut client = window(&sandbox, &[server.configured()]);
                    assert_eq!(client.tool_text("srv__echo", json!({})), "x", "{refusal:?}");
                    server.redeploy(!becomes_modern, becomes_modern);
                    let mut last = Value::Null;
                    wait_until("it is greeted anew", PATIENCE, || {
                        last = client.ask("tools/call", json!({ "name": "srv__echo", "arguments": {} }));
                        last["result"]["content"][0]["text"] == "x"
                    });
                    finish_window(client, &sandbox);
                }
            });
        }
    });
}

/// A server in trouble is not another one: it keeps its session, and is asked for the other era only when the trouble lasts.
#[test]
fn a_server_in_trouble_keeps_its_session() {
    let sandbox = Sandbox::with_jobs();
    let server = Fickle::start(true, false, Refusal::Plain("503 Service Unavailable", "no"));
    server.now().has_sessions = true;
    let mut client = window(&sandbox, &[server.configured()]);
    let call = json!({ "name": "srv__echo", "arguments": {} });
    assert_eq!(client.tool_text("srv__echo", json!({})), "x");
    let discovered = server.asked_for("server/discover");
    for _ in 0..3 {
        assert_eq!(client.tool_text("srv__echo", json!({})), "x");
        server.redeploy(false, false);
        assert_eq!(client.ask("tools/call", call.clone())["error"]["code"], -31002);
        server.redeploy(true, false);
    }
    assert_eq!((server.asked_for("ping"), server.asked_for("server/discover")), (0, discovered));
    server.redeploy(false, false);
    for _ in 0..2 {
        assert_eq!(client.ask("tools/call", call.clone())["error"]["code"], -31002);
    }
    wait_until("it is asked for the other era", PATIENCE, || {
        server.asked_for("server/discover") > discovered
    });
    server.redeploy(true, false);
    assert_eq!(client.tool_text("srv__echo", json!({})), "x");
    assert_eq!(server.asked_for("initialize"), 1);
    finish_window(client, &sandbox);
}

/// The connection for clients of handshakes has lost its era, and the other one works.
#[test]
fn clients_of_the_era_that_a_server_has_lost_are_translated() {
    thread::scope(|scope| {
        for (refusal, becomes_modern) in [
            (Refusal::Plain("400 Bad Request", "no"), true),
            (Refusal::Plain("404 Not Found", "no"), true),
            (Refusal::Plain("405 Method Not Allowed", "no"), true),
            (FORBIDDEN, true),
            (Refusal::Plain("410 Gone", "no"), true),
            (Refusal::Plain("404 Not Found", "no"), false),
            (FORBIDDEN, false),
        ] {
            scope.spawn(move || {
                let sandbox = Sandbox::with_jobs();
                let server = Fickle::start(true, true, refusal);
                let (process, web) = gateway(&sandbox, &[server.configured()]);
                let session = web.begin();
                let old = || web.call(&session, 2, "srv__echo", json!({})).last();
                let new = || modern_call(&web, 3, "srv__echo", &json!({}));
                let is_served = |answer: &Value| answer["result"]["content"][0]["text"] == "x";
                assert!(is_served(&old()) && is_served(&new()));
                server.redeploy(!becomes_modern, becomes_modern);
                wait_until("both are served", PATIENCE, || is_served(&old()) && is_served(&new()));
                let greeted = server.asked_for("initialize");
                for _ in 0..3 {
                    assert!(is_served(&old()) && is_served(&new()), "{refusal:?}");
                }
                assert_eq!(server.asked_for("initialize"), greeted, "{refusal:?}");
                finish(process, &sandbox);
            });
        }
    });
}

/// An ordinary mistake of a caller does not use up the pause between probes.
#[test]
fn a_server_that_is_deployed_anew_after_an_ordinary_error_is_greeted_anew_soon() {
    let sandbox = Sandbox::with_jobs();
    let server =
        Fickle::start(true, false, Refusal::Message("200 OK", r#""error":{"code":-32601,"message":"no"}"#));
    let mut client = window(&sandbox, &[server.configured()]);
    let refused = client.ask("tools/call", json!({ "name": "srv__none", "arguments": {} }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    wait_until("it was probed", PATIENCE, || server.asked_for("ping") == 1);
    server.redeploy(false, true);
    wait_until("it is greeted anew", PATIENCE / 2, || {
        let last = client.ask("tools/call", json!({ "name": "srv__echo", "arguments": {} }));
        last["result"]["content"][0]["text"] == "x"
    });
    finish_window(client, &sandbox);
}
