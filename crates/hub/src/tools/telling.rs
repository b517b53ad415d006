//! What the tools say: the fields of design 7, a sentence above them, and what to do next.
//!
//! Theory of operation. Every answer is one object, [`Told`]. It goes out twice, as `structuredContent` for programs and, below
//! a sentence, as the text, because many clients show their model nothing but the text.
//!
//! Invariants
//! - Field names are those of design 7; what means nothing yet is absent.
//! - An answer is bounded. What does not fit is left out by name, and the answer says where it lies and how to get at it.
//! - What to do next names tools that exist, with the arguments to call them with, and never asks for busy waiting (J-83).

use serde_json::{Map, Value, json};
use unhang_jobs::{
    document::{Field, Listed},
    id::JobId,
    log::Page,
    moment::Moment,
    record::JobState,
};
use unhang_switches::stands;

use super::{
    ToolAnswer,
    service::{JobList, JobResults, JobStatus, StateDocument, SystemStatus},
};
use crate::{config::ANSWER_CHARACTERS, fault::in_words};

/// Of [`ANSWER_CHARACTERS`], what the fields may have; the rest is for the sentence above them.
const FIELD_CHARACTERS: usize = ANSWER_CHARACTERS - 1000;
/// What is told of the end of each stream besides the results, in characters.
const TAIL_CHARACTERS: usize = 4000;

/// An answer that is being put together.
pub(super) struct Told {
    sentence: String,
    fields: Map<String, Value>,
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The object without the members that are `null`.
fn present(value: Value) -> Map<String, Value> {
    let mut fields = fields(value);
    fields.retain(|_, value| !value.is_null());
    fields
}

impl Told {
    pub(super) fn answer(self, is_error: bool) -> ToolAnswer {
        let Told { sentence, fields } = self;
        let fields = Value::from(fields);
        ToolAnswer {
            text: format!("{sentence}\n{fields}"),
            structured: fields.as_object().cloned(),
            is_error,
        }
    }

    fn length(&self) -> usize {
        Value::from(self.fields.clone()).to_string().chars().count()
    }

    /// Leaves members out, in this order, until the rest fits, and says where they are.
    fn fit(mut self, dispensable: &[&str], elsewhere: impl Fn(&str) -> String) -> Told {
        for name in dispensable {
            if self.length() <= FIELD_CHARACTERS || !stands("large-members-left-out") {
                break;
            }
            if let Some(value) = self.fields.remove(*name) {
                let length = value.to_string().chars().count();
                let note = format!(
                    "`{name}` is left out: it has {length} characters, more than fit into an answer. {}",
                    elsewhere(name)
                );
                self.sentence = format!("{} {note}", self.sentence);
                self.fields.insert("message".to_owned(), note.into());
            }
        }
        self
    }
}

/// How a job is doing, in a sentence.
fn sentence(status: &JobStatus) -> String {
    let JobStatus { job_id, status: state, elapsed, .. } = status;
    let elapsed = in_words(*elapsed);
    let mut sentence = match state {
        JobState::Queued => {
            let before =
                status.queue_position.map_or_else(String::new, |count| format!(", {count} before it"));
            format!("Job {job_id} has waited for {elapsed}{before}")
        }
        JobState::Starting => format!("Job {job_id} is being started"),
        JobState::Running => format!("Job {job_id} has been running for {elapsed}"),
        JobState::Completed => format!("Job {job_id} completed after {elapsed}"),
        JobState::Failed => format!("Job {job_id} failed after {elapsed}"),
        JobState::Cancelled => format!("Job {job_id} was cancelled after {elapsed}"),
        JobState::Lost => format!("Job {job_id} is lost: nobody saw how it ended"),
    };
    if let Some(progress) = status.progress.filter(|_| !state.is_final()) {
        sentence.push_str(&format!(", {:.0} % done", progress * 100.0));
    }
    let reason = status.detail.as_deref().or(status.reason.as_deref());
    let parts = [reason, status.progress_message.as_deref().filter(|_| !state.is_final())];
    for part in parts.into_iter().flatten() {
        sentence.push_str(&format!(" ({part})"));
    }
    sentence + "."
}

/// What to do next with a job (J-23, J-83).
fn next_steps(status: &JobStatus) -> Value {
    let id = &status.job_id;
    match status.status {
        JobState::Completed => json!([format!("get_job_results(job_id=\"{id}\") has the results")]),
        state if state.is_final() => json!([
            format!("get_job_results(job_id=\"{id}\") has the error and the end of the output"),
            format!("get_job_logs(job_id=\"{id}\", stream=\"stderr\") has all of it"),
        ]),
        _ => json!([
            format!(
                "get_job_status(job_id=\"{id}\") in 5 to 10 seconds, with other work in between; \
                 wait_seconds=25 waits for the end instead of asking again and again"
            ),
            format!("get_job_results(job_id=\"{id}\") once the status is completed"),
        ]),
    }
}

/// The fields of a status, without what to do next.
fn head(status: &JobStatus) -> Map<String, Value> {
    present(json!({
        "job_id": status.job_id,
        "name": status.name,
        "status": status.status.as_str(),
        "created_at": status.created_at,
        "started_at": status.started_at,
        "completed_at": status.completed_at,
        "elapsed_time_seconds": seconds(status),
        // What a job last said before it was done with everything would look like a contradiction.
        "progress": status.progress.filter(|_| status.status != JobState::Completed),
        "progress_message": status.progress_message,
        "queue_position": status.queue_position,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "reason": status.reason,
        "state_applied": status.state_applied,
    }))
}

/// To the millisecond: more digits mean nothing.
fn seconds(status: &JobStatus) -> f64 {
    (status.elapsed.as_secs_f64() * 1000.0).round() / 1000.0
}

/// The answer to a submission.
pub(super) fn started(status: &JobStatus) -> Told {
    let message = format!(
        "Job {} ({}) was accepted and is {}; it goes on whatever becomes of this session.",
        status.job_id,
        status.name,
        status.status.as_str()
    );
    let fields = fields(json!({
        "job_id": status.job_id,
        "status": status.status.as_str(),
        "message": message,
        "next_steps": next_steps(status),
    }));
    Told { sentence: message, fields }
}

pub(super) fn status(status: &JobStatus) -> Told {
    let mut fields = head(status);
    fields.insert("next_steps".to_owned(), next_steps(status));
    Told { sentence: sentence(status), fields }
}

pub(super) fn results(results: JobResults) -> Told {
    let JobResults { status: job, results, error, stdout_tail, stderr_tail, folder } = results;
    let mut told = status(&job);
    let optional = [("results", results), ("error", error)];
    told.fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    for (name, tail) in [("stdout_tail", stdout_tail), ("stderr_tail", stderr_tail)] {
        told.fields.insert(name.to_owned(), printed(end(&tail, TAIL_CHARACTERS)).into());
    }
    told.fit(&["results", "error", "stdout_tail", "stderr_tail"], |name| match name {
        "results" | "error" => format!("It is a file in {}.", folder.display()),
        _ => format!("get_job_logs(job_id=\"{}\") has it in pieces.", job.job_id),
    })
}

/// What a job has printed, without what is for a terminal alone: in JSON each such character would be six, and a model has no
/// use for it.
fn printed(text: &str) -> String {
    let is_plain = |character: char| !character.is_control() || matches!(character, '\n' | '\r' | '\t');
    text.chars().map(|character| if is_plain(character) { character } else { '\u{fffd}' }).collect()
}

/// The end of a text.
fn end(text: &str, characters: usize) -> &str {
    let count = text.chars().count();
    text.char_indices().nth(count.saturating_sub(characters)).map_or("", |(start, _)| &text[start..])
}

pub(super) fn logs(id: JobId, page: Page) -> Told {
    let Page { text, offset, next_offset, eof, dropped_before } = page;
    let more = match (eof, next_offset > offset) {
        (true, _) => "nothing follows".to_owned(),
        (false, true) => format!("go on with offset={next_offset}"),
        (false, false) => format!("nothing new yet; ask again with offset={next_offset} in 5 to 10 seconds"),
    };
    let dropped = match dropped_before {
        0 => String::new(),
        dropped => format!(" The first {dropped} bytes are not kept any more."),
    };
    Told {
        sentence: format!("Job {id}, bytes {offset} to {next_offset}; {more}.{dropped}"),
        fields: fields(json!({
            "text": printed(&text),
            "offset": offset,
            "next_offset": next_offset,
            "eof": eof,
            "dropped_before": dropped_before,
        })),
    }
}

/// Jobs as entries of a list; as many as fit.
fn entries(jobs: &[JobStatus]) -> (Vec<Value>, usize) {
    let mut room = FIELD_CHARACTERS - 1000;
    let mut entries = Vec::new();
    for job in jobs {
        let entry = Value::from(head(job));
        let length = entry.to_string().chars().count() + 1;
        let Some(left) = room.checked_sub(length) else { break };
        room = left;
        entries.push(entry);
    }
    let left_out = jobs.len() - entries.len();
    (entries, left_out)
}

fn note(fields: &mut Map<String, Value>, sentence: &mut String, left_out: usize) {
    if left_out > 0 {
        let note = format!(
            "{left_out} more are left out because they do not fit; ask with a smaller limit or a status_filter."
        );
        sentence.push_str(&format!(" {note}"));
        fields.insert("message".to_owned(), note.into());
    }
}

pub(super) fn list(list: &JobList) -> Told {
    let (jobs, left_out) = entries(&list.jobs);
    let mut sentence = match list.jobs.len() {
        0 => "There are no such jobs.".to_owned(),
        1 => "One job.".to_owned(),
        count => format!("{count} jobs, newest first."),
    };
    let mut fields = fields(json!({ "jobs": jobs, "max_concurrent": list.max_concurrent }));
    note(&mut fields, &mut sentence, left_out);
    Told { sentence, fields }
}

pub(super) fn system(system: &SystemStatus) -> Told {
    let (jobs, left_out) = entries(&system.jobs);
    let mut sentence = format!("{} of {} jobs run.", system.running_jobs, system.max_concurrent);
    if let Some(reason) = &system.reason {
        sentence.push_str(&format!(" Nothing is started: {reason}."));
    }
    let mut fields = present(json!({
        "running_jobs": system.running_jobs,
        "max_concurrent": system.max_concurrent,
        "jobs": jobs,
        "system": present(json!(system.machine)),
        "reason": system.reason,
    }));
    note(&mut fields, &mut sentence, left_out);
    Told { sentence, fields }
}

/// A document that was asked for.
pub(super) fn state(document: StateDocument) -> Told {
    let StateDocument { field, value, updated_at, path } = document;
    Told {
        sentence: format!("`{field}` was last changed at {updated_at}."),
        fields: fields(json!({ "field": field, "value": value, "updated_at": updated_at })),
    }
    .fit(&["value"], |_| format!("It is the file {}.", path.display()))
}

/// A document that was replaced; its value is known to whoever sent it.
pub(super) fn state_set(field: &Field, updated_at: Moment) -> Told {
    Told {
        sentence: format!("`{field}` is set."),
        fields: fields(json!({ "field": field, "updated_at": updated_at })),
    }
}

pub(super) fn state_list(entries: &[Listed]) -> Told {
    let mut sentence = match entries.len() {
        0 => "Nothing is stored yet.".to_owned(),
        1 => "One field.".to_owned(),
        count => format!("{count} fields."),
    };
    // A name, a moment and a number: 160 characters at most.
    let most = FIELD_CHARACTERS / 200;
    let listed: Vec<Value> = entries
        .iter()
        .take(most)
        .map(|Listed { field, updated_at, bytes }| {
            json!({ "field": field, "updated_at": updated_at, "bytes": bytes })
        })
        .collect();
    let left_out = entries.len() - listed.len();
    let mut fields = fields(json!({ "fields": listed }));
    if left_out > 0 {
        let note = format!(
            "{left_out} more are left out because they do not fit; get_state finds each by its name."
        );
        sentence.push_str(&format!(" {note}"));
        fields.insert("message".to_owned(), note.into());
    }
    Told { sentence, fields }
}
