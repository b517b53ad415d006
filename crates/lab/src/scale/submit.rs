//! The time of a submission, beside a bare durable `INSERT` of the same bytes on the same database.

use tokio_postgres::types::Type;
use unhang_zoo::scale::uptime;

use super::{
    Amounts,
    failure::ScaleFailure,
    milliseconds_since, quantile,
    report::{ScaleBar, ScaleFigure, ScaleUnit},
    rows::JobTemplate,
    sql::SqlClient,
    stage::{ScaleStage, StageClocks, StageProps, check_interrupted},
};

/// Submissions that are not counted, until connections and caches are warm.
const WARM_UP: usize = 50;

/// Measures both in turn.
pub(super) fn measure(props: &StageProps<'_>, amounts: &Amounts) -> Result<Vec<ScaleFigure>, ScaleFailure> {
    let stage = ScaleStage::set(props, "submit", StageClocks::Usual, (0, &[]))?;
    let template = JobTemplate::take(&stage)?;
    let (mut store, sql) = (stage.store()?, SqlClient::connect(&stage.database.url())?);
    sql.execute("CREATE TABLE plain (id text PRIMARY KEY, record text NOT NULL, orders text NOT NULL)")?;
    let (mut own, mut plain) = (Vec::new(), Vec::new());
    for turn in 0..WARM_UP + amounts.submissions {
        check_interrupted()?;
        let record = template.record()?;
        let begin = uptime();
        template.accept(&mut store, &record)?;
        let submitted = milliseconds_since(begin);
        let text = serde_json::to_string(&record).map_err(ScaleFailure::of("write a record"))?;
        let begin = uptime();
        sql.rows(
            "INSERT INTO plain VALUES ($1, $2, $3)",
            &[
                (&record.job_id.as_str(), Type::TEXT),
                (&text, Type::TEXT),
                (&template.orders.work, Type::TEXT),
            ],
        )?;
        if turn >= WARM_UP {
            own.push(submitted);
            plain.push(milliseconds_since(begin));
        }
    }
    let own = [0.5, 0.99].map(|share| quantile(&mut own, share));
    let plain = [0.5, 0.99].map(|share| quantile(&mut plain, share));
    let time = |measure: &str, value| ScaleFigure::new("submit", measure, ScaleUnit::Milliseconds, value);
    Ok(vec![
        ScaleFigure::new(
            "submit",
            "p50, as a multiple of a bare INSERT",
            ScaleUnit::Ratio,
            own[0] / plain[0],
        )
        .with_bar(ScaleBar::AtMost(2.0)),
        time("p99", own[1]).with_bar(ScaleBar::AtMost(20.0)),
        time("p50", own[0]),
        time("bare INSERT, p50", plain[0]),
        time("bare INSERT, p99", plain[1]),
    ])
}
