//! `unhang job list`: the newest jobs in a table. It is as wide as the terminal, or 80 columns elsewhere.

use std::{io, time::Duration};

use unhang::{
    exit,
    job_report::{JobReport, ReportReader},
    jobs::{record::JobState, store::JobOwnerFilter, timestamp::JobTimestamp},
    units::in_words,
};
use unhang_terminal::{
    failure::Format,
    output,
    text::{escaped, fitted, padded, width},
};

use super::{progress::words, quarantine};
use crate::{
    arguments::jobs::JobList,
    commands::engine::{CommandOutcome, JobContext, TerminalColour, TerminalMarks, failure, json},
};

/// The number of columns of a name in the table.
const NAME: usize = 16;

pub(super) async fn run(context: &JobContext, arguments: &JobList) -> CommandOutcome {
    let engine = context.engine().await?;
    let statuses = engine
        .list(arguments.status, JobOwnerFilter::Anybodys, arguments.limit)
        .await
        .map_err(|error| failure(&error))?;
    quarantine::tell(&engine).await;
    let reports: Vec<JobReport> =
        statuses.iter().map(|status| JobReport::new(status, ReportReader::Person)).collect();
    Ok(match context.report_format() {
        Format::Json => json(&reports),
        Format::Text => {
            let table = text(
                &reports,
                arguments.status,
                JobTimestamp::now(),
                TerminalMarks::of_stdout(),
                output::columns(io::stdout()),
            );
            output::write_escaped(&table).err().unwrap_or(exit::DONE)
        }
    })
}

fn text(
    reports: &[JobReport],
    state: Option<JobState>,
    now: JobTimestamp,
    marks: TerminalMarks,
    columns: usize,
) -> String {
    if reports.is_empty() {
        let state = state.map_or_else(String::new, |state| format!(" {state}"));
        return format!("There are no{state} jobs.\n");
    }
    let head = ["ID", "NAME", "STATUS", "AGE", "TOOK", "DETAIL"].map(str::to_owned);
    let rows = reports.iter().map(|report| {
        let took = |_| in_words(Duration::from_secs_f64(report.elapsed_time_seconds));
        let row = [
            report.job_id.to_string(),
            escaped(&report.name),
            report.status.to_string(),
            rough(now.since(report.created_at)),
            report.started_at.map_or_else(String::new, took),
            detail(report),
        ];
        line(&row, Some(report.status), marks, columns)
    });
    std::iter::once(line(&head, None, marks, columns)).chain(rows).collect()
}

/// Makes one line of so many columns at most. A job's name and messages cannot break the line or make it wider.
fn line(
    [id, name, status, age, took, detail]: &[String; 6],
    state: Option<JobState>,
    marks: TerminalMarks,
    columns: usize,
) -> String {
    let parts = [
        (format!("{id:<12}  {}  ", padded(name, NAME)), None),
        (format!("{status:<9}"), state.and_then(colour)),
        // A long time leaves less room for the detail.
        (format!("  {age:>4}  {took:>7}  {detail}"), None),
    ];
    let (mut line, mut room) = (String::new(), columns);
    for (part, colour) in parts {
        let shown = fitted(&part, room);
        room -= width(&shown);
        line.push_str(&colour.map_or_else(|| shown.clone(), |colour| marks.paint(colour, &shown)));
    }
    format!("{}\n", line.trim_end())
}

fn colour(state: JobState) -> Option<TerminalColour> {
    match state {
        JobState::Completed => Some(TerminalColour::Green),
        JobState::Failed | JobState::Lost => Some(TerminalColour::Red),
        JobState::Starting | JobState::Running => Some(TerminalColour::Cyan),
        JobState::Cancelled => Some(TerminalColour::Yellow),
        JobState::Queued => None,
    }
}

/// Returns the detail to show beside the status.
fn detail(report: &JobReport) -> String {
    let percent = report.progress.map(|progress| format!("{:.0} %", progress * 100.0));
    match report.status {
        // The wait reason tells what keeps every process from supervising the job.
        JobState::Running | JobState::Starting if report.wait_reason.is_some() => {
            escaped(report.wait_reason.as_deref().unwrap_or_default())
        }
        JobState::Running => match (percent, &report.progress_message) {
            (Some(percent), Some(message)) => format!("{percent} {}", escaped(message)),
            (Some(percent), None) => percent,
            (None, _) => String::new(),
        },
        JobState::Queued => words(report),
        JobState::Failed | JobState::Lost => {
            let summary = report.summary();
            let (_, cause) = summary.split_once(": ").unwrap_or_default();
            escaped(cause)
        }
        JobState::Completed if report.state_applied == Some(false) => "the state was not changed".to_owned(),
        JobState::Completed | JobState::Starting | JobState::Cancelled => String::new(),
    }
}

/// Formats a length of time in its largest unit alone: `3h`.
fn rough(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use unhang::jobs::{id::JobId, record::EndReason};

    use super::*;

    fn report(name: &str, status: JobState) -> JobReport {
        let created_at = JobTimestamp::from_millis(1_774_872_000_000);
        JobReport {
            job_id: "abcdefgh2345".parse::<JobId>().unwrap(),
            name: name.to_owned(),
            kind: None,
            server: None,
            status,
            does: unhang::job_report::CallActivity::Works,
            created_at,
            started_at: Some(created_at),
            completed_at: None,
            elapsed_time_seconds: 3723.5,
            progress: None,
            progress_message: None,
            queue_position: None,
            open_questions: None,
            wait_reason: None,
            worker: None,
            exit_code: None,
            signal: None,
            reason: None,
            detail: None,
            state_applied: None,
            state_reason: None,
            next_steps: Vec::new(),
        }
    }

    #[test]
    fn the_table_fits_into_80_columns_and_steers_no_terminal() {
        let mut running = report("simulate-the-whole-plant\u{1b}[2J", JobState::Running);
        running.progress = Some(0.4);
        running.progress_message = Some("cooling the second digester down to ambient".repeat(3));
        let mut failed = report("a\nb", JobState::Failed);
        failed.reason = Some(EndReason::ResultsInvalid);
        failed.detail = Some("results.json is not JSON: expected value at line 1 column 1".to_owned());
        let now = JobTimestamp::from_millis(1_774_872_000_000 + 4_000_000);
        let text = text(&[running, failed], None, now, TerminalMarks::NONE, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.lines().count(), 3, "one line each: {text}");
        assert!(!text.contains('\u{1b}') && text.contains("40 %") && text.contains(" 1h "), "{text}");
        assert!(text.contains("a\\nb"), "{text}");
    }

    #[test]
    fn f_75_a_long_cause_stays_on_its_line() {
        let mut failed = report("call", JobState::Failed);
        failed.detail = Some(
            "the unhang process that waited ended\nbefore it came; check before you repeat it".repeat(9),
        );
        let text = text(&[failed], None, JobTimestamp::now(), TerminalMarks::NONE, 80);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80) && text.contains('…'), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_the_letters_are() {
        let mut wide = report("模拟整个工厂的消化过程", JobState::Failed);
        wide.detail = Some("结果不是有效的".repeat(20));
        for columns in [80, 60, 40, 10, 1, 200] {
            let reports = [wide.clone(), report("short", JobState::Running)];
            let text = text(&reports, None, JobTimestamp::now(), TerminalMarks::NONE, columns);
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}: {text}");
            assert_eq!(text.lines().count(), 3, "one line each: {text}");
        }
        let text = text(&[wide], None, JobTimestamp::now(), TerminalMarks::NONE, 80);
        let status = |line: &str, word: &str| line.split_once(word).map(|(before, _)| width(before));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(status(lines[0], "STATUS"), status(lines[1], "failed"), "{text}");
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        assert_eq!(
            text(&[], Some(JobState::Lost), JobTimestamp::now(), TerminalMarks::NONE, 80),
            "There are no lost jobs.\n"
        );
    }
}
