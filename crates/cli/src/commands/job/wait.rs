//! `unhang job wait`: waits until jobs have ended. `run --wait` shares the code.
//!
//! Invariants
//!
//! - If a person stops the wait, the jobs go on, and a message says so with their ids.
//! - Each job is looked up until it has ended, and not again.
//! - No wait outlives the data folder: if nobody can see the job any more, the wait fails.

use tokio::time::sleep_until;
use unhang::{
    exit,
    guard::Stop,
    job_report::{JobReport, ReportReader},
    jobs::{
        engine::{Engine, JobStatus},
        error::JobError,
        id::JobId,
        record::{JobRecord, JobState},
    },
    process::deadline::Deadline,
    units::in_words,
};
use unhang_terminal::{failure::CommandFailure, failure::Format, output, text::escaped};

use super::{progress::ProgressLine, run::distinct};
use crate::{
    arguments::jobs::JobWait,
    commands::engine::{CommandOutcome, JobContext, counted, failure, json},
    signals::signals,
};

/// The way in which a wait ended.
pub(super) enum WaitOutcome {
    /// Every job has ended.
    Ended(Vec<JobStatus>),
    /// The deadline came first; these are the states of the jobs.
    Late(Vec<JobStatus>),
    /// A signal asked the command to end, with this exit code.
    Stopped(u8),
}

pub(super) async fn run(context: &JobContext, arguments: &JobWait) -> CommandOutcome {
    let engine = context.engine().await?;
    let mut ids = Vec::with_capacity(arguments.ids.len());
    for reference in &arguments.ids {
        ids.push(context.meant(&engine, reference).await?);
    }
    let ids = distinct(&ids);
    let format = context.report_format();
    let say = |status: &JobStatus| {
        if format == Format::Text {
            output::bytes(line(&JobReport::new(status, ReportReader::Person)).as_bytes());
        }
    };
    let deadline = arguments.timeout.map(Deadline::after);
    let (statuses, is_late) = match until_ended(&engine, &ids, deadline, say).await? {
        WaitOutcome::Ended(statuses) => (statuses, false),
        WaitOutcome::Late(statuses) => (statuses, true),
        WaitOutcome::Stopped(code) => return Ok(code),
    };
    if format == Format::Json {
        json(&statuses.iter().map(|status| JobReport::new(status, ReportReader::Person)).collect::<Vec<_>>());
    }
    if is_late {
        return Err(too_late(&statuses, arguments));
    }
    let is_well = statuses.iter().all(|status| status.record.status == JobState::Completed);
    Ok(if is_well { exit::DONE } else { exit::FAILED })
}

fn line(report: &JobReport) -> String {
    let took = in_words(std::time::Duration::from_secs_f64(report.elapsed_time_seconds));
    let cause = report.cause().map_or_else(String::new, |cause| format!(": {}", escaped(&cause)));
    format!("{} {} after {took} ({}){cause}\n", report.job_id, report.status, escaped(&report.name))
}

/// Returns the jobs that have not ended.
fn open(statuses: &[JobStatus]) -> impl Iterator<Item = &JobRecord> {
    statuses.iter().filter(|status| !has_ended(status)).map(|status| &status.record)
}

/// Lists the jobs that have not ended with their states, for a person.
fn ids_and_states(statuses: &[JobStatus]) -> String {
    let states = open(statuses).map(|record| format!("{} is {}", record.job_id, record.status));
    states.collect::<Vec<_>>().join(", ")
}

fn too_late(statuses: &[JobStatus], arguments: &JobWait) -> CommandFailure {
    CommandFailure {
        code: exit::DEADLINE,
        kind: "deadline",
        message: format!(
            "not ended within {}: {}",
            arguments.timeout.map(in_words).unwrap_or_default(),
            ids_and_states(statuses)
        ),
        hint: Some("they continue; wait again with a longer --timeout".to_owned()),
        data: None,
    }
}

/// Waits until all jobs have ended, shows their progress, and calls `tell` for each end.
pub(super) async fn until_ended(
    engine: &Engine,
    ids: &[JobId],
    deadline: Option<Deadline>,
    tell: impl Fn(&JobStatus),
) -> Result<WaitOutcome, CommandFailure> {
    let mut changes = engine.changes();
    let mut signals =
        signals().map_err(|error| CommandFailure::system("signals cannot be waited for", &error))?;
    let mut statuses = look(engine, ids).await?;
    let bar = ProgressLine::new(&statuses);
    statuses.iter().filter(|status| has_ended(status)).for_each(&tell);
    loop {
        if statuses.iter().all(has_ended) {
            bar.clear();
            return Ok(WaitOutcome::Ended(statuses));
        }
        bar.show(&statuses);
        tracing::debug!("waiting: {}", ids_and_states(&statuses));
        tokio::select! {
            changed = changes.changed() => changed.map_err(|_| failure(&JobError::Closed))?,
            stop = signals.recv() => {
                bar.clear();
                return Ok(WaitOutcome::Stopped(leave_running(&statuses, stop.unwrap_or(Stop::Terminate))));
            }
            () = past(deadline) => {
                bar.clear();
                // If their folder is gone, nobody knows whether they still run.
                let lost = open(&statuses).next().and_then(|record| engine.lost_sight_of(record.job_id));
                return lost.map_or(Ok(WaitOutcome::Late(statuses)), |error| Err(failure(&error)));
            }
        }
        for status in statuses.iter_mut().filter(|status| !has_ended(status)) {
            let seen = engine.status(status.record.job_id).await;
            *status = seen.map_err(|error| failure(&error.of_known()))?;
            if has_ended(status) {
                bar.aside(|| tell(status));
            }
        }
    }
}

async fn look(engine: &Engine, ids: &[JobId]) -> Result<Vec<JobStatus>, CommandFailure> {
    let mut statuses = Vec::with_capacity(ids.len());
    for id in ids {
        statuses.push(engine.status(*id).await.map_err(|error| failure(&error))?);
    }
    Ok(statuses)
}

pub(super) fn has_ended(status: &JobStatus) -> bool {
    status.record.status.is_final()
}

async fn past(deadline: Option<Deadline>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.instant()).await,
        None => std::future::pending().await,
    }
}

/// Tells which jobs go on without this command, and returns the exit code.
pub(super) fn leave_running(statuses: &[JobStatus], stop: Stop) -> u8 {
    let open: Vec<&str> = open(statuses).map(|record| record.job_id.as_str()).collect();
    let (ids, goes_on) = (open.join(" "), if open.len() == 1 { "continues" } else { "continue" });
    output::error(
        &format!("no longer waiting; {} {goes_on}: {ids}", counted(open.len(), "job")),
        Some(&format!("unhang job wait {ids}, or end with: unhang job cancel {ids}")),
    );
    stop.exit_code()
}
