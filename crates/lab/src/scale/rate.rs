//! The rate of ten workers on sleeping work, beside that of one.

use unhang::jobs::{id::JobId, store::JobStore as _};

use super::{
    Amounts, count,
    failure::ScaleFailure,
    report::{ScaleBar, ScaleFigure, ScaleUnit},
    stage::{PATIENCE, ScaleStage, StageClocks, StageProps, until},
};

/// The workers that are compared with one.
const MANY: usize = 10;

/// Measures one worker, and then ten with ten times as many jobs.
pub(super) fn measure(props: &StageProps<'_>, amounts: &Amounts) -> Result<Vec<ScaleFigure>, ScaleFailure> {
    let one = rate(props, 1, amounts.jobs)?;
    let many = rate(props, MANY, MANY * amounts.jobs)?;
    let figure = |measure: &str, unit, value| ScaleFigure::new("rate", measure, unit, value);
    Ok(vec![
        figure("10 workers with sleeping work, as a multiple of one", ScaleUnit::Ratio, many / one)
            .with_bar(ScaleBar::AtLeast(9.0)),
        figure("one worker, jobs of 1 s", ScaleUnit::PerSecond, one),
        figure("10 workers, jobs of 1 s", ScaleUnit::PerSecond, many),
    ])
}

/// Returns the jobs a second of so many workers, from the first beginning to the last end.
fn rate(props: &StageProps<'_>, workers: usize, jobs: usize) -> Result<f64, ScaleFailure> {
    let name = format!("rate{workers}");
    let stage =
        ScaleStage::set(props, &name, StageClocks::Usual, (workers, &["--slots", "1", "--labels", "rate"]))?;
    stage.wait_for_workers(workers)?;
    let mut store = stage.store()?;
    let mut ids = Vec::new();
    for _ in 0..jobs {
        let id = JobId::random().map_err(ScaleFailure::of("draw an id"))?;
        // Nobody has this label until the whole queue is there.
        if !stage.submit(id, &["--labels", "later"], &["sleep", "1"])? {
            return Err(ScaleFailure::new("a job was not accepted"));
        }
        ids.push(id);
    }
    let sql = super::sql::SqlClient::connect(&stage.database.url())?;
    sql.execute("UPDATE unhang.jobs SET labels = array_replace(labels, 'later', 'rate')")?;
    let (mut first, mut last) = (u64::MAX, 0);
    for id in ids {
        let record = until("a job has ended", PATIENCE, || {
            let job = store.get(id).map_err(ScaleFailure::of("look at a job"))?;
            Ok(job.map(|job| job.record).filter(|record| record.status.is_final()))
        })?;
        let ends = record.ending.as_ref().map(|ending| ending.completed_at.millis());
        first = first.min(record.started_at.map_or(u64::MAX, |started| started.millis()));
        last = last.max(ends.unwrap_or(u64::MAX));
    }
    let length = u32::try_from(last.saturating_sub(first)).unwrap_or(u32::MAX);
    Ok(count(jobs) * 1000.0 / f64::from(length))
}
