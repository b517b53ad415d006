//! The server's questions to the client, and our own to the server.

use super::*;

const ASK: &str = r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#;

/// The only thing that the server was told: an error of this code for this id.
#[track_caller]
fn server_heard_fault(guarded: &mut Guarded, id: u64, code: i32) {
    let said = guarded.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&id.into(), &Value::from(code)), "{said:?}");
}

#[test]
fn a_question_that_stays_unanswered_ends_for_both_sides() {
    let mut guarded = Guarded::shaken(Limits { health_interval: seconds(9999), ..Limits::default() });
    guarded.server(ASK);
    guarded.wait(seconds(300));
    server_heard_fault(&mut guarded, 7, -31001);
    let received = guarded.received();
    assert_eq!((received.len(), &received[1]["method"]), (2, &"notifications/cancelled".into()));
}

#[test]
fn questions_are_bounded() {
    let mut guarded = Guarded::shaken(Limits { max_in_flight: 2, ..Limits::default() });
    for id in 1..=3 {
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#));
    }
    assert_eq!(guarded.received().len(), 2);
    server_heard_fault(&mut guarded, 3, -31005);
}

#[test]
fn a_repeated_question_is_refused_while_the_first_is_open() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.server(ASK);
    guarded.server(ASK);
    assert_eq!(guarded.received().len(), 1);
    server_heard_fault(&mut guarded, 7, -32600);
}

#[test]
fn the_answer_to_a_question_that_was_withdrawn_goes_nowhere() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.server(ASK);
    guarded.server(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    assert_eq!(guarded.received().len(), 2);
    guarded.client(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    assert!(guarded.said().is_empty());
}

#[test]
fn a_question_that_is_no_valid_request_is_answered_here() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.server(r#"{"jsonrpc":"1.0","id":7,"method":"roots/list"}"#);
    server_heard_fault(&mut guarded, 7, -32600);
    assert!(guarded.received().is_empty());
}

#[test]
fn a_question_or_an_answer_to_one_over_the_limit_is_an_error_for_the_server() {
    let mut guarded = Guarded::shaken(Limits { max_message: 1000, ..Limits::default() });
    let huge = "x".repeat(2000);
    guarded.server(&format!(
        r#"{{"jsonrpc":"2.0","id":6,"method":"sampling/createMessage","params":{{"text":"{huge}"}}}}"#
    ));
    server_heard_fault(&mut guarded, 6, -31006);
    guarded.server(ASK);
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{huge}"}}}}"#));
    server_heard_fault(&mut guarded, 7, -31006);
}

#[test]
fn a_subscription_that_the_server_has_ended_is_over() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.request(1, "subscriptions/listen");
    guarded.server(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(guarded.received().len(), 1);
    guarded.ends();
    guarded.dies();
    assert!(guarded.received().is_empty(), "nothing is owed for it");
}

#[test]
fn a_subscription_that_was_renamed_ends_under_the_clients_own_id() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(5), ..Limits::default() });
    guarded.call(1);
    guarded.wait(seconds(5));
    guarded.received();
    guarded.said();
    guarded.request(1, "subscriptions/listen");
    let wire_id = guarded.said()[0]["id"].clone();
    guarded.server(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{wire_id}}}}}"#
    ));
    assert_eq!(guarded.received()[0]["params"]["requestId"], 1);
    assert_eq!(guarded.wrap_session.calls.renamed(), 0);
}

#[test]
fn nobody_is_checked_before_the_handshake() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.wait(seconds(300));
    assert!(guarded.said().is_empty() && guarded.actions().is_empty());
}

#[test]
fn l_58_a_server_that_waits_for_a_person_is_not_hung() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.server(ASK);
    guarded.wait(seconds(250));
    assert!(guarded.said().is_empty() && guarded.actions().is_empty());
}

#[test]
fn answers_to_our_own_questions_stay_with_us_early_and_late() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.wait(seconds(60));
    let questions = guarded.said();
    assert_eq!(questions.len(), 2, "{questions:?}");
    for question in questions {
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, question["id"]));
        assert!(guarded.received().is_empty());
    }
    assert_eq!(guarded.wrap_session.counters().junk, 0, "{:?}", guarded.effects.shown);
}

#[test]
fn our_own_ids_are_none_of_the_clients() {
    let mut guarded = Guarded::shaken(Limits::default());
    let theirs: Vec<Value> = (0..9).map(|number| format!("unhang-{number}").into()).collect();
    for id in &theirs {
        guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen"}}"#));
    }
    guarded.said();
    guarded.wait(seconds(30));
    let own = &guarded.said()[0];
    assert!(own["method"] == "ping" && !theirs.contains(&own["id"]), "{own}");
}

#[test]
fn an_id_of_the_client_that_is_in_use_by_us_is_replaced() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.wait(seconds(30));
    let own = guarded.said()[0]["id"].clone();
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":{own},"method":"tools/call"}}"#));
    let wire_id = guarded.said()[0]["id"].clone();
    assert_ne!(wire_id, own);
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{own},"result":{{}}}}"#));
    assert!(guarded.received().is_empty(), "that was the answer to our own question");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{wire_id},"result":{{}}}}"#));
    assert_eq!(guarded.received()[0]["id"], own);
}

#[test]
fn a_deadline_while_the_client_is_asked_names_the_question() {
    let limits = Limits { call_timeout: seconds(9), ..Limits::default() };
    let mut guarded = Guarded::shaken(limits);
    guarded.call(1);
    guarded.wait(seconds(1));
    guarded.server(ASK);
    assert_eq!(guarded.received()[0]["method"], "elicitation/create");
    guarded.wait(seconds(8));
    let received = guarded.received();
    let error = &received.iter().find(|message| message["id"] == 1).expect("an answer")["error"];
    let told = "`srv` needs the client's answer to `elicitation/create`, which did not come within 9s";
    assert!(error["message"].as_str().is_some_and(|message| message.starts_with(told)), "{error}");
}
