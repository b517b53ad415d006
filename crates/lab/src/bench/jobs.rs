//! Durable jobs beside their counterparts without unhang: the measures, the bars, and the report.

use serde_json::json;
use unhang_terminal::{output, progress};
use unhang_zoo::load::{JobFigures, JobPeer, JobPlan, JobRound, measure_jobs, median};

use super::{
    data_folder::in_data_folder,
    measures::{
        BarLimit, Baseline, Measure, MeasuredSubject, bytes, compare, highest, judge, lowest, milliseconds,
        show_mebibytes,
    },
    report::{MeasuredPart, PEER, WayReport, peer_notes, rows},
};
use crate::{arguments::BenchArguments, product::MeasuredPrograms};

/// The size of a log that the bench asks to keep, and a lot of room. The supervisor needs a turn of the processor for each look.
const LOG_BAR: f64 = 64.0 * 1_048_576.0;

/// Shows a time that may be microseconds or many milliseconds.
fn show_time(milliseconds: f64) -> String {
    if milliseconds < 1.0 {
        format!("{:.0} µs", milliseconds * 1e3)
    } else {
        format!("{milliseconds:.1} ms")
    }
}

/// All rows, in the order of the table.
const MEASURES: [Measure<JobRound>; 11] = [
    Measure {
        key: "submit_p50_ms",
        title: "submit, p50",
        show: show_time,
        of: |round| Some(milliseconds(round.submit_p50)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(3.0))),
    },
    Measure {
        key: "submit_p99_ms",
        title: "submit, p99",
        show: show_time,
        of: |round| Some(milliseconds(round.submit_p99)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(20.0))),
    },
    Measure {
        key: "crowd_submit_p99_ms",
        title: "several servers: submit, p99",
        show: show_time,
        of: |round| round.several_p99.map(milliseconds),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(50.0))),
    },
    Measure {
        key: "status_p50_ms",
        title: "status, p50",
        show: show_time,
        of: |round| Some(milliseconds(round.status_p50)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: None,
    },
    Measure {
        key: "status_p99_ms",
        title: "status, p99",
        show: show_time,
        of: |round| Some(milliseconds(round.status_p99)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(1.0))),
    },
    Measure {
        key: "jobs_per_second",
        title: "jobs that do nothing",
        show: |value| format!("{value:.0}/s"),
        of: |round| Some(round.jobs_per_second),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Value, BarLimit::AtLeast(100.0))),
    },
    Measure {
        key: "ended_submit_p50_ms",
        title: "many ended: submit, p50",
        show: show_time,
        of: |round| round.ended.map(|ended| milliseconds(ended.submit)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtMost(1.1))),
    },
    Measure {
        key: "ended_status_p50_ms",
        title: "many ended: status, p50",
        show: show_time,
        of: |round| round.ended.map(|ended| milliseconds(ended.status)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Comparison, BarLimit::AtMost(1.1))),
    },
    Measure {
        key: "ended_start_ms",
        title: "many ended: start",
        show: show_time,
        of: |round| round.ended.map(|ended| milliseconds(ended.start)),
        over_rounds: median,
        beside: Baseline::Floor,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(300.0))),
    },
    Measure {
        key: "log_peak_bytes",
        title: "log of a flood, peak",
        show: show_mebibytes,
        of: |round| round.log.map(|log| bytes(log.peak)),
        over_rounds: highest,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::AtMost(LOG_BAR))),
    },
    Measure {
        key: "log_last_line",
        title: "its last line is there",
        show: |value| if value < 1.0 { "no" } else { "yes" }.to_owned(),
        of: |round| round.log.map(|log| f64::from(u8::from(log.has_last_line))),
        over_rounds: lowest,
        beside: Baseline::Nothing,
        bar: Some((MeasuredSubject::Value, BarLimit::Exactly(1.0))),
    },
];

/// Measures the jobs and the peers, and reports failures at once. Returns the part, and whether all could be measured.
///
/// # Errors
///
/// Fails with the exit code if the jobs cannot be measured.
pub(super) fn measure(
    programs: &MeasuredPrograms,
    bench: &BenchArguments,
) -> Result<(MeasuredPart, bool), u8> {
    let plan = plan(bench);
    let figures = in_data_folder("jobs", bench.home.as_deref(), |folder| {
        measure_jobs(programs.of_load(), folder, &bench.job_peer, &plan, progress::show)
    })?;
    for (number, error) in
        (1..).zip(&figures.peers).filter_map(|(number, peer)| Some((number, peer.as_ref().err()?)))
    {
        let hint = "try its tools by hand, with the arguments that its description has";
        output::error(&format!("{PEER} {number} could not be measured: {error}"), Some(hint));
    }
    Ok((assemble(&figures, &bench.job_peer, &plan), figures.peers.iter().all(Result::is_ok)))
}

fn plan(bench: &BenchArguments) -> JobPlan {
    let plan = if bench.quick { JobPlan::QUICK } else { JobPlan::FULL };
    let many = if bench.check && !bench.quick { JobPlan::MANY } else { plan.ended };
    let ended = bench.ended.and_then(|count| usize::try_from(count).ok());
    JobPlan { ended: ended.unwrap_or(many), ..plan }
}

fn assemble(figures: &JobFigures, peers: &[JobPeer], plan: &JobPlan) -> MeasuredPart {
    let JobFigures { floor, jobs, peers: peer_rounds, file_system } = figures;
    let file_system = file_system.as_deref();
    let way = |name: String, command: Option<&JobPeer>, rounds: &[JobRound]| WayReport {
        name,
        command: command.map(|peer| peer.command.clone()),
        measures: compare(&MEASURES, rounds, floor, floor),
    };
    let mut ways = vec![way("floor".to_owned(), None, floor), way("jobs".to_owned(), None, jobs)];
    ways.extend((1..).zip(peers).zip(peer_rounds).filter_map(|((number, peer), rounds)| {
        Some(way(format!("{PEER} {number}"), Some(peer), rounds.as_ref().ok()?))
    }));
    let bars = judge(&MEASURES, &ways[1].measures);
    let mut notes = vec![
        "floor: for a submit one file made durable; for a status a `ping` through the".to_owned(),
        "same pipes; for jobs a second a loop that starts processes, two at a time; for".to_owned(),
        "many ended jobs a folder with one. In brackets: times the floor.".to_owned(),
        format!(
            "Medians of {} rounds, of the log the worst. {} servers on one folder; {} ended",
            plan.rounds, plan.writers, plan.ended
        ),
        format!(
            "jobs; {} jobs running while polled, one of them flooding; {} of log on each",
            plan.running,
            show_mebibytes(bytes(plan.log_bytes))
        ),
        format!("stream. The data lay on {}.", file_system.unwrap_or("a file system that is not told")),
    ];
    if ways.len() > 2 {
        notes.push("A peer's jobs do not flood, and one server has its folder for itself.".to_owned());
    }
    notes.extend(peer_notes(&ways));
    let plan = json!({"rounds": plan.rounds, "submits": plan.submits, "writers": plan.writers,
        "submits_each": plan.submits_each, "running": plan.running, "polls": plan.polls, "jobs": plan.jobs,
        "log_bytes": plan.log_bytes, "ended": plan.ended, "ended_submits": plan.ended_submits,
        "file_system": file_system});
    MeasuredPart { name: "jobs", plan, rows: rows(&MEASURES), ways, bars, notes }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unhang_zoo::load::{EndedUse, LogUse};

    use super::*;

    /// A round in which everything is exactly at its bar.
    fn at_the_bar() -> JobRound {
        let millis = Duration::from_millis;
        JobRound {
            submit_p50: millis(3),
            submit_p99: millis(20),
            several_p99: Some(millis(50)),
            status_p50: millis(1),
            status_p99: millis(1),
            jobs_per_second: 100.0,
            ended: Some(EndedUse { submit: millis(11), status: millis(11), start: millis(300) }),
            log: Some(LogUse { peak: 64 << 20, has_last_line: true }),
        }
    }

    fn floor() -> JobRound {
        let ten = Duration::from_millis(10);
        let ended = Some(EndedUse { submit: ten, status: ten, start: ten });
        JobRound { ended, log: None, ..at_the_bar() }
    }

    fn missed(jobs: JobRound) -> Vec<&'static str> {
        let figures = JobFigures { floor: vec![floor()], jobs: vec![jobs], ..JobFigures::default() };
        let part = assemble(&figures, &[], &JobPlan::QUICK);
        assert_eq!(part.bars.len(), 10, "all but the median of a poll");
        part.bars.iter().filter(|bar| !bar.met).map(|bar| bar.measure).collect()
    }

    #[test]
    fn each_bar_is_met_at_its_edge_and_missed_beyond() {
        assert_eq!(missed(at_the_bar()), [] as [&str; 0]);
        let more = |time: Duration| time + Duration::from_micros(100);
        let bar = at_the_bar();
        let log = |peak, has_last_line| Some(LogUse { peak, has_last_line });
        let at = bar.ended.unwrap();
        let ended = |ended: EndedUse| JobRound { ended: Some(ended), ..bar };
        let beyond = [
            ("submit_p50_ms", JobRound { submit_p50: more(bar.submit_p50), ..bar }),
            ("submit_p99_ms", JobRound { submit_p99: more(bar.submit_p99), ..bar }),
            ("crowd_submit_p99_ms", JobRound { several_p99: bar.several_p99.map(more), ..bar }),
            ("status_p99_ms", JobRound { status_p99: more(bar.status_p99), ..bar }),
            ("jobs_per_second", JobRound { jobs_per_second: 99.9, ..bar }),
            ("ended_submit_p50_ms", ended(EndedUse { submit: more(at.submit), ..at })),
            ("ended_status_p50_ms", ended(EndedUse { status: more(at.status), ..at })),
            ("ended_start_ms", ended(EndedUse { start: more(at.start), ..at })),
            ("log_peak_bytes", JobRound { log: log((64 << 20) + 1, true), ..bar }),
            ("log_last_line", JobRound { log: log(1, false), ..bar }),
        ];
        for (measure, round) in beyond {
            assert_eq!(missed(round), [measure]);
        }
        assert_eq!(missed(JobRound { log: None, ..bar }), ["log_peak_bytes", "log_last_line"]);
    }

    #[test]
    fn of_several_rounds_the_worst_log_counts() {
        let lost = JobRound { log: Some(LogUse { peak: 1, has_last_line: false }), ..at_the_bar() };
        let rounds = [at_the_bar(), lost, at_the_bar()];
        let values = compare(&MEASURES, &rounds, &rounds, &rounds);
        let missed: Vec<_> =
            judge(&MEASURES, &values).into_iter().filter(|bar| !bar.met).map(|bar| bar.to_string()).collect();
        assert_eq!(missed, ["its last line is there: no, the bar is yes"]);
    }

    #[test]
    fn a_time_is_shown_in_the_unit_that_fits() {
        assert_eq!(
            (show_time(0.0854), show_time(1.0), show_time(12.34)),
            ("85 µs".into(), "1.0 ms".into(), "12.3 ms".into())
        );
    }
}
