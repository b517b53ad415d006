//! What is bounded, what is merged or dropped, and what is owed to whom at the edges.

use unhang_wire::Line;

use super::*;
use unhang_core::config::{JUNK_LINE_BYTES, JUNK_LINES, LATE_IDS};

fn batching(limits: Limits) -> Guarded {
    let initialize = INITIALIZE.replace("2025-11-25", "2025-03-26");
    Guarded::shaken_as(limits, &initialize, "2025-03-26")
}

const TWO_PINGS: &str =
    r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;

fn cancel(guarded: &mut Guarded, id: u64) {
    guarded.client(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    ));
}

fn call_with_token(guarded: &mut Guarded, id: u64, token: &str) {
    guarded.client(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"progressToken":"{token}"}}}}}}"#
    ));
}

#[test]
fn what_is_kept_of_stray_output_is_bounded_and_readable() {
    let mut guarded = Guarded::shaken(Limits::default());
    let long = "x".repeat(2 * JUNK_LINE_BYTES);
    guarded.server(&format!("\u{1b}[31mred{long}"));
    let text = guarded.wrap_session.junk.lines()[0].clone();
    assert!(text.len() < JUNK_LINE_BYTES + 10 && text.ends_with('…'), "{text}");
    assert!(!text.contains(char::is_control), "{text:?}");
    (0..100).for_each(|number| guarded.server(&format!("line {number}")));
    assert_eq!(guarded.wrap_session.junk.lines().len(), JUNK_LINES);
}

#[test]
fn tokens_of_ended_calls_are_forgotten_in_time() {
    let mut guarded = Guarded::shaken(Limits::default());
    for id in 0..LATE_IDS as u64 + 10 {
        call_with_token(&mut guarded, id, &id.to_string());
        cancel(&mut guarded, id);
    }
    assert_eq!(guarded.wrap_session.progress_tokens.kept().0, LATE_IDS);
}

#[test]
fn progress_for_a_token_that_is_used_again_arrives() {
    let mut guarded = Guarded::shaken(Limits::default());
    call_with_token(&mut guarded, 1, "p");
    cancel(&mut guarded, 1);
    call_with_token(&mut guarded, 2, "p");
    guarded.server(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
    );
    assert_eq!(guarded.received().len(), 1);
}

#[test]
fn g_13_quiet_keeps_nothing_back_for_a_subscription() {
    let mut guarded = Guarded::shaken(Limits { quiet: true, ..Limits::default() });
    guarded.request(1, "subscriptions/listen");
    guarded.call(2);
    guarded.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    assert!(guarded.received().is_empty());
    guarded.answer(2);
    assert_eq!(guarded.received().len(), 2);
    guarded.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    assert_eq!(guarded.received().len(), 1, "no call runs");
}

#[test]
fn what_quiet_keeps_back_is_bounded() {
    let mut guarded = Guarded::shaken(Limits { quiet: true, queue_bytes: 1000, ..Limits::default() });
    guarded.call(1);
    let uri = "x".repeat(400);
    for _ in 0..5 {
        guarded.server(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
        ));
    }
    guarded.answer(1);
    assert_eq!(guarded.received().len(), 3, "the answer and two of them");
    assert_eq!(guarded.wrap_session.counters().dropped_notifications, 3);
}

/// A sum over all that is kept, made with each notification, takes quadratic time.
#[test]
fn f_58_the_bytes_that_quiet_keeps_back_are_counted() {
    let mut guarded = Guarded::shaken(Limits { quiet: true, queue_bytes: 1000, ..Limits::default() });
    for call in 1..=3 {
        guarded.call(call);
        for number in 0..20 {
            guarded.server(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{number}"}}}}"#
            ));
            let (counted, kept) = guarded.wrap_session.deferred_notifications.kept();
            assert_eq!(counted, kept);
        }
        let (counted, _) = guarded.wrap_session.deferred_notifications.kept();
        assert!((900..=1000).contains(&counted), "{counted}");
        guarded.answer(call);
        assert!(guarded.received().len() > 10, "call {call} has as much room as the first");
    }
}

#[test]
fn what_is_held_while_the_server_is_down_is_bounded() {
    let mut guarded = Guarded::shaken(Limits { queue_bytes: 1000, ..Limits::default() });
    guarded.dies();
    let text = "x".repeat(400);
    for id in 1..=4 {
        guarded.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"text":"{text}"}}}}"#
        ));
    }
    guarded.heard_fault(4, -31005);
}

#[test]
fn notifications_to_a_server_that_does_not_read_are_dropped() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.effects.server_backlog = 17 << 20;
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    assert!(guarded.said().is_empty());
    assert_eq!(guarded.wrap_session.counters().dropped_notifications, 1);
}

#[test]
fn an_array_of_answers_is_bounded() {
    let mut guarded = batching(Limits { max_message: 1000, ..Limits::default() });
    guarded.client(TWO_PINGS);
    let text = "x".repeat(700);
    for id in 1..=2 {
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{text}"}}}}"#));
    }
    let received = guarded.received();
    assert_eq!((&received[0][1]["id"], &received[0][1]["error"]["code"]), (&2.into(), &(-31006).into()));
}

#[test]
fn a_handshake_in_a_batch_is_refused() {
    let mut guarded = batching(Limits::default());
    guarded.client(&format!("[{INITIALIZE}]"));
    assert!(guarded.said().is_empty());
    assert_eq!(guarded.received()[0][0]["error"]["code"], -32600);
}

#[test]
fn a_batch_is_complete_when_its_last_request_is_withdrawn() {
    let mut guarded = batching(Limits::default());
    guarded.client(TWO_PINGS);
    guarded.answer(1);
    cancel(&mut guarded, 2);
    let received = guarded.received();
    assert_eq!((received.len(), received[0][0]["id"].clone()), (1, 1.into()));
}

#[test]
fn a_request_that_was_renamed_is_cancelled_by_the_name_that_the_server_knows() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(5), ..Limits::default() });
    guarded.call(1);
    guarded.wait(seconds(5));
    guarded.said();
    guarded.call(1);
    cancel(&mut guarded, 1);
    let said = guarded.said();
    assert_eq!(said[1]["params"]["requestId"], said[0]["id"]);
}

#[test]
fn an_id_may_be_used_again_after_each_deadline() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(5), ..Limits::default() });
    for _ in 0..3 {
        guarded.call(1);
        guarded.wait(seconds(5));
        guarded.heard_fault(1, -31001);
    }
}

#[test]
fn a_subscription_has_no_deadline() {
    let mut guarded = Guarded::shaken(Limits { health_interval: seconds(9999), ..Limits::default() });
    guarded.request(1, "subscriptions/listen");
    guarded.wait(seconds(3600));
    assert!(guarded.received().is_empty());
}

#[test]
fn half_an_answer_is_a_trace_of_the_death_and_not_an_answer() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    let half = br#"{"jsonrpc":"2.0","id":1,"result":{"#;
    guarded.wrap_session.server_last_line(guarded.now, Line::Whole(half), &mut guarded.effects);
    assert!(guarded.received().is_empty());
    guarded.dies();
    guarded.heard_fault(1, -31002);
}

#[test]
fn a_line_over_the_limit_without_an_id_ends_the_one_call_that_waits() {
    let mut guarded = Guarded::shaken(Limits { max_message: 1000, ..Limits::default() });
    guarded.call(1);
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","result":{{"text":"{}"}}}}"#, "x".repeat(2000)));
    guarded.heard_fault(1, -31006);
}

#[test]
fn text_over_the_limit_is_no_answer() {
    let mut guarded = Guarded::shaken(Limits { max_message: 1000, ..Limits::default() });
    guarded.call(1);
    for junk in ["x", r#"{"level":"info"} "#] {
        guarded.server(&junk.repeat(2000));
    }
    assert!(guarded.received().is_empty(), "the answer may be the next line");
    assert_eq!(guarded.wrap_session.counters().junk, 2);
    guarded.answer(1);
    assert_eq!(guarded.received()[0]["result"], serde_json::json!({}));
}

#[test]
fn a_request_behind_the_end_is_refused() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.ends();
    assert!(guarded.wrap_session.reads_client(&guarded.effects), "what comes is answered");
    guarded.call(2);
    guarded.heard_fault(2, -31008);
}
