//! Calls, limits, cancellations and the end.

use super::*;
use unhang_core::exit;

fn shaken() -> TestSession {
    TestSession::shaken(Limits::default(), "2025-11-25")
}

fn cancel(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

#[test]
fn promise_8_answers_come_in_the_order_in_which_calls_end() {
    let mut front = shaken();
    for id in 1..=3 {
        front.calls(id);
    }
    let keys = front.called();
    for key in keys.into_iter().rev() {
        front.ends(key, "x");
    }
    let ids: Vec<_> = front.received().into_iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [3, 2, 1]);
}

#[test]
fn a_call_that_takes_too_long_is_answered_and_cancelled() {
    let mut front = shaken();
    front.calls(1);
    let key = front.called()[0];
    front.wait(seconds(299));
    assert!(front.received().is_empty());
    front.wait(seconds(1));
    let fault = front.heard_fault(1, -31001);
    assert_eq!(fault["data"]["limitMs"], 300_000);
    assert!(
        fault["message"].as_str().is_some_and(|text| text.starts_with("`echo` did not answer within 5m; "))
    );
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    front.ends(key, "late");
    assert!(front.received().is_empty(), "nobody waits any more");
}

#[test]
fn g_06_our_deadline_fires_before_that_of_a_client_that_is_known() {
    for (version, era) in [
        ("2025-06-18", ""),
        (
            "",
            r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"claude-ai"}}"#,
        ),
    ] {
        let mut front = TestSession::new(Limits::default());
        if !version.is_empty() {
            front.says(&format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","clientInfo":{{"name":"claude-ai"}}}}}}"#));
        }
        front.received();
        front.says(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo"{era}}}}}"#
        ));
        front.wait(seconds(57));
        front.heard_fault(1, -31001);
    }
}

#[test]
fn after_a_cancellation_nothing_more_is_said_and_the_id_is_free() {
    let mut front = shaken();
    front.calls(1);
    let first = front.called()[0];
    front.says(&cancel(1));
    assert_eq!(front.actions(), [SessionAction::Cancel(first)]);
    front.calls(1);
    let second = front.called()[0];
    front.ends(first, "late");
    assert!(front.received().is_empty());
    front.ends(second, "new");
    let received = front.received();
    assert_eq!((received.len(), &received[0]["result"]["content"][0]["text"]), (1, &json!("new")));
    front.says(&cancel(1));
    front.says(&cancel(77));
    assert!(front.received().is_empty() && front.actions().is_empty());
}

#[test]
fn a_batch_is_complete_without_what_was_withdrawn() {
    let mut front = TestSession::shaken(Limits::default(), "2025-03-26");
    let call =
        |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo"}}}}"#);
    front.says(&format!("[{},{}]", call(1), call(2)));
    let keys = front.called();
    front.ends(keys[0], "x");
    assert!(front.received().is_empty());
    front.says(&cancel(2));
    let received = front.received();
    assert_eq!(
        (received.len(), received[0].as_array().map(Vec::len), &received[0][0]["id"]),
        (1, Some(1), &json!(1))
    );
}

#[test]
fn what_is_no_good_request_is_refused_with_its_id() {
    let mut front = TestSession::shaken(Limits { max_message: 1000, ..Limits::default() }, "2025-11-25");
    for (line, id, code) in [
        ("garbage", Value::Null, -32700),
        (r#"{"level":"info"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, json!(7), -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, json!(1.5), -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping""#, json!(1), -32700),
        (r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#, json!(1), -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, json!(1), -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}"#, json!(1), -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"eco"}}"#, json!(1), -32602),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[1]}}"#,
            json!(1),
            -32602,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}"#, json!(1), -32602),
        (
            &format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":"{}"}}"#, "x".repeat(1000)),
            json!(9),
            -31006,
        ),
    ] {
        front.says(line);
        front.heard_fault(id, code);
    }
    front.says(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"eco"}}"#);
    let fault = front.heard_fault(1, -32602);
    assert!(fault["message"].as_str().is_some_and(|text| text.contains("did you mean `echo`?")), "{fault}");
    front.says(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    assert!(front.received().is_empty());
    front.says(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null}}"#);
    assert_eq!(front.received()[0]["result"]["tools"][0]["name"], "echo");
}

#[test]
fn an_id_in_flight_is_refused_and_its_call_goes_on() {
    let mut front = shaken();
    front.calls("a");
    front.calls("a");
    front.heard_fault("a", -32600);
    let keys = front.called();
    assert_eq!(keys.len(), 1);
    front.ends(keys[0], "x");
    assert_eq!(front.received()[0]["id"], "a");
}

#[test]
fn calls_in_flight_are_bounded_those_that_nobody_waits_for_included() {
    let mut front = TestSession::shaken(Limits { max_in_flight: 2, ..Limits::default() }, "2025-11-25");
    front.calls(1);
    front.calls(2);
    front.says(&cancel(1));
    front.calls(3);
    front.heard_fault(3, -31005);
    let keys = front.called();
    assert_eq!(keys.len(), 2);
    front.ends(keys[0], "late");
    front.calls(4);
    assert_eq!((front.called().len(), front.received().len()), (1, 0));
}

#[test]
fn promise_3_a_client_that_does_not_read_is_not_read_either() {
    let mut front = shaken();
    assert!(front.mcp_session.reads_client(&front.effects));
    front.effects.backlog = front.mcp_session.limits.queue_bytes + 1;
    assert!(!front.mcp_session.reads_client(&front.effects));
}

#[test]
fn at_the_end_of_stdin_calls_may_still_end() {
    let mut front = shaken();
    front.calls(1);
    let key = front.called()[0];
    front.mcp_session.client_end(front.now, &mut front.effects);
    front.wait(seconds(4));
    assert!(front.actions().is_empty());
    front.ends(key, "x");
    assert_eq!(front.received()[0]["id"], 1);
    assert_eq!(front.actions(), [SessionAction::Exit(exit::DONE)]);

    let mut front = shaken();
    front.mcp_session.client_end(front.now, &mut front.effects);
    assert_eq!(front.actions(), [SessionAction::Exit(exit::DONE)], "nothing is in flight");
}

#[test]
fn calls_that_outlast_the_grace_are_told_and_given_a_moment_to_stop() {
    let mut front = shaken();
    front.calls(1);
    let key = front.called()[0];
    front.mcp_session.client_end(front.now, &mut front.effects);
    front.wait(seconds(5));
    front.heard_fault(1, -31008);
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    front.ends(key, "late");
    assert_eq!((front.received().len(), front.actions()), (0, vec![SessionAction::Exit(exit::DONE)]));
}

#[test]
fn after_a_signal_calls_have_a_moment_to_be_answered() {
    let moment = Duration::from_millis(500);
    let mut front = shaken();
    front.mcp_session.stop_soon(front.now, exit::INTERRUPTED, "it was interrupted", &mut front.effects);
    assert_eq!(front.actions(), [SessionAction::Exit(exit::INTERRUPTED)], "nothing is in flight");
    let mut front = shaken();
    front.calls(1);
    front.calls(2);
    let keys = front.called();
    front.mcp_session.stop_soon(front.now, exit::TERMINATED, "it was told to end", &mut front.effects);
    front.calls(3);
    front.heard_fault(3, -31008);
    front.wait(moment / 2);
    front.ends(keys[0], "in time");
    assert_eq!(front.received()[0]["result"]["content"][0]["text"], "in time");
    assert!(front.actions().is_empty());
    front.wait(moment / 2);
    let told = front.heard_fault(2, -31008);
    assert!(told["message"].as_str().is_some_and(|text| text.contains("it was told to end")), "{told}");
    front.ends(keys[1], "late");
    assert_eq!(
        front.actions(),
        [SessionAction::Cancel(keys[1]), SessionAction::Exit(exit::TERMINATED)],
        "and the whole ends with the code of the signal"
    );
    let mut front = shaken();
    front.calls(1);
    let key = front.called()[0];
    front.mcp_session.stop_soon(front.now, exit::TERMINATED, "it was told to end", &mut front.effects);
    front.ends(key, "in time");
    assert_eq!(front.received().len(), 1);
    assert_eq!(front.actions(), [SessionAction::Exit(exit::TERMINATED)], "sooner where all are answered");
}

#[test]
fn a_signal_shortens_the_grace_after_the_end_of_stdin_and_does_not_lengthen_it() {
    for (earlier, expect) in [(0, 500), (4800, 200)] {
        let mut front = shaken();
        front.calls(1);
        let key = front.called()[0];
        front.mcp_session.client_end(front.now, &mut front.effects);
        front.wait(Duration::from_millis(earlier));
        front.mcp_session.stop_soon(front.now, exit::TERMINATED, "it was told to end", &mut front.effects);
        front.wait(Duration::from_millis(expect - 1));
        assert!(front.received().is_empty());
        front.wait(Duration::from_millis(1));
        front.heard_fault(1, -31008);
        front.ends(key, "late");
        assert_eq!(front.actions().last(), Some(&SessionAction::Exit(exit::TERMINATED)));
    }
}

#[test]
fn a_signal_answers_everything_and_waits_no_longer_than_a_stop_takes() {
    let mut front = shaken();
    front.calls(1);
    let key = front.called()[0];
    front.mcp_session.stop(front.now, exit::TERMINATED, "it was told to end", &mut front.effects);
    front.heard_fault(1, -31008);
    front.calls(2);
    front.heard_fault(2, -31008);
    front.wait(seconds(2));
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    front.wait(seconds(1));
    assert_eq!(front.actions(), [SessionAction::Exit(exit::TERMINATED)]);
}
