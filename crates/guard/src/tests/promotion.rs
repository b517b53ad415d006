//! Calls that become jobs.

use super::*;
use unhang_bridge::tasks::Dialect;
use unhang_jobs::id::JobId;

use crate::promotion::{JoinOutcome, Promote, WrapPromotionOrder};
use unhang_core::{clients::CLOCKS, config::PROMOTE_PERCENT, limits::Limits, promotion::Promotion};
use unhang_front::PromotionReply;
use unhang_tools::service::JobServiceError;

const RESULT: &str = r#"{"content":[],"structuredContent":{"job_id":"j"}}"#;

impl Guarded {
    /// A session in front of somebody who keeps jobs, with this in the place of some limits.
    pub(super) fn with_jobs(limits: Limits) -> Guarded {
        Guarded::introduced(limits, "2025-11-25", r#"{"tools":{}}"#).0
    }

    /// The same, of this revision and with a server that says this of itself; and what its client hears of that. The client has listed the
    /// tools.
    pub(super) fn introduced(limits: Limits, revision: &str, capabilities: &str) -> (Guarded, Value) {
        let (mut guarded, offered) = Guarded::unlisted(limits, revision, capabilities);
        guarded.tools_are_listed();
        (guarded, offered)
    }

    /// The client lists the server's tools, and there are none.
    pub(super) fn tools_are_listed(&mut self) {
        self.client(r#"{"jsonrpc":"2.0","id":"first list","method":"tools/list"}"#);
        self.server(r#"{"jsonrpc":"2.0","id":"first list","result":{"tools":[]}}"#);
        self.said();
        self.received();
    }

    /// The same before the client has listed any tools.
    pub(super) fn unlisted(limits: Limits, revision: &str, capabilities: &str) -> (Guarded, Value) {
        let mut guarded = Guarded::new(limits);
        guarded.wrap_session = guarded.wrap_session.with_jobs();
        guarded.client(&INITIALIZE.replace("2025-11-25", revision));
        guarded.server(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"{revision}","capabilities":{capabilities}}}}}"#
        ));
        guarded.client(INITIALIZED);
        guarded.said();
        let mut received = guarded.received();
        (guarded, received.remove(0)["result"]["capabilities"].take())
    }

    /// The only thing that is to be done: a job of this call.
    #[track_caller]
    pub(super) fn order(&mut self) -> Promote {
        match self.actions().as_slice() {
            [WrapAction::Promote(order)] => Promote::clone(order),
            other => panic!("a job is to be made: {other:?}"),
        }
    }

    #[track_caller]
    fn promoted(&mut self, order: &Promote) -> Value {
        assert!(self.wrap_session.promoted(
            self.now,
            (&order.call, order.order),
            ("j", RESULT),
            &mut self.effects
        ));
        let mut received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    /// A call that is a job since its moment.
    fn with_a_job(limits: Limits) -> (Guarded, Promote) {
        let mut guarded = Guarded::with_jobs(limits);
        guarded.client(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}"#,
        );
        guarded.wait(seconds(45));
        let order = guarded.order();
        guarded.received();
        guarded.promoted(&order);
        guarded.said();
        (guarded, order)
    }

    /// What the bridge of jobs has heard since the last look.
    fn told(&mut self) -> Vec<(Id, Value)> {
        let told = self.effects.jobs.drain(..);
        told.map(|(id, text)| (id, serde_json::from_str(&text).unwrap())).collect()
    }

    /// The only thing that the bridge of jobs has heard: an error of this code.
    #[track_caller]
    fn told_fault(&mut self, code: i32) -> String {
        let told = self.told();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].1["error"]["code"], code, "{told:?}");
        told[0].1["error"]["message"].to_string()
    }
}

#[test]
fn a_slow_call_is_ordered_as_a_job_once_and_stays_a_call_until_there_is_one() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1.0e0}}}"#,
    );
    guarded.said();
    guarded.wait(seconds(44));
    assert_eq!(guarded.actions(), []);
    guarded.wait(seconds(1));
    let order = guarded.order();
    assert_eq!(order.params.as_ref(), br#"{"name":"t","arguments":{"a":1.0e0}}"#);
    assert_eq!((&order.call, order.elapsed), (&Id::from(1), seconds(45)));
    guarded.wait(seconds(5));
    assert_eq!(
        (guarded.actions(), guarded.received()),
        (vec![], vec![]),
        "ordered once, and nobody was told"
    );
    let received = guarded.promoted(&order);
    assert_eq!(
        received,
        serde_json::json!({"jsonrpc":"2.0","id":1,"result":serde_json::from_str::<Value>(RESULT).unwrap()})
    );
    assert_eq!(guarded.said(), Vec::<Value>::new(), "to the server nothing has happened");
    guarded.answer(1);
    assert!(guarded.received().is_empty(), "one answer");
    let told = guarded.told();
    assert_eq!((told.len(), &told[0].0, &told[0].1["result"]), (1, &Id::from(1), &serde_json::json!({})));
}

#[test]
fn a_call_that_was_answered_before_there_was_a_job_has_that_answer_alone() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.call(1);
    guarded.wait(seconds(45));
    let order = guarded.order();
    guarded.answer(1);
    assert_eq!(guarded.received().len(), 1);
    assert!(!guarded.wrap_session.promoted(
        guarded.now,
        (&order.call, order.order),
        ("j", RESULT),
        &mut guarded.effects
    ));
    assert!(guarded.received().is_empty() && guarded.told().is_empty());
}

#[test]
fn a_job_that_comes_too_late_is_not_that_of_another_call_with_the_id() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.call(1);
    guarded.wait(seconds(45));
    let order = guarded.order();
    guarded.answer(1);
    guarded.received();
    guarded.call(1);
    assert!(!guarded.wrap_session.promoted(
        guarded.now,
        (&order.call, order.order),
        ("j", RESULT),
        &mut guarded.effects
    ));
    assert!(guarded.received().is_empty());
}

#[test]
fn what_is_off_late_no_call_or_a_task_of_the_server_becomes_no_job() {
    for limits in [
        Limits { promote_after: Promotion::Off, ..Limits::default() },
        Limits {
            promote_after: Promotion::After(seconds(20)),
            call_timeout: seconds(20),
            ..Limits::default()
        },
    ] {
        let mut guarded = Guarded::with_jobs(limits);
        guarded.call(1);
        guarded.wait(seconds(60));
        assert_eq!(guarded.actions(), []);
    }
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.request(1, "prompts/get");
    guarded.wait(seconds(60));
    assert_eq!(guarded.actions(), []);
    let (mut guarded, _) = Guarded::introduced(Limits::default(), "2025-11-25", r#"{"tools":{},"tasks":{}}"#);
    guarded.client(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","task":{}}}"#);
    assert_eq!(guarded.said()[0]["params"]["task"], serde_json::json!({}));
    guarded.wait(seconds(300));
    assert_eq!(guarded.actions(), []);
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.wait(seconds(300));
    assert_eq!(guarded.actions(), [], "nobody keeps jobs");
}

#[test]
fn arguments_that_are_kept_are_bounded() {
    let mut guarded = Guarded::with_jobs(Limits { queue_bytes: 250_000, ..Limits::default() });
    let large = "x".repeat(100_000);
    for id in 1..=3 {
        guarded.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{"a":"{large}"}}}}}}"#
        ));
    }
    assert_eq!(guarded.said().len(), 3, "each is called");
    guarded.wait(seconds(45));
    assert_eq!(guarded.actions().len(), 2, "and the third stays a call");
}

#[test]
fn a_call_stays_one_while_its_client_is_asked_something() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.call(1);
    guarded.server(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#);
    guarded.wait(seconds(60));
    assert_eq!(guarded.actions(), []);
    guarded.client(r#"{"jsonrpc":"2.0","id":"q","result":{}}"#);
    guarded.wait(seconds(1));
    assert_eq!(guarded.order().elapsed, seconds(61));
}

#[test]
fn the_id_of_a_call_that_is_a_job_is_free_again() {
    let (mut guarded, order) = Guarded::with_a_job(Limits::default());
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(guarded.said(), Vec::<Value>::new(), "what was answered cannot be withdrawn");
    guarded.call(1);
    let said = guarded.said();
    assert_eq!(said.len(), 1);
    let renamed = said[0]["id"].clone();
    assert_ne!(renamed, 1, "its own is still awaited");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{renamed},"result":{{"second":true}}}}"#));
    let received = guarded.received();
    assert_eq!((&received[0]["id"], &received[0]["result"]["second"]), (&Value::from(1), &Value::from(true)));
    guarded.answer(1);
    assert!(guarded.received().is_empty());
    assert_eq!(guarded.told()[0].0, order.call);
}

#[test]
fn progress_and_logs_of_a_job_are_its_own_and_its_client_hears_of_no_progress_any_more() {
    let (mut guarded, order) = Guarded::with_a_job(Limits::default());
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#;
    guarded.server(progress);
    guarded
        .server(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"d"}}"#);
    let told = guarded.told();
    assert_eq!((told.len(), &told[0].0), (2, &order.call));
    assert_eq!((&told[0].1["progress"], &told[1].1["data"]), (&Value::from(1), &Value::from("d")));
    assert_eq!(guarded.received().len(), 1, "logs are of the session as well");
    guarded.wait(seconds(60));
    assert!(guarded.received().is_empty(), "no heartbeat either");
    // While the server works on something else as well nobody knows whose a log is.
    guarded.call(2);
    guarded
        .server(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"d"}}"#);
    assert!(guarded.told().is_empty());
    guarded.answer(2);
    guarded.answer(1);
    guarded.told();
    guarded.received();
    guarded.server(progress);
    assert!(guarded.told().is_empty() && guarded.received().is_empty(), "none after the end");
}

#[test]
fn a_job_hears_of_the_death_of_its_server_and_of_the_end_of_its_time() {
    let (mut guarded, _) = Guarded::with_a_job(Limits::default());
    guarded.dies();
    assert!(guarded.told_fault(-31002).contains("ended"));
    assert!(guarded.received().is_empty());
    let (mut guarded, order) = Guarded::with_a_job(Limits { job_timeout: seconds(100), ..Limits::default() });
    guarded.wait(seconds(54));
    assert!(guarded.told().is_empty());
    guarded.wait(seconds(1));
    assert!(guarded.told_fault(-31001).contains("--job-timeout"));
    let said = guarded.said();
    assert_eq!(said[0]["params"]["requestId"], serde_json::from_str::<Value>(&order.call.to_json()).unwrap());
}

#[test]
fn a_job_that_nobody_wants_is_withdrawn_from_the_server() {
    let (mut guarded, order) = Guarded::with_a_job(Limits::default());
    guarded.wrap_session.job_withdrawn(guarded.now, &order.call, &mut guarded.effects);
    let said = guarded.said();
    assert_eq!((said.len(), &said[0]["params"]["requestId"]), (1, &Value::from(1)));
    guarded.answer(1);
    assert!(guarded.told().is_empty() && guarded.received().is_empty());
}

#[test]
fn a_job_keeps_nobody_waiting() {
    let (mut guarded, _) = Guarded::with_a_job(Limits { quiet: true, ..Limits::default() });
    guarded.server(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    assert_eq!(guarded.received().len(), 1, "no call runs that a client waits for");
    guarded.wait(seconds(600));
    assert_eq!(guarded.said(), Vec::<Value>::new(), "a server that works is not asked whether it lives");
    guarded.ends();
    assert_eq!(guarded.actions(), [WrapAction::StopServer], "at once");
    assert!(guarded.told().is_empty(), "whoever keeps it ends it");
}

#[test]
fn no_client_is_cut_off_by_its_clock() {
    for clock in CLOCKS {
        let Some(call) = clock.call else { continue };
        for length in [2, 30, 90] {
            let (length, handed_over) = (seconds(length), call / 100 * PROMOTE_PERCENT);
            let mut guarded = Guarded::with_jobs(Limits::default());
            guarded.wrap_session.client.set_call_clock(call);
            guarded.call(1);
            guarded.said();
            if length < handed_over {
                guarded.wait(length);
                guarded.answer(1);
                assert_eq!(guarded.received().len(), 1, "{clock:?}: answered in time");
                continue;
            }
            guarded.wait(handed_over);
            let order = guarded.order();
            guarded.promoted(&order);
            guarded.wait(length.saturating_sub(handed_over));
            assert_eq!(guarded.said(), Vec::<Value>::new(), "{clock:?}: asked once, and not cancelled");
            guarded.answer(1);
            assert_eq!(guarded.told().len(), 1, "{clock:?}");
        }
    }
}

/// A call that asks for a task.
const TASK: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{}}}"#;

#[test]
fn a_call_that_cannot_be_the_task_that_was_asked_for_is_refused_and_its_server_not_asked() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(TASK);
    guarded.wait(Duration::ZERO);
    let order = guarded.order();
    let why = JobServiceError("the disk is full".to_owned());
    for _ in 0..2 {
        let call = (&order.call, order.order);
        guarded.wrap_session.not_promoted(guarded.now, call, &why, &mut guarded.effects);
    }
    let received = guarded.received();
    assert_eq!((received.len(), &received[0]["error"]["code"]), (1, &(-31005).into()), "once: {received:?}");
    let words = received[0]["error"]["message"].to_string();
    assert!(words.contains("unhang did not call `t`") && words.contains("the disk is full"), "{words}");
    assert_eq!(guarded.said(), Vec::<Value>::new());
    // What is slow, but has not asked for one, stays what it was.
    guarded.call(2);
    guarded.wait(seconds(45));
    let order = guarded.order();
    let call = (&order.call, order.order);
    guarded.wrap_session.not_promoted(guarded.now, call, &why, &mut guarded.effects);
    assert!(guarded.received().is_empty());
}

#[test]
fn a_task_for_which_there_is_no_room_is_refused_at_once() {
    let mut guarded = Guarded::with_jobs(Limits { queue_bytes: 250_000, ..Limits::default() });
    let large = "x".repeat(100_000);
    for id in 1..=3 {
        guarded.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","task":{{}},"arguments":{{"a":"{large}"}}}}}}"#
        ));
    }
    let received = guarded.received();
    assert_eq!((received.len(), &received[0]["id"]), (1, &3.into()), "{received:?}");
    assert_eq!(received[0]["error"]["code"], -31005);
    guarded.wait(Duration::ZERO);
    assert_eq!((guarded.actions().len(), guarded.said().len()), (2, 0));
}

/// The client may kill the guard as soon as it has the id.
#[test]
fn the_server_has_the_call_of_a_task_before_the_client_has_the_id() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(TASK);
    guarded.wait(Duration::ZERO);
    let order = guarded.order();
    guarded.promoted(&order);
    assert_eq!(guarded.effects.sent_before_client, 1);
    assert_eq!(guarded.said()[0]["method"], "tools/call");
}

#[test]
fn a_task_that_is_given_up_before_there_is_one_never_comes_to_its_server() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(TASK);
    guarded.wait(Duration::ZERO);
    let order = guarded.order();
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let call = (&order.call, order.order);
    assert!(!guarded.wrap_session.promoted(guarded.now, call, ("j", RESULT), &mut guarded.effects));
    assert_eq!((guarded.said(), guarded.received()), (vec![], vec![]));
}

#[test]
fn a_task_whose_server_is_down_waits_for_the_next_process() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(TASK);
    guarded.wait(Duration::ZERO);
    let order = guarded.order();
    guarded.dies();
    assert!(guarded.received().is_empty(), "it was not with the server that died");
    guarded.promoted(&order);
    shake_again(&mut guarded);
    let said = guarded.said();
    assert_eq!(said.iter().filter(|message| message["method"] == "tools/call").count(), 1, "{said:?}");
}

#[test]
fn a_client_that_asks_for_a_task_gets_one_at_once_and_its_server_hears_of_a_call() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":1},"arguments":{"a":1}}}"#,
    );
    assert_eq!(guarded.said(), Vec::<Value>::new(), "not before it is a task");
    guarded.wait(Duration::ZERO);
    let order = guarded.order();
    assert_eq!(order.promotion_reply, PromotionReply::Task(Dialect::Core));
    guarded.promoted(&order);
    let said = guarded.said();
    assert_eq!((said.len(), &said[0]["params"]), (1, &serde_json::json!({"name":"t","arguments":{"a":1}})));
    // What the server asks about it is about the task to its client, and to the server about nothing else than before.
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}"#;
    guarded.server(question);
    let related = serde_json::json!({"io.modelcontextprotocol/related-task": {"taskId": "j"}});
    assert_eq!(guarded.received()[0]["params"]["_meta"], related);
    guarded.client(
        r#"{"jsonrpc":"2.0","id":"q","result":{"action":"decline","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"j"},"x":1}}}"#,
    );
    let answered = &guarded.said()[0]["result"];
    assert_eq!((&answered["action"], &answered["_meta"]), (&"decline".into(), &serde_json::json!({"x": 1})));
    // Where there is something else that it can be about, nobody knows.
    guarded.call(2);
    guarded.server(question);
    assert_eq!(guarded.received()[0]["params"], serde_json::json!({"message": "m"}));
}

/// A call that is the same as one that has become this job.
pub(super) fn joining() -> (Guarded, JobId, WrapPromotionOrder) {
    let mut guarded = Guarded::with_jobs(Limits { join_same_call: true, ..Limits::default() });
    guarded.request(90, "tools/list");
    guarded.said();
    guarded.server(
        r#"{"jsonrpc":"2.0","id":90,"result":{"tools":[{"name":"t","annotations":{"readOnlyHint":true}}]}}"#,
    );
    guarded.received();
    let job = "abcdefgh2345".parse().expect("an id");
    guarded.effects.same = Some(job);
    guarded.call(1);
    assert_eq!(guarded.said(), Vec::<Value>::new(), "the server does not hear of it");
    let order = match guarded.actions().as_slice() {
        [WrapAction::Join(join)] => {
            assert_eq!((&join.call, join.job), (&Id::from(1), job));
            join.order
        }
        other => panic!("it joins: {other:?}"),
    };
    (guarded, job, order)
}

#[test]
fn the_same_call_has_the_answer_of_the_job_that_it_has_become() {
    let (mut guarded, _, order) = joining();
    assert!(guarded.wrap_session.waits_for_a_job(&Id::from(1), order));
    guarded.wrap_session.joined(
        guarded.now,
        (&Id::from(1), order),
        JoinOutcome::Answer(RESULT.to_owned()),
        &mut guarded.effects,
    );
    assert_eq!(guarded.received()[0]["result"]["structuredContent"]["job_id"], "j");
    assert!(!guarded.wrap_session.waits_for_a_job(&Id::from(1), order));
    // What comes twice is of no use.
    guarded.wrap_session.joined(
        guarded.now,
        (&Id::from(1), order),
        JoinOutcome::Answer(RESULT.to_owned()),
        &mut guarded.effects,
    );
    assert!(guarded.received().is_empty());
    guarded.effects.same = None;
    guarded.call(1);
    assert_eq!(guarded.said()[0]["id"], 1, "its id is free");
}

#[test]
fn the_same_call_that_waits_too_long_is_handed_over_as_the_job_that_there_is() {
    let (mut guarded, job, order) = joining();
    guarded.wait(seconds(45));
    assert_eq!(guarded.order().joins, Some(job));
    guarded.wrap_session.joined(
        guarded.now,
        (&Id::from(1), order),
        JoinOutcome::Still(RESULT.to_owned()),
        &mut guarded.effects,
    );
    assert_eq!((guarded.received().len(), guarded.said().len()), (1, 0));
}

#[test]
fn the_same_call_of_a_job_that_came_to_nothing_is_a_call_and_becomes_one_in_its_time() {
    let (mut guarded, _, order) = joining();
    guarded.wait(seconds(50));
    guarded.order();
    guarded.wrap_session.joined(
        guarded.now,
        (&Id::from(1), order),
        JoinOutcome::Nothing,
        &mut guarded.effects,
    );
    assert_eq!(guarded.said()[0]["method"], "tools/call");
    guarded.wait(Duration::ZERO);
    let order = guarded.order();
    assert_eq!((order.joins, order.elapsed), (None, seconds(50)));
    guarded.promoted(&order);
    // Nobody waits for what is withdrawn, and its server has never heard of it.
    let (mut guarded, _, order) = joining();
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert!(!guarded.wrap_session.waits_for_a_job(&Id::from(1), order));
    guarded.wrap_session.joined(
        guarded.now,
        (&Id::from(1), order),
        JoinOutcome::Nothing,
        &mut guarded.effects,
    );
    assert_eq!((guarded.received().len(), guarded.said()), (0, vec![]));
    // Where that is not wanted, or the tool does not say that it may be called twice, nothing is the same.
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.effects.same = "abcdefgh2345".parse().ok();
    guarded.call(1);
    assert_eq!(guarded.said().len(), 1);
    let mut guarded = Guarded::with_jobs(Limits { join_same_call: true, ..Limits::default() });
    guarded.effects.same = "abcdefgh2345".parse().ok();
    guarded.call(1);
    assert_eq!(guarded.said().len(), 1);
}

#[test]
fn tokens_of_jobs_that_have_ended_are_forgotten() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    for number in 1..200 {
        guarded.client(&format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"t","_meta":{{"progressToken":{number}}}}}}}"#
        ));
        guarded.wait(seconds(45));
        let order = guarded.order();
        guarded.received();
        guarded.promoted(&order);
        guarded.answer(number);
    }
    let (_, _, jobs) = guarded.wrap_session.progress_tokens.kept();
    assert!(jobs < 10, "{jobs}");
}

#[test]
fn a_trial_that_has_become_a_job_keeps_no_other_request_waiting() {
    let mut guarded = Guarded::with_jobs(Limits { breaker_failures: 1, ..Limits::default() });
    guarded.call(1);
    guarded.dies();
    guarded.heard_fault(1, -31002);
    guarded.wait(Limits::default().breaker_cooldown);
    guarded.call(2);
    shake_again(&mut guarded);
    guarded.call(3);
    guarded.heard_fault(3, -31004);
    guarded.wait(seconds(45));
    let order = guarded.order();
    guarded.promoted(&order);
    guarded.call(4);
    assert!(guarded.received().is_empty(), "it is let through");
}

#[test]
fn a_call_that_was_answered_is_not_the_call_of_its_order_nor_is_another_of_its_id() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.call(1);
    guarded.wait(seconds(45));
    let order = guarded.order();
    let is_ordered =
        |guarded: &Guarded| guarded.wrap_session.calls.ordered(&order.call, order.order).is_some();
    assert!(is_ordered(&guarded));
    guarded.answer(1);
    assert!(!is_ordered(&guarded), "its answer is in no journal, so no call holder may wait for one");
    guarded.call(1);
    assert!(!is_ordered(&guarded));
    guarded.wait(seconds(45));
    let order = guarded.order();
    assert!(guarded.wrap_session.calls.ordered(&order.call, order.order).is_some());
    guarded.wrap_session.promoted(guarded.now, (&order.call, order.order), ("j", "{}"), &mut guarded.effects);
    assert!(guarded.wrap_session.calls.ordered(&order.call, order.order).is_none(), "it is a job already");
}
