//! The time until a line of a job on a worker can be read elsewhere.

use std::time::{Duration, SystemTime};

use unhang::{
    jobs::{id::JobId, log::LogStream, shared_jobs::SharedJobs as _},
    postgres::PostgresJobs,
};
use unhang_zoo::scale::rest;

use super::{
    Amounts,
    failure::ScaleFailure,
    quantile,
    report::{ScaleBar, ScaleFigure, ScaleUnit},
    stage::{PATIENCE, ScaleStage, StageClocks, StageProps, until},
};

/// Between two lines. It has no divisor in common with the pauses of a worker.
const PAUSE: &str = "0.073";
/// Between two looks of the reader.
const LOOK: Duration = Duration::from_millis(10);
const PAGE: usize = 64 << 10;

/// Measures lines that name the time of their writing.
pub(super) fn measure(props: &StageProps<'_>, amounts: &Amounts) -> Result<Vec<ScaleFigure>, ScaleFailure> {
    let stage = ScaleStage::set(props, "logs", StageClocks::Usual, (1, &["--slots", "1"]))?;
    let id = JobId::random().map_err(ScaleFailure::of("draw an id"))?;
    let lines = amounts.lines;
    let script = format!("n=0; while [ $n -lt {lines} ]; do date +%s%N; sleep {PAUSE}; n=$((n + 1)); done");
    if !stage.submit(id, &[], &["sh", "-c", &script])? {
        return Err(ScaleFailure::new("a job was not accepted"));
    }
    let jobs = PostgresJobs::new(stage.address()?);
    let (mut offset, mut half, mut times) = (0, String::new(), Vec::new());
    let limit = PATIENCE + Duration::from_millis(100) * u32::try_from(lines).unwrap_or(u32::MAX);
    until("all lines are read", limit, || {
        let page = jobs.log_page(id, LogStream::Stdout, offset, PAGE, false);
        let page = page.map_err(ScaleFailure::of("read a log"))?;
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        offset = page.next_offset;
        half.push_str(&String::from_utf8_lossy(&page.text));
        while let Some(end) = half.find('\n') {
            let line: String = half.drain(..=end).collect();
            let written: u64 = line.trim_end().parse().map_err(ScaleFailure::of("read a line"))?;
            times.push(now.saturating_sub(Duration::from_nanos(written)).as_secs_f64() * 1000.0);
        }
        rest(LOOK);
        Ok((times.len() >= lines).then_some(()))
    })?;
    let figure = |measure: &str, value| ScaleFigure::new("logs", measure, ScaleUnit::Milliseconds, value);
    Ok(vec![
        figure("a line is readable elsewhere, p99", quantile(&mut times, 0.99))
            .with_bar(ScaleBar::AtMost(1000.0)),
        figure("the same, p50", quantile(&mut times, 0.5)),
    ])
}
