//! `unhang serve` in front of servers that keep state of one client: each session has an instance of its own.

use std::{collections::BTreeSet, fs, thread, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gateway::{server, window},
    gateway_http::{finish, modern_call},
    harness::{Client, PATIENCE, Remote, Sandbox, Web, WebAnswer, is_alive, signal, wait_until},
};

const OWN: &str = "per-session = true";

/// A gateway over HTTP in front of these, once it is known what all offer and nothing runs that was to say it.
fn gateway(sandbox: &Sandbox, config: &[String]) -> (Client, Web) {
    fs::write(sandbox.path().join("unhang.toml"), config.concat()).expect("a file");
    let (process, web) = Web::start(sandbox);
    settled(&web);
    (process, web)
}

fn settled(web: &Web) {
    wait_until("all have come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    wait_until("the listing has ended", PATIENCE, || status(web, "own")["instances"] == 0);
}

/// What the next run knows of both servers.
fn remembered(sandbox: &Sandbox) -> String {
    let kept = sandbox.files().into_iter().filter(|file| file.starts_with("state/lists"));
    let kept: Vec<String> =
        kept.map(|file| fs::read_to_string(sandbox.path().join(file)).expect("it is there")).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    kept.concat()
}

/// What is told of a server.
fn status(web: &Web, name: &str) -> Value {
    let status = web.ask("GET", "/status", &[], "").last();
    let mut servers = status["servers"].as_array().unwrap_or_else(|| panic!("servers: {status}")).iter();
    servers.find(|server| server["name"] == name).unwrap_or_else(|| panic!("{name}: {status}")).clone()
}

fn said(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("a result: {answer}")).to_owned()
}

/// A client with a session, and a stream on which it hears what is about it.
struct Session<'a> {
    web: &'a Web,
    name: String,
    received: WebAnswer,
}

impl Session<'_> {
    fn begin(web: &Web) -> Session<'_> {
        let name = web.begin();
        let received = web.ask("GET", "/mcp", &[("mcp-session-id", &name)], "");
        Session { web, name, received }
    }

    fn ask(&self, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.web.post(&[("mcp-session-id", &self.name)], &message).last()
    }

    fn call(&self, tool: &str, arguments: Value) -> Value {
        self.web.call(&self.name, 1, tool, arguments).last()
    }

    fn text(&self, tool: &str, arguments: Value) -> String {
        said(&self.call(tool, arguments))
    }

    fn pid(&self, server: &str) -> i32 {
        self.text(&format!("{server}__pid"), json!({})).parse().expect("a number")
    }

    fn tools(&self) -> BTreeSet<String> {
        let answer = self.ask("tools/list", &json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("a list: {answer}")).iter();
        tools.map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    fn end(self) {
        let headers = [("mcp-session-id", &*self.name)];
        assert_eq!(self.web.ask("DELETE", "/mcp", &headers, "").status, 200);
    }
}

#[test]
fn what_one_session_makes_of_its_instance_no_other_sees() {
    let sandbox = Sandbox::with_jobs();
    let servers = [server("own", &["remembers"], OWN), server("shared", &["well-behaved"], "")];
    let (process, web) = gateway(&sandbox, &servers);
    let known = status(&web, "own");
    assert_eq!((&known["starts"], &known["tools"], &known["state"]), (&json!(1), &json!(3), &json!("ended")));
    let (mut first, mut second) = (Session::begin(&web), Session::begin(&web));
    assert!(first.tools().contains("own__remember") && !first.tools().contains("own__recall"));
    assert_eq!(status(&web, "own")["starts"], 1, "a list starts nothing");
    assert_eq!(first.text("own__remember", json!({ "text": "a" })), "a");
    wait_until("it has one tool more", PATIENCE, || first.tools().contains("own__recall"));
    assert_eq!(first.received.next().expect("a message")["method"], "notifications/tools/list_changed");
    // The other does not hear of it, and cannot ask for it.
    assert!(!second.tools().contains("own__recall"));
    assert_eq!(second.call("own__recall", json!({}))["error"]["code"], -32602);
    assert_eq!(second.text("own__remember", json!({ "text": "b" })), "b");
    wait_until("it has one tool more as well", PATIENCE, || second.tools().contains("own__recall"));
    let recalled = [&first, &second].map(|session| session.text("own__recall", json!({})));
    assert_eq!(recalled, ["a", "b"]);
    assert_ne!(first.pid("own"), second.pid("own"));
    assert_eq!(first.pid("shared"), second.pid("shared"), "all others are shared");
    let known = status(&web, "own");
    assert_eq!(
        (&known["instances"], &known["starts"], &known["restarts"]),
        (&json!(2), &json!(3), &json!(0))
    );
    assert_eq!(known["tools"], 3, "what all begin with");
    let metrics = web.ask("GET", "/metrics", &[], "").text();
    for line in [
        "unhang_server_instances{server=\"own\"} 2",
        "unhang_server_instances{server=\"shared\"} 1",
        "unhang_server_starts_total{server=\"own\"} 3",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert_eq!(second.received.next().expect("a message")["method"], "notifications/tools/list_changed");
    finish(process, &sandbox);
    // What a session has made of it is not what the next run begins with.
    assert!(!remembered(&sandbox).contains("recall"), "it was one session's");
    let (process, web) = Web::start(&sandbox);
    let session = Session::begin(&web);
    assert!(session.tools().contains("own__remember") && !session.tools().contains("own__recall"));
    finish(process, &sandbox);
}

#[test]
fn what_changes_in_an_instance_is_told_to_its_session_alone() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("own", &["well-behaved"], OWN)]);
    let (mut first, mut second) = (Session::begin(&web), Session::begin(&web));
    for session in [&first, &second] {
        for uri in ["zoo://numbers/1", "zoo://numbers/2"] {
            let answer = session.ask("resources/subscribe", &json!({ "uri": uri }));
            assert_eq!(answer["result"], json!({}), "{answer}");
        }
    }
    let changes = |session: &Session<'_>, uri: &str| {
        session.text("own__notify-resource-updated", json!({ "uri": uri }));
    };
    changes(&first, "zoo://numbers/1");
    changes(&second, "zoo://numbers/2");
    for (session, uri) in [(&mut first, "zoo://numbers/1"), (&mut second, "zoo://numbers/2")] {
        let message = session.received.next().expect("a message");
        assert_eq!(message["method"], "notifications/resources/updated", "{message}");
        assert_eq!(message["params"]["uri"], uri, "{message}");
    }
    finish(process, &sandbox);
}

#[test]
fn an_instance_ends_with_its_session_and_nothing_of_it_is_left() {
    let sandbox = Sandbox::with_jobs();
    let marker = format!("--marker={}", sandbox.marker());
    let faulty_server = ["leaves-setsid-child", "--marker", sandbox.marker()];
    let (process, web) = gateway(&sandbox, &[server("own", &faulty_server, OWN)]);
    let alive = || sandbox.survivors().into_iter().map(|(pid, _)| pid).collect::<BTreeSet<i32>>();
    wait_until("what the listing left has gone", PATIENCE, || alive().len() == 1);
    let (first, second) = (Session::begin(&web), Session::begin(&web));
    let stays = first.pid("own");
    let with_one = alive();
    assert!(with_one.len() >= 3, "a lifeline, a server, and what it leaves ({marker}): {with_one:?}");
    let goes = second.pid("own");
    assert!(alive().len() > with_one.len());
    second.end();
    wait_until("all of it has gone, and nothing else", PATIENCE, || alive() == with_one);
    assert!(!is_alive(goes) && first.pid("own") == stays);
    assert_eq!(status(&web, "own")["instances"], 1);
    // The end of the gateway is the end of what sessions have as well.
    finish(process, &sandbox);
}

#[test]
fn an_instance_that_is_killed_costs_its_own_session_a_call() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("own", &["well-behaved"], OWN)]);
    let (first, second) = (Session::begin(&web), Session::begin(&web));
    let (dying, staying) = (first.pid("own"), second.pid("own"));
    let (dies, stays) = thread::scope(|scope| {
        let dies = scope.spawn(|| first.call("own__sleep", json!({ "ms": 60_000 })));
        let stays = scope.spawn(|| second.text("own__sleep", json!({ "ms": 1500 })));
        wait_until("both are asked", PATIENCE, || status(&web, "own")["inFlight"] == 2);
        signal(dying, Signal::KILL);
        (dies.join().expect("no panic"), stays.join().expect("no panic"))
    });
    assert_eq!((&dies["error"]["code"], &dies["error"]["data"]["server"]), (&json!(-31002), &json!("own")));
    assert_eq!(stays, "slept 1500 ms");
    let again = first.pid("own");
    assert!(again != dying && again != staying && second.pid("own") == staying);
    let known = status(&web, "own");
    assert_eq!(
        (&known["failuresTotal"], &known["restarts"], &known["starts"]),
        (&json!(1), &json!(1), &json!(4))
    );
    finish(process, &sandbox);
}

#[test]
fn an_instance_that_keeps_dying_is_left_alone_and_no_other() {
    let sandbox = Sandbox::with_jobs();
    let limits = "limits = { breaker-failures = 2, breaker-cooldown = \"60s\", restart-delay = \"1ms\" }";
    let (process, web) = gateway(&sandbox, &[server("own", &["well-behaved"], &format!("{OWN}\n{limits}"))]);
    let (first, second) = (Session::begin(&web), Session::begin(&web));
    let mut codes = BTreeSet::new();
    wait_until("it is left alone", PATIENCE, || {
        let answer = first.call("own__die", json!({ "code": 3 }));
        codes.insert(answer["error"]["code"].as_i64().expect("an error"));
        codes.contains(&-31004)
    });
    assert_eq!(codes, [-31002, -31004].into());
    second.pid("own");
    let known = status(&web, "own");
    assert_eq!((&known["state"], &known["breaker"]["state"]), (&json!("running"), &json!("open")), "{known}");
    finish(process, &sandbox);
}

#[test]
fn an_idle_instance_rests_and_no_other() {
    let sandbox = Sandbox::with_jobs();
    let more = format!("{OWN}\nidle-timeout = \"1s\"");
    let (process, web) = gateway(&sandbox, &[server("own", &["well-behaved"], &more)]);
    let (first, second) = (Session::begin(&web), Session::begin(&web));
    let rests = first.pid("own");
    thread::scope(|scope| {
        let busy = scope.spawn(|| second.text("own__sleep", json!({ "ms": 4000 })));
        wait_until("it rests", PATIENCE, || !is_alive(rests));
        assert!(!busy.is_finished(), "who is asked something does not rest");
        assert_eq!(busy.join().expect("no panic"), "slept 4000 ms");
    });
    assert!(first.tools().contains("own__pid"), "what it offers stays");
    assert_ne!(first.pid("own"), rests);
    finish(process, &sandbox);
}

#[test]
fn instances_are_bounded_and_whoever_finds_no_room_is_told_when_to_come_back() {
    let sandbox = Sandbox::with_jobs();
    let bounds = "[gateway]\nmax-instances = 1\n".to_owned();
    let (process, web) = gateway(&sandbox, &[bounds, server("own", &["well-behaved"], OWN)]);
    let (first, second) = (Session::begin(&web), Session::begin(&web));
    let pid = first.pid("own");
    let error = second.call("own__pid", json!({}))["error"].clone();
    assert_eq!((&error["code"], &error["data"]["retryAfterMs"]), (&json!(-31005), &json!(60_000)), "{error}");
    assert!(error["message"].as_str().expect("text").contains("max-instances = 1 of [gateway]"), "{error}");
    assert_eq!(first.pid("own"), pid);
    assert!(second.tools().contains("own__pid"), "what it offers is known all the same");
    first.end();
    wait_until("there is room", PATIENCE, || second.call("own__pid", json!({}))["result"].is_object());
    assert!(!is_alive(pid), "the one before has gone");
    finish(process, &sandbox);
}

#[test]
fn a_server_that_is_described_otherwise_is_started_anew_in_each_session() {
    let sandbox = Sandbox::with_jobs();
    let shared = server("shared", &["well-behaved"], "");
    let (process, web) = gateway(&sandbox, &[server("own", &["well-behaved"], OWN), shared.clone()]);
    let sessions = [Session::begin(&web), Session::begin(&web)];
    let before = [sessions[0].pid("own"), sessions[1].pid("own")];
    let kept = sessions[0].pid("shared");
    let write = |config: &[String]| {
        fs::write(sandbox.path().join("unhang.toml"), config.concat()).expect("a file");
        process.signal(Signal::HUP);
    };
    thread::scope(|scope| {
        let answered = scope.spawn(|| sessions[0].text("own__sleep", json!({ "ms": 2000 })));
        wait_until("it is asked", PATIENCE, || status(&web, "own")["inFlight"] == 1);
        write(&[server("own", &["well-behaved"], &format!("{OWN}\nenv = {{ A = \"1\" }}")), shared.clone()]);
        wait_until("it is taken", PATIENCE, || process.stderr().contains("started anew: `own`"));
        assert_eq!(answered.join().expect("no panic"), "slept 2000 ms", "what it was asked it answers");
    });
    for (session, before) in sessions.iter().zip(before) {
        assert_eq!(session.text("own__environment", json!({ "name": "A" })), "1");
        wait_until("the one before has gone", PATIENCE, || !is_alive(before));
    }
    let after = [sessions[0].pid("own"), sessions[1].pid("own")];
    assert_ne!(after[0], after[1]);
    // One that is left out ends in every session.
    write(std::slice::from_ref(&shared));
    wait_until("it is taken", PATIENCE, || process.stderr().contains("gone: `own`"));
    wait_until("all have gone", PATIENCE, || after.iter().all(|pid| !is_alive(*pid)));
    assert_eq!(sessions[0].pid("shared"), kept);
    // What all shared may be each one's own from now on.
    write(&[server("own", &["well-behaved"], ""), server("shared", &["well-behaved"], OWN)]);
    wait_until("it is taken", PATIENCE, || process.stderr().contains("started anew: `shared`"));
    wait_until("the other is there", PATIENCE, || sessions[0].tools().contains("own__pid"));
    assert_ne!(sessions[0].pid("shared"), sessions[1].pid("shared"));
    assert_eq!(sessions[0].pid("own"), sessions[1].pid("own"));
    finish(process, &sandbox);
}

#[test]
fn clients_without_a_session_are_told_apart_by_who_they_are() {
    const ONE: &str = "one-0123456789abcdef";
    const TWO: &str = "two-0123456789abcdef";
    let sandbox = Sandbox::with_jobs();
    let config = |tokens: &[&str]| {
        let http = format!("[http]\ntokens = {}\n", json!(tokens));
        fs::write(sandbox.path().join("unhang.toml"), http + &server("own", &["well-behaved"], OWN))
            .expect("a file");
    };
    config(&[ONE, TWO]);
    let (process, web) = Web::start(&sandbox);
    let (one, two) = (web.with_token(ONE), web.with_token(TWO));
    settled(&one);
    let pid =
        |web: &Web| -> i32 { said(&modern_call(web, 1, "own__pid", &json!({}))).parse().expect("a number") };
    let (of_one, of_two) = (pid(&one), pid(&two));
    assert_ne!(of_one, of_two);
    assert_eq!((pid(&one), pid(&two)), (of_one, of_two), "they come back to what is theirs");
    let session = Session::begin(&one);
    let of_session = session.pid("own");
    assert!(of_session != of_one && of_session != of_two, "a session has its own");
    assert_eq!(status(&one, "own")["instances"], 3);
    // Whose token is gone has nothing here any more.
    config(&[TWO]);
    process.signal(Signal::HUP);
    wait_until("what was theirs has gone", PATIENCE, || !is_alive(of_one) && !is_alive(of_session));
    assert_eq!(pid(&two), of_two);
    finish(process, &sandbox);
}

#[test]
fn whom_nothing_tells_apart_is_told_by_the_place_where_they_come_from() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, &[server("own", &["well-behaved"], OWN)]);
    let pids = [1, 2].map(|id| said(&modern_call(&web, id, "own__pid", &json!({}))));
    assert_eq!(pids[0], pids[1]);
    assert_ne!(Session::begin(&web).pid("own").to_string(), pids[0], "a session is told by itself");
    finish(process, &sandbox);
}

#[test]
fn a_server_somewhere_else_has_a_session_for_each_of_ours() {
    let sandbox = Sandbox::with_jobs();
    let remote = Remote::start(&sandbox, &["http-well-behaved", "--dialect", "session"]);
    let config = format!("[servers.own]\nurl = {:?}\n{OWN}\n", remote.url);
    let (process, web) = gateway(&sandbox, &[config]);
    let (first, second) = (Session::begin(&web), Session::begin(&web));
    for session in [&first, &second, &first] {
        assert_eq!(session.text("own__echo", json!({ "text": "x" })), "x");
    }
    let session_of = |asked: &Value| asked["headers"]["mcp-session-id"].as_str().map(str::to_owned);
    let calls = remote.asked().into_iter().filter(|asked| asked["rpc"] == "tools/call");
    let calls: Vec<_> = calls.map(|asked| session_of(&asked).expect("a session")).collect();
    assert!(calls[0] == calls[2] && calls[0] != calls[1], "{calls:?}");
    first.end();
    let is_its_end =
        |asked: &Value| asked["verb"] == "DELETE" && session_of(asked).as_ref() == Some(&calls[0]);
    remote.wait_for("the end of the one", |seen| seen["did"] == "asked" && is_its_end(seen));
    assert_eq!(second.text("own__echo", json!({ "text": "y" })), "y");
    let mut process = process;
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143, "{}", process.stderr());
}

#[test]
fn each_window_has_its_own_and_the_end_of_a_leader_costs_it_nothing() {
    let sandbox = Sandbox::with_jobs();
    let servers = [server("own", &["remembers"], OWN), server("shared", &["well-behaved"], "")];
    fs::write(sandbox.path().join("unhang.toml"), servers.concat()).expect("a file");
    let pid = |client: &mut Client, server: &str| -> i32 {
        client.tool_text(&format!("{server}__pid"), json!({})).parse().expect("a number")
    };
    let mut leader = window(&sandbox, &[]);
    let shared = pid(&mut leader, "shared");
    let mut followers = [window(&sandbox, &[]), window(&sandbox, &[])];
    let [one, other] = &mut followers;
    assert_eq!([pid(one, "shared"), pid(other, "shared")], [shared, shared]);
    let own = [pid(&mut leader, "own"), pid(one, "own"), pid(other, "own")];
    assert_eq!(BTreeSet::from(own).len(), 3);
    one.tool_text("own__remember", json!({ "text": "x" }));
    let recall = |client: &mut Client| {
        let id = client.call("own__recall", json!({}));
        client.answer(id)
    };
    wait_until("it has one tool more", PATIENCE, || recall(one)["result"].is_object());
    for client in [&mut leader, other] {
        assert_eq!(recall(client)["error"]["code"], -32602);
    }
    leader.signal(Signal::KILL);
    wait_until("what was the leader's has gone", PATIENCE, || !is_alive(own[0]) && !is_alive(shared));
    let [one, other] = &mut followers;
    assert_eq!([pid(one, "own"), pid(other, "own")], [own[1], own[2]]);
    assert_eq!(said(&recall(one)), "x");
    assert_eq!(pid(one, "shared"), pid(other, "shared"));
    for mut client in followers {
        client.close_stdin();
        assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    }
    drop(leader);
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
    assert!(!remembered(&sandbox).contains("recall"), "it was one client's");
}

#[test]
fn a_window_that_follows_a_gateway_over_http_has_its_own_too() {
    let sandbox = Sandbox::with_jobs();
    let servers = [server("own", &["well-behaved"], OWN), server("shared", &["well-behaved"], "")];
    let (process, web) = gateway(&sandbox, &servers);
    let session = Session::begin(&web);
    let mut window = window(&sandbox, &[]);
    let pids = ["own", "shared"].map(|server| {
        let theirs: i32 = window.tool_text(&format!("{server}__pid"), json!({})).parse().expect("a number");
        (theirs, session.pid(server))
    });
    assert_ne!(pids[0].0, pids[0].1);
    assert_eq!(pids[1].0, pids[1].1);
    assert_eq!(status(&web, "own")["instances"], 1, "that of the session");
    window.close_stdin();
    assert_eq!(window.exit_code(), 0, "{}", window.stderr());
    wait_until("the window's has gone with it", PATIENCE, || !is_alive(pids[0].0));
    finish(process, &sandbox);
}
