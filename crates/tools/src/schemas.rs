//! The schemas of our own tools: their arguments, and the structured part of their answers (design 7).
//!
//! Invariants: a member that is required in an answer is always there; a member that is told only sometimes is not required.

use serde_json::{Map, Value, json};

use unhang_jobs::record::JobState;

/// The longest time that a call waits for the end of a job: the shortest clock of a client is 30 s.
pub(super) const MAX_WAIT_SECONDS: u64 = 25;
/// The default number of jobs in a list.
pub(super) const DEFAULT_JOBS: u32 = 20;
/// The most jobs in a list.
pub(super) const MAX_JOBS: u32 = 1000;
/// The default number of bytes of a log.
pub(super) const DEFAULT_LOG_BYTES: usize = 8000;
/// The most bytes of a log; in JSON they may be twice as many characters.
pub(super) const MAX_LOG_BYTES: usize = 10_000;

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Returns a schema of arguments. An argument that it does not list is a mistake.
fn arguments(properties: &Value, required: &[&str]) -> Value {
    let mut schema = object(properties, required);
    schema["additionalProperties"] = false.into();
    schema
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn state_words() -> Vec<&'static str> {
    JobState::ALL.iter().map(|state| state.as_str()).collect()
}

fn job_id() -> Value {
    text("The id that the job got at its start.")
}

fn field() -> Value {
    json!({
        "type": "string",
        "pattern": "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$",
        "description": "The name of the state field.",
    })
}

pub(super) fn nothing() -> Value {
    arguments(&json!({}), &[])
}

pub(super) fn job() -> Value {
    arguments(&json!({ "job_id": job_id() }), &["job_id"])
}

pub(super) fn job_and_offset() -> Value {
    let offset = json!({
        "type": "integer",
        "minimum": 0,
        "description": "The first character to return, if the results come in parts.",
    });
    arguments(&json!({ "job_id": job_id(), "offset": offset }), &["job_id"])
}

/// Returns a schema of arguments with the type of each argument alone.
pub(super) fn in_brief(mut schema: Value) -> Value {
    for argument in
        schema["properties"].as_object_mut().into_iter().flat_map(|arguments| arguments.values_mut())
    {
        let argument = argument.as_object_mut();
        argument.into_iter().for_each(|argument| argument.retain(|member, _| member == "type"));
    }
    schema
}

/// Returns the schema of the two members that every answer about a job has.
pub(super) fn id_and_status() -> Value {
    object(&json!({ "job_id": { "type": "string" }, "status": { "type": "string" } }), &["job_id", "status"])
}

pub(super) fn job_and_wait() -> Value {
    let wait = json!({
        "type": "number",
        "minimum": 0,
        "default": 0,
        "description": format!(
            "Wait until the job ends, at most this number of seconds. More than {MAX_WAIT_SECONDS} \
             counts as {MAX_WAIT_SECONDS}."
        ),
    });
    arguments(&json!({ "job_id": job_id(), "wait_seconds": wait }), &["job_id"])
}

pub(super) fn job_and_page() -> Value {
    let properties = json!({
        "job_id": job_id(),
        "stream": { "enum": ["stdout", "stderr"], "default": "stdout" },
        "offset": {
            "type": "integer", "minimum": 0, "default": 0,
            "description": "The first byte to return, counted from the beginning of the whole output.",
        },
        "max_bytes": {
            "type": "integer", "minimum": 1, "default": DEFAULT_LOG_BYTES,
            "description": format!("The largest number of bytes to return. More than {MAX_LOG_BYTES} counts as \
                {MAX_LOG_BYTES}."),
        },
    });
    arguments(&properties, &["job_id"])
}

pub(super) fn filter_and_limit() -> Value {
    let properties = json!({
        "status_filter": { "enum": state_words(), "description": "Only jobs with this status." },
        "limit": { "type": "integer", "minimum": 1, "maximum": MAX_JOBS, "default": DEFAULT_JOBS },
    });
    arguments(&properties, &[])
}

pub(super) fn state_field() -> Value {
    arguments(&json!({ "field": field() }), &["field"])
}

pub(super) fn state_field_and_value() -> Value {
    let value = json!({ "description": "The new value: any JSON value." });
    arguments(&json!({ "field": field(), "value": value }), &["field", "value"])
}

const HEAD: [&str; 5] = ["job_id", "name", "status", "created_at", "elapsed_time_seconds"];

fn head() -> Map<String, Value> {
    let properties = json!({
        "job_id": { "type": "string" },
        "name": { "type": "string" },
        "kind": { "enum": ["call"], "description": "`call` if the job is a call of a server's tool and not a command." },
        "status": { "enum": state_words() },
        "created_at": { "type": "string", "format": "date-time" },
        "started_at": { "type": "string", "format": "date-time" },
        "completed_at": { "type": "string", "format": "date-time" },
        "elapsed_time_seconds": { "type": "number" },
        "progress": { "type": "number", "minimum": 0, "maximum": 1 },
        "progress_message": { "type": "string" },
        "queue_position": { "type": "integer" },
        "open_questions": {
            "type": "integer",
            "description": "The number of questions that the call waits with. A client that follows the task can answer them.",
        },
        "wait_reason": { "type": "string", "description": "The reason why the job does not start although a slot is free." },
        "worker": { "type": "string", "description": "The worker that has the job, if many machines share the jobs." },
        "exit_code": { "type": "integer" },
        "signal": { "type": "integer" },
        "reason": { "type": "string", "description": "The reason for the end of the job, in one word." },
        "detail": { "type": "string", "description": "The same reason as a sentence." },
        "state_applied": { "type": "boolean", "description": "Whether the result of the job is in the named state." },
        "state_reason": { "type": "string", "description": "The reason why the result is not there." },
    });
    match properties {
        Value::Object(properties) => properties,
        _ => Map::new(),
    }
}

fn next_steps() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

/// Returns the schema of the answer of a tool in mode `job`.
pub fn started() -> Value {
    let properties = json!({
        "job_id": { "type": "string" },
        "status": { "enum": state_words() },
        "message": { "type": "string" },
        "next_steps": next_steps(),
    });
    object(&properties, &["job_id", "status", "message", "next_steps"])
}

pub(super) fn status() -> Value {
    let mut properties = head();
    properties.insert("next_steps".to_owned(), next_steps());
    object(&properties.into(), &[&HEAD[..], &["next_steps"]].concat())
}

/// Returns the schema of the answer of `get_job_results`, and of a tool in mode `child`.
pub(super) fn results() -> Value {
    let mut schema = status();
    let more = json!({
        "results": { "description": "The parsed results of the job." },
        "error": { "description": "The job's own report of its failure." },
        "stdout_tail": { "type": "string" },
        "stderr_tail": { "type": "string" },
        "gone": { "type": "array", "items": { "type": "string" }, "description": "Files of the job that existed, and are gone." },
        "message": { "type": "string" },
        "part": { "type": "string", "description": "If the results are too long for one answer, their characters from offset on." },
        "offset": { "type": "integer" },
        "next_offset": { "type": "integer", "description": "The offset of the next part, unless this is the last part." },
        "characters": { "type": "integer", "description": "The length of the results." },
    });
    if let (Some(properties), Value::Object(more)) = (schema["properties"].as_object_mut(), more) {
        properties.extend(more);
    }
    schema
}

pub(super) fn logs() -> Value {
    let properties = json!({
        "text": { "type": "string" },
        "offset": { "type": "integer" },
        "next_offset": { "type": "integer" },
        "eof": { "type": "boolean" },
        "dropped_before": { "type": "integer" },
    });
    object(&properties, &["text", "offset", "next_offset", "eof", "dropped_before"])
}

fn jobs() -> Value {
    json!({ "type": "array", "items": object(&head().into(), &HEAD) })
}

pub(super) fn list() -> Value {
    let properties = json!({
        "jobs": jobs(),
        "max_concurrent": { "type": "integer" },
        "message": { "type": "string" },
    });
    object(&properties, &["jobs", "max_concurrent"])
}

pub(super) fn system() -> Value {
    let machine = json!({
        "cpu_percent": { "type": "number" },
        "memory_mb": { "type": "integer" },
        "memory_percent": { "type": "number" },
        "disk_free_mb": { "type": "integer" },
    });
    let properties = json!({
        "running_jobs": { "type": "integer", "description": "The number of `jobs` that run: commands and calls." },
        "running_commands": { "type": "integer" },
        "running_calls": { "type": "integer", "description": "Calls of servers' tools, which need no slot." },
        "queued_jobs": { "type": "integer", "description": "The number of `jobs` that wait for a slot." },
        "slots_in_use": { "type": "integer", "description": "The number of slots that commands use, including those of other callers." },
        "max_concurrent": { "type": "integer", "description": "The number of all slots." },
        "jobs": jobs(),
        "system": object(&machine, &[]),
        "wait_reason": { "type": "string", "description": "The reason why no job starts at the moment." },
        "workers": { "type": "array", "items": { "type": "object" }, "description": "The workers, if many machines share the jobs." },
        "outlives": {
            "type": "boolean",
            "description": "Whether jobs outlive this server, as far as the system shows.",
        },
        "ends_with": {
            "type": "array",
            "items": { "type": "string" },
            "description": "The surroundings, such as a container, whose end also ends the jobs.",
        },
        "message": { "type": "string" },
    });
    let counts = ["running_jobs", "running_commands", "running_calls", "queued_jobs", "slots_in_use"];
    object(&properties, &[&counts[..], &["max_concurrent", "jobs", "system", "outlives"]].concat())
}

pub(super) fn state() -> Value {
    let properties = json!({
        "field": { "type": "string" },
        "value": { "description": "The value of the field." },
        "updated_at": { "type": "string", "format": "date-time" },
        "message": { "type": "string" },
    });
    object(&properties, &["field", "updated_at"])
}

pub(super) fn state_list() -> Value {
    let entry = json!({
        "field": { "type": "string" },
        "updated_at": { "type": "string", "format": "date-time" },
        "bytes": { "type": "integer" },
    });
    let properties = json!({
        "fields": { "type": "array", "items": object(&entry, &["field", "updated_at", "bytes"]) },
        "message": { "type": "string" },
    });
    object(&properties, &["fields"])
}
