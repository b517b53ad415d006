//! What servers ask and say outside calls, and what clients say of their roots.

use super::{servers::raw, *};
use unhang_core::fault::FaultKind;

const ROOTS: &str = "roots/list";
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

fn client(version: &str, capabilities: &str) -> TestSession {
    let mut front = TestSession::shaken(Limits::default(), version);
    front.declare_capabilities(capabilities);
    front
}

fn asks(front: &mut TestSession, question: u64) {
    front.mcp_session.asked(front.now, QuestionSubject::Session, question, (ROOTS, None), &mut front.effects);
}

#[test]
fn a_question_outside_calls_is_put_to_the_client_of_the_session_and_has_one_answer() {
    let mut front = client("2025-11-25", r#"{"roots":{}}"#);
    asks(&mut front, 1);
    assert_eq!(front.received(), [json!({ "jsonrpc": "2.0", "id": "unhang-1", "method": ROOTS })]);
    // It is about no call, and ends with none.
    front.calls(5);
    let actions = front.actions();
    let [SessionAction::Call { key, .. }] = &actions[..] else { panic!("{actions:?}") };
    front.ends(*key, "a");
    assert_eq!(front.received().len(), 1);
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-1","result":{"roots":[]}}"#);
    let replied = Ok(r#"{"roots":[]}"#.to_owned());
    assert_eq!(front.actions(), [SessionAction::Reply { question: 1, replied }]);
    asks(&mut front, 2);
    front.mcp_session.question_withdrawn(front.now, 2, &mut front.effects);
    let [_, withdrawn] = &front.received()[..] else { panic!("a question and its end") };
    assert_eq!(withdrawn["params"]["requestId"], "unhang-2");
}

#[test]
fn a_client_is_asked_outside_calls_only_for_what_it_has_declared_and_not_at_its_end() {
    let mut front = client("2025-11-25", r#"{"sampling":{}}"#);
    asks(&mut front, 1);
    front.declare_capabilities(r#"{"roots":{}}"#);
    // A call lets the session live on for a while.
    front.calls(5);
    front.mcp_session.client_end(front.now, &mut front.effects);
    asks(&mut front, 2);
    let replies = front.actions().into_iter().filter_map(|action| match action {
        SessionAction::Reply { question, replied } => Some((question, replied.expect_err("declined").code)),
        _ => None,
    });
    let code = FaultKind::MethodNotFound.code().into();
    assert_eq!(replies.collect::<Vec<_>>(), [(1, code), (2, code)]);
    assert_eq!(front.received(), [Value::Null; 0]);
}

#[test]
fn changed_roots_are_told_of_clients_that_have_roots() {
    for (capabilities, expect) in
        [(r#"{"roots":{"listChanged":true}}"#, vec![SessionAction::RootsChanged]), ("{}", Vec::new())]
    {
        let mut front = client("2025-06-18", capabilities);
        front.says(CHANGED);
        assert_eq!(front.actions(), expect, "{capabilities}");
    }
    let mut front = TestSession::new(Limits::default());
    front.says(CHANGED);
    assert_eq!(front.actions(), [], "before the handshake");
}

#[test]
fn a_completed_elicitation_is_told_to_clients_that_know_it_by_its_id() {
    for (version, expect) in [("2025-11-25", 1), ("2025-06-18", 0)] {
        let mut front = client(version, "{}");
        let params = raw(r#"{"elicitationId":"e"}"#);
        front.mcp_session.elicitation_over(front.now, None, &params, &mut front.effects);
        let received = front.received();
        assert_eq!(received.len(), expect, "{version}: {received:?}");
        assert!(received.iter().all(|told| told["params"]["elicitationId"] == "e"));
    }
}
