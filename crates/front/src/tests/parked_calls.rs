//! States under which clients come back to their calls, and calls to which they do not come back.

use std::collections::VecDeque;

use unhang_bridge::Era;
use unhang_wire::Json;

use super::{
    servers::{TOOL, answered, ask, known, raw},
    *,
};
use crate::parked_calls::{ParkedCalls, digest, own_state, secret_in, secret_of};
use unhang_gateway::Replied;

fn json(text: &str) -> Json<'_> {
    Json::new(text.as_bytes()).expect("JSON")
}

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}"#;

fn call(more: &str) -> String {
    format!(r#"{{"name":"srv__now"{more},{META}}}"#)
}

/// A call that is parked with one question, and its state.
fn parked() -> (TestSession, CallKey, String) {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    front.mcp_session.set_state_secret(secret_in("one", "secret"));
    ask(&mut front, 1, "tools/call", &call(""));
    let key = match &front.actions()[..] {
        [SessionAction::Ask { key, .. }] => *key,
        other => panic!("{other:?}"),
    };
    asks(&mut front, key, 5);
    let state = front.received().remove(0)["result"]["requestState"].as_str().expect("a state").to_owned();
    (front, key, state)
}

fn asks(front: &mut TestSession, key: CallKey, question: u64) {
    let about = QuestionSubject::Call(key);
    front.mcp_session.asked(front.now, about, question, ("elicitation/create", None), &mut front.effects);
}

fn replies(front: &mut TestSession) -> Vec<(u64, Replied)> {
    let reply = |action| match action {
        SessionAction::Reply { question, replied } => Some((question, replied)),
        _ => None,
    };
    front.actions().into_iter().filter_map(reply).collect()
}

/// The reply to a question to which nobody has come back with an answer.
fn nobody() -> Replied {
    Err((-31009, "the client has not returned with an answer".to_owned()).into())
}

#[test]
fn a_state_belongs_to_the_session_and_the_process_that_gave_it() {
    for (secret, state, is_ours, is_of_another) in [
        (Some("one-a"), "unhang.one-a.1", true, false),
        (Some("one-a"), "unhang.one-a.2", true, false),
        // Another request, or another session, of the same process.
        (Some("one-a"), "unhang.one-b.1", false, false),
        (Some("one-a"), "unhang.two-a.1", false, true),
        (Some("one-a"), "unhang.two-a-b.1", false, true),
        (Some("one-a"), "unhang.secret.1", false, false),
        (Some("one-a"), "two-a.1", false, false),
        (Some("secret"), "unhang.secret.1", true, false),
        (Some("secret"), "unhang.two-a.1", false, false),
        (None, "unhang.two-a.1", false, false),
    ] {
        let mut parked = ParkedCalls::default();
        if let Some(secret) = secret {
            parked.park_under(secret.to_owned());
        }
        let told = (parked.gave(state), parked.was_given_elsewhere(state));
        assert_eq!(told, (is_ours, is_of_another), "{secret:?} {state}");
    }
    assert_eq!(secret_in("one", "a"), "one-a");
    assert_eq!((secret_of("unhang.one-a.1"), secret_of("other.one-a.1")), (Some("one-a"), None));
    for (params, expect) in [
        (r#"{"requestState":"unhang.one-a.1"}"#, Some("unhang.one-a.1")),
        (r#"{"requestState":"unhang-again"}"#, None),
        (r#"{"requestState":1}"#, None),
        ("{}", None),
    ] {
        assert_eq!(own_state(Some(json(params))).as_deref(), expect, "{params}");
    }
    assert_eq!(own_state(None), None);
}

#[test]
fn a_call_that_another_process_had_is_lost_with_it_and_the_client_is_told() {
    let (mut front, _, state) = parked();
    assert_eq!(state, "unhang.one-secret.1");
    let with = |state: &str| call(&format!(r#","requestState":"{state}","inputResponses":{{}}"#));
    ask(&mut front, 2, "tools/call", &with("unhang.two-secret.1"));
    let error = front.heard_fault(2, -31002);
    let text = error["message"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("`tools/call` was not answered: the window that ran the servers has ended; "),
        "{text}"
    );
    assert!(text.contains("its server may have done it, or may still work on it"), "{text}");
    ask(&mut front, 3, "tools/call", &with("unhang.one-other.1"));
    let error = front.heard_fault(3, -32602);
    let text = error["message"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("the requestState of `tools/call` has expired, or unhang did not give it"),
        "{text}"
    );
    assert!(text.ends_with("make the request again, without requestState and inputResponses"), "{text}");
    assert!(front.actions().is_empty() && front.mcp_session.has_parked());
}

#[test]
fn the_same_request_is_one_with_the_same_subject_and_arguments() {
    let own = digest("tools/call", json(r#"{"name":"a","arguments":{"x":1}}"#));
    for (method, params, is_same) in [
        ("tools/call", r#"{"arguments":{"x":1},"name":"a","_meta":{},"requestState":"s"}"#, true),
        ("prompts/get", r#"{"name":"a","arguments":{"x":1}}"#, false),
        ("tools/call", r#"{"name":"b","arguments":{"x":1}}"#, false),
        ("tools/call", r#"{"uri":"a","arguments":{"x":1}}"#, false),
        ("tools/call", r#"{"name":"a","uri":"u","arguments":{"x":1}}"#, false),
        ("tools/call", r#"{"name":"a","arguments":{"x":2}}"#, false),
        ("tools/call", r#"{"name":"a"}"#, false),
    ] {
        assert_eq!(digest(method, json(params)) == own, is_same, "{method} {params}");
    }
}

#[test]
fn a_question_to_which_no_client_comes_back_has_an_error_as_its_answer() {
    // At the limit of the call, and not before.
    let (mut front, key, _) = parked();
    front.wait(seconds(60) - Duration::from_millis(1));
    assert_eq!((front.actions(), front.mcp_session.has_parked()), (vec![], true));
    front.wait(Duration::from_millis(1));
    let reply = SessionAction::Reply { question: 5, replied: nobody() };
    assert_eq!(front.actions(), [reply.clone(), SessionAction::Cancel(key)]);
    assert!(!front.mcp_session.has_parked());
    // At the end of the session.
    let (mut front, key, _) = parked();
    front.mcp_session.stop(front.now, 0, "of a test", &mut front.effects);
    assert_eq!(front.actions(), [reply, SessionAction::Cancel(key)]);
    // A server that has answered has nothing left to cancel.
    let (mut front, key, _) = parked();
    let answer = answered(Era::Legacy, Ok(raw("{}")));
    front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
    front.wait(seconds(60));
    assert_eq!(front.actions(), [SessionAction::Reply { question: 5, replied: nobody() }]);
    // And a client that comes back after that is not asked once more.
    let (mut front, key, state) = parked();
    front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
    ask(&mut front, 2, "tools/call", &call(&format!(r#","requestState":"{state}""#)));
    assert_eq!(front.received()[0]["result"]["resultType"], "complete");
    assert_eq!(replies(&mut front), [(5, nobody())]);
}

#[test]
fn a_call_is_parked_only_where_its_client_could_come_back() {
    let parked_later = |prepare: fn(&mut TestSession)| {
        let mut front = TestSession::new(Limits::default());
        front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
        prepare(&mut front);
        ask(&mut front, 1, "tools/call", &call(""));
        let SessionAction::Ask { key, .. } = front.actions().remove(0) else { panic!("it is asked") };
        (front, key)
    };
    let (mut front, key) = parked_later(|_| {});
    asks(&mut front, key, 5);
    let why = "`elicitation/create` is declined: the client could not return with the answer";
    assert_eq!(replies(&mut front), [(5, Err((-32601, why.to_owned()).into()))]);
    let (mut front, key) = parked_later(|front| front.mcp_session.set_state_secret("secret".to_owned()));
    front.mcp_session.client_end(front.now, &mut front.effects);
    asks(&mut front, key, 5);
    let why =
        "`elicitation/create` is declined: unhang is ending, and the client could not return with the answer";
    assert_eq!(replies(&mut front), [(5, Err((-32601, why.to_owned()).into()))]);
    assert!(front.received().is_empty(), "it stays a call");
    // A call that has ended cannot be parked.
    let mut calls = crate::session_calls::SessionCalls::default();
    let mut parked = ParkedCalls::default();
    parked.park_under("secret".to_owned());
    assert!(parked.park((1, false), 5, ("roots/list", None), false, &mut calls).is_err());
    let mut actions = VecDeque::new();
    parked.forget(None, &mut actions);
    assert!(actions.is_empty() && parked.is_empty() && parked.next_tick().is_none());
}
