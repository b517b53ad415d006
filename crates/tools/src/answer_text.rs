//! Answers of the tools: the fields of design 7, a sentence above them, and the next steps.
//!
//! Theory of operation. Every answer is one object, [`AnswerText`]. It goes out twice: as `structuredContent` for programs and, below a
//! sentence, as the text, because many clients show their model nothing but the text.
//!
//! Invariants
//! - Field names are those of design 7. A field that means nothing yet is absent.
//! - An answer is bounded. A field that does not fit is left out by name, and the answer says where it lies and how to get at it.
//! - The next steps name tools that exist, with the arguments to call them with, and never ask for busy waiting (J-83).

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use unhang_jobs::{document::Field, folder::ERROR, id::JobId, record::JobState, timestamp::JobTimestamp};

use super::{
    ToolAnswer,
    service::{CallAnswer, Located},
};
use crate::job_report::{
    Accepted, CallActivity, DocumentReport, JobReport, ListReport, ListedReport, LogReport, ResultsReport,
    SystemReport, ToolNames,
};
use unhang_core::{config::ANSWER_CHARACTERS, units::in_words};

/// The part of [`ANSWER_CHARACTERS`] that the fields may have; the rest is for the sentence above them.
const FIELD_CHARACTERS: usize = ANSWER_CHARACTERS - 1000;
/// The most characters of the end of each stream that stand beside the results.
const TAIL_CHARACTERS: usize = 4000;

/// An answer that is being put together.
pub struct AnswerText {
    sentence: String,
    fields: Map<String, Value>,
    /// The content of a server's answer, which goes out as it was.
    content: Vec<Box<RawValue>>,
    /// A part of a text that is too long, which a model reads below the rest.
    part: Option<String>,
    is_error: bool,
}

/// Returns the members of a report. All keys of a report are texts.
fn fields(report: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(report) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

impl AnswerText {
    /// Turns it into the answer of a tool.
    pub fn answer(self, is_error: bool) -> ToolAnswer {
        let AnswerText { sentence, mut fields, content, part, is_error: says_so } = self;
        let mut read = fields.clone();
        if !content.is_empty() {
            // The result comes after the text, whole.
            read.remove("results");
        }
        let mut text = format!("{sentence}\n{}", Value::from(read));
        if let Some(part) = part {
            text.push_str(&format!("\n{part}"));
            fields.insert("part".to_owned(), part.into());
        }
        let is_error = is_error || says_so;
        ToolAnswer { text, structured: Some(fields), content, is_error, job: None }
    }

    fn new(sentence: String, fields: Map<String, Value>) -> AnswerText {
        AnswerText { sentence, fields, content: Vec::new(), part: None, is_error: false }
    }

    fn length(&self) -> usize {
        Value::from(self.fields.clone()).to_string().chars().count()
    }

    /// Leaves members out, in this order, until the rest fits, and says where they are.
    fn fit(mut self, dispensable: &[&str], elsewhere: impl Fn(&str) -> String) -> AnswerText {
        for name in dispensable {
            if self.length() <= FIELD_CHARACTERS {
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

/// Describes how a job is doing, in a sentence or two.
fn sentence(job: &JobReport) -> String {
    let (id, state) = (job.job_id, job.status);
    let elapsed = in_words(Duration::try_from_secs_f64(job.elapsed_time_seconds).unwrap_or_default());
    let mut sentence = match state {
        JobState::Queued => {
            let before = job.queue_position.map_or_else(String::new, |count| format!(", {count} before it"));
            format!("Job {id} has waited for {elapsed}{before}")
        }
        JobState::Starting => format!("Job {id} is being started"),
        JobState::Running => format!("Job {id} has been running for {elapsed}"),
        JobState::Completed => format!("Job {id} completed after {elapsed}"),
        JobState::Failed => format!("Job {id} failed after {elapsed}"),
        JobState::Cancelled => format!("Job {id} was cancelled after {elapsed}"),
        JobState::Lost => format!("Job {id} is lost after {elapsed}"),
    };
    if let Some(progress) = job.progress.filter(|_| !state.is_final()) {
        sentence.push_str(&format!(", {:.0} % done", progress * 100.0));
    }
    let doing = job.progress_message.clone().filter(|_| !state.is_final());
    for part in job.cause().into_iter().chain(doing) {
        sentence.push_str(&format!(" ({part})"));
    }
    sentence.push('.');
    if let Some(awaited) = job.awaited_answer() {
        sentence.push_str(&format!(" It {awaited}."));
    }
    if let Some(reason) = &job.state_reason {
        sentence.push_str(&format!(" Its result is not in the state: {reason}."));
    }
    sentence
}

/// Makes the answer to a submission.
pub fn started(job: &JobReport) -> AnswerText {
    let accepted = Accepted::new(job);
    AnswerText::new(accepted.message.clone(), fields(&accepted))
}

/// Makes the answer to a call of this tool that goes on as a job.
pub fn handed_over(job: &JobReport, tool: &str) -> ToolAnswer {
    let elapsed = in_words(Duration::try_from_secs_f64(job.elapsed_time_seconds).unwrap_or_default());
    let id = job.job_id;
    let message = format!("`{tool}` continues in the background");
    let accepted = Accepted { message, ..Accepted::new(job) };
    let steps = accepted.next_steps.join("; then ");
    let so_far = match job.does {
        CallActivity::Works => format!("`{tool}` has been working for {elapsed} and"),
        CallActivity::Either => format!(
            "`{tool}` has not answered for {elapsed}, because it works or waits for its turn behind \
             other calls, and"
        ),
        CallActivity::Waits(what) => {
            format!("`{tool}` waits {what} ({elapsed} so far); its server does not have the call yet. It")
        }
    };
    let sentence = format!(
        "{so_far} continues in the background as job {id}: this is not its answer yet. Do not call it \
         again. Next: {steps}."
    );
    AnswerText::new(sentence, fields(&accepted)).answer(false)
}

/// Makes the answer with the results of a call of a server's tool: the head of the job, and then the answer as the server gave it. A long
/// answer comes in parts of its text, from `offset` on.
pub(super) fn call_results(
    found: Located<ResultsReport>,
    answer: Option<CallAnswer>,
    offset: Option<usize>,
    names: ToolNames,
) -> AnswerText {
    let Some(CallAnswer::Result(answer)) = answer else { return results(found, names) };
    let Ok(ResultMembers { content, is_error }) = serde_json::from_str(&answer) else {
        return results(found, names);
    };
    if offset.is_none() {
        let given: usize = content.iter().map(|block| block.get().chars().count()).sum();
        let mut whole = results(found.clone(), names);
        whole.is_error = is_error;
        // The result is in the content, which models read, and need not be in the fields as well.
        if whole.length() + given > FIELD_CHARACTERS {
            whole.fields.remove("results");
            whole.fields.remove("message");
            whole.sentence = sentence(&found.report.job);
        }
        if whole.length() + given <= FIELD_CHARACTERS {
            whole.content = content;
            return whole;
        }
    }
    let text = readable(&content, found.report.job.job_id);
    let elsewhere = format!("The resource job://{} has all of it.", found.report.job.job_id);
    let part = ResultPart { text: &text, offset: offset.unwrap_or_default(), of: "answer", elsewhere };
    let mut part = part.told(found, names);
    part.is_error = is_error;
    part
}

/// Returns the blocks of a server's answer as text. A block that is not text is named, and is in the resource of the job.
fn readable(content: &[Box<RawValue>], id: JobId) -> String {
    let in_words = |block: &RawValue| {
        let raw = block.get();
        let Ok(block) = serde_json::from_str::<Value>(raw) else { return raw.to_owned() };
        match (block["type"].as_str(), block["text"].as_str()) {
            (Some("text"), Some(text)) => text.to_owned(),
            (Some(kind @ ("image" | "audio")), _) => {
                let (length, media) = (raw.len(), block["mimeType"].as_str().unwrap_or("of unknown type"));
                format!("[{kind}, {media}, {length} bytes as JSON: read the resource job://{id} for it]")
            }
            _ => raw.to_owned(),
        }
    };
    content.iter().map(|block| in_words(block)).collect::<Vec<_>>().join("\n")
}

/// A part of results that are too long for one answer.
struct ResultPart<'a> {
    text: &'a str,
    offset: usize,
    /// The word for the results.
    of: &'static str,
    /// A sentence that says where the results are besides.
    elsewhere: String,
}

impl ResultPart<'_> {
    /// Makes the answer with as much of the text, from the offset on, as fits into it both as text and as a field.
    fn told(self, found: Located<ResultsReport>, names: ToolNames) -> AnswerText {
        let ResultPart { text, offset, of, elsewhere } = self;
        let report = ResultsReport {
            results: None,
            error: None,
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            ..found.report
        };
        let (whole, mut head) = (text.chars().count(), fields(&report));
        let offset = offset.min(whole);
        // The note below about the part is short.
        let head_length: usize = Value::from(head.clone()).to_string().chars().map(in_json).sum();
        let room = FIELD_CHARACTERS.saturating_sub(2 * head_length);
        let (mut taken, mut used) = (String::new(), 0);
        for character in text.chars().skip(offset) {
            used += 2 * in_json(character);
            if used > room {
                break;
            }
            taken.push(character);
        }
        let next = offset + taken.chars().count();
        let id = report.job.job_id;
        let more = match next < whole {
            true => {
                format!("{}get_job_results(job_id=\"{id}\", offset={next}) has the next part", names.prefix)
            }
            false => "this is the last part".to_owned(),
        };
        let note = format!(
            "Its {of} has {whole} characters, more than fit into an answer; this part has the characters \
             from {offset} to {next}, and {more}. {elsewhere}"
        );
        head.extend([
            ("message".to_owned(), note.clone().into()),
            ("offset".to_owned(), offset.into()),
            ("characters".to_owned(), whole.into()),
        ]);
        if next < whole {
            head.insert("next_offset".to_owned(), next.into());
        }
        let sentence = format!("{} {note}", sentence(&report.job));
        AnswerText { part: Some(taken), ..AnswerText::new(sentence, head) }
    }
}

/// Returns how many characters one character takes in a text of JSON.
fn in_json(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => 1,
    }
}

/// The members of a `tools/call` result that go on as they are.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultMembers {
    #[serde(default)]
    content: Vec<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
}

pub(super) fn status(job: &JobReport) -> AnswerText {
    AnswerText::new(sentence(job), fields(job))
}

/// Makes the answer with the results of a command. Results that do not fit come in parts, from `offset` on.
pub(super) fn results_from(
    found: Located<ResultsReport>,
    offset: Option<usize>,
    names: ToolNames,
) -> AnswerText {
    let value = found.report.results.as_ref();
    let Some(text) = value.map(Value::to_string) else { return results(found, names) };
    if offset.is_none() && results(found.clone(), names).fields.contains_key("results") {
        return results(found, names);
    }
    let id = found.report.job.job_id;
    let elsewhere = in_file(id, found.path.as_deref(), found.report.results_name.as_deref());
    ResultPart { text: &text, offset: offset.unwrap_or_default(), of: "result", elsewhere }.told(found, names)
}

/// Makes the answer with all results of a job, for a resource, which has no bound of its own.
pub fn whole_results(found: Located<ResultsReport>) -> AnswerText {
    let mut report = found.report;
    for tail in [&mut report.stdout_tail, &mut report.stderr_tail] {
        *tail = printed(end(tail, TAIL_CHARACTERS));
    }
    let mut sentence = sentence(&report.job);
    for gone in &report.gone {
        sentence.push_str(&format!(
            " Its file {} is gone: something other than unhang removed it.",
            gone.display()
        ));
    }
    AnswerText::new(sentence, fields(&report))
}

/// Makes the answer with the results of a job, within the bounds of an answer.
pub fn results(found: Located<ResultsReport>, names: ToolNames) -> AnswerText {
    let (path, id) = (found.path.clone(), found.report.job.job_id);
    let name = found.report.results_name.clone();
    whole_results(found).fit(&["results", "error", "stdout_tail", "stderr_tail"], |member| match member {
        "results" => in_file(id, path.as_deref(), name.as_deref()),
        "error" => in_file(id, path.as_deref(), Some(ERROR)),
        _ if names.lists_all() => format!("get_job_logs(job_id=\"{id}\") has it in parts."),
        _ => format!("The command `unhang job logs {id}` has all of it."),
    })
}

/// Says which file in the folder of a job holds the text that an answer has no room for.
fn in_file(id: JobId, folder: Option<&Path>, name: Option<&str>) -> String {
    match (folder, name) {
        (Some(folder), Some(name)) => format!("It is the file {}.", folder.join(name).display()),
        (Some(folder), None) => format!("It is a file in {}.", folder.display()),
        (None, _) => format!("The command `unhang job result {id}` prints it."),
    }
}

/// Returns a job's output without the characters that only a terminal understands. In JSON each of them would be six characters, and a
/// model has no use for it.
fn printed(text: &str) -> String {
    let is_plain = |character: char| !character.is_control() || matches!(character, '\n' | '\r' | '\t');
    text.chars().map(|character| if is_plain(character) { character } else { '\u{fffd}' }).collect()
}

/// Returns the last `characters` characters of a text.
fn end(text: &str, characters: usize) -> &str {
    let count = text.chars().count();
    text.char_indices().nth(count.saturating_sub(characters)).map_or("", |(start, _)| &text[start..])
}

pub(super) fn logs(id: JobId, mut page: LogReport) -> AnswerText {
    page.text = printed(&page.text);
    let LogReport { offset, next_offset, eof, dropped_before, .. } = page;
    let more = match (eof, next_offset > offset) {
        (true, _) => "nothing follows".to_owned(),
        (false, true) => format!("continue with offset={next_offset}"),
        (false, false) => format!("nothing new yet; ask again with offset={next_offset} in 5 to 10 seconds"),
    };
    let dropped = match dropped_before {
        0 => String::new(),
        dropped => format!(" unhang has dropped the first {dropped} bytes."),
    };
    AnswerText::new(format!("Job {id}, bytes {offset} to {next_offset}; {more}.{dropped}"), fields(&page))
}

/// Returns jobs as entries of a list, without the next steps of each, as many as fit. Also returns the number of jobs that are left out.
fn entries(jobs: &[JobReport]) -> (Vec<Value>, usize) {
    let mut room = FIELD_CHARACTERS - 1000;
    let mut entries = Vec::new();
    for job in jobs {
        let mut entry = fields(job);
        entry.remove("next_steps");
        let entry = Value::from(entry);
        let length = entry.to_string().chars().count() + 1;
        let Some(left) = room.checked_sub(length) else { break };
        room = left;
        entries.push(entry);
    }
    let left_out = jobs.len() - entries.len();
    (entries, left_out)
}

/// Says how many entries do not fit, and how to get at them.
fn leave_out(told: &mut AnswerText, count: usize, instead: &str) {
    if count > 0 {
        let note = format!("{count} more are left out because they do not fit; {instead}.");
        told.sentence.push_str(&format!(" {note}"));
        told.fields.insert("message".to_owned(), note.into());
    }
}

/// Puts jobs into an answer, as many as fit.
fn with_jobs(mut told: AnswerText, jobs: &[JobReport], ToolNames { prefix }: ToolNames) -> AnswerText {
    let (entries, left_out) = entries(jobs);
    told.fields.insert("jobs".to_owned(), entries.into());
    let instead = format!("ask {prefix}list_jobs with a smaller limit or a status_filter");
    leave_out(&mut told, left_out, &instead);
    told
}

pub(super) fn list(mut list: ListReport, names: ToolNames) -> AnswerText {
    let jobs = std::mem::take(&mut list.jobs);
    let sentence = match jobs.len() {
        0 => "There are no such jobs.".to_owned(),
        1 => "One job.".to_owned(),
        count => format!("{count} jobs, newest first."),
    };
    with_jobs(AnswerText::new(sentence, fields(&list)), &jobs, names)
}

pub(super) fn system(mut system: SystemReport, names: ToolNames) -> AnswerText {
    let jobs = std::mem::take(&mut system.jobs);
    let SystemReport { running_commands, running_calls, queued_jobs, slots_in_use, max_concurrent, .. } =
        system;
    let mut sentence = format!(
        "{} of commands and {} of servers' tools run, {} for a slot; {slots_in_use} of {max_concurrent} slots are taken.",
        counted(running_commands, "job"),
        counted(running_calls, "call"),
        match queued_jobs {
            1 => "1 job waits".to_owned(),
            count => format!("{count} jobs wait"),
        },
    );
    if let Some(reason) = &system.wait_reason {
        sentence.push_str(&format!(" unhang starts no job now: {reason}."));
    }
    if !system.outlives {
        sentence.push_str(&format!(" Jobs here do not survive everything: {}.", system.ends_with.join("; ")));
    }
    with_jobs(AnswerText::new(sentence, fields(&system)), &jobs, names)
}

/// Returns a count with its noun, in the singular or the plural.
fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Makes the answer with a document of the named state.
pub(super) fn state(found: &Located<DocumentReport>) -> AnswerText {
    let Located { report, path } = found;
    let sentence = format!("`{}` was last changed at {}.", report.field, report.updated_at);
    let told = AnswerText::new(sentence, fields(report));
    told.fit(&["value"], |_| match path {
        Some(path) => format!("It is the file {}.", path.display()),
        None => format!("The command `unhang state get {}` prints it.", report.field),
    })
}

/// Makes the answer to the replacement of a document. The caller knows the value.
pub(super) fn state_set(field: &Field, updated_at: JobTimestamp) -> AnswerText {
    let set = json!({ "field": field, "updated_at": updated_at });
    AnswerText::new(format!("`{field}` is set."), fields(&set))
}

pub(super) fn state_list(entries: &[ListedReport]) -> AnswerText {
    let sentence = match entries.len() {
        0 => "Nothing is stored yet.".to_owned(),
        1 => "One field.".to_owned(),
        count => format!("{count} fields."),
    };
    // A name, a moment and a number have 160 characters at most.
    let listed = &entries[..entries.len().min(FIELD_CHARACTERS / 200)];
    let mut told = AnswerText::new(sentence, fields(&json!({ "fields": listed })));
    leave_out(&mut told, entries.len() - listed.len(), "get_state returns each field by its name");
    told
}
