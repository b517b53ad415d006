//! The session tells its client the states, outcomes and errors of its tasks.

use unhang_jobs::{
    record::{EndReason, EndRecord, JobEnd, JobState},
    timestamp::JobTimestamp,
};

use super::{
    promotion::{BEHIND, CALL, ID, modern, report, told, with_jobs},
    questions::{asks, calling, reply},
    servers::{ask, asked, raw},
    *,
};
use crate::tasks::{JobCapabilities, TaskAsked, TaskTold, TasksTold, job_of};
use unhang_background::OpenInput;
use unhang_core::{
    config::{CALL_TIMEOUT, VERDICT_SLACK},
    revision::Revision,
};
use unhang_tools::{
    job_report::{JobReport, ToolNames},
    service::CallAnswer,
};

const BEGAN: &str = "2026-03-30T12:00:00.000Z";
const ENDED: &str = "2026-03-30T12:00:01.500Z";

fn about() -> String {
    format!(r#"{{"taskId":"{ID}"}}"#)
}

fn about_in_the_extension() -> String {
    modern(&format!(r#""taskId":"{ID}""#))
}

fn in_state(status: JobState) -> JobReport {
    report(|record| record.status = status)
}

/// A job that has ended in this way.
fn ended(outcome: JobEnd, change: impl FnOnce(&mut EndRecord)) -> JobReport {
    report(|record| {
        let completed_at = JobTimestamp::from_millis(record.created_at.millis() + 1500);
        let mut ending = EndRecord { completed_at, ..EndRecord::without_run(outcome) };
        change(&mut ending);
        record.end(&ending);
    })
}

fn because(outcome: JobEnd, reason: EndReason) -> JobReport {
    ended(outcome, |ending| *ending = ending.clone().because(reason, "so it is"))
}

fn one(report: JobReport, answer: Option<CallAnswer>) -> TasksTold {
    TasksTold::One(Box::new(TaskTold { report, answer, inputs: Vec::new() }))
}

#[test]
fn a_client_asks_again_after_a_quarter_of_the_time_so_far() {
    for (elapsed, expect) in
        [(0.0, 250), (1.0, 250), (4.0, 1000), (8.0, 2000), (3600.0, 2000), (f64::MAX, 2000)]
    {
        let job = JobReport { elapsed_time_seconds: elapsed, ..in_state(JobState::Running) };
        let told = told(&mut with_jobs(), 1, "tasks/get", &about(), &one(job, None));
        assert_eq!(told["result"]["pollInterval"], expect, "{elapsed}");
    }
}

#[test]
fn a_job_is_listed_with_the_state_and_the_words_of_a_task() {
    let running = || in_state(JobState::Running);
    let message = || Some("reading".to_owned());
    let no_memory = || Some("no memory is free".to_owned());
    let mut front = with_jobs();
    for (job, status, words, updated) in [
        (in_state(JobState::Queued), "working", None, BEGAN),
        (in_state(JobState::Starting), "working", None, BEGAN),
        (running(), "working", None, BEGAN),
        (JobReport { progress: Some(0.25), ..running() }, "working", Some("25 % done"), BEGAN),
        (JobReport { progress_message: message(), ..running() }, "working", Some("reading"), BEGAN),
        (
            JobReport { progress: Some(0.25), progress_message: message(), ..running() },
            "working",
            Some("25 % done: reading"),
            BEGAN,
        ),
        (
            JobReport { wait_reason: no_memory(), progress_message: message(), ..in_state(JobState::Queued) },
            "working",
            Some("no memory is free"),
            BEGAN,
        ),
        (ended(JobEnd::Completed, |ending| ending.exit_code = Some(0)), "completed", None, ENDED),
        (ended(JobEnd::Failed, |ending| ending.exit_code = Some(3)), "failed", Some("exit code 3"), ENDED),
        (because(JobEnd::Lost, EndReason::Reboot), "failed", Some("so it is"), ENDED),
        (ended(JobEnd::Cancelled, |ending| ending.signal = Some(15)), "cancelled", None, ENDED),
    ] {
        let what = format!("{job:?}");
        let page = told(&mut front, 1, "tasks/list", "{}", &TasksTold::All(vec![job], false));
        let mut expect = json!({
            "taskId": ID, "status": status, "createdAt": BEGAN, "lastUpdatedAt": updated, "ttl": 60_000,
            "pollInterval": 2_000,
        });
        if let Some(words) = words {
            expect["statusMessage"] = words.into();
        }
        assert_eq!(page["result"]["tasks"], json!([expect]), "{what}");
    }
    front.mcp_session.jobs.ttl = None;
    let page = told(&mut front, 1, "tasks/list", "{}", &TasksTold::All(vec![running()], false));
    assert_eq!(page["result"]["tasks"][0].get("ttl"), Some(&Value::Null), "it is kept for ever");
}

#[test]
fn a_task_without_a_result_has_an_error_of_the_kind_of_its_end() {
    let mut front = with_jobs();
    let nothing_more = "unhang does not start it again by itself";
    for (job, code, kind, how) in [
        (because(JobEnd::Failed, EndReason::Timeout), -31001, "deadline", "failed: so it is"),
        (because(JobEnd::Failed, EndReason::ServerError), -31007, "bad_response", "failed: so it is"),
        (because(JobEnd::Failed, EndReason::ServerExited), -31002, "server_exited", "failed: so it is"),
        (because(JobEnd::Failed, EndReason::ClientGone), -31008, "shutting_down", "failed: so it is"),
        (because(JobEnd::Lost, EndReason::UnhangEnded), -31008, "shutting_down", "lost: so it is"),
        (ended(JobEnd::Completed, |_| {}), -31008, "shutting_down", "completed"),
    ] {
        let reason = job.reason;
        let answer = told(&mut front, 1, "tasks/result", &about(), &one(job, None));
        let error = &answer["error"];
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(code), &json!(kind)), "{error}");
        assert_eq!(error["message"], format!("`srv__now` has no result: {how}; {nothing_more}"));
        assert_eq!(
            (&error["data"]["job"], &error["data"]["reason"], &error["data"]["elapsedMs"]),
            (&json!(ID), &json!(reason.map(|reason| reason.to_string())), &json!(48_000)),
            "{error}"
        );
        assert_eq!((&error["data"]["server"], &error["data"]["hint"]), (&json!("srv"), &json!(nothing_more)));
    }
    // The client cancels a call at the moment of its deadline: the cancellation counts.
    let both = because(JobEnd::Cancelled, EndReason::Timeout);
    let answer = told(&mut front, 1, "tasks/result", &about(), &one(both, None));
    assert_eq!(answer["error"]["code"], -31009, "{answer}");
    let command = JobReport { server: None, ..ended(JobEnd::Lost, |_| {}) };
    let answer = told(&mut front, 1, "tasks/result", &about(), &one(command, None));
    assert_eq!(answer["error"]["data"]["server"], "unhang", "{answer}");
}

/// The outcome in what is told of a task: its status, and the members that a result, an error or questions have.
fn outcome(answer: &Value) -> Value {
    let members = ["status", "result", "error", "inputRequests"].map(|member| {
        let value = &answer["result"][member];
        (!value.is_null()).then(|| (member.to_owned(), value.clone()))
    });
    Map::from_iter(members.into_iter().flatten()).into()
}

#[test]
fn the_outcome_of_a_task_is_that_of_its_call_in_the_era_of_its_client() {
    let result = |text: &str| Some(CallAnswer::Result(text.to_owned()));
    let error = || json!({ "code": -1, "message": "m" });
    let marked = |mut result: Value| {
        result["_meta"] = json!({ "io.modelcontextprotocol/related-task": { "taskId": ID } });
        Ok(result)
    };
    let completed = || ended(JobEnd::Completed, |_| {});
    let complete = || json!({ "content": [], "resultType": "complete" });
    let mut front = with_jobs();
    for (job, answer, core, extension, payload) in [
        (
            in_state(JobState::Running),
            None,
            "working",
            json!({ "status": "working" }),
            Err((-31008, "the task has not ended yet; ask for its result again")),
        ),
        // A result of either era, for clients of both.
        (
            completed(),
            result(r#"{"content":[]}"#),
            "completed",
            json!({ "status": "completed", "result": complete() }),
            marked(json!({ "content": [] })),
        ),
        (
            completed(),
            result(r#"{"content":[],"resultType":"complete"}"#),
            "completed",
            json!({ "status": "completed", "result": complete() }),
            marked(json!({ "content": [] })),
        ),
        (
            completed(),
            result("nonsense"),
            "completed",
            json!({ "status": "completed" }),
            Err((-31008, "unhang can no longer read its result")),
        ),
        (
            because(JobEnd::Failed, EndReason::ServerError),
            Some(CallAnswer::Error(error().to_string())),
            "failed",
            json!({ "status": "failed", "error": error() }),
            Err((-1, "m")),
        ),
    ] {
        let what = format!("{:?} {answer:?}", job.status);
        let known = one(job, answer);
        let got = told(&mut front, 1, "tasks/get", &about(), &known);
        assert_eq!(outcome(&got), json!({ "status": core }), "{what}");
        let got = told(&mut front, 2, "tasks/get", &about_in_the_extension(), &known);
        assert_eq!(outcome(&got), extension, "{what}");
        let came = told(&mut front, 3, "tasks/result", &about(), &known);
        match payload {
            Ok(payload) => assert_eq!(came["result"], payload, "{what}"),
            Err((code, message)) => {
                assert_eq!(came["error"], json!({ "code": code, "message": message }), "{what}");
            }
        }
    }
}

#[test]
fn a_task_that_has_not_ended_in_time_or_cannot_be_looked_up_is_an_error_with_the_reason() {
    let mut front = with_jobs();
    let input =
        OpenInput { key: "question-1".to_owned(), method: "roots/list".to_owned(), params: Some(raw("{}")) };
    let asks = TaskTold { report: in_state(JobState::Running), answer: None, inputs: vec![input] };
    let not_yet = "the task has not ended yet; ask for its result again";
    for (known, message) in [
        (TasksTold::NotYet, not_yet),
        (TasksTold::One(Box::new(asks)), not_yet),
        (TasksTold::Failed("the disk is full".to_owned()), "the disk is full"),
    ] {
        let answer = told(&mut front, 1, "tasks/result", &about(), &known);
        assert_eq!(answer["error"], json!({ "code": -31008, "message": message }));
    }
}

#[test]
fn a_cancelled_or_updated_task_is_acknowledged_in_the_dialect_of_its_client() {
    let mut front = with_jobs();
    let running = || one(in_state(JobState::Running), None);
    let core = told(&mut front, 1, "tasks/cancel", &about(), &running());
    assert_eq!(
        (&core["result"]["taskId"], &core["result"]["status"]),
        (&json!(ID), &json!("cancelled")),
        "{core}"
    );
    let answers = modern(&format!(r#""taskId":"{ID}","inputResponses":{{}}"#));
    let server = json!({ "name": "unhang", "version": env!("CARGO_PKG_VERSION") });
    let acknowledged = json!({
        "resultType": "complete", "_meta": { "io.modelcontextprotocol/serverInfo": server },
    });
    for (method, params) in [("tasks/cancel", about_in_the_extension()), ("tasks/update", answers)] {
        let answer = told(&mut front, 2, method, &params, &running());
        assert_eq!(answer["result"], acknowledged, "{method}");
    }
    // A task that has ended cannot be cancelled. Its status is the one that `tasks/get` tells.
    let failed = CallAnswer::Result(r#"{"content":[],"isError":true}"#.to_owned());
    let done = CallAnswer::Result(r#"{"content":[]}"#.to_owned());
    for (job, answer, status) in [
        (ended(JobEnd::Completed, |_| {}), Some(done), "completed"),
        (ended(JobEnd::Completed, |_| {}), Some(failed), "failed"),
        (ended(JobEnd::Cancelled, |_| {}), None, "cancelled"),
    ] {
        let has_ended = TasksTold::HasEnded(Box::new(TaskTold { report: job, answer, inputs: Vec::new() }));
        let refused = told(&mut front, 3, "tasks/cancel", &about(), &has_ended);
        let message = format!("The task `{ID}` cannot be cancelled: it has ended and is {status}.");
        assert_eq!(refused["error"]["message"], message);
    }
}

#[test]
fn a_job_as_a_resource_has_its_outcome_as_it_was_written() {
    let mut front = with_jobs();
    let uri = format!("job://{ID}");
    let read = format!(r#"{{"uri":"{uri}"}}"#);
    let completed = || ended(JobEnd::Completed, |_| {});
    for (job, answer, member) in [
        (
            completed(),
            Some(CallAnswer::Result(r#"{ "x":1.0e0 }"#.to_owned())),
            Some(r#""results":{ "x":1.0e0 }"#),
        ),
        (
            completed(),
            Some(CallAnswer::Error(r#"{ "code":-1.0 }"#.to_owned())),
            Some(r#""error":{ "code":-1.0 }"#),
        ),
        (in_state(JobState::Running), None, None),
    ] {
        let whole = serde_json::to_value(&job).expect("JSON");
        let answer = told(&mut front, 1, "resources/read", &read, &one(job, answer));
        let content = &answer["result"]["contents"][0];
        assert_eq!(
            (&content["uri"], &content["mimeType"]),
            (&json!(uri), &json!("application/json")),
            "{answer}"
        );
        let text = content["text"].as_str().expect("text");
        let mut known: Map<String, Value> = serde_json::from_str(text).expect("JSON");
        known.retain(|member, _| !matches!(member.as_str(), "results" | "error"));
        assert_eq!(Value::from(known), whole, "{text}");
        match member {
            Some(member) => assert!(text.contains(member), "{text}"),
            None => assert!(!text.contains(r#""results""#) && !text.contains(r#""error""#), "{text}"),
        }
    }
    let known = one(in_state(JobState::Running), None);
    let modern = told(&mut front, 2, "resources/read", &modern(&format!(r#""uri":"{uri}""#)), &known);
    let server = &modern["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!((&server["name"], &modern["result"]["cacheScope"]), (&json!("unhang"), &json!("private")));
}

#[test]
fn requests_about_tasks_belong_to_one_dialect_or_to_both() {
    use Revision::{V2024November, V2025June, V2025November, V2026July};
    for (method, core, extension) in [
        ("tasks/get", true, true),
        ("tasks/cancel", true, true),
        ("tasks/result", true, false),
        ("tasks/list", true, false),
        ("tasks/update", false, true),
        ("tasks/other", false, false),
        ("tools/call", false, false),
    ] {
        for (revision, is_offered) in
            [(V2024November, false), (V2025June, false), (V2025November, core), (V2026July, extension)]
        {
            assert_eq!(BEHIND.answer_tasks(method, revision), is_offered, "{method} {revision:?}");
            let alike = JobCapabilities { tells_callers_apart: false, ..BEHIND };
            // A list would show each caller the tasks of all.
            let is_offered = is_offered && method != "tasks/list";
            assert_eq!(alike.answer_tasks(method, revision), is_offered, "{method} {revision:?}");
            assert!(!JobCapabilities::default().answer_tasks(method, revision), "there are no jobs");
        }
    }
}

#[test]
fn a_request_about_tasks_asks_for_one_thing_and_has_the_limit_of_its_kind() {
    let id = ID.parse().expect("an id");
    let (get, answers) = (about(), r#""inputResponses":{"a":{ "x":1 },"b":{}}"#);
    let update = modern(&format!(r#""taskId":"{ID}",{answers}"#));
    let responses = vec![("a".to_owned(), r#"{ "x":1 }"#.to_owned()), ("b".to_owned(), "{}".to_owned())];
    let (page, whole) = (format!(r#"{{"cursor":"{ID}"}}"#), CALL_TIMEOUT + VERDICT_SLACK);
    let read = format!(r#"{{"uri":"job://{ID}"}}"#);
    for (method, params, expect, limit, subject) in [
        ("tasks/get", get.as_str(), TaskAsked::Get(id), seconds(30), Some(id)),
        ("tasks/cancel", &get, TaskAsked::Cancel(id), seconds(30), Some(id)),
        ("tasks/result", &get, TaskAsked::Result(id, CALL_TIMEOUT), whole, Some(id)),
        ("tasks/update", &update, TaskAsked::Update(id, responses), seconds(30), Some(id)),
        ("tasks/list", "{}", TaskAsked::List(None), seconds(30), None),
        ("tasks/list", r#"{"cursor":null}"#, TaskAsked::List(None), seconds(30), None),
        ("tasks/list", &page, TaskAsked::List(Some(id)), seconds(30), None),
        ("resources/read", &read, TaskAsked::Resource(id), seconds(30), Some(id)),
    ] {
        let mut front = with_jobs();
        ask(&mut front, 1, method, params);
        let key = match &front.actions()[..] {
            [SessionAction::Task { key, asked }] => {
                assert_eq!((asked, asked.about()), (&expect, subject), "{method} {params}");
                *key
            }
            other => panic!("{other:?}"),
        };
        front.wait(limit - Duration::from_millis(1));
        assert!(front.received().is_empty(), "{method}");
        front.wait(Duration::from_millis(1));
        let fault = front.heard_fault(1, -31001);
        assert_eq!(
            (&fault["data"]["method"], fault["data"]["limitMs"].as_u64()),
            (&json!(method), u64::try_from(limit.as_millis()).ok()),
            "{fault}"
        );
        assert!(fault["message"].as_str().is_some_and(|text| text.contains("the job continues")), "{fault}");
        assert_eq!(front.actions(), [SessionAction::Cancel(key)]);
    }
}

#[test]
fn a_uri_of_a_job_is_one_of_its_scheme_with_an_id() {
    for (uri, is_of_a_job) in [
        ("job://abcdefgh2345", true),
        ("job://", false),
        ("job://x", false),
        ("job:abcdefgh2345", false),
        ("file://abcdefgh2345", false),
        ("abcdefgh2345", false),
    ] {
        assert_eq!(job_of(uri), is_of_a_job.then(|| ID.parse().expect("an id")), "{uri}");
    }
}

#[test]
fn a_missing_job_says_where_all_are_listed() {
    let read = format!(r#"{{"uri":"job://{ID}"}}"#);
    for (alone, hint) in [
        (None, "resources/list names all resources"),
        (Some(ToolNames::default()), "list_jobs lists all jobs"),
        (Some(ToolNames { prefix: "unhang_" }), "unhang_list_jobs lists all jobs"),
    ] {
        let mut front = with_jobs();
        front.mcp_session.jobs.alone = alone;
        let unknown = TasksTold::Unknown(ID.parse().expect("an id"));
        let missing = told(&mut front, 1, "resources/read", &read, &unknown);
        let message = format!("there is no resource `job://{ID}`; {hint}");
        assert_eq!(missing["error"]["message"], message);
        // `tools/call` is not among the requests about tasks.
        ask(&mut front, 2, "tools/call", CALL);
        assert!(matches!(front.actions()[..], [SessionAction::Ask { .. }]));
    }
}

#[test]
fn a_question_about_a_servers_task_waits_for_the_job_that_is_being_made_of_the_call() {
    let about =
        raw(r#"{"message":"?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"theirs"}}}"#);
    let mut front = with_jobs();
    ask(&mut front, 1, "tools/call", &modern(r#""name":"srv__now","arguments":{}"#));
    let (key, _) = asked(&mut front);
    front.mcp_session.task_begun(front.now, key, &mut front.effects);
    front.actions();
    asks(&mut front, key, 5, "elicitation/create", Some(&about));
    assert_eq!(front.actions(), [SessionAction::Leave(5)], "it comes again");
    // The job does not come, so the question is about the call.
    front.mcp_session.not_promoted(key, "no room".to_owned());
    asks(&mut front, key, 6, "elicitation/create", Some(&about));
    assert_eq!(reply(&mut front).0, 6, "this client cannot be asked");
}

#[test]
fn a_client_that_waits_for_a_call_does_not_hear_the_servers_name_for_its_task() {
    let (mut front, key) = calling();
    let about =
        raw(r#"{"message":"?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"theirs"}}}"#);
    asks(&mut front, key, 5, "elicitation/create", Some(&about));
    assert_eq!(front.received().remove(0)["params"], json!({ "message": "?" }));
}
