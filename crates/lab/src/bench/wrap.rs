//! The guard beside the bare server and two `cat`s: the measures, the bars, and the report.
//!
//! Invariant: only `unhang wrap` has bars. A peer is shown beside it, without a verdict.

use serde_json::json;
use unhang::exit;
use unhang_terminal::{output, progress};
use unhang_zoo::load::{self, LoadPlan, LoadRound, LoadRoute, median};

use super::{
    measures::{
        BarLimit, Baseline, Measure, MeasuredSubject, bytes, compare, highest, judge, microseconds,
        milliseconds, show_mebibytes, show_microseconds, show_milliseconds,
    },
    report::{MeasuredPart, PEER, WayReport, peer_notes, rows},
};
use crate::{arguments::BenchArguments, product::MeasuredPrograms};

/// The places, in the order of [`ways`], of the ways that others are compared with.
const DIRECT: usize = 0;
const FLOOR: usize = 1;
/// The place of the way that has bars.
const GUARD: usize = 2;

/// All rows, in the order of the table.
const MEASURES: [Measure<LoadRound>; 8] = [
    Measure {
        key: "round_trip_p50_us",
        title: "round trip, p50",
        show: show_microseconds,
        of: |round| Some(microseconds(round.round_trip_p50)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtMost(1.3))),
    },
    Measure {
        key: "round_trip_p99_us",
        title: "round trip, p99",
        show: show_microseconds,
        of: |round| Some(microseconds(round.round_trip_p99)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: None,
    },
    Measure {
        key: "calls_per_second",
        title: "64 in flight",
        show: |value| format!("{:.1} k/s", value / 1e3),
        of: |round| Some(round.calls_per_second),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtLeast(0.85))),
    },
    Measure {
        key: "bytes_per_second",
        title: "10 MB results",
        show: |value| format!("{:.0} MB/s", value / 1e6),
        of: |round| Some(round.bytes_per_second),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtLeast(0.7))),
    },
    Measure {
        key: "start_ms",
        title: "start",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.start)),
        over_rounds: median,
        beside: Baseline::Direct,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtMost(15.0))),
    },
    Measure {
        key: "stop_ms",
        title: "stop",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.stop)),
        over_rounds: median,
        beside: Baseline::Direct,
        bar: None,
    },
    Measure {
        key: "memory_bytes",
        title: "memory added",
        show: show_mebibytes,
        of: |round| Some(bytes(round.memory)),
        over_rounds: highest,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(12.0 * 1_048_576.0))),
    },
    Measure {
        key: "processor_us_per_call",
        title: "processor a call",
        show: show_microseconds,
        of: |round| round.processor.map(microseconds),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: None,
    },
];

/// Measures all ways, and reports failures at once. Returns the part, and whether all ways could be measured.
///
/// # Errors
///
/// Fails with the exit code if there is nothing to compare with.
pub(super) fn measure(
    programs: &MeasuredPrograms,
    bench: &BenchArguments,
) -> Result<(MeasuredPart, bool), u8> {
    let server = [programs.lab(), "zoo", "echoes"].map(str::to_owned);
    let ways = ways(programs.unhang(), bench);
    let plan = if bench.quick { LoadPlan::QUICK } else { LoadPlan::FULL };
    let only_ways: Vec<LoadRoute> = ways.iter().map(|(_, way)| way.clone()).collect();
    let outcomes = load::measure(&server, &only_ways, &plan, |round| {
        progress::show(&format!("the guard, round {round} of {} ", plan.rounds));
    });
    progress::end();
    let mut measured: Vec<(&str, &LoadRoute, Vec<LoadRound>)> = Vec::new();
    for (index, ((name, way), outcome)) in ways.iter().zip(outcomes).enumerate() {
        match outcome {
            Ok(rounds) => measured.push((name, way, rounds)),
            Err(error) => {
                let hint = Some("try the command by hand, with a server's command after it")
                    .filter(|_| index > GUARD);
                output::error(&format!("{name} could not be measured: {error}"), hint);
            }
        }
    }
    if ways.iter().take(GUARD + 1).any(|(name, _)| measured.iter().all(|(known, ..)| known != name)) {
        return Err(exit::UNREACHABLE);
    }
    Ok((assemble(&measured, plan), measured.len() == ways.len()))
}

fn assemble(measured: &[(&str, &LoadRoute, Vec<LoadRound>)], plan: LoadPlan) -> MeasuredPart {
    let (direct, floor) = (&measured[DIRECT].2, &measured[FLOOR].2);
    let mut notes = vec![
        "floor: through `cat` on both sides. In brackets: times the floor; for start and".to_owned(),
        "stop, ms more than direct.".to_owned(),
        format!(
            "Medians of {} rounds, of memory the highest. Memory and processor: what the way",
            plan.rounds
        ),
        "adds; one call at a time.".to_owned(),
    ];
    let ways: Vec<WayReport> = measured
        .iter()
        .map(|(name, way, rounds)| WayReport {
            name: (*name).to_owned(),
            command: match way {
                LoadRoute::Through(command) => Some(command.clone()),
                LoadRoute::Direct | LoadRoute::Cats => None,
            },
            measures: compare(&MEASURES, rounds, direct, floor),
        })
        .collect();
    notes.extend(peer_notes(&ways));
    let bars = judge(&MEASURES, &ways[GUARD].measures);
    let plan = json!({"rounds": plan.rounds, "round_trips": plan.round_trips, "calls": plan.calls,
        "in_flight": plan.in_flight, "large_results": plan.large_results, "large_bytes": plan.large_bytes,
        "starts": plan.starts});
    MeasuredPart { name: "wrap", plan, rows: rows(&MEASURES), ways, bars, notes }
}

fn ways(unhang: &str, bench: &BenchArguments) -> Vec<(String, LoadRoute)> {
    let guard = [unhang, "wrap", "--name", "bench", "--"].map(str::to_owned).to_vec();
    let mut ways = vec![
        ("direct".to_owned(), LoadRoute::Direct),
        ("floor".to_owned(), LoadRoute::Cats),
        ("wrap".to_owned(), LoadRoute::Through(guard)),
    ];
    let peers = bench.peer.iter().enumerate();
    ways.extend(
        peers.map(|(index, peer)| (format!("{PEER} {}", index + 1), LoadRoute::Through(peer.0.clone()))),
    );
    ways
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::measures::Value;

    /// A round whose times are multiples of a unit and whose rates are fractions of one.
    fn round(slow: u64) -> LoadRound {
        let rate = 1e6 / bytes(slow);
        LoadRound {
            round_trip_p50: Duration::from_micros(10 * slow),
            round_trip_p99: Duration::from_micros(100 * slow),
            calls_per_second: rate,
            bytes_per_second: rate,
            start: Duration::from_millis(5 * slow),
            stop: Duration::from_millis(slow),
            memory: slow << 20,
            processor: Some(Duration::from_micros(slow)),
        }
    }

    fn value<'a>(values: &'a [Option<Value>], key: &str) -> &'a Value {
        let index = MEASURES.iter().position(|measure| measure.key == key).expect("a measure");
        values[index].as_ref().expect("a value")
    }

    fn close(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-6)
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        // The second round was ten times as slow for everybody; the ratio does not notice.
        let own = [round(4), round(40), round(4)];
        let floor = [round(2), round(20), round(2)];
        let direct = [round(1), round(10), round(1)];
        let values = compare(&MEASURES, &own, &direct, &floor);
        assert!(close(value(&values, "round_trip_p50_us").ratio_to_floor, 2.0));
        assert!(close(value(&values, "calls_per_second").ratio_to_floor, 0.5));
        assert!(close(Some(value(&values, "round_trip_p50_us").value), 40.0));
        assert!(close(value(&values, "start_ms").added_to_direct, 15.0));
        assert!(
            close(Some(value(&values, "memory_bytes").value), bytes(40 << 20)),
            "the peak is the highest"
        );
    }

    #[test]
    fn what_cannot_be_measured_or_divided_is_left_out() {
        let untold = LoadRound { processor: None, ..round(1) };
        assert_eq!(compare(&MEASURES, &[untold], &[untold], &[untold]).last(), Some(&None));
        let zero = LoadRound { processor: Some(Duration::ZERO), ..round(1) };
        let values = compare(&MEASURES, &[round(1)], &[round(1)], &[zero]);
        assert_eq!(value(&values, "processor_us_per_call").ratio_to_floor, None);
    }

    #[test]
    fn bars_are_met_up_to_their_edge_and_missed_beyond() {
        let floor = [round(10)];
        let judge_against =
            |own: LoadRound| judge(&MEASURES, &compare(&MEASURES, &[own], &[round(7)], &floor));
        let missed = |own: LoadRound| -> Vec<&str> {
            judge_against(own).iter().filter(|bar| !bar.met).map(|bar| bar.measure).collect()
        };
        assert_eq!(judge_against(round(10)).len(), 5);
        assert_eq!(missed(round(10)), [] as [&str; 0]);
        assert_eq!(missed(round(11)), ["start_ms"], "20 ms added");
        assert_eq!(missed(round(12)), ["calls_per_second", "start_ms"], "0.83");
        let slow = ["round_trip_p50_us", "calls_per_second", "bytes_per_second", "start_ms", "memory_bytes"];
        assert_eq!(missed(round(20)), slow);
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        let nothing: Vec<_> = MEASURES.iter().map(|_| None).collect();
        let bars = judge(&MEASURES, &nothing);
        assert!(bars.iter().all(|bar| !bar.met && bar.measured.is_none()), "{bars:?}");
    }

    #[test]
    fn a_bar_says_what_it_is_about() {
        let bars = judge(&MEASURES, &compare(&MEASURES, &[round(20)], &[round(1)], &[round(10)]));
        assert_eq!(bars[0].to_string(), "round trip, p50: 2.00 x floor, the bar is ≤ 1.30 x floor");
        assert_eq!(bars[3].to_string(), "start: +95.0 ms, the bar is ≤ +15.0 ms");
        assert_eq!(bars[4].to_string(), "memory added: 20.0 MiB, the bar is ≤ 12.0 MiB");
    }
}
