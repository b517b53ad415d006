//! Deaths one by one: who is told, what is kept, when the next process is started, and what the breaker says.

use super::*;

/// One death opens the breaker.
fn fenced_off() -> Guarded {
    let limits = Limits { breaker_failures: 1, call_timeout: seconds(100), ..Limits::default() };
    let mut guarded = Guarded::shaken(limits);
    guarded.call(1);
    guarded.dies();
    guarded.heard_fault(1, -31002);
    guarded.said();
    guarded.wait(seconds(30));
    guarded
}

fn handshake(id: u64) -> String {
    INITIALIZE.replace(r#""id":0"#, &format!(r#""id":{id}"#))
}

#[test]
fn an_expired_trial_lets_the_next_request_try() {
    let mut guarded = fenced_off();
    guarded.call(2);
    guarded.wait(seconds(100));
    guarded.heard_fault(2, -31001);
    guarded.call(3);
    assert!(guarded.received().is_empty(), "it is let through");
}

#[test]
fn a_handshake_as_the_trial_lets_the_next_request_try() {
    let mut guarded = fenced_off();
    guarded.client(&handshake(20));
    guarded.wait(seconds(1));
    guarded.answer(20);
    assert_eq!(guarded.received().len(), 1);
    guarded.said();
    guarded.call(3);
    assert_eq!(guarded.said().len(), 1, "it is let through: {:?}", guarded.received());
}

#[test]
fn a_subscription_is_no_trial_since_nobody_knows_when_it_ends() {
    let mut guarded = fenced_off();
    guarded.request(2, "subscriptions/listen");
    guarded.call(3);
    assert!(guarded.received().is_empty(), "both are let through");
}

#[test]
fn promise_6_a_server_that_shakes_hands_and_dies_on_every_call_is_fenced_off() {
    let mut guarded = Guarded::shaken(Limits::default());
    for id in 1..=5 {
        guarded.call(id);
        guarded.dies();
        guarded.heard_fault(id, -31002);
        guarded.client(&handshake(100 + id));
        if id < 5 {
            guarded.wait(seconds(35));
            guarded.answer(100 + id);
            assert_eq!(guarded.received()[0]["id"], 100 + id);
        }
    }
    let fault = guarded.heard_fault(105, -31004);
    assert!(fault["data"]["retryAfterMs"].as_u64().is_some_and(|rest| rest <= 30_000), "{fault}");
}

#[test]
fn a_server_is_not_started_before_the_old_one_and_all_it_left_have_gone() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.wrap_session.server_exited(guarded.now, &Exit::Code(1), &mut guarded.effects);
    guarded.said();
    guarded.wait(seconds(60));
    assert!(guarded.said().is_empty(), "no second process");
    guarded.wrap_session.server_gone(guarded.now, SweptTree { leaked: 0, unkilled: 0 }, &mut guarded.effects);
    guarded.wait(seconds(1));
    assert_eq!(guarded.said()[0]["method"], "initialize");
}

#[test]
fn a_restart_waits_for_its_delay() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.dies();
    guarded.wait(Duration::from_millis(100));
    assert!(guarded.said().is_empty());
    guarded.wait(seconds(1));
    assert_eq!(guarded.said()[0]["method"], "initialize");
}

#[test]
fn what_is_asked_while_a_deaf_server_is_stopped_waits_for_the_next_and_for_the_delay() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.wrap_session.server_deaf(guarded.now, "it closed its stdin");
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
    guarded.call(1);
    assert!(guarded.said().is_empty(), "nothing is sent to a server that is being stopped");
    guarded.dies();
    guarded.wait(Duration::from_millis(100));
    assert!(guarded.said().is_empty(), "the delay counts from the end");
    shake_again(&mut guarded);
    assert_eq!(guarded.said().last().expect("the session and the call")["method"], "tools/call");
    guarded.answer(1);
    assert_eq!(guarded.received()[0]["id"], 1);
}

#[test]
fn f_55_how_much_of_its_limit_a_call_waited_for_a_restart_is_told() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(60), ..Limits::default() });
    guarded.dies();
    guarded.call(1);
    shake_again(&mut guarded);
    guarded.wait(seconds(25));
    let fault = guarded.heard_fault(1, -31001);
    let message = fault["message"].as_str().expect("a sentence");
    assert!(
        message.contains("did not answer `tools/call` within 1m, 35s of which it took to start;"),
        "{message}"
    );
    guarded.call(2);
    guarded.wait(seconds(60));
    let fault = guarded.heard_fault(2, -31001);
    assert!(!fault["message"].to_string().contains("to start"), "it was there: {fault}");
}

#[test]
fn a_server_that_is_fenced_off_is_not_started_for_an_earlier_wish() {
    let mut guarded = Guarded::shaken(Limits { breaker_failures: 1, ..Limits::default() });
    guarded.wrap_session.server_deaf(guarded.now, "it closed its stdin");
    guarded.call(1);
    guarded.dies();
    guarded.heard_fault(1, -31004);
    guarded.wait(seconds(20));
    assert!(guarded.said().is_empty());
}

/// A session whose server died and whose next process is being told the session.
fn replaying() -> (Guarded, Value) {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.dies();
    guarded.wait(seconds(1));
    let opening = guarded.said().remove(0);
    assert_eq!(opening["method"], "initialize");
    (guarded, opening["id"].clone())
}

#[test]
fn a_replayed_handshake_has_a_deadline() {
    let (mut guarded, _) = replaying();
    guarded.wait(seconds(50));
    assert!(guarded.actions().is_empty());
    guarded.wait(seconds(6));
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
}

#[test]
fn a_handshake_with_a_process_that_died_is_not_held_against_the_next() {
    let (mut guarded, _) = replaying();
    guarded.call(1);
    guarded.dies();
    shake_again(&mut guarded);
    guarded.wait(seconds(60));
    assert!(guarded.actions().is_empty(), "the new process has answered its own");
}

#[test]
fn a_server_that_refuses_the_replayed_handshake_is_stopped() {
    let (mut guarded, id) = replaying();
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"no"}}}}"#));
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
    assert!(guarded.said().is_empty(), "no session was agreed on");
    // The guard stops a server whose answer is no valid message, too.
    let (mut guarded, id) = replaying();
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1,"error":2}}"#));
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
    let (mut guarded, _) = replaying();
    guarded.server(r#"{"jsonrpc":"2.0","id":null,"error":2}"#);
    assert!(guarded.actions().is_empty(), "an answer without an id may be for somebody else");
}

#[test]
fn a_client_that_shakes_hands_itself_is_not_replayed_for() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.dies();
    guarded.client(&handshake(5));
    guarded.wait(seconds(1));
    let said = guarded.said();
    assert_eq!((said.len(), &said[0]["id"]), (1, &5.into()), "{said:?}");
}

#[test]
fn the_end_of_the_handshake_is_said_once() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.client(INITIALIZE);
    guarded.answer(0);
    guarded.said();
    guarded.dies();
    guarded.client(INITIALIZED);
    shake_again(&mut guarded);
    let said = guarded.said();
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn a_held_request_is_sent_once_whatever_became_of_its_id_before() {
    let (mut guarded, id) = replaying();
    guarded.request(1, "tools/list");
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    guarded.request(1, "tools/list");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    let said = guarded.said();
    assert_eq!(said.iter().filter(|message| message["method"] == "tools/list").count(), 1, "{said:?}");
}

#[test]
fn a_request_too_large_to_be_kept_is_not_sent_again() {
    let mut guarded = Guarded::shaken(Limits::default());
    let cursor = "x".repeat(70_000);
    guarded.client(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"cursor":"{cursor}"}}}}"#
    ));
    guarded.dies();
    guarded.heard_fault(1, -31002);
}

#[test]
fn a_restart_that_fails_while_a_signal_ends_the_guard_is_its_end() {
    let (mut guarded, _) = replaying();
    guarded.wrap_session.stop(guarded.now, exit::TERMINATED, "it was told to end", &mut guarded.effects);
    guarded.wrap_session.start_failed(guarded.now, "no memory", &mut guarded.effects);
    assert_eq!(guarded.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::UNREACHABLE)]);
}

#[test]
fn an_end_that_was_asked_for_is_not_called_unexpected() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.ends();
    guarded.dies();
    assert_eq!(guarded.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::DONE)]);
    assert!(guarded.effects.shown.is_empty(), "{:?}", guarded.effects.shown);
}

#[test]
fn a_client_that_never_asks_after_a_failed_start_is_not_waited_for() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.wrap_session.start_failed(guarded.now, "no program", &mut guarded.effects);
    guarded.wait(seconds(5));
    assert_eq!(guarded.actions(), [WrapAction::Exit(exit::UNREACHABLE)]);
}

#[test]
fn x_05_a_signal_does_not_hide_that_the_server_never_started() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.wrap_session.start_failed(guarded.now, "no program", &mut guarded.effects);
    guarded.wrap_session.server_gone(guarded.now, SweptTree { leaked: 0, unkilled: 0 }, &mut guarded.effects);
    guarded.wrap_session.stop(guarded.now, exit::TERMINATED, "it was told to end", &mut guarded.effects);
    assert_eq!(guarded.actions(), [WrapAction::Exit(exit::UNREACHABLE)]);
}

#[test]
fn x_05_the_outcome_that_came_first_stays() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.wrap_session.stop(guarded.now, exit::DONE, "the client reads no more", &mut guarded.effects);
    guarded.wrap_session.stop(guarded.now, exit::TERMINATED, "it was told to end", &mut guarded.effects);
    guarded.dies();
    assert_eq!(guarded.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::DONE)]);
}

/// Each call ends at its deadline, and the check after it goes unanswered too: that is no busy server.
#[test]
fn l_58_a_hung_server_is_replaced_though_somebody_asks_again_and_again() {
    let mut guarded = Guarded::shaken(Limits::default());
    for id in 1..=4 {
        assert!(guarded.actions().is_empty(), "one caller's deadline takes the server from nobody");
        guarded.call(id);
        guarded.wait(seconds(300));
        guarded.heard_fault(id, -31001);
    }
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
}

#[test]
fn nothing_is_started_for_a_client_that_has_gone() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.answer(1);
    guarded.dies();
    guarded.call(2);
    // The tick that starts the server again, and in the same moment the end.
    guarded.now += seconds(1);
    guarded.wrap_session.tick(guarded.now, &mut guarded.effects);
    guarded.wrap_session.stop(guarded.now, exit::DONE, "the client reads no more", &mut guarded.effects);
    assert_eq!(guarded.actions(), [WrapAction::Exit(exit::DONE)]);
}

#[test]
fn a_server_that_was_given_up_is_not_started_for_what_was_asked_before() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.wrap_session.server_deaf(guarded.now, "closed its stdout");
    guarded.call(1);
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    guarded.dies();
    guarded.wrap_session.tick(guarded.now, &mut guarded.effects);
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
    guarded.call(2);
    guarded.heard_fault(2, -31003);
}

#[test]
fn a_server_that_was_ended_is_told_with_the_reason_and_one_that_ended_without() {
    let ended =
        "`srv` closed its stdout, and unhang ended it (signal 15 (SIGTERM)) 1s after `tools/call` was sent";
    let went = "`srv` ended (signal 15 (SIGTERM)) 20ms after `tools/call` was sent";
    for (after, told) in [(seconds(1), ended), (Duration::from_millis(20), went)] {
        let mut guarded = Guarded::shaken(Limits::default());
        guarded.call(1);
        guarded.wrap_session.server_deaf(guarded.now, "closed its stdout");
        guarded.wait(after);
        guarded.wrap_session.server_exited(guarded.now, &Exit::Signal(15), &mut guarded.effects);
        let error = guarded.heard_fault(1, -31002);
        assert!(error["message"].as_str().unwrap().starts_with(told), "{error}");
        assert_eq!(error["data"]["exit"], "signal 15 (SIGTERM)");
    }
    let mut guarded = Guarded::new(Limits::default());
    guarded.call(1);
    guarded.wrap_session.server_deaf(guarded.now, "closed its stdin");
    guarded.wait(seconds(1));
    guarded.wrap_session.server_exited(guarded.now, &Exit::Signal(15), &mut guarded.effects);
    let error = guarded.heard_fault(1, -31003);
    let told =
        "`srv` closed its stdin, and unhang ended it (signal 15 (SIGTERM)) before it answered anything";
    assert!(error["message"].as_str().unwrap().starts_with(told), "{error}");
}
