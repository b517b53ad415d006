//! `unhang bench`: what the guard costs, measured in one run beside what two more pipes cost.
//!
//! The load generator is the zoo's; here the ways are assembled, compared and shown. The figures say what was measured,
//! never what should have been.
//!
//! Invariant: only `unhang wrap` has bars. A peer is shown beside it, and judged by nobody.

mod measures;
mod report;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use unhang::exit;
use unhang_zoo::load::{self, Plan, Round, Way};

use crate::{arguments::Bench, output};
use report::{Report, WayReport};

/// Which of the ways, in the order of [`ways`], others are compared with.
const DIRECT: usize = 0;
const FLOOR: usize = 1;
/// The one that has bars.
const GUARD: usize = 2;

/// Measures, shows and judges.
pub(crate) fn run(bench: &Bench) -> ExitCode {
    let server = match echo_server() {
        Ok(server) => server,
        Err(error) => {
            output::error(&format!("the path of unhang itself cannot be found: {error}"), None);
            return ExitCode::from(exit::BUG);
        }
    };
    let ways = ways(&server[0], bench);
    let plan = if bench.quick { Plan::QUICK } else { Plan::FULL };
    let only_ways: Vec<Way> = ways.iter().map(|(_, way)| way.clone()).collect();
    let outcomes = load::measure(&server, &only_ways, &plan, |round| show_progress(round, plan.rounds));
    end_progress();
    let mut failed = false;
    let mut measured: Vec<(&str, &Way, Vec<Round>)> = Vec::new();
    for (index, ((name, way), outcome)) in ways.iter().zip(outcomes).enumerate() {
        match outcome {
            Ok(rounds) => measured.push((name, way, rounds)),
            Err(error) => {
                let hint = Some("try the command by hand, with a server's command after it")
                    .filter(|_| index > GUARD);
                output::error(&format!("{name} could not be measured: {error}"), hint);
                failed = true;
            }
        }
    }
    // Without the three there is nothing to compare with.
    if ways.iter().take(GUARD + 1).any(|(name, _)| measured.iter().all(|(known, ..)| known != name)) {
        return ExitCode::from(exit::UNREACHABLE);
    }
    let report = assemble(&measured, plan);
    conclude(&report, bench, failed)
}

fn assemble(measured: &[(&str, &Way, Vec<Round>)], plan: Plan) -> Report {
    let (direct, floor) = (&measured[DIRECT].2, &measured[FLOOR].2);
    let ways: Vec<WayReport> = measured
        .iter()
        .map(|(name, way, rounds)| WayReport {
            name: (*name).to_owned(),
            command: match way {
                Way::Through(command) => Some(command.clone()),
                Way::Direct | Way::Cats => None,
            },
            measures: measures::compare(rounds, direct, floor),
        })
        .collect();
    let bars = measures::judge(&ways[GUARD].measures);
    Report::new(plan, ways, bars)
}

/// Prints the report and settles the exit code.
fn conclude(report: &Report, bench: &Bench, failed: bool) -> ExitCode {
    let text = if bench.output == "json" { report.json() } else { report.text() };
    let printed = output::data(&text);
    let missed: Vec<String> = report.bars.iter().filter(|bar| !bar.met).map(ToString::to_string).collect();
    if bench.check && !missed.is_empty() {
        output::error(&format!("missed: {}", missed.join("; ")), None);
        return ExitCode::from(exit::FAILED);
    }
    if failed { ExitCode::from(exit::UNREACHABLE) } else { printed }
}

/// The command of the server that is measured with: our own binary.
fn echo_server() -> io::Result<Vec<String>> {
    let own = std::env::current_exe()?;
    let own = own.into_os_string().into_string().map_err(|_| io::Error::other("it is no text"))?;
    Ok(vec![own, "zoo".to_owned(), "echoes".to_owned()])
}

fn ways(own: &str, bench: &Bench) -> Vec<(String, Way)> {
    let guard = [own, "wrap", "--name", "bench", "--"].map(str::to_owned).to_vec();
    let mut ways = vec![
        ("direct".to_owned(), Way::Direct),
        ("floor".to_owned(), Way::Cats),
        ("wrap".to_owned(), Way::Through(guard)),
    ];
    let peers = bench.peer.iter().enumerate();
    ways.extend(peers.map(|(index, peer)| (format!("peer {}", index + 1), Way::Through(peer.0.clone()))));
    ways
}

/// Says which round it is, to a person only.
fn show_progress(round: usize, rounds: usize) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _nobody_reads = write!(stderr, "\rround {round} of {rounds} ");
    }
}

fn end_progress() {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _nobody_reads = write!(stderr, "\r\x1b[K");
    }
}
