use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn raw(text: &str) -> Json<'_> {
    Json::new(text.as_bytes()).expect("JSON")
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

const TASK: Task<'_> = Task {
    id: "t-1",
    status: TaskStatus::Working,
    message: Some("half done"),
    created_at: "2026-08-22T10:00:00Z",
    updated_at: "2026-08-22T10:00:05Z",
    ttl_ms: Some(60_000),
    poll_interval_ms: Some(5_000),
};

const INFO: Option<&str> = Some(r#"{"name":"s","version":"1"}"#);

#[test]
fn a_task_is_created_in_the_words_of_each_dialect() {
    assert_eq!(
        created(Dialect::Core, &TASK, Some("come \"back\""), INFO),
        r#"{"task":{"taskId":"t-1","status":"working","statusMessage":"half done","createdAt":"2026-08-22T10:00:00Z","lastUpdatedAt":"2026-08-22T10:00:05Z","ttl":60000,"pollInterval":5000},"_meta":{"io.modelcontextprotocol/model-immediate-response":"come \"back\""}}"#
    );
    assert_eq!(
        created(Dialect::Extension, &TASK, Some("nothing of this"), INFO),
        r#"{"resultType":"task","taskId":"t-1","status":"working","statusMessage":"half done","createdAt":"2026-08-22T10:00:00Z","lastUpdatedAt":"2026-08-22T10:00:05Z","ttlMs":60000,"pollIntervalMs":5000,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#
    );
    let plain = Task { message: None, ttl_ms: None, poll_interval_ms: Some(u64::MAX), ..TASK };
    let plain = value(&created(Dialect::Core, &plain, None, None));
    let expect = json!({ "task": {
        "taskId": "t-1", "status": "working", "createdAt": TASK.created_at, "lastUpdatedAt": TASK.updated_at,
        "ttl": null, "pollInterval": 9_007_199_254_740_991_u64,
    } });
    assert_eq!(plain, expect);
}

/// What came of a task, in each dialect: its status, and what stands beside it.
#[test]
fn status_and_outcome_agree() {
    let result =
        r#"{"content":[ ],"_meta":{"a":1,"io.modelcontextprotocol/related-task":{"taskId":"theirs"}}}"#;
    let unrelated = r#"{"content":[ ],"_meta":{"a":1}}"#;
    let wrong = r#"{"content":[],"isError":true}"#;
    let error = r#"{"code":-31002,"message":"m"}"#;
    let asked = [("q-1".to_owned(), r#"{"method":"elicitation/create","params":{}}"#.to_owned())];
    let questions = r#"{"q-1":{"method":"elicitation/create","params":{}}}"#;
    for (so_far, outcome, core, extension, beside) in [
        (TaskStatus::Working, TaskOutcome::Open, "working", "working", None),
        (
            TaskStatus::Working,
            TaskOutcome::Result(raw(result)),
            "completed",
            "completed",
            Some(("result", unrelated)),
        ),
        (
            TaskStatus::Working,
            TaskOutcome::Result(raw(wrong)),
            "failed",
            "completed",
            Some(("result", wrong)),
        ),
        (TaskStatus::Failed, TaskOutcome::Result(raw(wrong)), "failed", "completed", Some(("result", wrong))),
        (TaskStatus::Working, TaskOutcome::Error(raw(error)), "failed", "failed", Some(("error", error))),
        (
            TaskStatus::Working,
            TaskOutcome::Input(&asked),
            "input_required",
            "input_required",
            Some(("inputRequests", questions)),
        ),
        (TaskStatus::Cancelled, TaskOutcome::Open, "cancelled", "cancelled", None),
        (TaskStatus::Cancelled, TaskOutcome::Result(raw(result)), "cancelled", "cancelled", None),
        (TaskStatus::Cancelled, TaskOutcome::Error(raw(error)), "cancelled", "cancelled", None),
    ] {
        let task = Task { status: so_far, ..TASK };
        for (dialect, status) in [(Dialect::Core, core), (Dialect::Extension, extension)] {
            let (got, (_, notified)) =
                (got(dialect, &task, outcome, INFO), notification(dialect, &task, outcome));
            for told in [&got, &notified] {
                assert_eq!(value(told)["status"], status, "{told}");
                for name in ["result", "error", "inputRequests"] {
                    let expect = beside.filter(|(known, _)| dialect == Dialect::Extension && *known == name);
                    let found = raw(told).member(name).map(Json::get);
                    assert_eq!(found, expect.map(|(_, beside)| beside), "{told}");
                }
            }
            let is_extension = dialect == Dialect::Extension;
            assert_eq!(
                raw(&got).member("resultType").map(Json::get),
                is_extension.then_some(r#""complete""#)
            );
            assert_eq!(raw(&got).member("_meta").is_some(), is_extension);
            assert!(
                raw(&notified).member("resultType").is_none() && raw(&notified).member("_meta").is_none()
            );
        }
    }
}

#[test]
fn the_payload_says_which_task_it_belongs_to() {
    for (result, expect) in [
        (
            r#"{"content":[1.0e0]}"#,
            r#"{"content":[1.0e0],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"ours"}}}"#,
        ),
        (
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"theirs"},"a":1},"content":[]}"#,
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"ours"},"a":1},"content":[]}"#,
        ),
    ] {
        let payload = payload(raw(result), "ours");
        assert_eq!(payload, expect);
        assert_eq!(related_to(raw(&payload)).as_deref(), Some("ours"));
    }
    let only = r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"theirs"}}}"#;
    assert_eq!(unrelated(raw(only)).as_deref(), Some(r#"{"content":[]}"#));
    let other = r#"{"content":[ ], "_meta":{}}"#;
    assert!(matches!(unrelated(raw(other)), Some(Cow::Borrowed(same)) if same == other));
    assert_eq!(related_to(raw(other)), None);
}

#[test]
fn what_a_client_asks_is_read() {
    for (params, expect) in [
        (r#"{"name":"t"}"#, None),
        (r#"{"task":null}"#, None),
        (r#"{"task":{}}"#, Some(None)),
        (r#"{"task":{"ttl":60000,"x":1}}"#, Some(Some(60_000))),
        (r#"{"task":{"ttl":1.5e3}}"#, Some(Some(1500))),
        (r#"{"task":{"ttl":1e300}}"#, Some(Some(u64::MAX))),
        (r#"{"task":{"ttl":-1}}"#, Some(None)),
        (r#"{"task":{"ttl":"soon"}}"#, Some(None)),
    ] {
        assert_eq!(requested_task(raw(params)), expect.map(|ttl_ms| WantedTask { ttl_ms }), "{params}");
    }
    assert_eq!(about_whom(GET, Some(raw(r#"{"taskId":"\u0061"}"#))).as_deref(), Ok("a"));
    for params in [None, Some(raw("{}")), Some(raw(r#"{"taskId":5}"#)), Some(raw("[]"))] {
        let refused = about_whom(RESULT, params).expect_err("no id");
        let expect = json!({ "code": -32602, "message": "`tasks/result` has no `taskId`: a string with the id of a task" });
        assert_eq!(value(&refused), expect);
    }
}

#[test]
fn answers_are_read_and_what_is_none_is_refused() {
    let read = |params: &str| input_responses(Some(raw(params)));
    let given =
        r#"{"taskId":"t","inputResponses":{"a":{"action":"decline"},"b":{ },"a":{"action":"accept"}},"x":1}"#;
    let expect = [("a", r#"{"action":"accept"}"#), ("b", "{ }")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(read(given), Ok(("t".to_owned(), expect.to_vec())));
    assert_eq!(read(&update("t", &expect)), Ok(("t".to_owned(), expect.to_vec())));
    let many = |count: usize| {
        let each: Vec<String> = (0..count).map(|index| format!(r#""{index}":{{}}"#)).collect();
        format!(r#"{{"taskId":"t","inputResponses":{{{}}}}}"#, each.join(","))
    };
    assert_eq!(read(&many(INPUT_LIMIT)).map(|(_, responses)| responses.len()), Ok(INPUT_LIMIT));
    for (params, expect) in [
        (r#"{"inputResponses":{}}"#, "no `taskId`"),
        (r#"{"taskId":"t"}"#, "no `inputResponses`"),
        (r#"{"taskId":"t","inputResponses":null}"#, "no `inputResponses`"),
        (r#"{"taskId":"t","inputResponses":{"a":{},"b":null}}"#, "the answer `b`"),
        (&many(INPUT_LIMIT + 1), "more than 256 answers"),
    ] {
        let refused = value(&read(params).expect_err("to be refused"));
        assert_eq!(refused["code"], -32602);
        assert!(refused["message"].as_str().is_some_and(|message| message.contains(expect)), "{refused}");
    }
}

#[test]
fn refusals_have_the_codes_of_the_protocol_and_do_not_repeat_everything() {
    let long = "\u{e4}".repeat(1 << 20);
    for (refused, code, word) in [
        (missing_capability(), -32021, "declare"),
        (unknown_task(&long), -32602, "no task"),
        (already_ended(&long, TaskStatus::Completed), -32602, "completed"),
        (not_as_task(&long), -32601, "without `task`"),
        (only_as_task(&long), -32601, "with `task`"),
        (about_whom(&long, None).expect_err("no id"), -32602, "taskId"),
    ] {
        assert!(refused.len() < 512, "{}", refused.len());
        assert_eq!(value(&refused)["code"], code);
        assert!(refused.contains(word), "{refused}");
    }
    let required = json!({ "extensions": { EXTENSION: {} } });
    assert_eq!(value(&missing_capability())["data"]["requiredCapabilities"], required);
}

#[test]
fn capabilities_are_declared_offered_and_read() {
    for (capabilities, expect) in [
        ("{}", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
        ("5", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
        (
            r#"{"roots":{ },"extensions":{"a":{}}}"#,
            r#"{"roots":{ },"extensions":{"a":{},"io.modelcontextprotocol/tasks":{}}}"#,
        ),
        (
            r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        ),
        (
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{"a":1}}}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{"a":1}}}"#,
        ),
        (r#"{"extensions":5}"#, r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
    ] {
        let declared = declare(capabilities);
        assert_eq!(declared, expect);
        assert!(declares(raw(&declared)));
    }
    assert!(!declares(raw(r#"{"extensions":{"io.modelcontextprotocol/tasks":null},"tasks":{}}"#)));
    for (dialect, lists, expect) in [
        (
            Dialect::Core,
            true,
            r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#,
        ),
        (Dialect::Core, false, r#"{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}"#),
        (Dialect::Extension, true, r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
    ] {
        let offered =
            with_offer(raw(r#"{"tools":{},"tasks":{"old":{}}}"#), dialect, lists).expect("an object");
        assert_eq!(offered, expect);
        assert!(offers_tasks(dialect, raw(&offered)) && offers_cancel(dialect, raw(&offered)));
        let (name, capability) = offer(dialect, lists);
        assert_eq!(raw(&offered).member(name).map(Json::get), Some(capability));
    }
    assert!(!offers_tasks(Dialect::Core, raw(r#"{"tasks":{"cancel":{},"requests":{"tools":{}}}}"#)));
    assert!(!offers_cancel(Dialect::Core, raw(r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#)));
}

#[test]
fn a_tool_says_whether_it_can_be_a_task() {
    use Support::{Forbidden, Optional, Required};
    for (tool, said, support, expect) in [
        (r#"{"name":"a"}"#, Forbidden, Forbidden, r#"{"name":"a"}"#),
        (r#"{"name":"a"}"#, Forbidden, Optional, r#"{"name":"a","execution":{"taskSupport":"optional"}}"#),
        (
            r#"{"execution":{"taskSupport":"required","x":1},"name":"a"}"#,
            Required,
            Optional,
            r#"{"execution":{"taskSupport":"optional","x":1},"name":"a"}"#,
        ),
        (
            r#"{"execution":{"taskSupport":"required","x":1},"name":"a"}"#,
            Required,
            Forbidden,
            r#"{"execution":{"x":1},"name":"a"}"#,
        ),
        (r#"{"execution":{"taskSupport":"optional"},"name":"a"}"#, Optional, Forbidden, r#"{"name":"a"}"#),
        (
            r#"{"execution":{"taskSupport":"later"}}"#,
            Forbidden,
            Required,
            r#"{"execution":{"taskSupport":"required"}}"#,
        ),
        (r#"{"execution":5}"#, Forbidden, Required, r#"{"execution":{"taskSupport":"required"}}"#),
    ] {
        assert_eq!(task_support(raw(tool)), said, "{tool}");
        let changed = with_task_support(raw(tool), support).expect("an object");
        assert_eq!(changed, expect);
        assert_eq!(task_support(raw(&changed)), support);
    }
    assert_eq!(with_task_support(raw("[]"), Required), None);
}

#[test]
fn a_call_is_asked_for_as_a_task() {
    let params = raw(r#"{"name":"t","task":{"ttl":1}}"#);
    assert_eq!(ask_for_task(params, Some(9)).as_deref(), Some(r#"{"name":"t","task":{"ttl":9}}"#));
    assert_eq!(ask_for_task(params, None).as_deref(), Some(r#"{"name":"t","task":{}}"#));
    assert_eq!(ask_for_task(raw("[]"), None), None);
}

#[test]
fn the_result_of_a_call_is_told_from_a_task() {
    for (dialect, result) in [
        (Dialect::Core, r#"{"content":[],"task":{"taskId":"of the tool"}}"#),
        (Dialect::Core, r#"{"content":[]}"#),
        (Dialect::Core, r#"{"resultType":"task","taskId":"t","status":"working"}"#),
        (Dialect::Extension, r#"{"resultType":"complete","content":[],"taskId":"t","status":"working"}"#),
        (Dialect::Extension, r#"{"content":[],"task":{"taskId":"t","status":"working"}}"#),
    ] {
        assert_eq!(read_created(dialect, raw(result)), Ok(None), "{result}");
    }
}

#[test]
fn what_is_no_task_is_said_to_be_none() {
    let long = format!(r#"{{"taskId":"{}","status":"working"}}"#, "i".repeat(ID_LIMIT + 1));
    let many: Vec<String> = (0..=INPUT_LIMIT).map(|index| format!(r#""{index}":{{}}"#)).collect();
    let many =
        format!(r#"{{"taskId":"t","status":"input_required","inputRequests":{{{}}}}}"#, many.join(","));
    for (told, expect) in [
        ("{}", "no `taskId`"),
        (r#"{"taskId":"","status":"working"}"#, "no `taskId`"),
        (r#"{"taskId":7,"status":"working"}"#, "no `taskId`"),
        (&long, "has 1025 bytes, over the limit of 1024"),
        (r#"{"taskId":"t"}"#, "`t` has no `status`"),
        (r#"{"taskId":"t","status":"submitted"}"#, "`submitted`, which MCP does not define"),
        (r#"{"taskId":"t","status":"completed"}"#, "is completed and has no object `result`"),
        (r#"{"taskId":"t","status":"failed","error":"boom"}"#, "is failed and has no object `error`"),
        (
            r#"{"taskId":"t","status":"input_required"}"#,
            "is input_required and has no object `inputRequests`",
        ),
        (&many, "asks 257 questions at once, over the limit of 256"),
    ] {
        let error = read_got(Dialect::Extension, raw(told)).expect_err(told);
        assert!(error.contains(expect), "{error}");
    }
    let error = read_created(Dialect::Core, raw(r#"{"task":{}}"#)).expect_err("no id");
    assert!(error.contains("taskId"), "{error}");
}

#[test]
fn what_a_server_writes_loosely_is_read_all_the_same() {
    let told = format!(
        r#"{{"resultType":"task","taskId":"t","status":"failed","error":{{"code":1}},"ttlMs":6e4,"pollIntervalMs":-5,"statusMessage":"{}","x":[]}}"#,
        "\u{e4}".repeat(MESSAGE_LIMIT)
    );
    let (task, payload) = read_got(Dialect::Extension, raw(&told)).expect("a task");
    assert_eq!((task.status, task.ttl_ms, task.poll_interval_ms), (TaskStatus::Failed, Some(60_000), None));
    assert_eq!(task.message.map(|message| message.len()), Some(MESSAGE_LIMIT));
    assert_eq!(payload, Some(Payload::Error(r#"{"code":1}"#.to_owned())));
    let bare = read_got(Dialect::Core, raw(r#"{"taskId":"t","status":"completed"}"#)).expect("a task");
    assert_eq!((bare.0.status, bare.1), (TaskStatus::Completed, None));
}

/// What can come of a task, owned.
fn any_payload() -> impl Strategy<Value = Option<Payload>> {
    let object = "[a-z\u{e4}\"\\\\]{0,8}".prop_map(|text| format!("{{\"x\": {} }}", quoted(&text)));
    let failed = Just(r#"{"content":[],"isError":true}"#.to_owned());
    prop_oneof![
        Just(None),
        prop_oneof![object.clone(), failed].prop_map(|result| Some(Payload::Result(result))),
        object.clone().prop_map(|error| Some(Payload::Error(error))),
        prop::collection::btree_map(any::<String>(), object, 0..4)
            .prop_map(|asked| Some(Payload::Input(asked.into_iter().collect()))),
    ]
}

proptest! {
    /// What is said in a dialect is read in it as it was meant, and is no task in the other.
    #[test]
    fn what_is_told_is_what_is_seen(
        id in "\\PC{1,40}",
        message in prop::option::of(any::<String>()),
        times in (prop::option::of(0..=SAFE_INTEGER), prop::option::of(0..=SAFE_INTEGER)),
        payload in any_payload(),
        is_cancelled in any::<bool>(),
    ) {
        let status = if is_cancelled { TaskStatus::Cancelled } else { TaskStatus::Working };
        let (ttl_ms, poll_interval_ms) = times;
        let task =
            Task { id: &id, status, message: message.as_deref(), ttl_ms, poll_interval_ms, ..TASK };
        for (dialect, other) in
            [(Dialect::Core, Dialect::Extension), (Dialect::Extension, Dialect::Core)]
        {
            let seen = SeenTask { id: id.clone(), status, message: message.clone(), ttl_ms, poll_interval_ms };
            let text = created(dialect, &task, message.as_deref(), INFO);
            prop_assert_eq!(read_created(dialect, raw(&text)), Ok(Some(seen.clone())));
            prop_assert_eq!(read_created(other, raw(&text)), Ok(None));

            let outcome = match &payload {
                Some(payload) => payload.as_outcome().expect("JSON"),
                None => TaskOutcome::Open,
            };
            let seen = SeenTask { status: outcome.status(dialect, status), ..seen };
            let beside = payload.clone().filter(|_| dialect == Dialect::Extension && !is_cancelled);
            for text in [got(dialect, &task, outcome, INFO), notification(dialect, &task, outcome).1] {
                prop_assert_eq!(read_got(dialect, raw(&text)), Ok((seen.clone(), beside.clone())), "{}", text);
            }
            let answer = cancelled(dialect, &task, None);
            if dialect == Dialect::Core {
                let seen = SeenTask { status: TaskStatus::Cancelled, ..seen };
                prop_assert_eq!(read_got(dialect, raw(&answer)), Ok((seen, None)));
            } else {
                prop_assert_eq!(answer, r#"{"resultType":"complete"}"#);
            }
        }
    }
}

#[test]
fn three_states_are_final() {
    let all = [
        (TaskStatus::Working, false),
        (TaskStatus::InputRequired, false),
        (TaskStatus::Completed, true),
        (TaskStatus::Failed, true),
        (TaskStatus::Cancelled, true),
    ];
    for (status, is_final) in all {
        assert_eq!(status.is_final(), is_final, "{status:?}");
    }
}

#[test]
fn a_list_of_tasks_has_each_task_and_the_place_of_the_next() {
    let whole = value(&listed(&[TASK, TASK], None));
    assert_eq!((whole["tasks"].as_array().map(Vec::len), whole.get("nextCursor")), (Some(2), None));
    assert_eq!(whole["tasks"][0]["taskId"], "t-1");
    assert_eq!(value(&listed(&[], Some("c"))), json!({"tasks": [], "nextCursor": "c"}));
}

#[test]
fn the_longest_id_of_a_task_is_read() {
    let longest = format!(r#"{{"task":{{"taskId":"{}","status":"working"}}}}"#, "i".repeat(ID_LIMIT));
    assert!(matches!(read_created(Dialect::Core, raw(&longest)), Ok(Some(_))));
}
