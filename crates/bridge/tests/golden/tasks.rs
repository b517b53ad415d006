//! What is said of tasks, in both dialects.
//!
//! The extension has a schema of its own, which is not among those of the revisions: what it demands is written here, in the types of
//! 2026-07-28, and stricter, for no member may be there that it does not know.

use serde_json::{Value, json};
use unhang_bridge::{
    notification::under,
    result,
    tasks::{self, Dialect, Support, Task, TaskOutcome, TaskStatus},
};
use unhang_wire::Id;

use crate::schemas::{MODERN, NEWEST, assert_fits, assert_valid, examples, raw, types, value};

const INFO: Option<&str> = Some(r#"{"name":"golden","version":"1"}"#);
const ERROR: &str = r#"{"code":-31002,"message":"The server ended.","data":{"hint":"ask again"}}"#;

const FULL: Task<'_> = Task {
    id: "0123456789abcdef",
    status: TaskStatus::Working,
    message: Some("half done"),
    created_at: "2026-08-22T10:00:00Z",
    updated_at: "2026-08-22T10:00:05Z",
    ttl_ms: Some(3_600_000),
    poll_interval_ms: Some(5_000),
};

/// A task that all is said of, and one that only that is said of which has to be.
const TASKS: [Task<'_>; 2] = [FULL, Task { message: None, ttl_ms: None, poll_interval_ms: None, ..FULL }];

fn answer(result: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "result": value(result) })
}

fn message(method: &str, params: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": value(params) })
}

/// What a task may come to.
fn each_outcome(mut each: impl FnMut(Task<'_>, TaskOutcome<'_>)) {
    let asked = value(&examples("InputRequests")[0].1);
    let asked = asked.as_object().expect("questions").iter();
    let asked: Vec<_> = asked.map(|(name, request)| (name.clone(), request.to_string())).collect();
    for task in TASKS {
        each(task, TaskOutcome::Open);
        each(Task { status: TaskStatus::Cancelled, ..task }, TaskOutcome::Open);
        each(task, TaskOutcome::Error(raw(ERROR)));
        each(task, TaskOutcome::Input(&asked));
        for (_, result) in examples("CallToolResult") {
            each(task, TaskOutcome::Result(raw(&result)));
        }
    }
}

/// Demands that nothing is said of a task that the core does not know.
#[track_caller]
fn assert_bare(told: &Value) {
    let known = &types(NEWEST).1["Task"]["properties"];
    for name in told.as_object().expect("a task").keys() {
        assert!(known.get(name).is_some(), "`{name}` in {told}");
    }
}

#[test]
fn the_core_is_spoken_as_its_schema_has_it() {
    each_outcome(|task, outcome| {
        let got = value(&tasks::got(Dialect::Core, &task, outcome, INFO));
        assert_valid(NEWEST, "GetTaskResult", &got);
        assert_bare(&got);
        let (method, params) = tasks::notification(Dialect::Core, &task, outcome);
        assert_valid(NEWEST, "TaskStatusNotification", &message(method, &params));
        assert_bare(&value(&params));
    });
    for task in TASKS {
        for said in [None, Some("It goes on.")] {
            let created = value(&tasks::created(Dialect::Core, &task, said, INFO));
            assert_valid(NEWEST, "CreateTaskResult", &created);
            assert_bare(&created["task"]);
        }
        let cancelled = value(&tasks::cancelled(Dialect::Core, &task, INFO));
        assert_valid(NEWEST, "CancelTaskResult", &cancelled);
        assert_eq!(cancelled["status"], "cancelled");
    }
    for (tasks, cursor) in [(&TASKS[..], Some("next")), (&[], None)] {
        assert_valid(NEWEST, "ListTasksResult", &value(&tasks::listed(tasks, cursor)));
    }
    for (_, result) in examples("CallToolResult") {
        let legacy = result::to_legacy("tools/call", raw(&result)).expect("an object");
        let payload = tasks::payload(raw(&legacy), FULL.id);
        assert_valid(NEWEST, "GetTaskPayloadResult", &value(&payload));
        assert_valid(NEWEST, "CallToolResult", &value(&payload));
        let related = &value(&payload)["_meta"][tasks::RELATED_TASK];
        assert_valid(NEWEST, "RelatedTaskMetadata", related);
        // But for whom it belongs to it is the result of the call.
        let plain = tasks::unrelated(raw(&payload)).expect("an object");
        assert_eq!(value(&plain), value(&legacy));
    }
}

#[test]
fn tools_and_capabilities_say_it_as_their_schemas_have_it() {
    let tool = r#"{"name":"slow","inputSchema":{"type":"object"}}"#;
    for support in [Support::Forbidden, Support::Optional, Support::Required] {
        let tool = tasks::with_task_support(raw(tool), support).expect("an object");
        assert_valid(NEWEST, "Tool", &value(&tool));
    }
    for (dialect, revision) in [(Dialect::Core, NEWEST), (Dialect::Extension, MODERN)] {
        for lists in [true, false] {
            let offered = tasks::with_offer(raw(r#"{"tools":{}}"#), dialect, lists).expect("an object");
            assert_valid(revision, "ServerCapabilities", &value(&offered));
        }
    }
    let (name, offered) = tasks::offer(Dialect::Extension, false);
    for (file, example) in examples("ServerCapabilities") {
        if file == "extensions-tasks.json" {
            assert_eq!(value(&example), json!({ name: value(offered) }));
        }
        assert_eq!(tasks::offers_tasks(Dialect::Extension, raw(&example)), file == "extensions-tasks.json");
    }
    for (_, example) in examples("ClientCapabilities") {
        assert!(!tasks::declares(raw(&example)));
        let declared = tasks::declare(&example);
        assert_valid(MODERN, "ClientCapabilities", &value(&declared));
        assert!(tasks::declares(raw(&declared)));
    }
}

#[test]
fn what_is_asked_of_a_task_is_a_request() {
    for (method, kind) in [
        (tasks::GET, "GetTaskRequest"),
        (tasks::RESULT, "GetTaskPayloadRequest"),
        (tasks::CANCEL, "CancelTaskRequest"),
    ] {
        let mut request = message(method, &tasks::about(FULL.id));
        request["id"] = 1.into();
        assert_valid(NEWEST, kind, &request);
    }
    for ttl in [None, Some(60_000)] {
        let params = tasks::ask_for_task(raw(r#"{"name":"slow","arguments":{}}"#), ttl).expect("an object");
        assert_valid(NEWEST, "CallToolRequestParams", &value(&params));
        assert_eq!(tasks::requested_task(raw(&params)), Some(tasks::WantedTask { ttl_ms: ttl }));
    }
    for (_, example) in examples("InputResponses") {
        let params = format!(r#"{{"taskId":"t","inputResponses":{example}}}"#);
        let (id, responses) = tasks::input_responses(Some(raw(&params))).expect("answers");
        let update = value(&tasks::update(&id, &responses));
        assert_valid(MODERN, "InputResponses", &update["inputResponses"]);
        assert_eq!(update, value(&params));
    }
}

#[test]
fn refusals_are_errors() {
    let whole = |error: &str| json!({ "jsonrpc": "2.0", "id": 1, "error": value(error) });
    let missing = whole(&tasks::missing_capability());
    assert_valid(MODERN, "MissingRequiredClientCapabilityError", &missing);
    assert_valid(MODERN, "InvalidParamsError", &value(&tasks::unknown_task("t")));
    for error in [
        tasks::unknown_task("t"),
        tasks::already_ended("t", TaskStatus::Completed),
        tasks::not_as_task("slow"),
        tasks::only_as_task("slow"),
    ] {
        assert_valid(NEWEST, "JSONRPCErrorResponse", &whole(&error));
    }
}

/// What a task of the extension has, which of these statuses it may have, and what has to stand beside it.
fn extended(statuses: &[&str], beside: &[(&str, Value)]) -> Value {
    let time = json!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$" });
    let mut properties = json!({
        "taskId": { "type": "string", "minLength": 1 },
        "status": { "enum": statuses },
        "statusMessage": { "type": "string" },
        "createdAt": time,
        "lastUpdatedAt": time,
        "ttlMs": { "type": ["integer", "null"], "minimum": 0 },
        "pollIntervalMs": { "type": "integer", "minimum": 0 },
    });
    let mut required = vec!["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"];
    for (name, schema) in beside {
        properties[*name] = schema.clone();
        required.push(name);
    }
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// A task with all that belongs to its status.
fn detailed(beside: &[(&str, Value)]) -> Value {
    let with = |statuses: &[&str], name: &str, kind: &str| {
        let own = (name, json!({ "$ref": format!("#/$defs/{kind}") }));
        extended(statuses, &[beside, &[own]].concat())
    };
    json!({ "oneOf": [
        extended(&["working", "cancelled"], beside),
        with(&["input_required"], "inputRequests", "InputRequests"),
        with(&["completed"], "result", "CallToolResult"),
        with(&["failed"], "error", "Error"),
    ] })
}

/// What every result says of itself.
fn as_result(kind: &str) -> [(&'static str, Value); 2] {
    [("resultType", json!({ "const": kind })), ("_meta", json!({ "$ref": "#/$defs/ResultMetaObject" }))]
}

#[test]
fn the_extension_is_spoken_as_it_is_described() {
    each_outcome(|task, outcome| {
        let got = tasks::got(Dialect::Extension, &task, outcome, INFO);
        assert_fits(MODERN, detailed(&as_result("complete")), &value(&got));
        assert_valid(MODERN, "Result", &value(&got));
        assert_valid(MODERN, "JSONRPCResultResponse", &answer(&got));

        let (method, params) = tasks::notification(Dialect::Extension, &task, outcome);
        assert_fits(MODERN, detailed(&[]), &value(&params));
        let params = under(Some(raw(&params)), &Id::from("listen-1"));
        assert_valid(MODERN, "NotificationParams", &value(&params));
        assert_valid(MODERN, "JSONRPCNotification", &message(method, &params));
    });
    for task in TASKS {
        let created = tasks::created(Dialect::Extension, &task, Some("It goes on."), INFO);
        let all = ["working", "input_required", "completed", "failed", "cancelled"];
        assert_fits(MODERN, extended(&all, &as_result("task")), &value(&created));
        let acknowledged = tasks::cancelled(Dialect::Extension, &task, INFO);
        assert_eq!(acknowledged, tasks::acknowledged(INFO));
        let [kind, meta] = as_result("complete");
        let empty = json!({ "properties": { kind.0: kind.1, meta.0: meta.1 }, "required": ["resultType"], "additionalProperties": false });
        assert_fits(MODERN, empty, &value(&acknowledged));
        assert_valid(MODERN, "EmptyResult", &value(&acknowledged));
    }
}
