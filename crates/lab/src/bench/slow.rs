//! Calls that become jobs, beside calls that never do: the measures, the bars, and the report.

use serde_json::json;
use unhang_terminal::progress;
use unhang_zoo::load::{SlowFigures, SlowPlan, SlowRound, measure_slow, median};

use super::{
    data_folder::in_data_folder,
    measures::{
        BarLimit, Baseline, Measure, MeasuredSubject, bytes, compare, judge, microseconds, milliseconds,
        show_mebibytes, show_microseconds, show_milliseconds,
    },
    report::{MeasuredPart, WayReport, rows},
};
use crate::{arguments::BenchArguments, product::MeasuredPrograms};

/// All rows, in the order of the table.
const MEASURES: [Measure<SlowRound>; 6] = [
    Measure {
        key: "added_p50_ms",
        title: "added at the hand-over, p50",
        show: show_milliseconds,
        of: |round| round.promoted.map(|promoted| milliseconds(promoted.added_p50)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(5.0))),
    },
    Measure {
        key: "added_p99_ms",
        title: "added at the hand-over, p99",
        show: show_milliseconds,
        of: |round| round.promoted.map(|promoted| milliseconds(promoted.added_p99)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "crowd_p99_ms",
        title: "many at the same moment, p99",
        show: show_milliseconds,
        of: |round| round.promoted.map(|promoted| milliseconds(promoted.many_p99)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "call_bytes",
        title: "memory of each of them",
        show: |value| format!("{:.1} KiB", value / 1024.0),
        of: |round| round.promoted.map(|promoted| promoted.call_bytes),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(20.0 * 1024.0))),
    },
    Measure {
        key: "holder_bytes",
        title: "call holder at rest",
        show: show_mebibytes,
        of: |round| round.promoted.map(|promoted| bytes(promoted.holder_bytes)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(3.0 * 1_048_576.0))),
    },
    Measure {
        key: "round_trip_p50_us",
        title: "answered in time, p50",
        show: show_microseconds,
        of: |round| Some(microseconds(round.round_trip_p50)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtMost(1.03))),
    },
];

/// Measures slow calls.
///
/// # Errors
///
/// Fails with the exit code if slow calls cannot be measured.
pub(super) fn measure(programs: &MeasuredPrograms, bench: &BenchArguments) -> Result<MeasuredPart, u8> {
    let plan = if bench.quick { SlowPlan::QUICK } else { SlowPlan::FULL };
    let figures = in_data_folder("slow calls", bench.home.as_deref(), |folder| {
        measure_slow(programs.of_load(), folder, &plan, progress::show)
    })?;
    Ok(assemble(&figures, &plan))
}

fn assemble(figures: &SlowFigures, plan: &SlowPlan) -> MeasuredPart {
    let SlowFigures { never, by_clock, guarded: [guarded_never, guarded] } = figures;
    let way = |name: &str, rounds: &[SlowRound], floor: &[SlowRound]| WayReport {
        name: name.to_owned(),
        command: None,
        measures: compare(&MEASURES, rounds, floor, floor),
    };
    let ways = vec![way("serve", by_clock, never), way("wrap", guarded, guarded_never)];
    let judged = |way: &WayReport| {
        judge(&MEASURES, &way.measures).into_iter().map(|bar| bar.of(&way.name)).collect::<Vec<_>>()
    };
    let bars = ways.iter().flat_map(judged).collect();
    let notes = vec![
        "Through `unhang serve` and `unhang wrap` over pipes. In brackets: times the floor,".to_owned(),
        "which is the same with promote-after off. Added at the hand-over: from".to_owned(),
        format!(
            "the moment of the hand-over until its client has the id, {} calls {} ms apart.",
            plan.calls,
            plan.gap.as_millis()
        ),
        format!(
            "Many: {} calls that run as jobs. Answered in time: medians of {} rounds",
            plan.at_once, plan.rounds
        ),
        "with all processes on one processor.".to_owned(),
    ];
    let plan = json!({"calls": plan.calls, "gap_ms": milliseconds(plan.gap), "at_once": plan.at_once,
        "rounds": plan.rounds, "round_trips": plan.round_trips});
    MeasuredPart { name: "slow", plan, rows: rows(&MEASURES), ways, bars, notes }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unhang_zoo::load::PromotedUse;

    use super::{super::measures::MeasuredBar, *};

    /// What is exactly at its bar.
    const AT: PromotedUse = PromotedUse {
        added_p50: Duration::from_millis(5),
        added_p99: Duration::from_secs(1),
        many_p99: Duration::from_secs(1),
        call_bytes: 20_480.0,
        holder_bytes: 3 << 20,
    };

    /// The bars that are missed by rounds of which the first one promotes; half of the floor's calls take 200 µs.
    fn missed(promoted: Option<PromotedUse>, round_trips: [u64; 3]) -> Vec<&'static str> {
        let of = |micros| SlowRound { promoted: None, round_trip_p50: Duration::from_micros(micros) };
        let mut by_clock = round_trips.map(of).to_vec();
        by_clock[0].promoted = promoted;
        let never = vec![of(200); 3];
        let guarded = [never.clone(), by_clock.clone()];
        let part = assemble(&SlowFigures { never, by_clock, guarded }, &SlowPlan::QUICK);
        let missed = |bars: &[MeasuredBar]| -> Vec<_> {
            bars.iter().filter(|bar| !bar.met).map(|bar| bar.measure).collect()
        };
        let (serve, wrap) = part.bars.split_at(4);
        assert_eq!(missed(serve), missed(wrap), "both are held to them");
        missed(serve)
    }

    #[test]
    fn each_bar_is_met_at_its_edge_and_missed_beyond() {
        let at = [206; 3];
        assert_eq!(missed(Some(AT), at), [] as [&str; 0]);
        let late = PromotedUse { added_p50: Duration::from_micros(5_001), ..AT };
        assert_eq!(missed(Some(late), at), ["added_p50_ms"]);
        assert_eq!(missed(Some(PromotedUse { call_bytes: 20_481.0, ..AT }), at), ["call_bytes"]);
        let heavy = PromotedUse { holder_bytes: (3 << 20) + 1, ..AT };
        assert_eq!(missed(Some(heavy), at), ["holder_bytes"]);
        assert_eq!(missed(Some(AT), [207; 3]), ["round_trip_p50_us"]);
        assert_eq!(missed(Some(AT), [190, 206, 300]), [] as [&str; 0], "the round in the middle counts");
        let all = ["added_p50_ms", "call_bytes", "holder_bytes"];
        assert_eq!(missed(None, at), all, "what was not measured is missed");
    }
}
