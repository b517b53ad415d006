//! The database is away for longer than a lease: what became of jobs that do not repeat.

use std::time::Duration;

use unhang::jobs::{id::JobId, record::JobState, store::JobStore as _};
use unhang_zoo::scale::{WorkObserver, rest, uptime};

use super::{
    failure::ScaleFailure,
    report::{ScaleBar, ScaleFigure, ScaleUnit},
    stage::{PATIENCE, ScaleStage, StageClocks, StageProps, check_interrupted, until, work},
};

/// The time for which the database is away.
const AWAY: Duration = Duration::from_secs(40);
/// The lengths of the work: some of it ends while nobody can be told.
const WORK: [u64; 6] = [8, 15, 30, 41, 42, 43];

/// Measures with the usual leases.
pub(super) fn measure(
    props: &StageProps<'_>,
    observer: &WorkObserver,
) -> Result<(Vec<ScaleFigure>, Vec<String>), ScaleFailure> {
    let mut stage = ScaleStage::set(props, "outage", StageClocks::Usual, (3, &["--slots", "4"]))?;
    stage.wait_for_workers(3)?;
    let mut jobs = Vec::new();
    for seconds in WORK {
        let (id, length) =
            (JobId::random().map_err(ScaleFailure::of("draw an id"))?, Duration::from_secs(seconds));
        let words = work(id.as_str(), length, 0);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if !stage.submit(id, &[], &words)? {
            return Err(ScaleFailure::new("a job before the outage was not accepted"));
        }
        jobs.push((id, length));
    }
    until("all work has begun", PATIENCE, || {
        Ok(jobs.iter().all(|(id, _)| !observer.attempts(id.as_str()).is_empty()).then_some(()))
    })?;
    stage.database.kill().map_err(ScaleFailure::of("kill the database"))?;
    let end = uptime() + AWAY;
    while uptime() < end {
        check_interrupted()?;
        rest(Duration::from_millis(100));
    }
    stage.database.resume().map_err(ScaleFailure::of("start the database again"))?;
    let mut store = stage.store()?;
    let mut flaws = Vec::new();
    let (mut killed, mut not_completed) = (0, 0);
    for (id, length) in jobs {
        let found = until("a job has ended", PATIENCE, || {
            let job = store.get(id).map_err(ScaleFailure::of("look at a job"))?;
            Ok(job.filter(|job| job.record.status.is_final()))
        });
        let attempts = observer.attempts(id.as_str());
        let is_whole = attempts.len() == 1
            && attempts[0].ended_by.is_some_and(|ended| ended.saturating_sub(attempts[0].alive_at) < length)
            && attempts[0].alive_at.saturating_sub(attempts[0].began_by) + Duration::from_millis(250)
                >= length;
        if !is_whole {
            killed += 1;
            flaws.push(format!("outage: the work of job {id} was killed, or began twice: {attempts:?}"));
        }
        let state = found.map(|job| job.record.status);
        if !matches!(state, Ok(JobState::Completed)) {
            not_completed += 1;
            flaws.push(format!("outage: job {id} did not complete: {state:?}"));
        }
    }
    let figure = |measure: &str, count: i32| {
        ScaleFigure::new("outage", measure, ScaleUnit::Count, f64::from(count))
            .with_bar(ScaleBar::AtMost(0.0))
    };
    let figures = vec![
        figure("of 6 jobs that do not repeat, killed in 40 s without database", killed),
        figure("of the same, lost or not completed", not_completed),
    ];
    Ok((figures, flaws))
}
