//! Functions of servers in Python and TypeScript as jobs: the measures, the bars, and the report.

use serde_json::json;
use unhang_terminal::progress;
use unhang_zoo::load::{FunctionLanguage, FunctionPlan, FunctionRound, measure_functions, median};

use super::{
    data_folder::in_data_folder,
    measures::{
        BarLimit, Baseline, Measure, MeasuredSubject, compare, highest, judge, milliseconds, show_mebibytes,
        show_milliseconds,
    },
    report::{MeasuredPart, WayReport, rows},
};
use crate::{arguments::BenchArguments, product::MeasuredPrograms};

fn show_count(value: f64) -> String {
    format!("{value:.0}")
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// All rows, in the order of the table.
const MEASURES: [Measure<FunctionRound>; 8] = [
    Measure {
        key: "submit_p50_ms",
        title: "id of a call, p50",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.submit_p50)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(40.0))),
    },
    Measure {
        key: "submit_p99_ms",
        title: "id of a call, p99",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.submit_p99)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(100.0))),
    },
    Measure {
        key: "first_ms",
        title: "id of the first call",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.first)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "memory_bytes",
        title: "memory of five tools",
        show: show_mebibytes,
        of: |round| Some(round.added_bytes),
        over_rounds: highest,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(5.0 * 1_048_576.0))),
    },
    Measure {
        key: "killed_called",
        title: "server killed: calls",
        show: show_count,
        of: |round| Some(count(round.called)),
        over_rounds: highest,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "killed_answered",
        title: "  answered with an id",
        show: show_count,
        of: |round| Some(count(round.answered)),
        over_rounds: highest,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "killed_lost",
        title: "  lost",
        show: show_count,
        of: |round| Some(count(round.lost)),
        over_rounds: highest,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::Exactly(0.0))),
    },
    Measure {
        key: "killed_twice",
        title: "  run twice",
        show: show_count,
        of: |round| Some(count(round.twice)),
        over_rounds: highest,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::Exactly(0.0))),
    },
];

/// Measures functions of the languages that the arguments name.
///
/// # Errors
///
/// Fails with the exit code if they cannot be measured.
pub(super) fn measure(programs: &MeasuredPrograms, bench: &BenchArguments) -> Result<MeasuredPart, u8> {
    let plan = if bench.quick { FunctionPlan::QUICK } else { FunctionPlan::FULL };
    let languages: Vec<FunctionLanguage> = bench
        .python
        .clone()
        .map(FunctionLanguage::Python)
        .into_iter()
        .chain(bench.node_modules.clone().map(FunctionLanguage::TypeScript))
        .collect();
    let figures = in_data_folder("functions", bench.home.as_deref(), |folder| {
        measure_functions(programs.of_load(), &languages, folder, &plan, progress::show)
    })?;
    let names: Vec<&str> = languages.iter().map(FunctionLanguage::name).collect();
    Ok(assemble(&names, &figures, &plan))
}

fn assemble(names: &[&str], figures: &[FunctionRound], plan: &FunctionPlan) -> MeasuredPart {
    let ways: Vec<WayReport> = names
        .iter()
        .zip(figures)
        .map(|(name, figures)| WayReport {
            name: (*name).to_owned(),
            command: None,
            measures: compare(&MEASURES, &[*figures], &[], &[]),
        })
        .collect();
    let judged = |way: &WayReport| {
        judge(&MEASURES, &way.measures).into_iter().map(|bar| bar.of(&way.name)).collect::<Vec<_>>()
    };
    let bars = ways.iter().flat_map(judged).collect();
    let notes = vec![
        format!("A server with the package of its language, {} calls over pipes, one after the", plan.calls),
        "other. Memory: that of the server with five job tools, less that of one without.".to_owned(),
        format!("Killed: {} rounds with SIGKILL while the server starts four jobs.", plan.kills),
    ];
    let plan = json!({ "calls": plan.calls, "kills": plan.kills });
    MeasuredPart { name: "functions", plan, rows: rows(&MEASURES), ways, bars, notes }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn missed(round: FunctionRound) -> Vec<&'static str> {
        let part = assemble(&["python"], &[round], &FunctionPlan::QUICK);
        part.bars.iter().filter(|bar| !bar.met).map(|bar| bar.measure).collect()
    }

    #[test]
    fn each_bar_is_met_at_its_edge_and_missed_beyond() {
        let at = FunctionRound {
            first: Duration::from_secs(1),
            submit_p50: Duration::from_millis(40),
            submit_p99: Duration::from_millis(100),
            added_bytes: 5_242_880.0,
            called: 12,
            answered: 8,
            lost: 0,
            twice: 0,
        };
        assert_eq!(missed(at), [] as [&str; 0]);
        let late = Duration::from_micros(100_001);
        assert_eq!(
            missed(FunctionRound { submit_p50: late, submit_p99: late, ..at }),
            ["submit_p50_ms", "submit_p99_ms"]
        );
        assert_eq!(missed(FunctionRound { added_bytes: 5_242_881.0, ..at }), ["memory_bytes"]);
        assert_eq!(missed(FunctionRound { lost: 1, ..at }), ["killed_lost"]);
        assert_eq!(missed(FunctionRound { twice: 1, ..at }), ["killed_twice"]);
    }
}
