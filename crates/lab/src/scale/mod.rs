//! `unhang-lab scale`: jobs on a cluster of machines. It shows that jobs keep their promises while the cluster breaks, and what the shared
//! store costs. `docs/reference/scale.md` documents it.
//!
//! Invariants
//!
//! - Parts that measure times run alone. The kill matrix and the outage run side by side.
//! - A flaw of a job fails the run. A missed bar fails it with `--check`.

mod claims;
mod costs;
mod failure;
mod finished;
mod judge;
mod logs;
mod matrix;
mod outage;
mod plan;
mod rate;
mod report;
mod rows;
mod sql;
mod stage;
mod submit;

use std::{
    env,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use unhang::exit;
use unhang_terminal::{output, progress};
use unhang_zoo::scale::{ScalePlace, ScaleSwitch, WorkObserver, catch_every_end};

use self::{
    failure::ScaleFailure,
    matrix::{MatrixOutcome, MatrixPlan},
    plan::MatrixPace,
    report::{ScaleReport, ScaleUnit},
    stage::StageProps,
};
use crate::{
    arguments::{ScaleArguments, ScalePart},
    product::{MeasuredPrograms, MeasuredQuality},
};

/// The time in which rounds of the short form begin.
const SHORT_MATRIX: Duration = Duration::from_secs(30);
/// The rounds of the full form, with each length of leases.
const ROUNDS: u64 = 200;
const USUAL_ROUNDS: u64 = 20;
/// More rounds than the short form has time for.
const MOST_SHORT: u64 = 2_000;
/// The stages on which rounds are played at the same time.
const STAGES: u64 = 2;

/// What the matrix says at the end of a play.
type Played = Result<(&'static str, MatrixOutcome), ScaleFailure>;

/// Runs the parts, prints the report and returns the exit code.
pub(crate) fn run(arguments: &ScaleArguments) -> ExitCode {
    let programs = match MeasuredPrograms::find(&arguments.product, MeasuredQuality::Behavior) {
        Ok(programs) => programs,
        Err(reason) => {
            output::error(&reason, None);
            return ExitCode::from(exit::USAGE);
        }
    };
    let seed = arguments.seed.unwrap_or_else(seed_of_the_moment);
    output::note(&format!("seed {seed}"));
    catch_every_end();
    let done = measure(arguments, programs.unhang(), seed);
    progress::end();
    match done {
        Ok(report) => conclude(&report, arguments),
        Err(failure @ ScaleFailure::Interrupted(signal)) => {
            output::error(&failure.to_string(), None);
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(exit::INTERRUPTED))
        }
        Err(failure) => {
            output::error(&failure.to_string(), None);
            ExitCode::from(exit::UNREACHABLE)
        }
    }
}

fn seed_of_the_moment() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    // Short enough to be copied by hand.
    1 + u64::from(since.subsec_nanos()) % 999_999
}

fn conclude(report: &ScaleReport, arguments: &ScaleArguments) -> ExitCode {
    let text = if arguments.output == "json" { report.json() } else { report.text() };
    let printed = output::data(&text);
    let mut is_failed = false;
    for flaw in report.all_flaws() {
        output::error(flaw, None);
        is_failed = true;
    }
    for figure in report.missed() {
        output::error(&format!("{} misses its bar: {}", figure.part, figure.measure), None);
        // A count does not depend on the speed of the machine.
        is_failed |= arguments.check || figure.unit == ScaleUnit::Count;
    }
    if is_failed { ExitCode::from(exit::FAILED) } else { printed }
}

/// Runs the parts that the arguments ask for.
fn measure(arguments: &ScaleArguments, unhang: &str, seed: u64) -> Result<ScaleReport, ScaleFailure> {
    check_files(arguments)?;
    let switch = ScaleSwitch::enter().map_err(ScaleFailure::of("make a network of its own"))?;
    let folder = arguments.folder.clone().unwrap_or_else(env::temp_dir);
    let place = ScalePlace::make(&folder).map_err(ScaleFailure::of("make a folder"))?;
    let props = StageProps {
        switch: &switch,
        place: &place,
        unhang,
        postgres: &arguments.postgres,
        clock: &arguments.faketime,
    };
    let mut report = ScaleReport { seed, ..ScaleReport::default() };
    let wants = |part: ScalePart| arguments.only.is_empty() || arguments.only.contains(&part);
    break_things(&props, arguments, seed, &mut report)?;
    let amounts = Amounts::of(arguments.short);
    for (part, measure) in PARTS {
        if wants(*part) {
            progress::show(&format!("{part:?} "));
            report.figures.extend(measure(&props, &amounts)?);
        }
    }
    Ok(report)
}

/// How much is measured.
struct Amounts {
    submissions: usize,
    claims: usize,
    lines: usize,
    finished: u64,
    turns: usize,
    /// Jobs of one worker; ten workers get ten times as many.
    jobs: usize,
    lives: usize,
}

impl Amounts {
    fn of(is_short: bool) -> Self {
        match is_short {
            true => Self {
                submissions: 300,
                claims: 3_000,
                lines: 60,
                finished: 20_000,
                turns: 100,
                jobs: 4,
                lives: 60,
            },
            false => Self {
                submissions: 3_000,
                claims: 100_000,
                lines: 600,
                finished: 1_000_000,
                turns: 1_000,
                jobs: 10,
                lives: 5_000,
            },
        }
    }
}

/// Measures a part.
type MeasurePart = fn(&StageProps<'_>, &Amounts) -> Result<Vec<report::ScaleFigure>, ScaleFailure>;

const PARTS: &[(ScalePart, MeasurePart)] = &[
    (ScalePart::Submit, submit::measure),
    (ScalePart::Claims, claims::measure),
    (ScalePart::Logs, logs::measure),
    (ScalePart::Finished, finished::measure),
    (ScalePart::Rate, rate::measure),
    (ScalePart::Costs, costs::measure),
];

/// Looks for the files that no program names when they are missing.
fn check_files(arguments: &ScaleArguments) -> Result<(), ScaleFailure> {
    let files = [
        (
            arguments.postgres.join("postgres"),
            "PostgreSQL 15 (Debian's package postgresql-15); --postgres names its folder",
        ),
        (
            arguments.postgres.join("initdb"),
            "PostgreSQL 15 (Debian's package postgresql-15); --postgres names its folder",
        ),
        (arguments.faketime.clone(), "libfaketime (Debian's package libfaketime); --faketime names the file"),
    ];
    match files.iter().find(|(file, _)| !file.exists()) {
        Some((file, needed)) => {
            Err(ScaleFailure::new(format!("there is no {}: install {needed}", file.display())))
        }
        None => Ok(()),
    }
}

/// Plays the matrix and the outage, side by side.
fn break_things(
    props: &StageProps<'_>,
    arguments: &ScaleArguments,
    seed: u64,
    report: &mut ScaleReport,
) -> Result<(), ScaleFailure> {
    let wants = |part: ScalePart| arguments.only.is_empty() || arguments.only.contains(&part);
    let plans = if wants(ScalePart::Matrix) { plans(arguments, seed) } else { Vec::new() };
    let observer = WorkObserver::start();
    let over = AtomicU64::new(0);
    let show = |_| progress::show(&format!("{} rounds ", over.fetch_add(1, Ordering::Relaxed) + 1));
    let (matrices, outage) = thread::scope(|scope| {
        let (observer, show) = (&observer, &show);
        // Each thread stays to the end of what it has started, for the kernel kills that with it.
        let outage = wants(ScalePart::Outage).then(|| scope.spawn(move || outage::measure(props, observer)));
        let played: Vec<_> = plans
            .into_iter()
            .map(|(name, stage, plan)| {
                scope.spawn(move || -> Played {
                    Ok((name, matrix::play(props, observer, &stage, &plan, show)?))
                })
            })
            .collect();
        let matrices: Vec<_> = played.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (matrices, outage.map(thread::ScopedJoinHandle::join))
    });
    let panicked = |_| ScaleFailure::new("a thread of the run panicked");
    for played in matrices {
        let (name, outcome) = played.map_err(panicked)??;
        match report.matrices.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.add(outcome),
            None => report.matrices.push((name, outcome)),
        }
    }
    if let Some(outage) = outage {
        let (figures, flaws) = outage.map_err(panicked)??;
        report.figures.extend(figures);
        report.flaws.extend(flaws);
    }
    if !report.matrices.is_empty() {
        report.notes.push(
            "Steps of the clock reach workers and database. Supervisors and work have the right clock."
                .to_owned(),
        );
    }
    Ok(())
}

/// Returns the plays of the matrix, with the names of their leases and of their stages.
fn plans(arguments: &ScaleArguments, seed: u64) -> Vec<(&'static str, String, MatrixPlan)> {
    const SHORT: &str = "leases of 3 s";
    let quick = |first, count, limit, cut| MatrixPlan {
        seed,
        first,
        count,
        limit,
        pace: MatrixPace::quick(Duration::from_secs(cut)),
    };
    let count = arguments.rounds.unwrap_or(if arguments.short { MOST_SHORT } else { ROUNDS });
    let each = count.div_ceil(STAGES);
    let (limit, cut) = if arguments.short { (Some(SHORT_MATRIX), 8) } else { (None, 60) };
    let mut plans: Vec<_> = (0..STAGES)
        .map(|stage| {
            let first = stage * each;
            let plan = quick(arguments.first + first, each.min(count.saturating_sub(first)), limit, cut);
            (SHORT, format!("quick{stage}"), plan)
        })
        .collect();
    if arguments.rounds.is_none() && !arguments.short {
        let plan = MatrixPlan { seed, first: 0, count: USUAL_ROUNDS, limit: None, pace: MatrixPace::usual() };
        plans.push(("leases of 30 s", "usual".to_owned(), plan));
    }
    plans
}

/// Returns the quantile of these values; no number if there are none.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index among a few thousand values"
    )]
    let index = (share * values.len().saturating_sub(1) as f64).ceil() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}

/// Returns a count as a figure.
fn count(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// Returns the milliseconds since this time of the observer's clock.
fn milliseconds_since(begin: Duration) -> f64 {
    unhang_zoo::scale::uptime().saturating_sub(begin).as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(
            [0.0, 0.5, 0.99, 1.0].map(|share| quantile(&mut values, share)),
            [1.0, 51.0, 100.0, 100.0]
        );
        assert!(quantile(&mut [], 0.5).is_nan());
    }
}
