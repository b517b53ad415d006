//! Submissions and claims beside many jobs that have ended.

use unhang::postgres::PostgresStore;
use unhang_zoo::scale::uptime;

use super::{
    Amounts,
    failure::ScaleFailure,
    milliseconds_since, quantile,
    report::{ScaleBar, ScaleFigure, ScaleUnit},
    rows::{JobTemplate, claimant, finish},
    sql::SqlClient,
    stage::{ScaleStage, StageClocks, StageProps, address, check_interrupted},
};

/// The ended jobs of the database that is compared with.
const FEW: u64 = 1_000;
/// Turns that are not counted.
const WARM_UP: usize = 20;

/// One of the two databases, with the times that were measured there.
struct FilledDatabase {
    store: PostgresStore,
    submissions: Vec<f64>,
    claims: Vec<f64>,
}

/// Measures in two databases of one server, in turn.
pub(super) fn measure(props: &StageProps<'_>, amounts: &Amounts) -> Result<Vec<ScaleFigure>, ScaleFailure> {
    let stage = ScaleStage::set(props, "finished", StageClocks::Usual, (0, &[]))?;
    let template = JobTemplate::take(&stage)?;
    let mut few = FilledDatabase::make(&stage, &template, "few", FEW)?;
    let mut many = FilledDatabase::make(&stage, &template, "many", amounts.finished)?;
    for turn in 0..WARM_UP + amounts.turns {
        check_interrupted()?;
        // The first of two has the checkpoint or the noise as often as the second.
        if turn % 2 == 0 {
            few.turn(&template, turn)?;
            many.turn(&template, turn)?;
        } else {
            many.turn(&template, turn)?;
            few.turn(&template, turn)?;
        }
    }
    let ratio = |measure: &str, ratio| {
        let measure = format!("{measure} with {} ended jobs, as a multiple of {FEW}", amounts.finished);
        ScaleFigure::new("finished", measure, ScaleUnit::Ratio, ratio).with_bar(ScaleBar::AtMost(1.2))
    };
    let time = |measure: &str, value| ScaleFigure::new("finished", measure, ScaleUnit::Milliseconds, value);
    let [submit_few, submit_many] =
        [&mut few.submissions, &mut many.submissions].map(|times| quantile(times, 0.5));
    let [claim_few, claim_many] = [&mut few.claims, &mut many.claims].map(|times| quantile(times, 0.5));
    Ok(vec![
        ratio("submit", submit_many / submit_few),
        ratio("claim", claim_many / claim_few),
        time("submit, p50, many", submit_many),
        time("claim, p50, many", claim_many),
    ])
}

impl FilledDatabase {
    fn make(
        stage: &ScaleStage,
        template: &JobTemplate,
        name: &str,
        count: u64,
    ) -> Result<Self, ScaleFailure> {
        SqlClient::connect(&stage.database.url())?.execute(&format!("CREATE DATABASE {name}"))?;
        let url = stage.database.url().replace("/postgres?", &format!("/{name}?"));
        let mut store =
            PostgresStore::open(address(&url)?).map_err(ScaleFailure::of("connect to the store"))?;
        let sql = SqlClient::connect(&url)?;
        template.fill_finished(&mut store, &sql, count)?;
        sql.execute("VACUUM ANALYZE")?;
        sql.execute("CHECKPOINT")?;
        Ok(Self { store, submissions: Vec::new(), claims: Vec::new() })
    }

    /// Submits, claims and ends a job.
    fn turn(&mut self, template: &JobTemplate, turn: usize) -> Result<(), ScaleFailure> {
        let record = template.record()?;
        let begin = uptime();
        template.accept(&mut self.store, &record)?;
        let submitted = milliseconds_since(begin);
        let claimant = claimant("worker", &format!("token-{turn}"));
        let begin = uptime();
        let claimed = template.claim(&mut self.store, &claimant)?;
        let took = milliseconds_since(begin);
        if turn >= WARM_UP {
            self.submissions.push(submitted);
            self.claims.push(took);
        }
        let claimed = claimed.filter(|claimed| claimed.job_id == record.job_id);
        finish(
            &mut self.store,
            claimed.ok_or_else(|| ScaleFailure::new("another job was claimed"))?,
            &claimant,
        )
    }
}
