//! The command line beside the bare start of a server: the measures, the bars, and the report.
//!
//! Invariant: the bench measures whole processes, as a script sees them.

use serde_json::json;
use unhang::exit;
use unhang_terminal::{output, progress};
use unhang_zoo::load::{CommandFigures, CommandPlan, CommandRound, measure_commands, median};

use super::{
    measures::{
        BarLimit, Baseline, Measure, MeasuredSubject, compare, judge, milliseconds, show_milliseconds,
    },
    report::{MeasuredPart, WayReport, rows},
};
use crate::{arguments::BenchArguments, product::MeasuredPrograms};

/// All rows, in the order of the table.
const MEASURES: [Measure<CommandRound>; 5] = [
    Measure {
        key: "call_ms",
        title: "one call",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.call)),
        over_rounds: median,
        beside: Baseline::Direct,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtMost(15.0))),
    },
    Measure {
        key: "batch_lines_per_second",
        title: "batch, 32 at once",
        show: |value| format!("{:.1} k/s", value / 1e3),
        of: |round| round.lines_per_second,
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtLeast(20_000.0))),
    },
    Measure {
        key: "end_ms",
        title: "last answer to exit",
        show: show_milliseconds,
        of: |round| round.end.map(milliseconds),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(100.0))),
    },
    Measure {
        key: "end_ignoring_ms",
        title: "server ignores everything",
        show: show_milliseconds,
        of: |round| round.end_ignoring.map(milliseconds),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(3_000.0))),
    },
    Measure {
        key: "end_three_ignoring_ms",
        title: "three of them",
        show: show_milliseconds,
        of: |round| round.end_three.map(milliseconds),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(5_000.0))),
    },
];

/// Measures the commands.
///
/// # Errors
///
/// Fails with the exit code if the commands cannot be measured.
pub(super) fn measure(programs: &MeasuredPrograms, bench: &BenchArguments) -> Result<MeasuredPart, u8> {
    let plan = if bench.quick { CommandPlan::QUICK } else { CommandPlan::FULL };
    let outcome = measure_commands(programs.of_load(), &plan, |round| {
        progress::show(&format!("the command line, round {round} of {} ", plan.rounds));
    });
    progress::end();
    match outcome {
        Ok(figures) => Ok(assemble(&figures, &plan)),
        Err(error) => {
            output::error(&format!("the command line could not be measured: {error}"), None);
            Err(exit::UNREACHABLE)
        }
    }
}

fn assemble(figures: &CommandFigures, plan: &CommandPlan) -> MeasuredPart {
    let CommandFigures { direct, commands } = figures;
    let way = |name: &str, rounds: &[CommandRound]| WayReport {
        name: name.to_owned(),
        command: None,
        measures: compare(&MEASURES, rounds, direct, direct),
    };
    let ways = vec![way("direct", direct), way("unhang", commands)];
    let bars = judge(&MEASURES, &ways[1].measures);
    let notes = vec![
        "direct: from the spawn of the server to its answer to `initialize`. In brackets:".to_owned(),
        "milliseconds more. Whole processes: `unhang call`, and `unhang batch` with".to_owned(),
        format!(
            "{} lines. Medians of {} rounds; servers that ignore everything once.",
            plan.lines, plan.rounds
        ),
    ];
    let plan = json!({"rounds": plan.rounds, "lines": plan.lines, "at_once": plan.at_once});
    MeasuredPart { name: "commands", plan, rows: rows(&MEASURES), ways, bars, notes }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A round in which everything is exactly at its bar.
    fn at_the_bar() -> CommandRound {
        let millis = Duration::from_millis;
        CommandRound {
            call: millis(17),
            lines_per_second: Some(20_000.0),
            end: Some(millis(100)),
            end_ignoring: Some(millis(3_000)),
            end_three: Some(millis(5_000)),
        }
    }

    fn missed(round: CommandRound) -> Vec<&'static str> {
        let none =
            CommandRound { lines_per_second: None, end: None, end_ignoring: None, end_three: None, ..round };
        let direct = vec![CommandRound { call: Duration::from_millis(2), ..none }];
        let part = assemble(&CommandFigures { direct, commands: vec![round] }, &CommandPlan::QUICK);
        assert_eq!(part.bars.len(), 5);
        part.bars.iter().filter(|bar| !bar.met).map(|bar| bar.measure).collect()
    }

    #[test]
    fn each_bar_is_met_at_its_edge_and_missed_beyond() {
        let bar = at_the_bar();
        assert_eq!(missed(bar), [] as [&str; 0]);
        let more = |time: Option<Duration>| time.map(|time| time + Duration::from_millis(1));
        for (measure, round) in [
            ("call_ms", CommandRound { call: bar.call + Duration::from_millis(1), ..bar }),
            ("batch_lines_per_second", CommandRound { lines_per_second: Some(19_999.0), ..bar }),
            ("end_ms", CommandRound { end: more(bar.end), ..bar }),
            ("end_ignoring_ms", CommandRound { end_ignoring: more(bar.end_ignoring), ..bar }),
            ("end_three_ignoring_ms", CommandRound { end_three: None, ..bar }),
        ] {
            assert_eq!(missed(round), [measure]);
        }
    }
}
