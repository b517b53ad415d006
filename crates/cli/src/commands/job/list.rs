//! `unhang job list`: the newest jobs as a table of 80 columns.

use std::time::Duration;

use comfy_table::{ColumnConstraint, Width};
use unhang::{
    fault::in_words,
    job_report::{JobReport, Reader},
    jobs::{moment::Moment, record::JobState, store::Whose},
};

use super::progress::words;
use crate::{
    commands::engine::{Desk, Outcome, failure, lines, table},
    job_arguments::JobList,
    terminal_text::escaped,
};

/// Characters of a name in the table.
const NAME: usize = 16;

pub(super) async fn run(desk: &Desk, arguments: &JobList) -> Outcome {
    let engine = desk.engine().await?;
    let statuses = engine
        .list(arguments.status, Whose::Anybodys, arguments.limit)
        .await
        .map_err(|error| failure(&error))?;
    let reports: Vec<JobReport> =
        statuses.iter().map(|status| JobReport::new(status, Reader::Person)).collect();
    Ok(desk.report(&reports, || text(&reports, arguments.status, Moment::now())))
}

fn text(reports: &[JobReport], state: Option<JobState>, now: Moment) -> String {
    if reports.is_empty() {
        let state = state.map_or_else(String::new, |state| format!(" {state}"));
        return format!("There are no{state} jobs.\n");
    }
    // The last column is what may be wrapped.
    let mut table = table(["ID", "NAME", "STATUS", "AGE", "TOOK", "DETAIL"], 5);
    for report in reports {
        table.add_row([
            report.job_id.to_string(),
            shortened(&escaped(&report.name), NAME),
            report.status.to_string(),
            rough(now.since(report.created_at)),
            report
                .started_at
                .map_or_else(String::new, |_| in_words(Duration::from_secs_f64(report.elapsed_time_seconds))),
            detail(report),
        ]);
    }
    if let Some(column) = table.column_mut(5) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(12)));
    }
    lines(&table)
}

/// What there is to say beside the status.
fn detail(report: &JobReport) -> String {
    let percent = report.progress.map(|progress| format!("{:.0} %", progress * 100.0));
    match report.status {
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

pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// A length of time in its largest unit alone: `3h`.
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
    use unhang::jobs::{id::JobId, record::Reason};

    use super::*;

    fn report(name: &str, status: JobState) -> JobReport {
        let created_at = Moment::from_millis(1_774_872_000_000);
        JobReport {
            job_id: "abcdefgh2345".parse::<JobId>().unwrap(),
            name: name.to_owned(),
            kind: None,
            status,
            created_at,
            started_at: Some(created_at),
            completed_at: None,
            elapsed_time_seconds: 3723.5,
            progress: None,
            progress_message: None,
            queue_position: None,
            wait_reason: None,
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
        failed.reason = Some(Reason::ResultsInvalid);
        failed.detail = Some("results.json is not JSON: expected value at line 1 column 1".to_owned());
        let now = Moment::from_millis(1_774_872_000_000 + 4_000_000);
        let text = text(&[running, failed], None, now);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("40 %") && text.contains(" 1h "), "{text}");
        assert!(text.contains("a\\nb"), "{text}");
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        assert_eq!(text(&[], Some(JobState::Lost), Moment::now()), "There are no lost jobs.\n");
    }
}
