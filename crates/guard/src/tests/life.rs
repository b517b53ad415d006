//! Starts, restarts, health and ends.

use super::*;

#[test]
fn promise_6_what_was_in_flight_is_answered_at_once_and_the_session_is_replayed() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.client(r#"{"jsonrpc":"2.0","id":10,"method":"logging/setLevel","params":{"level":"debug"}}"#);
    guarded
        .client(r#"{"jsonrpc":"2.0","id":11,"method":"resources/subscribe","params":{"uri":"file:///a"}}"#);
    guarded.answer(10);
    guarded.answer(11);
    guarded.received();
    guarded.said();
    guarded.call(1);
    guarded.request(2, "tools/list");
    guarded.said();
    guarded.dies();
    let error = guarded.heard_fault(1, -31002);
    assert_eq!(error["data"]["exit"], "exit code 1");
    assert_eq!(error["data"]["stderrTail"][0], "last words");
    guarded.wait(seconds(1));
    let opening = guarded.said();
    assert_eq!((opening.len(), &opening[0]["method"]), (1, &"initialize".into()));
    guarded.call(3);
    assert!(guarded.said().is_empty(), "held until the session is told");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, opening[0]["id"]));
    let methods: Vec<_> =
        guarded.said().iter().map(|message| message["method"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        methods,
        ["notifications/initialized", "logging/setLevel", "resources/subscribe", "tools/list", "tools/call"]
    );
    assert!(guarded.received().is_empty(), "the replay is not the client's business");
    guarded.answer(2);
    guarded.answer(3);
    assert_eq!(guarded.received().len(), 2);
}

#[test]
fn a_list_is_sent_again_once_only() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.request(1, "tools/list");
    for _ in 0..2 {
        guarded.dies();
        guarded.wait(seconds(1));
        let opening = guarded.said();
        if let Some(opening) = opening.iter().find(|message| message["method"] == "initialize") {
            guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, opening["id"]));
        }
    }
    guarded.heard_fault(1, -31002);
    assert_eq!(guarded.wrap_session.counters().retried, 1);
}

#[test]
fn nothing_is_restarted_over_and_over_while_nobody_asks() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.answer(1);
    guarded.dies();
    guarded.wait(seconds(60));
    assert_eq!(guarded.wrap_session.counters().restarts, 1, "once, so that the server is ready");
    guarded.dies();
    guarded.wait(seconds(600));
    assert_eq!(guarded.wrap_session.counters().restarts, 1);
    guarded.said();
    guarded.call(2);
    guarded.wait(seconds(1));
    assert_eq!(guarded.wrap_session.counters().restarts, 2, "again when somebody asks");
    assert_eq!(guarded.said()[0]["method"], "initialize");
}

#[test]
fn promise_6_a_server_that_dies_on_every_call_is_fenced_off() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(100), ..Limits::default() });
    for id in 1..=5 {
        guarded.call(id);
        if id > 1 {
            shake_again(&mut guarded);
        }
        guarded.dies();
        guarded.heard_fault(id, -31002);
    }
    guarded.call(6);
    guarded.heard_fault(6, -31004);
    guarded.wait(seconds(30));
    guarded.call(7);
    guarded.call(8);
    guarded.heard_fault(8, -31004);
    shake_again(&mut guarded);
    guarded.answer(7);
    assert_eq!(guarded.received()[0]["id"], 7, "one trial after the cool-down");
    guarded.call(9);
    guarded.answer(9);
    assert_eq!(guarded.received()[0]["id"], 9, "and it is closed again");
}

#[test]
fn l_58_three_unanswered_health_checks_restart_an_idle_server() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.wait(seconds(30));
    assert_eq!(guarded.said()[0]["method"], "ping");
    guarded.wait(seconds(60));
    assert!(guarded.actions().is_empty());
    guarded.wait(seconds(30));
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
    assert!(guarded.received().is_empty());
}

/// Whoever is not read cannot answer: a client that does not read is not the server's fault.
#[test]
fn promise_3_a_server_that_is_held_back_is_not_judged() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.effects.client_backlog = Limits::default().queue_bytes + 1;
    guarded.wait(seconds(600));
    assert!(guarded.said().is_empty() && guarded.actions().is_empty(), "no health checks meanwhile");
    guarded.dies();
    guarded.wait(seconds(600));
    let said = guarded.said();
    assert_eq!((said.len(), &said[0]["method"]), (1, &"initialize".into()));
    assert!(guarded.actions().is_empty(), "its handshake is not late");
    guarded.effects.client_backlog = 0;
    guarded.wait(seconds(1));
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, said[0]["id"]));
    assert_eq!(guarded.said()[0]["method"], "notifications/initialized");
    guarded.wait(seconds(30));
    assert_eq!(guarded.said()[0]["method"], "ping", "and it is watched again");
}

#[test]
fn a_replayed_handshake_that_is_not_answered_ends_its_server() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.dies();
    guarded.wait(seconds(50));
    assert!(guarded.actions().is_empty());
    guarded.wait(seconds(10));
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
}

#[test]
fn promise_8_a_busy_server_is_not_asked_and_a_deadline_does_not_stop_it() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(1000), ..Limits::default() });
    guarded.call(1);
    guarded.said();
    guarded.wait(seconds(999));
    assert!(guarded.said().is_empty(), "no health check while a call runs");
    guarded.wait(seconds(1));
    guarded.heard_fault(1, -31001);
    assert!(guarded.actions().is_empty(), "one caller's deadline takes the server from nobody");
}

#[test]
fn stdin_ends_and_calls_in_flight_are_still_answered() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.ends();
    assert!(guarded.actions().is_empty(), "the server keeps its stdin while a call runs");
    guarded.answer(1);
    assert_eq!(guarded.received().len(), 1);
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
    guarded.dies();
    assert_eq!(guarded.actions(), [WrapAction::Exit(exit::DONE)]);
}

#[test]
fn a_subscription_is_answered_by_the_server_when_it_hears_of_the_end() {
    for server_answers in [true, false] {
        let mut guarded = Guarded::shaken(Limits::default());
        guarded.request(1, "subscriptions/listen");
        guarded.ends();
        assert_eq!(guarded.actions(), [WrapAction::StopServer], "it holds nothing up");
        assert!(guarded.received().is_empty());
        if server_answers {
            guarded.answer(1);
        }
        guarded.dies();
        let received = guarded.received();
        assert_eq!((received.len(), received[0].get("error").is_some()), (1, !server_answers));
        assert_eq!(guarded.actions(), [WrapAction::Exit(exit::DONE)]);
    }
}

#[test]
fn the_grace_after_the_end_of_stdin_is_bounded() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.ends();
    guarded.wait(seconds(5));
    guarded.heard_fault(1, -31008);
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
    guarded.wait(seconds(5));
    assert_eq!(
        guarded.actions(),
        [WrapAction::Exit(exit::DONE)],
        "even if the server's end is never reported"
    );
}

#[test]
fn a_signal_answers_what_is_in_flight_and_ends() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.wrap_session.stop(guarded.now, exit::TERMINATED, "it was told to end", &mut guarded.effects);
    guarded.heard_fault(1, -31008);
    guarded.dies();
    assert_eq!(guarded.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::TERMINATED)]);
}

#[test]
fn c_52_a_server_that_is_to_end_is_not_checked_any_more() {
    let interval = Duration::from_millis(100);
    let mut guarded = Guarded::shaken(Limits { health_interval: interval, ..Limits::default() });
    guarded.wait(interval);
    assert_eq!(guarded.said()[0]["method"], "ping", "it was checked until then");
    guarded.ends();
    guarded.wait(seconds(2));
    assert!(guarded.said().is_empty(), "nor is anything else asked of it");
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
}

#[test]
fn a_server_that_cannot_be_started_is_told_to_whoever_asks() {
    for asks_first in [true, false] {
        let mut guarded = Guarded::new(Limits::default());
        if asks_first {
            guarded.client(INITIALIZE);
        }
        guarded.wrap_session.start_failed(guarded.now, "no program `x` in /bin", &mut guarded.effects);
        if !asks_first {
            assert!(guarded.actions().is_empty(), "the client is given the time to ask");
            guarded.client(INITIALIZE);
        }
        let error = guarded.heard_fault(0, -31003);
        assert!(error["message"].as_str().unwrap().contains("`x` in /bin"), "{error}");
        assert_eq!(guarded.actions(), [WrapAction::Exit(exit::UNREACHABLE)]);
    }
}

#[test]
fn a_server_that_dies_before_it_answered_anything_is_a_failed_start() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.client(INITIALIZE);
    guarded.dies();
    let error = guarded.heard_fault(0, -31003);
    assert!(error["message"].as_str().unwrap().contains("last words"), "{error}");
    assert_eq!(guarded.actions(), [WrapAction::Exit(exit::UNREACHABLE)]);
}

#[test]
fn stateless_traffic_passes_and_is_mirrored() {
    let mut guarded = Guarded::new(Limits::default());
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{meta}}}}}"#));
    guarded.answer(1);
    guarded.client(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{{{meta}}}}}"#
    ));
    guarded.received();
    guarded.said();
    guarded.wait(seconds(31));
    assert_eq!(guarded.said()[0]["method"], "server/discover", "the health check speaks the client's era");
    guarded.wait(seconds(3));
    guarded.dies();
    guarded.wait(seconds(1));
    let said = guarded.said();
    assert_eq!(
        (said.len(), &said[0]["method"]),
        (1, &"subscriptions/listen".into()),
        "listens are sent again"
    );
    assert!(guarded.received().is_empty());
    guarded.server(r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#);
    assert_eq!(guarded.said()[0]["error"]["code"], -32600, "a stateless server may not ask");
}
