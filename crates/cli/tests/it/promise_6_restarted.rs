//! Promise 6: a dead server comes back with its session replayed; only safe requests are retried; one that keeps failing is
//! fenced off.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, is_alive, server_pid, signal, wait_until},
    talk::{assert_stays, code, lines_of, text_of},
};

const FAST: &[&str] = &["--restart-delay", "50ms", "--stop-grace", "200ms"];

fn wrap(sandbox: &Sandbox, flags: &[&str], faulty_server: &[&str]) -> Client {
    sandbox.wrap(&[FAST, flags].concat(), faulty_server)
}

/// A line that calls a tool, to be written together with others.
fn call_line(id: i64, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    request_line(id, "tools/call", &params)
}

fn request_line(id: i64, method: &str, params: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// Lets the server die by its own tool, unanswered.
#[track_caller]
fn let_die(client: &mut Client) {
    let id = client.call("die", json!({"code": 9}));
    client.fault(id, code::SERVER_EXITED);
}

#[track_caller]
fn lines_in(sandbox: &Sandbox, file: &str) -> usize {
    fs::read_to_string(sandbox.path().join(file)).unwrap_or_default().lines().count()
}

#[test]
fn a_dead_server_comes_back_with_its_session() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    client.initialize_as("2025-06-18", "the client");
    client.request("logging/setLevel", json!({"level": "info"}));
    client.request("logging/setLevel", json!({"level": "warning"}));
    for number in 1..=3 {
        client.request("resources/subscribe", json!({"uri": format!("zoo://numbers/{number}")}));
    }
    client.request("resources/unsubscribe", json!({"uri": "zoo://numbers/2"}));
    let before = client.state();
    let_die(&mut client);
    let after = client.state();
    assert_ne!(before["pid"], after["pid"]);
    for (member, expect) in [
        ("initialized", json!(true)),
        ("level", json!("warning")),
        ("subscriptions", json!(["zoo://numbers/1", "zoo://numbers/3"])),
        ("protocolVersion", json!("2025-06-18")),
        ("clientName", json!("the client")),
        ("calls", json!(1)),
    ] {
        assert_eq!(after[member], expect, "{member}");
    }
    // The answers to the replay are unhang's own.
    client.end(&[]);
    // And a subscription is one again: a change is heard.
    assert!(client.stderr().contains("is back"), "{}", client.stderr());
}

#[test]
fn a_replayed_subscription_is_heard() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    client.initialize();
    client.request("resources/subscribe", json!({"uri": "zoo://numbers/1"}));
    let_die(&mut client);
    client.call("notify-resource-updated", json!({"uri": "zoo://numbers/1"}));
    client.find("the change", |message| message["method"] == "notifications/resources/updated");
    client.end(&[]);
}

#[test]
fn what_was_in_flight_is_answered_at_once_with_the_reason() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--name", "frail"], &["well-behaved"]);
    client.initialize();
    client.tool_text("stderr", json!({"bytes": 5000}));
    let calls = [0; 3].map(|_| client.call("sleep", json!({"ms": 100_000})));
    let die = client.call("die", json!({"code": 7}));
    for id in calls.into_iter().chain([die]) {
        let error = client.fault(id, code::SERVER_EXITED);
        assert!(error["data"]["exit"].as_str().is_some_and(|exit| exit.contains('7')), "{error}");
        let tail = lines_of(&error, "stderrTail");
        assert!(tail.len() == 20 && tail.iter().all(|line| line.contains("WARN something")), "{tail:?}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains("`frail`") && message.contains(tail[19].trim()), "{message}");
        assert!(error["data"]["elapsedMs"].as_u64().is_some_and(|elapsed| elapsed < 20_000), "{error}");
    }
    client.end(&[]);
}

#[test]
fn a_signal_is_named() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    client.initialize();
    let id = client.call("die-by-signal", json!({"signal": 9}));
    let error = client.fault(id, code::SERVER_EXITED);
    assert!(
        error["data"]["exit"].as_str().is_some_and(|exit| exit.contains("KILL") || exit.contains('9')),
        "{error}"
    );
    client.end(&[]);
}

#[test]
fn r_29_the_last_words_of_a_talkative_death_are_told() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["stderr-flood-while-dying", "300000"]);
    client.initialize();
    let id = client.call("echo", json!({}));
    let error = client.fault(id, code::SERVER_EXITED);
    assert_eq!(lines_of(&error, "stderrTail").last().map(String::as_str), Some("the last words"));
    assert!(error["message"].as_str().is_some_and(|text| text.contains("the last words")), "{error}");
    client.end(&[]);
}

#[test]
fn x_14_lists_and_reads_are_sent_again_and_nothing_else() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    client.initialize();
    let file = sandbox.path().join("died").display().to_string();
    // Written at once, so that all of them are with the server when it dies of the first.
    let lines = [
        call_line(50, "die-once", &json!({"file": file})),
        request_line(51, "tools/list", &json!({})),
        request_line(52, "resources/read", &json!({"uri": "zoo://numbers/4"})),
        request_line(53, "prompts/list", &json!({})),
        request_line(54, "resources/templates/list", &json!({})),
        request_line(55, "prompts/get", &json!({"name": "farewell"})),
        request_line(56, "completion/complete", &json!({})),
        call_line(57, "echo", &json!({"text": "x"})),
    ];
    client.write(lines.concat().as_bytes()).expect("written");
    for id in [50, 55, 56, 57] {
        client.fault(id, code::SERVER_EXITED);
    }
    assert!(client.answer(51)["result"]["tools"].is_array());
    assert_eq!(client.answer(52)["result"]["contents"][0]["text"], "The number 4");
    assert!(client.answer(53)["result"]["prompts"].is_array());
    assert!(client.answer(54)["result"]["resourceTemplates"].is_array());
    client.end(&[]);
    assert!((50..=57).all(|id| client.answers_to(id) == 1), "{:?}", client.seen());
    assert!(sandbox.log().contains("retried: 4"), "{}", sandbox.log());
}

#[test]
fn x_14_a_list_is_sent_again_once_only() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["exits-on-first-request"]);
    client.initialize();
    let id = client.request("tools/list", json!({}));
    let error = client.fault(id, code::SERVER_EXITED);
    assert!(
        lines_of(&error, "stderrTail").iter().any(|line| line.contains("a module could not be loaded")),
        "{error}"
    );
    client.end(&[]);
    assert!(sandbox.log().contains("retried: 1"), "{}", sandbox.log());
}

#[test]
fn new_requests_wait_for_the_restart() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["exits-zero-after-each-answer"]);
    client.initialize();
    let mut pids = Vec::new();
    for deaths in 1..=4 {
        pids.push(server_pid(&mut client));
        // A call that is already on its way to a dying process would be answered with its death.
        wait_until("the end", PATIENCE, || client.stderr().matches("ended unexpectedly").count() == deaths);
    }
    pids.dedup();
    assert_eq!(pids.len(), 4, "four calls, four processes: {pids:?}");
    client.end(&[]);
}

#[test]
fn a_request_waits_for_the_restart_only_until_its_own_deadline() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--restart-delay", "30s", "--call-timeout", "1s"], &["well-behaved"]);
    client.initialize();
    let_die(&mut client);
    let id = client.call("echo", json!({"text": "x"}));
    let error = client.fault(id, code::DEADLINE);
    assert_eq!(error["data"]["limitMs"], 1000);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("not ready again")), "{error}");
    // One that is withdrawn while it waits is never sent.
    let withdrawn = client.call("echo", json!({"text": "withdrawn"}));
    client.cancel(withdrawn);
    client.end(&[withdrawn]);
}

#[test]
fn notifications_are_held_until_the_server_is_back() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    client.initialize();
    let_die(&mut client);
    // Both are held if the server is not back yet; the second must not overtake the first.
    let sleep = client.call("sleep", json!({"ms": 60_000}));
    client.cancel(sleep);
    assert_eq!(client.state()["initialized"], true);
    client.end(&[sleep]);
}

#[test]
fn an_idle_death_is_repaired_before_anybody_asks() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    client.initialize();
    let pid = server_pid(&mut client);
    signal(pid, rustix::process::Signal::KILL);
    client.wait_for_notice("is back");
    assert_ne!(server_pid(&mut client), pid);
    client.end(&[]);
}

#[test]
fn a_server_that_dies_again_while_idle_is_left_alone_until_somebody_asks() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--breaker-failures", "100"], &["dies-idle", "100"]);
    client.initialize();
    // Started, died, started once more unasked, died again: now nobody starts it any more.
    let deaths = |client: &Client| client.stderr().matches("ended unexpectedly").count();
    wait_until("the second death", PATIENCE, || deaths(&client) == 2);
    assert_stays("no third process while nobody asks", Duration::from_millis(1500), || deaths(&client) == 2);
    let id = client.request("tools/list", json!({}));
    assert!(client.answer(id)["result"]["tools"].is_array(), "when somebody asks it is there");
    client.end(&[]);
}

#[test]
fn no_restart_storm_while_nobody_asks() {
    let sandbox = Sandbox::new();
    let flags = ["--restart-delay", "10ms", "--breaker-failures", "4"];
    let mut client = sandbox.wrap(&flags, &["restarts-broken", "--count-file", "starts", "1"]);
    client.initialize();
    let_die(&mut client);
    wait_until("the one restart", PATIENCE, || lines_in(&sandbox, "starts") == 2);
    assert_stays("one restart and no more", Duration::from_millis(1500), || {
        lines_in(&sandbox, "starts") == 2
    });
    // Asked, it is tried again until the fourth failure, and the caller is told why.
    let id = client.call("echo", json!({"text": "x"}));
    let error = client.fault(id, code::BREAKER_OPEN);
    assert!(lines_of(&error, "stderrTail").iter().any(|line| line.contains("start 4 fails")), "{error}");
    assert_eq!(lines_in(&sandbox, "starts"), 4);
    client.end(&[]);
}

#[test]
fn a_request_that_waits_for_a_server_that_cannot_come_back_is_told() {
    let sandbox = Sandbox::new();
    let flags = ["--restart-delay", "10ms", "--breaker-failures", "3", "--breaker-cooldown", "30s"];
    let mut client = sandbox.wrap(&flags, &["restarts-broken", "--count-file", "starts", "1"]);
    client.initialize();
    let_die(&mut client);
    let waits = client.call("echo", json!({"text": "x"}));
    let error = client.fault(waits, code::BREAKER_OPEN);
    assert!(lines_of(&error, "stderrTail").iter().any(|line| line.contains("fails")), "{error}");
    assert_eq!(lines_in(&sandbox, "starts"), 3, "one good start, two that failed");
    client.end(&[]);
}

#[test]
fn l_56_a_server_that_keeps_failing_is_fenced_off_and_tried_again() {
    let sandbox = Sandbox::new();
    let flags = ["--restart-delay", "10ms", "--breaker-failures", "3", "--breaker-cooldown", "2s"];
    let mut client = sandbox.wrap(&flags, &["dies-every-call"]);
    client.initialize();
    for _ in 0..3 {
        let id = client.call("echo", json!({}));
        client.fault(id, code::SERVER_EXITED);
    }
    // A handshake is no proof of health: three deaths open it although each new process shook hands.
    let id = client.call("echo", json!({}));
    let error = client.fault(id, code::BREAKER_OPEN);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("3 times in a row")), "{error}");
    assert!(
        error["data"]["elapsedMs"].as_u64().is_some_and(|elapsed| elapsed < 1000),
        "refused at once: {error}"
    );
    assert!(lines_of(&error, "stderrTail").iter().any(|line| line.contains("the tool crashed")), "{error}");
    // After the cool-down one trial reaches the server. It dies again, and that closes the door at once.
    wait_until("the trial", PATIENCE, || {
        let id = client.call("echo", json!({}));
        client.answer(id)["error"]["code"] == code::SERVER_EXITED
    });
    let id = client.call("echo", json!({}));
    client.fault(id, code::BREAKER_OPEN);
    client.end(&[]);
}

#[test]
fn l_56_a_trial_that_is_answered_lets_everybody_in() {
    let sandbox = Sandbox::new();
    let flags = ["--restart-delay", "10ms", "--breaker-failures", "2", "--breaker-cooldown", "2s"];
    let mut client = sandbox.wrap(&flags, &["well-behaved"]);
    client.initialize();
    for _ in 0..2 {
        let_die(&mut client);
    }
    let id = client.call("echo", json!({"text": "x"}));
    client.fault(id, code::BREAKER_OPEN);
    wait_until("the trial", PATIENCE, || {
        let id = client.call("echo", json!({"text": "x"}));
        client.answer(id)["error"].is_null()
    });
    // The count begins anew: one death does not open it, and the next request is served.
    let_die(&mut client);
    assert_eq!(client.tool_text("echo", json!({"text": "in"})), "in");
    client.end(&[]);
}

#[test]
fn l_56_a_callers_deadline_is_no_failure_of_the_server() {
    let sandbox = Sandbox::new();
    let mut client =
        sandbox.wrap(&["--call-timeout", "1s", "--breaker-failures", "2"], &["never-answers", "hang"]);
    client.initialize();
    for id in [0; 5].map(|_| client.call("hang", json!({}))) {
        client.fault(id, code::DEADLINE);
    }
    assert_eq!(client.tool_text("echo", json!({"text": "in"})), "in");
    client.end(&[]);
}

#[test]
fn a_question_of_a_dead_server_is_withdrawn() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    client.initialize();
    let ask = client.call("ask", json!({"method": "elicitation/create"}));
    let question = client.find("a question", |message| message["method"] == "elicitation/create");
    let_die(&mut client);
    assert_eq!(client.answers_to(ask), 1, "{:?}", client.seen());
    let withdrawn = client.seen().iter().any(|message| {
        message["method"] == "notifications/cancelled" && message["params"]["requestId"] == question["id"]
    });
    assert!(withdrawn, "{:?}", client.seen());
    // The new process numbers its questions alike; an answer to the old one is not taken for an answer to the new.
    let ask = client.call("ask", json!({"method": "elicitation/create"}));
    let again = client.find("another question", |message| message["method"] == "elicitation/create");
    assert_ne!(again["id"], question["id"]);
    client.respond(&question["id"], &json!({"action": "stale"}));
    client.respond(&again["id"], &json!({"action": "accept"}));
    assert_eq!(text_of(&client.answer(ask)), r#"{"action":"accept"}"#);
    client.end(&[]);
}

#[test]
fn a_server_that_turns_deaf_is_replaced() {
    for faulty_server in ["closes-stdout", "closes-stdin"] {
        let sandbox = Sandbox::new();
        let mut client = wrap(&sandbox, &["--call-timeout", "10s"], &[faulty_server]);
        client.initialize();
        let id = client.call("echo", json!({}));
        client.answer(id);
        // Whatever happens to be with the old process is answered, and a list finds the new one.
        wait_until("a list", PATIENCE, || {
            let id = client.request("tools/list", json!({}));
            client.answer(id)["result"]["tools"].is_array()
        });
        client.end(&[]);
        assert!(sandbox.log().contains("restarts: 1"), "{faulty_server}: {}", sandbox.log());
    }
}

#[test]
fn a_server_that_closes_its_stdin_is_replaced_at_the_next_request() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--request-timeout", "5s"], &["closes-stdin"]);
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({"text": "the last one heard"})), "the last one heard");
    let id = client.request("ping", json!({}));
    client.fault(id, code::SERVER_EXITED);
    let id = client.request("tools/list", json!({}));
    let answer = client.answer(id);
    assert!(answer["result"]["tools"].is_array(), "{answer}");
    client.end(&[]);
}

/// The write had succeeded, so that no later one is needed to see that nobody will ever read it.
#[test]
fn a_server_that_leaves_a_request_unread_in_its_stdin_is_replaced() {
    let sandbox = Sandbox::new();
    // Far beyond what is waited for here.
    let mut client = wrap(&sandbox, &["--request-timeout", "10m"], &["closes-stdin", "1"]);
    client.initialize();
    client.tool_text("echo", json!({"text": "the last one heard"}));
    let id = client.request("ping", json!({}));
    client.fault(id, code::SERVER_EXITED);
    let id = client.request("tools/list", json!({}));
    assert!(client.answer(id)["result"]["tools"].is_array());
    client.end(&[]);
    assert!(sandbox.log().contains("unread"), "{}", sandbox.log());
}

#[test]
fn stateless_sessions_need_no_replay() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    let id = client.modern_call("die", json!({"code": 3}));
    // Nothing was ever answered by this server, so its end is a failed start.
    client.fault(id, code::START_FAILED);
    assert_eq!(client.exit_code(), 3);

    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    let discover = client.modern("server/discover", json!({}));
    assert!(client.answer(discover)["result"]["supportedVersions"].is_array());
    let die = client.modern_call("die", json!({"code": 3}));
    client.fault(die, code::SERVER_EXITED);
    let state = client.modern_call("state", json!({}));
    let state: Value = serde_json::from_str(&text_of(&client.answer(state))).expect("JSON");
    assert_eq!(
        (&state["protocolVersion"], &state["calls"]),
        (&Value::Null, &json!(1)),
        "no handshake was made up"
    );
    client.end(&[]);
}

#[test]
fn a_subscription_of_the_stateless_era_is_opened_again() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &[], &["well-behaved"]);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let listen = client.modern("subscriptions/listen", filter);
    let acknowledged = |message: &Value| message["method"] == "notifications/subscriptions/acknowledged";
    client.find("the acknowledgement", acknowledged);
    let list = client.modern("tools/list", json!({}));
    client.answer(list);
    let die = client.modern_call("die", json!({"code": 3}));
    client.fault(die, code::SERVER_EXITED);
    client.find("the second acknowledgement", acknowledged);
    client.modern_call("notify-list-changed", json!({}));
    client.find("the change", |message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(client.answers_to(listen), 0, "it stays open");
    client.finish();
    client.drain();
    assert_eq!(client.answers_to(listen), 1, "and is answered when the session ends");
}

#[test]
fn l_58_a_server_that_hangs_while_idle_is_replaced() {
    let sandbox = Sandbox::new();
    // It hangs before it is asked for the first time, else the questions would keep it awake.
    let flags = ["--health-interval", "500ms"];
    let mut client = wrap(&sandbox, &flags, &["hangs-idle", "300", "--once", "hung"]);
    client.initialize();
    client.wait_for_notice("health checks unanswered");
    client.wait_for_notice("is back");
    let hung: i32 =
        fs::read_to_string(sandbox.path().join("hung")).expect("it hung").parse().expect("its pid");
    let state = client.state();
    assert_ne!(state["pid"], hung);
    assert_eq!(state["initialized"], true);
    assert!(!is_alive(hung));
    client.end(&[]);
}

#[test]
fn l_58_a_stopped_server_is_replaced() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--health-interval", "300ms"], &["well-behaved"]);
    client.initialize();
    let pid = server_pid(&mut client);
    signal(pid, rustix::process::Signal::STOP);
    client.wait_for_notice("is back");
    assert_ne!(server_pid(&mut client), pid);
    assert!(!is_alive(pid));
    client.end(&[]);
}

#[test]
fn a_request_that_comes_while_a_hung_server_is_stopped_waits_for_the_next() {
    let sandbox = Sandbox::new();
    // A stopped process needs SIGKILL, so that both graces pass before it has gone.
    let flags = ["--health-interval", "300ms", "--stop-grace", "500ms"];
    let mut client = sandbox.wrap(&flags, &["well-behaved"]);
    client.initialize();
    let pid = server_pid(&mut client);
    signal(pid, rustix::process::Signal::STOP);
    client.wait_for_notice("health checks unanswered");
    assert_ne!(server_pid(&mut client), pid);
    client.end(&[]);
    assert!(sandbox.log().contains("restarts: 1"), "{}", sandbox.log());
}

#[test]
fn l_58_a_stateless_server_that_hangs_while_idle_is_replaced() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--health-interval", "300ms"], &["well-behaved"]);
    let id = client.modern_call("pid", json!({}));
    let pid: i32 = text_of(&client.answer(id)).parse().expect("a pid");
    signal(pid, rustix::process::Signal::STOP);
    client.wait_for_notice("ended unexpectedly");
    let id = client.modern_call("pid", json!({}));
    assert_ne!(text_of(&client.answer(id)), pid.to_string());
    client.end(&[]);
}

#[test]
fn health_checks_are_unhangs_own_and_leave_a_healthy_server_alone() {
    let sandbox = Sandbox::new();
    let mut client = wrap(&sandbox, &["--health-interval", "300ms"], &["well-behaved"]);
    client.initialize();
    let pid = server_pid(&mut client);
    assert_stays("the client hears nothing of them", Duration::from_millis(1500), || {
        client.next_message(Duration::from_millis(1)).is_none()
    });
    assert_eq!(server_pid(&mut client), pid);
    client.end(&[]);
}
