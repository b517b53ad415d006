//! Ids that mean two things: the client's own, the guard's, and one that is still awaited (promise 1, X-13).

use super::*;

/// Uses an id and withdraws it, so that its answer may still come.
fn withdrawn(guarded: &mut Guarded, id: &str) {
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#));
    cancel(guarded, id);
    guarded.said();
}

fn cancel(guarded: &mut Guarded, id: &str) {
    guarded.client(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    ));
}

/// Asks under an id that is still awaited, and returns what the server was asked under.
fn renamed(guarded: &mut Guarded, id: u64, method: &str) -> Value {
    withdrawn(guarded, &id.to_string());
    guarded.request(id, method);
    let said = guarded.said();
    assert_eq!(said.len(), 1, "it is sent: {said:?}");
    assert_ne!(said[0]["id"], id);
    said[0]["id"].clone()
}

#[test]
fn promise_1_a_name_of_ours_that_the_client_used_itself_is_not_used_while_its_answer_may_come() {
    let mut guarded = Guarded::shaken(Limits::default());
    for number in 1..9 {
        withdrawn(&mut guarded, &format!("\"unhang-{number}\""));
    }
    let name = renamed(&mut guarded, 1, "tools/call");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{name},"result":{{}}}}"#));
    assert_eq!(guarded.received(), [serde_json::json!({"jsonrpc": "2.0", "id": 1, "result": {}})]);
}

#[test]
fn promise_1_the_late_answer_to_a_health_check_is_not_taken_for_the_client_s() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.wait(seconds(61));
    let probes = guarded.said();
    let [first, ..] = &probes[..] else { panic!("no health check: {probes:?}") };
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call"}}"#, first["id"]));
    assert_ne!(guarded.said()[0]["id"], first["id"], "the server still knows the check by that");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, first["id"]));
    assert!(guarded.received().is_empty());
}

#[test]
fn promise_1_a_cancel_is_for_the_client_s_own_ids_only() {
    let mut guarded = Guarded::shaken(Limits::default());
    let name = renamed(&mut guarded, 1, "tools/call");
    cancel(&mut guarded, &name.to_string());
    assert!(guarded.said().is_empty(), "the server knows another request by that name");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{name},"result":{{}}}}"#));
    assert_eq!(guarded.received()[0]["id"], 1);
}

#[test]
fn promise_1_a_batch_does_not_wait_for_a_subscription_that_the_server_has_ended() {
    let mut guarded = Guarded::shaken_as(Limits::default(), INITIALIZE, "2025-03-26");
    guarded.client(
        r#"[{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
    );
    guarded.answer(2);
    assert!(guarded.received().is_empty(), "the array is not whole");
    let ended = serde_json::json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    guarded.server(&ended.to_string());
    let whole = serde_json::json!([{"jsonrpc": "2.0", "id": 2, "result": {}}]);
    assert_eq!(guarded.received(), [ended, whole]);
}

#[test]
fn promise_1_a_broken_answer_of_the_client_is_not_answered_under_an_id_that_it_waits_for() {
    let limits = Limits { max_message: 300, ..Limits::default() };
    let mut guarded = Guarded::shaken_as(limits, INITIALIZE, "2025-03-26");
    guarded.call(1);
    let broken = r#"{"jsonrpc":"2.0","id":1,"result":1,"error":1}"#;
    guarded.client(broken);
    guarded.heard_fault(Value::Null, -32600);
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(300)));
    guarded.heard_fault(Value::Null, -31006);
    guarded.client(&format!(r#"[{{"jsonrpc":"2.0","id":2,"method":"tools/call"}},{broken}]"#));
    guarded.heard_fault(Value::Null, -32600);
    guarded.answer(2);
    assert_eq!(guarded.received(), [serde_json::json!([{"jsonrpc": "2.0", "id": 2, "result": {}}])]);
    guarded.answer(1);
    assert_eq!(guarded.received()[0]["id"], 1);
}

#[test]
fn promise_1_a_long_request_whose_method_is_unreadable_is_answered_though_the_server_asks_under_its_id() {
    let mut guarded = Guarded::shaken(Limits { max_message: 300, ..Limits::default() });
    guarded.server(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#);
    guarded.received();
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":7,"method":7,"params":["{}"]}}"#, "x".repeat(300)));
    guarded.heard_fault(7, -31006);
    assert!(guarded.said().is_empty());
}

#[test]
fn promise_3_a_server_that_asks_and_does_not_read_is_not_told_without_end() {
    let mut guarded = Guarded::shaken(Limits { max_in_flight: 1, queue_bytes: 1000, ..Limits::default() });
    let ask = |guarded: &mut Guarded| guarded.server(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    ask(&mut guarded);
    ask(&mut guarded);
    assert_eq!(guarded.said().len(), 1, "one too many is answered");
    guarded.effects.server_backlog = 2001;
    ask(&mut guarded);
    assert!(guarded.said().is_empty());
}
#[test]
fn x_13_an_answer_of_the_other_type_is_never_taken_for_a_request_that_differs_by_type_alone() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.client(r#"{"jsonrpc":"2.0","id":"1","method":"tools/call"}"#);
    guarded.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    let said = guarded.said();
    assert_eq!(said[0]["id"], "1");
    guarded.server(r#"{"jsonrpc":"2.0","id":1,"result":"of the text"}"#);
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":"of the number"}}"#, said[1]["id"]));
    let received = guarded.received();
    assert_eq!((&received[0]["id"], &received[0]["result"]), (&"1".into(), &"of the text".into()));
    assert_eq!((&received[1]["id"], &received[1]["result"]), (&1.into(), &"of the number".into()));
}
