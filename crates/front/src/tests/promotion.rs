//! Calls that become jobs, as far as the session knows of them.

use unhang_bridge::Era;
use unhang_jobs::{
    record::{CallRecord, EndReason, Holder, JobEnd, JobState, ProcessRecord},
    timestamp::JobTimestamp,
};

use super::{
    offers::promoting,
    servers::{TOOL, answered, ask, asked, fronted, known, raw},
    *,
};
use crate::{
    effects::QuestionKey,
    tasks::{JobCapabilities, TaskAsked, TaskTold, TasksTold},
};
use unhang_background::{OpenInput, WhoIsAsked};
use unhang_core::promotion::Promotion;
use unhang_tools::{
    job_report::{JobReport, ReportReader, ToolNames, testing as samples},
    service::CallAnswer,
};

pub(super) const ID: &str = "abcdefgh2345";
pub(super) const BEHIND: JobCapabilities = JobCapabilities {
    are_there: true,
    promotes: true,
    tells_callers_apart: true,
    are_of_windows: false,
    ttl: Some(Duration::from_secs(60)),
    alone: None,
};

pub(super) fn job_report() -> JobReport {
    report(|record| record.status = JobState::Running)
}

pub(super) fn report(change: impl FnOnce(&mut unhang_jobs::record::JobRecord)) -> JobReport {
    let status = samples::status(|record| {
        record.name = "srv__now".to_owned();
        record.call = Some(CallRecord {
            server: "srv".to_owned(),
            tool: "now".to_owned(),
            is_repeatable: false,
            holder: Holder { boot_id: "b".to_owned(), process: ProcessRecord { pid: 1, start: 1 } },
            ticket: None,
            keeper: None,
            lost_with_holder: None,
            is_unsent: false,
            lasting_key: None,
            is_passed_on: false,
        });
        record.started_at = Some(record.created_at);
        change(record);
    });
    JobReport {
        elapsed_time_seconds: 48.0,
        ..JobReport::new(&status, ReportReader::Agent(ToolNames::default()))
    }
}

pub(super) fn with_jobs() -> TestSession {
    let mut front = fronted(known(&[TOOL], true));
    front.mcp_session.jobs = BEHIND;
    front
}

/// The call that is to become a job now.
#[track_caller]
fn promote(front: &mut TestSession) -> CallKey {
    match &front.actions()[..] {
        [SessionAction::Promote { key, order }] if order.name == "srv__now" => *key,
        other => panic!("{other:?}"),
    }
}

/// The call that is to become a job once the time is over that clients without a known clock get.
#[track_caller]
fn promote_after_45_seconds(front: &mut TestSession) -> CallKey {
    front.actions();
    front.wait(seconds(45));
    promote(front)
}

pub(super) const CALL: &str = r#"{"name":"srv__now","arguments":{}}"#;
pub(super) const TASK: &str = r#"{"name":"srv__now","arguments":{},"task":{"ttl":1000}}"#;
/// A client of 2026-07-28, which says with each request what it can do.
const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

pub(super) fn modern(params: &str) -> String {
    format!("{{{MODERN},{params}}}")
}

#[test]
fn a_call_becomes_a_job_before_its_client_gives_it_up_and_its_server_hears_nothing_of_it() {
    let mut front = with_jobs();
    ask(&mut front, 1, "tools/call", CALL);
    let (key, asked) = asked(&mut front);
    assert_eq!(asked.limit, unhang_core::config::JOB_TIMEOUT, "the server has the time of a job");
    front.wait(seconds(44));
    assert!(front.actions().is_empty());
    front.wait(seconds(1));
    assert_eq!(promote(&mut front), key);
    assert!(front.received().is_empty(), "not before it is on the disk");
    let who = front.mcp_session.promoted(front.now, key, &job_report(), &mut front.effects);
    assert_eq!(who, Some(WhoIsAsked::Nobody), "its client does something else");
    let answer = front.received().remove(0);
    assert_eq!((&answer["id"], &answer["result"]["structuredContent"]["job_id"]), (&json!(1), &json!(ID)));
    let text = answer["result"]["content"][0]["text"].as_str().expect("text").to_owned();
    assert!(text.contains("not its answer yet") && text.contains("get_job_status(job_id="), "{text}");
    // What comes later is the job's.
    front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
    front.wait(seconds(600));
    assert!(front.received().is_empty() && front.actions().is_empty());
}

#[test]
fn an_answer_that_comes_while_a_job_is_made_is_the_answer() {
    let mut front = with_jobs();
    ask(&mut front, 1, "tools/call", CALL);
    let key = promote_after_45_seconds(&mut front);
    front.mcp_session.answered(
        front.now,
        key,
        &answered(Era::Legacy, Ok(raw(r#"{"x":1}"#))),
        &mut front.effects,
    );
    assert_eq!(front.received()[0]["result"], json!({ "x": 1 }));
    let who = front.mcp_session.promoted(front.now, key, &job_report(), &mut front.effects);
    assert_eq!(who, None, "nobody waits");
    assert!(front.received().is_empty());
}

#[test]
fn a_call_of_which_no_job_can_be_made_stays_a_call_until_its_limit() {
    let mut front = with_jobs();
    ask(&mut front, 1, "tools/call", CALL);
    let key = promote_after_45_seconds(&mut front);
    front.wait(seconds(14));
    assert!(front.received().is_empty());
    front.wait(seconds(2));
    assert_eq!(front.received()[0]["error"]["data"]["kind"], "deadline");
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
}

#[test]
fn a_call_about_which_the_client_is_asked_stays_a_call_until_it_has_answered() {
    let mut front = with_jobs();
    front.says(
        r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"t"}}}"#,
    );
    ask(&mut front, 1, "tools/call", CALL);
    let (key, _) = asked(&mut front);
    let question: QuestionKey = 7;
    front.mcp_session.asked(
        front.now,
        QuestionSubject::Call(key),
        question,
        ("roots/list", None),
        &mut front.effects,
    );
    let id = front.received().pop().expect("a question")["id"].clone();
    front.wait(seconds(46));
    assert!(front.actions().is_empty());
    front.says(&json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } }).to_string());
    assert!(matches!(front.actions()[..], [SessionAction::Reply { question: 7, .. }]));
    front.wait(seconds(1));
    assert_eq!(promote(&mut front), key);
}

#[test]
fn a_question_that_comes_while_a_job_is_made_of_its_call_is_about_the_call() {
    for params in [CALL.to_owned(), modern(r#""name":"srv__now","arguments":{}"#)] {
        let mut front = with_jobs();
        front.mcp_session.set_state_secret("secret".to_owned());
        front.says(
            r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"t"}}}"#,
        );
        let params = params.replace(r#"{"extensions""#, r#"{"roots":{},"extensions""#);
        ask(&mut front, 1, "tools/call", &params);
        let key = promote_after_45_seconds(&mut front);
        assert!(!front.mcp_session.is_asked(key), "{params}");
        front.mcp_session.asked(
            front.now,
            QuestionSubject::Call(key),
            7,
            ("roots/list", None),
            &mut front.effects,
        );
        assert!(front.mcp_session.is_asked(key), "{params}: {:?}", front.received());
        assert!(front.actions().is_empty(), "it is not declined");
    }
}

#[test]
fn f_54_a_call_that_a_question_may_be_about_stays_a_call_until_it_is_answered() {
    let mut front = with_jobs();
    front.says(
        r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"t"}}}"#,
    );
    ask(&mut front, 1, "tools/call", CALL);
    let (first, _) = asked(&mut front);
    ask(&mut front, 2, "tools/call", CALL);
    let (second, _) = asked(&mut front);
    let about = QuestionSubject::OneOfSeveral(second);
    front.mcp_session.asked(front.now, about, 7, ("roots/list", None), &mut front.effects);
    let id = front.received().pop().expect("a question")["id"].clone();
    front.wait(seconds(46));
    assert!(front.actions().is_empty(), "neither of them");
    front.says(&json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } }).to_string());
    assert!(matches!(front.actions()[..], [SessionAction::Reply { question: 7, .. }]));
    front.wait(seconds(1));
    let mut promoted: Vec<CallKey> = front
        .actions()
        .into_iter()
        .map(|action| match action {
            SessionAction::Promote { key, .. } => key,
            other => panic!("{other:?}"),
        })
        .collect();
    promoted.sort_unstable();
    assert_eq!(promoted, [first, second]);
}

#[test]
fn who_asks_for_a_task_has_one_at_once() {
    let mut front = with_jobs();
    ask(&mut front, 1, "tools/call", TASK);
    let (key, asked) = asked(&mut front);
    assert!(!asked.params.contains("task"), "it is between the client and us: {}", asked.params);
    front.wait(Duration::ZERO);
    assert_eq!(promote(&mut front), key);
    front.mcp_session.promoted(front.now, key, &job_report(), &mut front.effects);
    let result = front.received().remove(0)["result"].clone();
    assert_eq!((&result["task"]["taskId"], &result["task"]["status"]), (&json!(ID), &json!("working")));
    assert_eq!(result["task"]["ttl"], 60_000);
}

#[test]
fn who_can_cope_with_tasks_gets_one_when_a_call_takes_too_long() {
    let mut front = with_jobs();
    let params = modern(r#""name":"srv__now","arguments":{}"#);
    ask(&mut front, 1, "tools/call", &params);
    let key = promote_after_45_seconds(&mut front);
    front.mcp_session.promoted(front.now, key, &job_report(), &mut front.effects);
    let result = front.received().remove(0)["result"].clone();
    assert_eq!((&result["resultType"], &result["taskId"]), (&json!("task"), &json!(ID)));
}

#[test]
fn who_has_declared_tasks_gets_one_as_soon_as_the_server_has_one() {
    let modern = modern(r#""name":"srv__now","arguments":{}"#);
    for (promotion, params, are_of_windows, gets_a_task) in [
        (Promotion::ByClock, &*modern, false, true),
        (Promotion::Off, &modern, false, true),
        (Promotion::ByClock, CALL, false, false),
        (Promotion::Off, CALL, false, false),
        (Promotion::ByClock, &modern, true, false),
    ] {
        let mut front = fronted(promoting(promotion, &[], &[TOOL]));
        front.mcp_session.jobs = JobCapabilities { promotes: !are_of_windows, are_of_windows, ..BEHIND };
        ask(&mut front, 1, "tools/call", params);
        let (key, _) = asked(&mut front);
        front.wait(Duration::from_millis(10));
        front.mcp_session.task_begun(front.now, key, &mut front.effects);
        if are_of_windows {
            let told = front.received().remove(0);
            assert_eq!(told["method"], "notifications/unhang/taskBegun", "the window makes the job");
        }
        if gets_a_task {
            assert_eq!(promote(&mut front), key, "{promotion} {params}");
        }
        assert_eq!((front.actions(), front.received()), (vec![], vec![]), "{promotion} {params}");
    }
}

#[test]
fn no_call_becomes_a_task_of_the_server_after_the_end_of_stdin() {
    let mut front = with_jobs();
    let params = modern(r#""name":"srv__now","arguments":{}"#);
    ask(&mut front, 1, "tools/call", &params);
    let (key, _) = asked(&mut front);
    front.mcp_session.client_end(front.now, &mut front.effects);
    front.mcp_session.task_begun(front.now, key, &mut front.effects);
    front.wait(seconds(1));
    assert!(front.actions().is_empty(), "the job would end with the session");
}

/// What a client is answered to a request about a task, of which this is known.
pub(super) fn told(front: &mut TestSession, id: u32, method: &str, params: &str, told: &TasksTold) -> Value {
    ask(front, id, method, params);
    let key = match &front.actions()[..] {
        [SessionAction::Task { key, .. }] => *key,
        other => panic!("{other:?}"),
    };
    front.mcp_session.task_told(front.now, key, told, &mut front.effects);
    front.received().remove(0)
}

fn ended(reason: Option<EndReason>, answer: Option<CallAnswer>) -> TasksTold {
    let outcome = if reason.is_some() { JobEnd::Failed } else { JobEnd::Completed };
    let mut ending = unhang_jobs::record::EndRecord::without_run(outcome);
    ending.completed_at = JobTimestamp::from_millis(1_800_000_000_000);
    if let Some(reason) = reason {
        ending = ending.because(reason, "so it is");
    }
    TasksTold::One(Box::new(TaskTold {
        report: report(|record| record.end(&ending)),
        answer,
        inputs: Vec::new(),
    }))
}

#[test]
fn a_task_is_told_of_in_the_dialect_of_its_client() {
    let mut front = with_jobs();
    let about = format!(r#"{{"taskId":"{ID}"}}"#);
    let modern = modern(&format!(r#""taskId":"{ID}""#));
    let result = CallAnswer::Result(r#"{"content":[],"isError":true}"#.to_owned());
    let failed = ended(Some(EndReason::ToolError), Some(result));
    let core = told(&mut front, 1, "tasks/get", &about, &failed);
    assert_eq!(core["result"]["status"], "failed", "{core}");
    let payload = told(&mut front, 2, "tasks/result", &about, &failed);
    assert_eq!(payload["result"]["isError"], true);
    assert_eq!(payload["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], ID);
    let extension = told(&mut front, 3, "tasks/get", &modern, &failed);
    assert_eq!(
        (&extension["result"]["status"], &extension["result"]["result"]["isError"]),
        (&json!("completed"), &json!(true)),
        "{extension}"
    );
    assert_eq!(extension["result"]["resultType"], "complete");

    // What has no result has an error, whatever it is.
    let gone = ended(Some(EndReason::ClientGone), None);
    let extension = told(&mut front, 4, "tasks/get", &modern, &gone);
    assert_eq!(extension["result"]["error"]["data"]["reason"], "client_gone", "{extension}");
    assert_eq!(told(&mut front, 5, "tasks/result", &about, &gone)["error"]["code"], -31008);

    // Of more than one page the last task says where the next begins.
    let page = told(&mut front, 9, "tasks/list", "{}", &TasksTold::All(vec![job_report()], true));
    assert_eq!(
        (&page["result"]["tasks"][0]["taskId"], &page["result"]["nextCursor"]),
        (&json!(ID), &json!(ID))
    );
    let cursor = format!(r#"{{"cursor":"{ID}"}}"#);
    let last = told(&mut front, 10, "tasks/list", &cursor, &TasksTold::All(vec![job_report()], false));
    assert_eq!(last["result"].get("nextCursor"), None);
    let gone = told(&mut front, 11, "tasks/list", &cursor, &TasksTold::NoSuchPage);
    assert_eq!(gone["error"]["code"], -32602);

    // Nobody is told whether it was ever there.
    let unknown = TasksTold::Unknown(ID.parse().expect("an id"));
    assert_eq!(told(&mut front, 6, "tasks/get", &about, &unknown)["error"]["code"], -32602);
    let TasksTold::One(ended_task) = ended(None, None) else { panic!("it was told of one") };
    let ended_task = TasksTold::HasEnded(ended_task);
    assert_eq!(told(&mut front, 7, "tasks/cancel", &about, &ended_task)["error"]["code"], -32602);
    let acknowledged = told(&mut front, 8, "tasks/cancel", &modern, &ended_task);
    assert_eq!(acknowledged["result"]["resultType"], "complete", "{acknowledged}");
}

/// The finding: it named neither server nor method, and said nothing of what to do.
#[test]
fn a_task_that_was_cancelled_has_an_error_with_all_that_is_known() {
    let mut front = with_jobs();
    let ending = unhang_jobs::record::EndRecord::without_run(JobEnd::Cancelled);
    let cancelled =
        TaskTold { report: report(|record| record.end(&ending)), answer: None, inputs: Vec::new() };
    let about = format!(r#"{{"taskId":"{ID}"}}"#);
    let told = told(&mut front, 1, "tasks/result", &about, &TasksTold::One(Box::new(cancelled)));
    let (error, hint) = (&told["error"], "call it again if you still need the result");
    assert_eq!(error["code"], -31009, "{told}");
    assert_eq!(error["message"], format!("`srv__now` has no result: cancelled after 48s; {hint}"), "{told}");
    assert_eq!(
        error["data"],
        json!({
            "origin": "unhang", "kind": "cancelled", "server": "srv", "method": "tools/call", "elapsedMs": 48_000,
            "stderrTail": [], "junk": [], "hint": hint, "job": ID, "reason": null,
        })
    );
}

#[test]
fn a_job_is_a_resource_for_its_caller() {
    let mut front = with_jobs();
    let read = format!(r#"{{"uri":"job://{ID}"}}"#);
    let answer = CallAnswer::Result(r#"{"content":[{"type":"text","text":"whole"}]}"#.to_owned());
    let done = told(&mut front, 1, "resources/read", &read, &ended(None, Some(answer)));
    let content = &done["result"]["contents"][0];
    let known: Value = serde_json::from_str(content["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(
        (&known["status"], &known["results"]["content"][0]["text"]),
        (&json!("completed"), &json!("whole"))
    );
    let unknown = TasksTold::Unknown(ID.parse().expect("an id"));
    let missing = told(&mut front, 2, "resources/read", &read, &unknown);
    assert_eq!(
        (&missing["error"]["code"], &missing["error"]["data"]["uri"]),
        (&json!(-32002), &json!(format!("job://{ID}")))
    );
    let modern = modern(&format!(r#""uri":"job://{ID}""#));
    let running =
        TasksTold::One(Box::new(TaskTold { report: job_report(), answer: None, inputs: Vec::new() }));
    let running = told(&mut front, 3, "resources/read", &modern, &running);
    assert_eq!(
        (&running["result"]["resultType"], &running["result"]["ttlMs"]),
        (&json!("complete"), &json!(0))
    );
    // What is no job of ours is a server's, or nobody's.
    ask(&mut front, 4, "resources/read", r#"{"uri":"job://x"}"#);
    assert!(front.actions().is_empty());
}

/// What a task waits for is in what is told of it in the one dialect, and asked beside the wait for its result in the other.
#[test]
fn a_task_that_waits_for_its_client_says_so() {
    let mut front = with_jobs();
    let input = OpenInput {
        key: "question-1".to_owned(),
        method: "elicitation/create".to_owned(),
        params: Some(raw(r#"{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}"#)),
    };
    let waits = || {
        let told = TaskTold { report: job_report(), answer: None, inputs: vec![input.clone()] };
        TasksTold::One(Box::new(told))
    };
    let about = format!(r#"{{"taskId":"{ID}"}}"#);
    let core = told(&mut front, 1, "tasks/get", &about, &waits());
    assert_eq!(core["result"]["status"], "input_required", "{core}");
    let extension = told(&mut front, 2, "tasks/get", &modern(&format!(r#""taskId":"{ID}""#)), &waits());
    assert_eq!(extension["result"]["status"], "input_required");
    let request = &extension["result"]["inputRequests"]["question-1"];
    assert_eq!(
        (&request["method"], &request["params"]["message"]),
        (&json!("elicitation/create"), &json!("sure?"))
    );
}

#[test]
fn what_is_wrong_with_a_request_about_a_task_is_said_in_the_codes_of_the_protocol() {
    let mut front = with_jobs();
    let undeclared = MODERN.replace(r#""io.modelcontextprotocol/tasks":{}"#, "");
    for (id, method, params, code) in [
        (1, "tasks/get", r#"{"taskId":"nothing of ours"}"#.to_owned(), -32602),
        (2, "tasks/get", "{}".to_owned(), -32602),
        (3, "tasks/get", format!(r#"{{{undeclared},"taskId":"{ID}"}}"#), -32021),
        (4, "tasks/result", modern(&format!(r#""taskId":"{ID}""#)), -32601),
        (5, "tasks/list", modern(""), -32700),
        (6, "tasks/update", format!(r#"{{"taskId":"{ID}","inputResponses":{{}}}}"#), -32601),
        (7, "tasks/update", modern(&format!(r#""taskId":"{ID}""#)), -32602),
        (9, "tasks/list", r#"{"cursor":"nothing of ours"}"#.to_owned(), -32602),
        // A tool of ours that answers in any case.
        (8, "tools/call", r#"{"name":"echo","task":{}}"#.to_owned(), -32601),
    ] {
        ask(&mut front, id, method, &params);
        let answer = front.received().remove(0);
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        assert!(front.actions().is_empty());
    }
}

#[test]
fn a_result_is_waited_for_no_longer_than_a_call() {
    let mut front = with_jobs();
    ask(&mut front, 1, "tasks/result", &format!(r#"{{"taskId":"{ID}"}}"#));
    let limit = unhang_core::config::CALL_TIMEOUT;
    match &front.actions()[..] {
        [SessionAction::Task { asked: TaskAsked::Result(_, waits), .. }] => assert_eq!(*waits, limit),
        other => panic!("{other:?}"),
    }
    front.wait(limit + seconds(1));
    assert_eq!(front.received()[0]["error"]["data"]["kind"], "deadline");
}

#[test]
fn where_nothing_becomes_a_job_nothing_is_said_of_tasks() {
    let mut front = fronted(known(&[TOOL], true));
    ask(&mut front, 1, "tools/call", TASK);
    assert_eq!(asked(&mut front).1.limit, seconds(60));
    front.wait(seconds(50));
    assert!(front.actions().is_empty());
    ask(&mut front, 2, "tasks/get", "{}");
    assert_eq!(front.received()[0]["error"]["code"], -32601);
}

#[test]
fn a_subscription_hears_of_its_tasks_until_it_is_over() {
    let mut front = with_jobs();
    let wish = format!(r#""notifications":{{"taskIds":["{ID}","{ID}","none of ours"]}}"#);
    ask(&mut front, 1, "subscriptions/listen", &modern(&wish));
    assert_eq!(
        front.received()[0]["params"]["notifications"],
        json!({ "taskIds": [ID] }),
        "once, and what may be"
    );
    let key = match &front.actions()[..] {
        [SessionAction::FollowTask { key, .. }] => *key,
        other => panic!("{other:?}"),
    };
    let TasksTold::One(told) = ended(None, Some(CallAnswer::Result(r#"{"content":[]}"#.to_owned()))) else {
        panic!("it was told of one");
    };
    front.mcp_session.task_changed(front.now, key, &told, &mut front.effects);
    let received = front.received().remove(0);
    assert_eq!(
        (&received["method"], &received["params"]["status"]),
        (&json!("notifications/tasks"), &json!("completed"))
    );
    assert_eq!(received["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    front.mcp_session.task_changed(front.now, key, &told, &mut front.effects);
    assert!(front.received().is_empty());

    // Who has not said that it copes with tasks hears of none.
    let undeclared = MODERN.replace(r#""io.modelcontextprotocol/tasks":{}"#, "");
    ask(&mut front, 2, "subscriptions/listen", &format!("{{{undeclared},{wish}}}"));
    assert_eq!(front.received()[0]["params"]["notifications"], json!({}));
    assert!(front.actions().is_empty());
}

#[test]
fn a_call_of_which_no_job_can_be_made_ends_at_its_limit_with_the_reason() {
    let mut front = with_jobs();
    ask(&mut front, 1, "tools/call", CALL);
    let (key, _) = asked(&mut front);
    front.wait(seconds(45));
    assert_eq!(promote(&mut front), key);
    assert!(front.mcp_session.not_promoted(key, "the data folder is gone".to_owned()), "its client waits");
    // The server's call-timeout is a minute.
    front.wait(seconds(15) - Duration::from_millis(1));
    assert_eq!(front.received(), [] as [Value; 0], "it may still be answered");
    front.wait(Duration::from_millis(1));
    let answer = front.received().remove(0);
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-31001)));
    let message = answer["error"]["message"].as_str().expect("text");
    assert!(message.contains("the call could not become a job: the data folder is gone"), "{message}");
    assert!(!front.mcp_session.not_promoted(key, String::new()), "nobody waits any more");
}

#[test]
fn a_call_in_flight_when_stdin_ends_never_becomes_a_job() {
    for is_ordered in [false, true] {
        let mut front = with_jobs();
        ask(&mut front, 1, "tools/call", CALL);
        let (key, _) = asked(&mut front);
        front.wait(seconds(43));
        if is_ordered {
            front.wait(seconds(2));
            assert_eq!(promote(&mut front), key);
        }
        assert!(!front.mcp_session.stays_a_call(key));
        front.mcp_session.client_end(front.now, &mut front.effects);
        front.wait(seconds(4));
        assert!(front.actions().is_empty(), "its moment has passed, and it is a call still");
        assert!(front.mcp_session.stays_a_call(key), "a job that comes now is of no use");
        front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
        assert_eq!(front.received()[0]["id"], 1);
        assert!(!front.mcp_session.stays_a_call(key), "nobody waits for it any more");
    }
}

#[test]
fn a_call_that_is_a_task_becomes_one_although_its_client_has_ended() {
    for (params, is_task) in [(TASK, true), (CALL, false)] {
        let mut front = with_jobs();
        ask(&mut front, 1, "tools/call", params);
        let (key, _) = asked(&mut front);
        assert_eq!(front.mcp_session.wants_a_task(key), is_task, "{params}");
        assert!(!front.mcp_session.wants_a_task(key + 1), "there is no such call");
        front.mcp_session.client_end(front.now, &mut front.effects);
        front.wait(seconds(1));
        let ordered = front.actions();
        let is_ordered =
            matches!(ordered[..], [SessionAction::Promote { key: promoted, .. }] if promoted == key);
        assert_eq!(is_ordered, is_task, "its server is not asked before: {ordered:?}");
    }
}

#[test]
fn the_clients_that_follow_a_task_can_be_asked_what_its_own_client_could() {
    let sampling = MODERN.replace(r#"{"extensions""#, r#"{"sampling":{},"extensions""#);
    let capabilities = r#"{"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    for (params, expect) in [
        (CALL.to_owned(), WhoIsAsked::Nobody),
        (TASK.to_owned(), WhoIsAsked::Followers(r#"{"roots":{}}"#.into())),
        (
            format!(r#"{{{sampling},"name":"srv__now","arguments":{{}}}}"#),
            WhoIsAsked::Followers(capabilities.into()),
        ),
    ] {
        let mut front = with_jobs();
        front.declare_capabilities(r#"{"roots":{}}"#);
        ask(&mut front, 1, "tools/call", &params);
        let key = promote_after_45_seconds(&mut front);
        let who = front.mcp_session.promoted(front.now, key, &job_report(), &mut front.effects);
        assert_eq!(who, Some(expect), "{params}");
    }
}
