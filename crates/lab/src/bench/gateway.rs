//! The gateway over HTTP beside a reverse proxy, and with many sessions: the measures, the bars, and the report.
//!
//! Invariant: without a proxy to compare with, the report says so, and no bar depends on it.

use std::{env, path::PathBuf};

use serde_json::json;
use unhang::exit;
use unhang_terminal::{output, progress};
use unhang_zoo::load::{
    CrowdPlan, CrowdRound, GatewayFigures, GatewayPlan, GatewayRound, measure_crowd, measure_gateway, median,
};

use super::{
    measures::{
        BarLimit, Baseline, Measure, MeasuredSubject, compare, judge, microseconds, milliseconds,
        show_mebibytes, show_microseconds, show_milliseconds,
    },
    report::{MeasuredPart, WayReport, rows},
};
use crate::{arguments::BenchArguments, product::MeasuredPrograms};

/// The path that Debian uses, which is not on the `PATH` of users.
const USUAL: &str = "/usr/sbin/nginx";

/// All rows of the first table, in its order.
const MEASURES: [Measure<GatewayRound>; 4] = [
    Measure {
        key: "round_trip_p50_us",
        title: "round trip, p50",
        show: show_microseconds,
        of: |round| Some(microseconds(round.round_trip_p50)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "round_trip_p99_us",
        title: "round trip, p99",
        show: show_microseconds,
        of: |round| Some(microseconds(round.round_trip_p99)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "added_p50_us",
        title: "added to p50",
        show: show_microseconds,
        of: |round| round.added_p50.map(microseconds),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtMost(2.5))),
    },
    Measure {
        key: "calls_per_second",
        title: "32 in flight",
        show: |value| format!("{:.1} k/s", value / 1e3),
        of: |round| Some(round.calls_per_second),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtLeast(0.5))),
    },
];

/// All rows of the second table.
const OF_SESSIONS: [Measure<CrowdRound>; 6] = [
    Measure {
        key: "session_bytes",
        title: "a quiet session",
        show: |value| format!("{:.1} KiB", value / 1024.0),
        of: |round| Some(round.session_bytes),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(64.0 * 1024.0))),
    },
    Measure {
        key: "quiet_p99_ms",
        title: "a call beside quiet ones, p99",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.quiet_p99)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "probe_p50_ms",
        title: "beside those that misbehave, p50",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.probe_p50)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: None,
    },
    Measure {
        key: "probe_p99_ms",
        title: "beside those that misbehave, p99",
        show: show_milliseconds,
        of: |round| Some(milliseconds(round.probe_p99)),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(50.0))),
    },
    Measure {
        key: "left_bytes",
        title: "left by ended ones: memory",
        show: show_mebibytes,
        of: |round| Some(round.left_bytes),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(1_048_576.0))),
    },
    Measure {
        key: "left_descriptors",
        title: "left by ended ones: descriptors",
        show: |value| format!("{value:.0}"),
        of: |round| Some(round.left_descriptors),
        over_rounds: median,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(0.0))),
    },
];

/// Measures the gateway. Returns the parts, and whether all of it could be measured.
///
/// # Errors
///
/// Fails with the exit code if nothing could be measured.
pub(super) fn measure(
    programs: &MeasuredPrograms,
    bench: &BenchArguments,
) -> Result<(Vec<MeasuredPart>, bool), u8> {
    let nginx = nginx(bench);
    if nginx.is_none() && bench.check {
        let hint = Some("install it (Debian: nginx-light), or name it with --nginx");
        output::error("the gateway is not compared with a proxy: there is no nginx", hint);
    }
    let plan = if bench.quick { GatewayPlan::QUICK } else { GatewayPlan::FULL };
    let calls = measure_gateway(programs.of_load(), nginx.as_deref(), &plan, |round| {
        progress::show(&format!("the gateway, round {round} of {} ", plan.rounds));
    });
    progress::end();
    let plan_of_sessions = if bench.quick { CrowdPlan::QUICK } else { CrowdPlan::FULL };
    let sessions = measure_crowd(programs.of_load(), &plan_of_sessions, |what| {
        progress::show(&format!("the gateway, {what} "));
    });
    progress::end();
    let mut is_whole = nginx.is_some() || !bench.check;
    let mut parts = Vec::new();
    match calls {
        Ok(figures) => parts.push(of_calls(&figures, &plan)),
        Err(error) => {
            output::error(&format!("calls through the gateway could not be measured: {error}"), None);
            is_whole = false;
        }
    }
    match sessions {
        Ok(round) => parts.push(of_sessions(round, &plan_of_sessions)),
        Err(error) => {
            output::error(&format!("sessions of the gateway could not be measured: {error}"), None);
            is_whole = false;
        }
    }
    if parts.is_empty() { Err(exit::UNREACHABLE) } else { Ok((parts, is_whole)) }
}

/// Returns the nginx that was named, or else one that is found.
fn nginx(bench: &BenchArguments) -> Option<String> {
    let named = bench.nginx.clone();
    let found = || {
        let folders = env::var_os("PATH").unwrap_or_default();
        let inside = env::split_paths(&folders).map(|folder| folder.join("nginx")).collect::<Vec<_>>();
        inside.into_iter().chain([PathBuf::from(USUAL)]).find(|path| path.is_file())
    };
    named.or_else(found).map(|path| path.to_string_lossy().into_owned())
}

fn of_calls(figures: &GatewayFigures, plan: &GatewayPlan) -> MeasuredPart {
    let GatewayFigures { direct, proxy, gateway } = figures;
    let way = |name: &str, rounds: &[GatewayRound]| WayReport {
        name: name.to_owned(),
        command: None,
        measures: compare(&MEASURES, rounds, direct, proxy),
    };
    let mut ways = vec![way("direct", direct)];
    if !proxy.is_empty() {
        ways.push(way("nginx", proxy));
    }
    ways.push(way("unhang", gateway));
    let (bars, floor) = match proxy.is_empty() {
        true => {
            (Vec::new(), "not measured: no nginx, which the bars compare with (--nginx PATH).".to_owned())
        }
        false => {
            let bars = ways.last().map(|way| judge(&MEASURES, &way.measures)).unwrap_or_default();
            (
                bars,
                "In brackets: times nginx, which passes bytes on (the floor); one process each.".to_owned(),
            )
        }
    };
    let notes = vec![
        "One server over HTTP: directly, and through each. 64 bytes of text in an answer.".to_owned(),
        floor,
        format!("Medians of {} rounds.", plan.rounds),
    ];
    let plan = json!({"rounds": plan.rounds, "round_trips": plan.round_trips, "calls": plan.calls,
        "in_flight": plan.in_flight});
    MeasuredPart { name: "gateway", plan, rows: rows(&MEASURES), ways, bars, notes }
}

fn of_sessions(round: CrowdRound, plan: &CrowdPlan) -> MeasuredPart {
    let measures = compare(&OF_SESSIONS, &[round], &[], &[]);
    let bars = judge(&OF_SESSIONS, &measures);
    let ways = vec![WayReport { name: "unhang".to_owned(), command: None, measures }];
    let notes = vec![
        format!(
            "{} sessions that listen, {} servers. Those that misbehave: a client that",
            plan.sessions, plan.servers
        ),
        "reads nothing, a server that logs without an end, and one that never answers.".to_owned(),
        format!("Ended ones: {} sessions that came, asked something and went.", plan.passing),
    ];
    let plan = json!({"sessions": plan.sessions, "servers": plan.servers, "probes": plan.probes,
        "passing": plan.passing});
    MeasuredPart { name: "sessions", plan, rows: rows(&OF_SESSIONS), ways, bars, notes }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn round(p50: u64, added: Option<u64>, rate: f64) -> GatewayRound {
        GatewayRound {
            round_trip_p50: Duration::from_micros(p50),
            round_trip_p99: Duration::from_micros(2 * p50),
            added_p50: added.map(Duration::from_micros),
            calls_per_second: rate,
        }
    }

    fn missed(part: &MeasuredPart) -> Vec<&'static str> {
        part.bars.iter().filter(|bar| !bar.met).map(|bar| bar.measure).collect()
    }

    #[test]
    fn what_is_added_is_compared_with_what_the_proxy_adds() {
        let figures = |gateway| GatewayFigures {
            direct: vec![round(100, None, 9e4)],
            proxy: vec![round(140, Some(40), 4e4)],
            gateway: vec![gateway],
        };
        let part = |gateway| of_calls(&figures(gateway), &GatewayPlan::QUICK);
        assert_eq!(missed(&part(round(200, Some(100), 2e4))), [] as [&str; 0]);
        assert_eq!(missed(&part(round(201, Some(101), 2e4))), ["added_p50_us"]);
        assert_eq!(missed(&part(round(200, Some(100), 1.9e4))), ["calls_per_second"]);
    }

    #[test]
    fn without_a_proxy_nothing_is_judged_and_that_is_said() {
        let (direct, gateway) = (vec![round(100, None, 9e4)], vec![round(200, Some(100), 2e4)]);
        let part = of_calls(&GatewayFigures { direct, proxy: Vec::new(), gateway }, &GatewayPlan::QUICK);
        assert!(part.bars.is_empty() && part.notes[1].starts_with("not measured: no nginx"));
        assert_eq!(part.ways.len(), 2);
    }

    #[test]
    fn each_bar_of_sessions_is_met_at_its_edge_and_missed_beyond() {
        let at = CrowdRound {
            session_bytes: 65_536.0,
            quiet_p99: Duration::ZERO,
            probe_p50: Duration::ZERO,
            probe_p99: Duration::from_millis(50),
            left_bytes: 1_048_576.0,
            left_descriptors: 0.0,
        };
        let missed = |round| missed(&of_sessions(round, &CrowdPlan::QUICK));
        assert_eq!(missed(at), [] as [&str; 0]);
        assert_eq!(missed(CrowdRound { session_bytes: 65_537.0, ..at }), ["session_bytes"]);
        assert_eq!(missed(CrowdRound { probe_p99: Duration::from_micros(50_001), ..at }), ["probe_p99_ms"]);
        assert_eq!(missed(CrowdRound { left_bytes: 1_048_577.0, ..at }), ["left_bytes"]);
        assert_eq!(missed(CrowdRound { left_descriptors: 1.0, ..at }), ["left_descriptors"]);
    }
}
