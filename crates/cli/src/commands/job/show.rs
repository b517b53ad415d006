//! `unhang job show`: everything about one job.

use std::{fmt::Write, path::PathBuf, time::Duration};

use serde::Serialize;
use unhang::{
    job_report::{JobReport, ReportReader},
    jobs::record::{CallRecord, JobRecord},
    units::in_words,
};
use unhang_terminal::text::escaped;

use crate::{
    arguments::jobs::JobReference,
    commands::engine::{CommandOutcome, JobContext, failure, quoted_word},
};

/// The report about a job, and fields that are useful only on the same machine.
#[derive(Serialize)]
struct ShownJob {
    #[serde(flatten)]
    job: JobReport,
    #[serde(flatten)]
    call: Option<ShownCall>,
    command: Vec<String>,
    folder: PathBuf,
    /// Absent for a job that a worker of some machine runs, as `work_folder` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_folder: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    work_folder: Option<PathBuf>,
}

/// The server and the tool of a call.
#[derive(Serialize)]
struct ShownCall {
    server: String,
    tool: String,
}

pub(super) async fn run(context: &JobContext, reference: &JobReference) -> CommandOutcome {
    let engine = context.engine().await?;
    let id = context.meant(&engine, reference).await?;
    let status = engine.status(id).await.map_err(|error| failure(&error))?;
    let JobRecord { command, folder, call, .. } = status.record.clone();
    let call = call.map(|CallRecord { server, tool, .. }| ShownCall { server, tool });
    let mut job = JobReport::new(&status, ReportReader::Person).with_open_questions(&engine).await;
    // The person is already looking at the output of this step.
    job.next_steps.retain(|step| !step.starts_with("unhang job show"));
    let is_here = status.shared.is_none();
    let job_folder = is_here.then(|| engine.job_folder(id));
    let work_folder = is_here.then(|| engine.work_folder(&status.record));
    let shown = ShownJob { job, call, command, folder, job_folder, work_folder };
    Ok(context.report(&shown, || text(&shown, &status.record)))
}

fn text(shown: &ShownJob, record: &JobRecord) -> String {
    let job = &shown.job;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _infallible = writeln!(text, "{name:<12}{}", escaped(value));
    };
    line("id", job.job_id.as_str());
    line("name", &job.name);
    if let Some(ShownCall { server, tool }) = &shown.call {
        line("call", &format!("tool {tool} of server {server}"));
    }
    line("status", &job.summary());
    if let Some(progress) = job.progress {
        let message = job.progress_message.as_deref().unwrap_or_default();
        line("progress", format!("{:.0} % {message}", progress * 100.0).trim_end());
    } else if let Some(message) = &job.progress_message {
        line("progress", message);
    }
    if let Some(awaited) = job.awaited_answer() {
        line("asks", &awaited);
    }
    if let Some(before) = job.queue_position {
        line("queue", &format!("{before} before it"));
    }
    line("created", &job.created_at.to_string());
    if let Some(started) = job.started_at {
        line("started", &started.to_string());
    }
    if let Some(completed) = job.completed_at {
        line("ended", &completed.to_string());
    }
    let took = in_words(Duration::from_secs_f64(job.elapsed_time_seconds));
    line(if job.started_at.is_some() { "took" } else { "waited" }, &took);
    if let Some(timeout) = record.timeout() {
        line("timeout", &in_words(timeout));
    }
    if let Some(patch) = &record.patch {
        let applied = match (job.state_applied, &job.state_reason) {
            (Some(true), _) => "has the result".to_owned(),
            (Some(false), Some(reason)) => format!("was not changed: {reason}"),
            (Some(false), None) => "was not changed".to_owned(),
            (None, _) => "gets the result".to_owned(),
        };
        line("state", &format!("{} {applied}", patch.field));
    }
    if !shown.command.is_empty() {
        // A call that became a job has no command.
        line("command", &quoted(&shown.command));
    }
    line("works in", &shown.folder.to_string_lossy());
    for (name, folder) in [("files", &shown.work_folder), ("logs", &shown.job_folder)] {
        if let Some(folder) = folder {
            line(name, &folder.to_string_lossy());
        }
    }
    if let Some(worker) = &job.worker {
        line("worker", worker);
    }
    if !job.next_steps.is_empty() {
        line("next", &job.next_steps.join(", or "));
    }
    text
}

/// Returns a command as a person would type it: words that a shell would split are in quotes.
fn quoted(command: &[String]) -> String {
    command.iter().map(|word| quoted_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let command = ["sh", "-c", "echo 'a b'", "", "--out=/x"].map(str::to_owned);
        assert_eq!(quoted(&command), r"sh -c 'echo '\''a b'\''' '' --out=/x");
    }
}
