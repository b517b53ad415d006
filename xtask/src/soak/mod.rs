//! `cargo xtask soak`: a long run of everything at once, with a client that shares no code with the guard and judges every
//! byte of it. docs/reference/soak.md says what it demands and how to repeat a failure.
//!
//! # Invariants
//!
//! - The seed is printed first, and it alone decides what is done; only time is not repeated.
//! - The whole has a deadline, and so has everything in it.
//! - The judgement uses nothing of the rooms it judges; the zoo is a table of names here.

mod calls;
mod client;
mod envelope;
mod faulty_servers;
mod guard;
mod kill_plan;
mod kill_round;
mod kills;
mod lane;
mod ledger;
mod plan;
mod progress;
mod random;
mod restarts;
mod samples;
mod session;
mod sessions;
mod side_by_side;
mod summary;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::{clock, report};

use progress::PartProgress;
use session::{SessionFailure, SoakStage};
use summary::Summary;

/// How much is done.
#[derive(Debug, Clone, Copy)]
struct Scale {
    calls: u64,
    restarts: u64,
    sessions: u64,
    /// Rounds of the kill matrix.
    kills: u64,
    /// Sessions at the same time; most of them wait for a deadline most of the time.
    at_once: usize,
    deadline: Duration,
}

const FULL: Scale = Scale {
    calls: 100_000,
    restarts: 1000,
    sessions: 1000,
    kills: 200,
    at_once: 6,
    deadline: Duration::from_mins(25),
};
const QUICK: Scale = Scale {
    calls: 2000,
    restarts: 20,
    sessions: 30,
    kills: 10,
    at_once: 6,
    deadline: Duration::from_mins(4),
};

const PARTS: &[(&str, &str)] = &[
    ("calls", "calls through one guard, some of them stuck or withdrawn"),
    ("restarts", "deaths of a server under one guard"),
    ("sessions", "client sessions on random programs"),
    ("kills", "kills of a server of jobs, of a shim, or of both"),
];

/// Runs the parts that the options ask for.
pub(crate) fn soak(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    if let Some(unknown) = options.only.iter().find(|name| PARTS.iter().all(|(part, _)| part != name)) {
        return Err(ChoreFailure::usage(format!(
            "no part {unknown}; there are calls, restarts, sessions and kills"
        )));
    }
    if options.list {
        PARTS.iter().for_each(|(part, about)| report::text(&format!("{part:<10} {about}\n")));
        return Ok(());
    }
    let seed = options.seed.unwrap_or_else(seed_of_the_moment);
    let stage = set(project, options, seed)?;
    report::text(&format!("seed {seed}\n"));
    let scale = if options.quick { QUICK } else { FULL };
    run(&stage, options, scale, seed)
}

/// Finds both binaries and makes an empty folder; each seed has its own, so that reports are kept and runs do not meet.
fn set(project: &Project, options: &Options, seed: u64) -> Result<SoakStage, ChoreFailure> {
    let binary =
        options.binary.as_ref().map_or_else(|| project.below_target("release/unhang"), PathBuf::from);
    let advice = "build it with `cargo build --release`, or name another with --binary";
    let unhang = fs::canonicalize(&binary)
        .map_err(|error| ChoreFailure::io(format!("{}: {advice}", binary.display()), &error))?;
    let folder = project.below_target(format!("soak/seed-{seed}"));
    let emptied = if folder.exists() { fs::remove_dir_all(&folder) } else { Ok(()) };
    emptied
        .and_then(|()| fs::create_dir_all(&folder))
        .map_err(|error| ChoreFailure::io(folder.display(), &error))?;
    let lab = project.lab(&unhang)?;
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Ok(SoakStage { unhang: text(unhang), lab: text(lab), folder })
}

fn seed_of_the_moment() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    // Short enough to be copied by hand.
    random::Random::new(since.subsec_nanos().into()).between(1, 999_999)
}

fn run(stage: &SoakStage, options: &Options, scale: Scale, seed: u64) -> Result<(), ChoreFailure> {
    let wants = |part: &str| options.only.is_empty() || options.only.iter().any(|name| name == part);
    let begin = clock::now();
    let end = begin + scale.deadline;
    let own = || samples::descriptors(std::process::id()).unwrap_or_default();
    let mut summary = Summary { own_descriptors: (own(), 0), ..Summary::default() };
    let mut broken = Vec::new();
    if wants("calls") && options.session.is_none() {
        let outcome = PartProgress::during("calls", scale.calls, end, |progress| {
            calls::calls(stage, seed, scale.calls, progress)
        });
        note("calls", stage, outcome, &mut summary, &mut broken);
    }
    if wants("restarts") && options.session.is_none() {
        let outcome = PartProgress::during(
            "restarts",
            scale.restarts + restarts::beside(scale.restarts),
            end,
            |progress| restarts::restarts(stage, seed, scale.restarts, progress),
        );
        note("restarts", stage, outcome, &mut summary, &mut broken);
    }
    // A number belongs to a session, unless rounds alone were asked for.
    if wants("kills") && (options.session.is_none() || options.only == ["kills"]) {
        let numbers = options.session.map_or(0..scale.kills, |number| number..number + 1);
        summary.kills = PartProgress::during("kills", numbers.end - numbers.start, end, |progress| {
            kills::kills(stage, seed, numbers, progress)
        });
        broken.append(&mut summary.kills.broken);
    }
    if wants("sessions") {
        let numbers = options.session.map_or(0..scale.sessions, |number| number..number + 1);
        hold_sessions(stage, seed, numbers, scale.at_once, end, &mut summary, &mut broken);
    }
    summary.own_descriptors.1 = own();
    if summary.own_descriptors.1 > summary.own_descriptors.0 {
        broken.push("the soak itself has more descriptors open than before".to_owned());
    }
    report::text(&summary.text(seed, begin.elapsed()));
    if broken.is_empty() {
        report::text(
            "all that was asked was answered once; nothing grew, was lost, ran twice or was left behind\n",
        );
        return Ok(());
    }
    Err(ChoreFailure::new(format!("the soak found {}:\n{}", broken.len(), broken.join("\n"))))
}

/// Takes down what became of a part with lanes.
fn note(
    part: &'static str,
    stage: &SoakStage,
    outcome: Result<Vec<(&'static str, lane::LaneResult)>, SessionFailure>,
    summary: &mut Summary,
    broken: &mut Vec<String>,
) {
    match outcome {
        Ok(lanes) => summary.add_lanes(part, lanes),
        Err(SessionFailure { what, story }) => {
            let file = stage.folder.join(format!("broken-{part}.txt"));
            let written = fs::write(&file, format!("{what}\n\n{story}"));
            let details = written.map_or_else(|error| error.to_string(), |()| file.display().to_string());
            broken.push(format!("{part}: {what}\n  more in {details}"));
        }
    }
}

fn hold_sessions(
    stage: &SoakStage,
    seed: u64,
    numbers: std::ops::Range<u64>,
    at_once: usize,
    end: Instant,
    summary: &mut Summary,
    broken: &mut Vec<String>,
) {
    let total = numbers.end - numbers.start;
    let sessions = PartProgress::during("sessions", total, end, |progress| {
        sessions::sessions(stage, seed, numbers, at_once, progress)
    });
    summary.tallies.push(("sessions", sessions.tally));
    summary.groups = sessions.groups;
    broken.extend(sessions.broken);
}
