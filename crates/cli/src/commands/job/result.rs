//! `unhang job result`: the result of a job. The result of a call can also be the answer of a tool that failed.

use std::path::Path;

use unhang::{
    exit,
    job_report::{ReportReader, ResultsReport},
    jobs::record::{EndReason, JobState},
};
use unhang_terminal::{failure::CommandFailure, failure::Format, output, text::escaped};

use crate::{
    arguments::jobs::JobReference,
    commands::{
        client::content::Writer,
        engine::{CommandOutcome, JobContext, failure, json},
    },
};

pub(super) async fn run(context: &JobContext, reference: &JobReference) -> CommandOutcome {
    let engine = context.engine().await?;
    let id = context.meant(&engine, reference).await?;
    let results = engine.results(id).await.map_err(|error| failure(&error))?;
    let report = ResultsReport::new(results, ReportReader::Person);
    let is_well = report.job.status == JobState::Completed;
    match context.plain_format() {
        Format::Json => {
            let printed = json(&report);
            Ok(if is_well { printed } else { exit::FAILED })
        }
        Format::Text if !is_well => Err(match answer(&report) {
            // The tool's answer is all that there is to see.
            Some(answer) => {
                output::bytes(answer.as_bytes());
                CommandFailure { hint: None, ..not_completed(&report) }
            }
            None => not_completed(&report),
        }),
        Format::Text => match &report.results {
            Some(results) => Ok(json(results)),
            None => {
                let what = match &report.results_name {
                    Some(name) => format!("its result file `{}` no longer exists", escaped(name)),
                    None => "it was started without --result".to_owned(),
                };
                output::error(
                    &format!("job {id} has completed; {what}"),
                    Some(&format!("unhang job logs {id} prints its output")),
                );
                Ok(if report.results_name.is_some() { exit::FAILED } else { exit::DONE })
            }
        },
    }
}

/// Returns the tool's answer if it says that the tool failed, else `None`.
fn answer(report: &ResultsReport) -> Option<String> {
    let is_answer = report.job.reason == Some(EndReason::ToolError);
    let answer = report.results.as_ref().filter(|_| is_answer)?;
    let writer = Writer::new(Path::new("."), "result");
    let text = writer.tool(answer);
    writer.tell_unsaved();
    Some(text).filter(|text| !text.is_empty())
}

/// Makes the failure about a job without a result, with the last line of its stderr.
fn not_completed(report: &ResultsReport) -> CommandFailure {
    let job = &report.job;
    let own = report.error.as_ref().map(|error| format!("; it says: {error}")).unwrap_or_default();
    let last = report.stderr_tail.lines().rev().find(|line| !line.trim().is_empty());
    let last =
        last.filter(|_| job.status.is_final()).map(|line| format!("; last on its stderr: {}", line.trim()));
    let message =
        format!("job {} has no result ({}){own}{}", job.job_id, job.summary(), last.unwrap_or_default());
    CommandFailure {
        code: exit::FAILED,
        kind: if job.status.is_final() { "not_completed" } else { "has_not_ended" },
        message: escaped(&message),
        hint: Some(job.next_steps.join(", or ")),
        data: None,
    }
}
