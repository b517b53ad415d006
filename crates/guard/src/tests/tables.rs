//! The tables of the session one by one: batches, calls, progress tokens and orders, and the limits on what waits.

use serde_json::json;

use super::{clients::META, *};
use crate::{
    added_capabilities::is_undeclared_task,
    answers::BatchedAnswers,
    calls::{CallTable, GuardedCall, Role},
    own_requests::OwnRequests,
    promotion::PromotionOrders,
};
use unhang_wire::{Json, ResponseOutcome};

fn client_lines(effects: &mut RecordedEffects) -> Vec<String> {
    effects.client.drain(..).map(|(_, line)| line).collect()
}

#[test]
fn answers_of_a_batch_wait_for_each_other_and_their_bytes_are_bounded() {
    let (mut answers, mut effects) = (BatchedAnswers::default(), RecordedEffects::default());
    assert_eq!(answers.open(0), None, "nobody is to be answered");
    answers.send(None, b"alone", &mut effects);
    assert_eq!(client_lines(&mut effects), ["alone"]);
    let batch = answers.open(3);
    assert!(batch.is_some());
    assert_eq!(answers.cost(), 0);
    answers.send(batch, b"123", &mut effects);
    assert_eq!((answers.cost(), client_lines(&mut effects)), (4, vec![]));
    for (batch, length, has_room) in [(batch, 6, true), (batch, 7, false), (None, 7, true)] {
        assert_eq!(answers.has_room(batch, length, 10), has_room, "{length} bytes");
    }
    answers.send_nothing(None, &mut effects);
    answers.send_nothing(batch, &mut effects);
    assert!(client_lines(&mut effects).is_empty());
    answers.send(batch, b"4", &mut effects);
    assert_eq!((answers.cost(), client_lines(&mut effects)), (0, vec!["[123,4]".to_owned()]));
    let batch = answers.open(2);
    answers.send(batch, b"5", &mut effects);
    answers.send_nothing(batch, &mut effects);
    assert_eq!(client_lines(&mut effects), ["[5]"], "the last one was withdrawn");
}

fn guarded_call(method: &str, role: Role, line: &[u8]) -> GuardedCall {
    let call = GuardedCall::new(Id::from(1), method, role, seconds(0), Some(seconds(60)));
    GuardedCall { line: Some(line.to_vec()), ..call }
}

fn table_of(call: GuardedCall) -> CallTable {
    let mut calls = CallTable::default();
    calls.register(call, &mut OwnRequests::default(), |_| true);
    calls
}

#[test]
fn a_held_call_counts_its_bytes_and_its_time_and_is_sent_once() {
    let id = Id::from(1);
    for (method, role, is_kept) in [
        ("tools/call", Role::Other, false),
        ("tools/list", Role::Other, true),
        ("resources/read", Role::Other, true),
        ("subscriptions/listen", Role::Listen, true),
    ] {
        let mut calls = table_of(guarded_call(method, role, b"12345"));
        assert_eq!((calls.note_held(&id, seconds(3)), calls.note_held(&Id::from(2), seconds(3))), (5, 0));
        calls.note_released(&id, seconds(7));
        calls.note_held(&id, seconds(10));
        calls.note_released(&id, seconds(11));
        assert_eq!(calls.get(&id).expect("a call").held_for, seconds(5));
        assert_eq!(calls.send_held(&id).as_deref(), Some(b"12345".as_slice()));
        assert_eq!(calls.send_held(&id), None, "it is sent");
        assert_eq!(calls.get(&id).expect("a call").line.is_some(), is_kept, "{method} is sent again");
    }
}

#[test]
fn a_lost_server_s_calls_are_sent_again_only_if_that_is_safe() {
    let (other, listen) = (Role::Other, Role::Listen);
    // In turn: was sent, was sent a second time, may the server be restarted; and: stays in flight, is sent again.
    for (method, role, sent, retried, may_restart, stays, again) in [
        ("tools/list", other, true, false, true, true, true),
        ("resources/read", other, true, false, true, true, true),
        ("tools/list", other, true, true, true, false, false),
        ("tools/list", other, true, false, false, false, false),
        ("subscriptions/listen", listen, true, true, true, true, true),
        ("subscriptions/listen", listen, true, false, false, false, false),
        ("tools/call", other, true, false, true, false, false),
        ("tools/call", other, false, false, true, true, false),
        ("tools/call", other, false, false, false, false, false),
    ] {
        let call = GuardedCall { sent, retried, ..guarded_call(method, role, b"12345") };
        let mut calls = table_of(call);
        let lost = calls.sort_out_lost(seconds(9), may_restart);
        let case = format!("{method} {sent} {retried} {may_restart}");
        assert_eq!((calls.len(), lost.unanswered.len()), (usize::from(stays), usize::from(!stays)), "{case}");
        assert_eq!((lost.again.len(), lost.again_bytes), if again { (1, 5) } else { (0, 0) }, "{case}");
        if let Some((_, call)) = calls.only() {
            assert!(!call.sent, "{case}");
            assert_eq!(
                (call.retried, call.held_since),
                if again { (true, seconds(9)) } else { (false, seconds(0)) }
            );
        }
    }
}

#[test]
fn only_calls_that_somebody_waits_for_keep_the_client_or_the_server_busy() {
    let job = GuardedCall { is_job: true, ..guarded_call("tools/call", Role::Other, b"") };
    for (call, is_idle, server_is_idle, is_awaited) in [
        (guarded_call("tools/call", Role::Other, b""), false, false, true),
        (guarded_call("initialize", Role::Initialize, b""), false, false, true),
        (guarded_call("subscriptions/listen", Role::Listen, b""), true, true, true),
        (job, true, false, false),
    ] {
        let calls = table_of(call);
        assert_eq!((calls.is_idle(), calls.server_is_idle()), (is_idle, server_is_idle), "{calls:?}");
        assert_eq!((calls.is_awaited(&Id::from(1)), calls.is_awaited(&Id::from(2))), (is_awaited, false));
    }
}

#[test]
fn tokens_of_calls_that_are_over_are_looked_for_once_there_are_too_many_of_them() {
    let ask = |guarded: &mut Guarded, id: u64| {
        guarded.client(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t", "_meta": {"progressToken": id}}})
                .to_string(),
        );
    };
    for open in [0, 10] {
        let mut guarded = Guarded::shaken(Limits::default());
        (1..=open).for_each(|id| ask(&mut guarded, id));
        let mut most = 0;
        for id in 100..200 {
            ask(&mut guarded, id);
            most = most.max(guarded.wrap_session.progress_tokens.kept().1);
            guarded.answer(id);
        }
        // Sixteen, and as many that are over as calls are in flight.
        assert_eq!(most as u64, 16 + 2 * (open + 1), "{open} stay open");
    }
    // A call without a token has the id of an earlier one with that token.
    let mut guarded = Guarded::shaken(Limits::default());
    for token in 1..=30 {
        guarded.client(
            &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "_meta": {"progressToken": token}}})
                .to_string(),
        );
        guarded.answer(1);
    }
    guarded.client(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}).to_string());
    guarded.client(
        &json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"_meta": {"progressToken": 30}}})
            .to_string(),
    );
    guarded.received();
    guarded.wait(seconds(10));
    assert_eq!(guarded.received().len(), 1, "the id of an earlier call does not take the token");
}

#[test]
fn tokens_of_jobs_that_are_over_are_looked_for_once_there_are_too_many_of_them() {
    let mut tokens = crate::progress::ProgressTokens::default();
    let mut calls = CallTable::default();
    for id in 1..=4 {
        let call = GuardedCall {
            client_id: Id::from(id),
            is_job: true,
            ..guarded_call("tools/call", Role::Other, b"")
        };
        calls.register_as(Id::from(id), call);
    }
    let mut kept = Vec::new();
    for id in (100..108).chain(1..=3) {
        tokens.give_to_job(Id::from(id), &Id::from(id), &calls);
        kept.push(tokens.kept().2);
    }
    assert_eq!(kept, [1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3], "with four in flight, nine are too many");
}

#[test]
fn orders_about_calls_are_told_apart() {
    let mut orders = PromotionOrders::default();
    let (first, second, third) = (orders.next(), orders.next(), orders.next());
    assert!(first != second && second != third && first != third);
    // A call has the id of an earlier one that was ordered as a job as well.
    let mut guarded = Guarded::with_jobs(Limits::default());
    let ordered = |guarded: &mut Guarded| {
        guarded.call(1);
        guarded.wait(seconds(45));
        guarded.order()
    };
    let first = ordered(&mut guarded);
    guarded.answer(1);
    let second = ordered(&mut guarded);
    let mut promoted = |order: &crate::promotion::Promote| {
        guarded.wrap_session.promoted(
            guarded.now,
            (&order.call, order.order),
            ("j", "{}"),
            &mut guarded.effects,
        )
    };
    assert_eq!((promoted(&first), promoted(&second), promoted(&second)), (false, true, false));
}

#[test]
fn a_held_call_that_becomes_a_job_is_held_once() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.wrap_session.server_deaf(guarded.now, "closed its stdin");
    guarded.call(1);
    let held = guarded.wrap_session.held_input.bytes();
    assert!(held > 0);
    guarded.wait(seconds(45));
    let promote = guarded.actions().into_iter().find_map(|action| match action {
        WrapAction::Promote(promote) => Some(promote),
        _ => None,
    });
    let order = promote.expect("an order");
    assert!(guarded.wrap_session.promoted(
        guarded.now,
        (&order.call, order.order),
        ("j", "{}"),
        &mut guarded.effects
    ));
    assert_eq!(guarded.wrap_session.held_input.bytes(), held);
    assert_eq!(guarded.wrap_session.held_input.iter().count(), 1);
}

#[test]
fn a_task_that_nobody_declared_is_noticed_for_calls_of_stateless_clients_only() {
    let declared = META.replace(
        r#"clientCapabilities":{}"#,
        r#"clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
    );
    let task = r#"{"resultType":"task","taskId":"t"}"#.to_owned();
    let padded = |length: usize| {
        let rest = "x".repeat(length - task.len() - r#","x":"""#.len());
        task.replace('}', &format!(r#","x":"{rest}"}}"#))
    };
    let (longest, too_long) = (padded(16 << 10), padded((16 << 10) + 1));
    assert_eq!((longest.len(), too_long.len()), (16 << 10, (16 << 10) + 1));
    for (method, meta, result, is_undeclared) in [
        ("tools/call", META, task.as_str(), true),
        ("tools/call", META, &longest, true),
        ("tools/call", META, &too_long, false),
        ("tools/call", META, r#"{"resultType":"complete"}"#, false),
        ("prompts/get", META, &task, false),
        ("tools/call", &declared, &task, false),
        ("tools/call", r#""x":1"#, &task, false),
    ] {
        let mut guarded = Guarded::new(Limits::default());
        guarded.wrap_session = guarded.wrap_session.with_jobs();
        guarded.client(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"t",{meta}}}}}"#
        ));
        let WrapSession { calls, client, .. } = &guarded.wrap_session;
        let call = calls.get(&Id::from(1)).expect("a call");
        let result = Json::new(result.as_bytes()).expect("JSON");
        let outcomes = (ResponseOutcome::Result(result), ResponseOutcome::Error(result));
        assert_eq!(is_undeclared_task(call, &outcomes.0, client), is_undeclared, "{method} {meta}");
        assert!(!is_undeclared_task(call, &outcomes.1, client), "an error is no task");
    }
}

#[test]
fn a_limit_on_what_waits_is_over_with_one_byte_more() {
    let limits = Limits { queue_bytes: 1000, max_in_flight: 1, ..Limits::default() };
    for (backlog, is_taken) in [(1000, true), (1001, false)] {
        let mut guarded = Guarded::shaken(limits.clone());
        guarded.effects.server_backlog = backlog;
        guarded.call(1);
        assert_eq!((guarded.said().len(), guarded.received().len()), if is_taken { (1, 0) } else { (0, 1) });
        guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
        assert_eq!(guarded.said().len(), usize::from(is_taken), "a notification behind {backlog} bytes");
    }
    for (backlog, is_answered) in [(2000, true), (2001, false)] {
        let mut guarded = Guarded::shaken(limits.clone());
        guarded.server(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        guarded.effects.server_backlog = backlog;
        guarded.server(r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#);
        assert_eq!(guarded.said().len(), usize::from(is_answered), "a question behind {backlog} bytes");
    }
    for (backlog, reads) in
        [(1000, (true, true)), (1001, (true, false)), (2000, (true, false)), (2001, (false, false))]
    {
        let mut guarded = Guarded::shaken(limits.clone());
        guarded.effects.client_backlog = backlog;
        let (session, effects) = (&guarded.wrap_session, &guarded.effects);
        assert_eq!((session.reads_client(effects), session.reads_server(effects)), reads, "{backlog}");
    }
}

#[test]
fn only_the_refusal_about_a_failed_start_tells_how_the_server_ended() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.dies();
    guarded.client("garbage");
    let fault = guarded.heard_fault(Value::Null, -32700);
    assert_eq!((&fault["data"]["exit"], &fault["data"]["stderrTail"]), (&Value::Null, &json!([])));
    guarded.call(1);
    let fault = guarded.heard_fault(1, -31003);
    assert_eq!(fault["data"]["exit"], "exit code 1");
    assert_eq!(fault["data"]["stderrTail"], json!(["last words"]));
}
