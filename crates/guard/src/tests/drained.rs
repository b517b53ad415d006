//! The client's stdin has ended: what is in flight stays a call, and the exit code tells of a server that never answered.

use super::*;
use crate::promotion::JoinOutcome;

const TASK: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":60000}}}"#;

#[test]
fn a_call_in_flight_when_stdin_ends_never_becomes_a_job() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.call(1);
    guarded.wait(seconds(43));
    guarded.ends();
    guarded.wait(seconds(4));
    assert_eq!(guarded.actions(), [], "its moment has passed, and it is a call still");
    guarded.answer(1);
    assert_eq!(guarded.received()[0]["result"], serde_json::json!({}));
    assert_eq!(guarded.actions(), [WrapAction::StopServer]);
}

#[test]
fn a_job_that_comes_after_the_end_of_stdin_is_of_no_use() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.call(1);
    guarded.wait(seconds(45));
    let order = guarded.order();
    guarded.ends();
    assert!(!guarded.wrap_session.promoted(
        guarded.now,
        (&order.call, order.order),
        ("j", "{}"),
        &mut guarded.effects
    ));
    assert!(guarded.received().is_empty(), "nobody is told that it goes on");
    guarded.answer(1);
    assert_eq!(guarded.received().len(), 1);
}

#[test]
fn a_call_that_was_to_be_a_task_is_a_call_once_stdin_has_ended() {
    for is_ordered in [false, true] {
        let mut guarded = Guarded::with_jobs(Limits::default());
        guarded.client(TASK);
        if is_ordered {
            guarded.wait(Duration::ZERO);
            guarded.order();
        }
        assert_eq!(guarded.said(), Vec::<Value>::new(), "it is a task first");
        guarded.ends();
        let said = guarded.said();
        assert_eq!((said.len(), &said[0]["params"]), (1, &serde_json::json!({"name": "t"})));
        guarded.wait(seconds(1));
        assert_eq!(guarded.actions(), []);
        guarded.answer(1);
        assert_eq!(guarded.received().len(), 1);
    }
}

#[test]
fn a_call_that_waits_for_a_job_has_its_result_or_none_once_stdin_has_ended() {
    let (mut guarded, _, order) = promotion::joining();
    guarded.wait(seconds(44));
    guarded.ends();
    guarded.wait(seconds(4));
    assert_eq!(guarded.actions(), [], "it is not handed over");
    let id = Id::from(1);
    let joined = |guarded: &mut Guarded, outcome| {
        guarded.wrap_session.joined(guarded.now, (&id, order), outcome, &mut guarded.effects);
    };
    joined(&mut guarded, JoinOutcome::Still("{}".to_owned()));
    assert!(guarded.received().is_empty(), "the job ends with the session");
    joined(&mut guarded, JoinOutcome::Nothing);
    assert_eq!(guarded.said().len(), 1, "it is a call like any other");
    guarded.wait(Duration::ZERO);
    assert_eq!(guarded.actions(), []);
    guarded.answer(1);
    assert_eq!(guarded.received().len(), 1);
}

#[test]
fn a_server_that_was_asked_and_never_answered_is_exit_4() {
    let limits = Limits { start_timeout: seconds(2), ..Limits::default() };
    for limits in [Limits::default(), limits] {
        for others in [0, 2] {
            let mut guarded = Guarded::new(limits.clone());
            guarded.client(INITIALIZE);
            (1..=others).for_each(|id| guarded.request(id, "ping"));
            guarded.ends();
            guarded.wait(seconds(5));
            guarded.dies();
            assert_eq!(guarded.received().len() as u64, 1 + others);
            assert_eq!(guarded.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::DEADLINE)]);
        }
    }
    let mut asked_nothing = Guarded::new(Limits::default());
    asked_nothing.ends();
    asked_nothing.dies();
    assert_eq!(asked_nothing.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::DONE)]);
    let mut has_answered = Guarded::shaken(Limits::default());
    has_answered.call(1);
    has_answered.ends();
    has_answered.wait(seconds(5));
    has_answered.dies();
    assert_eq!(has_answered.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::DONE)]);
}

#[test]
fn a_stateless_server_that_never_answered_is_exit_4() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.request(1, "server/discover");
    guarded.wait(seconds(55));
    guarded.heard_fault(1, -31001);
    guarded.ends();
    guarded.dies();
    assert_eq!(guarded.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::DEADLINE)]);
}
