//! The progress of jobs, on one line of a terminal that is overwritten.
//!
//! Invariant: nothing is written if stderr is not a terminal. At the end nothing is left of the line, except one that a terminal moved up
//! to echo `^C`.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unhang::{
    job_report::{JobReport, ReportReader},
    jobs::engine::JobStatus,
};
use unhang_terminal::text::escaped;

use super::wait::has_ended;
use crate::commands::engine::shortened;

/// The interval at which the elapsed time is drawn anew.
const TICK: Duration = Duration::from_millis(250);

/// The number of steps in a full bar.
const STEPS: u64 = 1000;

/// The template for jobs that have not reported any progress.
const UNMEASURED: &str = "{spinner} {elapsed} {msg}";

/// The template for jobs of which one has.
const MEASURED: &str = "[{bar:24}] {percent:>3} % {elapsed} {msg}";

/// The number of characters of a message that keep the line within 80 columns.
const MESSAGE: usize = 34;

/// The progress line.
pub(super) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Makes a line for these jobs.
    pub(super) fn new(statuses: &[JobStatus]) -> Self {
        let longest = statuses.iter().map(JobStatus::elapsed).max().unwrap_or_default();
        // The line is hidden if stderr is not a terminal.
        let bar =
            ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr()).with_elapsed(longest);
        bar.set_style(style(UNMEASURED));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self(bar)
    }

    /// Shows the progress of the jobs.
    pub(super) fn show(&self, statuses: &[JobStatus]) {
        if self.0.is_hidden() {
            return;
        }
        let (done, text) = far(statuses);
        if done > 0.0 {
            self.0.set_style(style(MEASURED));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a fraction of a thousand"
        )]
        self.0.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.0.set_message(shortened(&text, MESSAGE));
    }

    /// Writes something else, and hides the line meanwhile.
    pub(super) fn aside(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ").tick_chars("|/-\\ ")
}

/// Returns the part of the work that is done, and the message about it.
fn far(statuses: &[JobStatus]) -> (f64, String) {
    let part = |status: &JobStatus| match &status.progress {
        _ if has_ended(status) => 1.0,
        Some(progress) => progress.fraction.unwrap_or_default(),
        None => 0.0,
    };
    let count = statuses.len().max(1);
    #[expect(clippy::cast_precision_loss, reason = "nobody waits for that many jobs")]
    let done = statuses.iter().map(part).sum::<f64>() / count as f64;
    let text = match statuses {
        [status] => words(&JobReport::new(status, ReportReader::Person)),
        _ => {
            let ended = statuses.iter().filter(|status| has_ended(status)).count();
            let first = statuses.iter().find(|status| !has_ended(status));
            let first = first.map(|status| JobReport::new(status, ReportReader::Person));
            let first = first.map(|report| format!("; {} {}", report.job_id, words(&report)));
            format!("{ended} of {count} ended{}", first.unwrap_or_default())
        }
    };
    (done, text)
}

/// Describes the progress of a job that has not ended.
pub(super) fn words(report: &JobReport) -> String {
    let said = report.progress_message.as_deref().or(report.wait_reason.as_deref());
    match (said, report.queue_position) {
        (Some(said), _) => escaped(said),
        (None, Some(0)) => "next in the queue".to_owned(),
        (None, Some(before)) => format!("{before} ahead in the queue"),
        (None, None) => report.status.to_string(),
    }
}
