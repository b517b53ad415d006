//! Claims of eight workers at the same time: the transaction alone, without a process.

use std::{collections::HashSet, thread};

use unhang::jobs::id::JobId;
use unhang_zoo::scale::uptime;

use super::{
    Amounts, count,
    failure::ScaleFailure,
    milliseconds_since, quantile,
    report::{ScaleBar, ScaleFigure, ScaleUnit},
    rows::{JobTemplate, claimant},
    sql::SqlClient,
    stage::{ScaleStage, StageClocks, StageProps, check_interrupted},
};

const WORKERS: usize = 8;
/// The jobs that a worker takes before another one comes in its place: each claim counts the jobs of its worker.
const OF_ONE: usize = 16;

/// Claims all jobs of a queue.
pub(super) fn measure(props: &StageProps<'_>, amounts: &Amounts) -> Result<Vec<ScaleFigure>, ScaleFailure> {
    let stage = ScaleStage::set(props, "claims", StageClocks::Usual, (0, &[]))?;
    let template = JobTemplate::take(&stage)?;
    let sql = SqlClient::connect(&stage.database.url())?;
    let jobs = u64::try_from(amounts.claims).unwrap_or(u64::MAX);
    template.fill_queue(&mut stage.store()?, &sql, jobs)?;
    let waiting = sql.number("SELECT count(*) FROM unhang.jobs WHERE state = 'queued'")?;
    let begin = uptime();
    let claimed = thread::scope(|scope| {
        let (stage, template) = (&stage, &template);
        let threads: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || claim_all(stage, template, worker))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    let seconds = milliseconds_since(begin) / 1000.0;
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    for thread in claimed {
        let (claimed, took) = thread.map_err(|_| ScaleFailure::new("a claiming thread panicked"))??;
        ids.extend(claimed);
        times.extend(took);
    }
    let different: HashSet<JobId> = ids.iter().copied().collect();
    let again = sql.number("SELECT count(*) FROM unhang.jobs WHERE claims > 1")?;
    let twice = count(ids.len() - different.len()) + again;
    let missed = waiting - count(different.len());
    let figure = |measure: &str, unit, value| ScaleFigure::new("claims", measure, unit, value);
    Ok(vec![
        figure("8 workers", ScaleUnit::PerSecond, count(ids.len()) / seconds)
            .with_bar(ScaleBar::AtLeast(500.0)),
        figure(&format!("of {waiting:.0} jobs, claimed twice"), ScaleUnit::Count, twice)
            .with_bar(ScaleBar::AtMost(0.0)),
        figure("not claimed", ScaleUnit::Count, missed).with_bar(ScaleBar::AtMost(0.0)),
        figure("one claim, p50", ScaleUnit::Milliseconds, quantile(&mut times, 0.5)),
        figure("one claim, p99", ScaleUnit::Milliseconds, quantile(&mut times, 0.99)),
    ])
}

/// Claims until there is no job. Returns the jobs, and the time of each claim.
fn claim_all(
    stage: &ScaleStage,
    template: &JobTemplate,
    worker: usize,
) -> Result<(Vec<JobId>, Vec<f64>), ScaleFailure> {
    let mut store = stage.store()?;
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    loop {
        check_interrupted()?;
        let turn = ids.len();
        let claimant =
            claimant(&format!("worker-{worker}-{}", turn / OF_ONE), &format!("token-{worker}-{turn}"));
        let begin = uptime();
        let Some(record) = template.claim(&mut store, &claimant)? else { return Ok((ids, times)) };
        times.push(milliseconds_since(begin));
        ids.push(record.job_id);
    }
}
