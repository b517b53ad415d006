//! The steps of `cargo xtask ci`, cheap ones first, so that the likeliest mistakes show soonest.
//!
//! # Invariants
//!
//! - A step needs only files that steps of earlier stages, or earlier steps of its lane, have made.
//! - After `fetch`, only the installation of pinned tools and servers uses the network.

use std::ffi::OsStr;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::debian_tool::{PGBOUNCER, POSTGRES};
use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::{dist as packing, other_systems, real, report, rooms, scale as scaling, sdk, tools, units};

/// Steps that run at the same time as those of the other lanes of their stage. The next stage begins after them.
pub(super) type Stage = &'static [StepLane];

/// Steps that run one after the other.
pub(super) struct StepLane {
    pub(super) priority: LanePriority,
    pub(super) steps: &'static [CiStep],
}

/// The share of a lane in the processors while other lanes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LanePriority {
    /// The lane has the same share as every other process.
    First,
    /// The lane has only what the other lanes leave idle, so that it delays none of their tests.
    Last,
}

/// One thing to check.
pub(super) struct CiStep {
    pub(super) name: &'static str,
    /// The property that the step checks, for `--list`.
    pub(super) about: &'static str,
    pub(super) work: StepWork,
}

pub(super) enum StepWork {
    /// One call of cargo.
    Cargo {
        arguments: &'static [&'static str],
        environment: &'static [(&'static str, &'static str)],
        deadline: Duration,
    },
    /// More than that; every part has its own deadline.
    Own(fn(&Project) -> Result<(), ChoreFailure>),
}

const fn cargo(arguments: &'static [&'static str], minutes: u64) -> StepWork {
    StepWork::Cargo { arguments, environment: &[], deadline: Duration::from_mins(minutes) }
}

/// The documented limit of the demo.
const DEMO_DEADLINE: Duration = Duration::from_mins(1);

/// Sixty cases in three columns take a minute and a half, and longer on a busy machine.
const SCORE_DEADLINE: Duration = Duration::from_mins(8);

/// The quick soak has a deadline of four minutes of its own.
const SOAK_DEADLINE: Duration = Duration::from_mins(6);

/// Where two lanes of a stage build in one folder, cargo lets one wait for the other. The one with tests has the folder first.
pub(super) const STAGES: &[Stage] = &[QUICK, BUILDS, TESTS, USES];

const QUICK: Stage = &[StepLane {
    priority: LanePriority::First,
    steps: &[
        CiStep {
            name: "fetch",
            about: "Cargo.lock is complete and every dependency is there",
            work: cargo(&["fetch", "--locked"], 10),
        },
        CiStep { name: "fmt", about: "the code is formatted", work: cargo(&["fmt", "--all", "--check"], 2) },
        CiStep {
            name: "rooms",
            about: "imports go downwards, files are short, a type lies in few files, a name is one type's",
            work: StepWork::Own(|project| rooms::rooms(project, &Options::default())),
        },
    ],
}];

/// The compiler links the shipped program on one processor, for minutes. Meanwhile the first lane has the other processor.
const BUILDS: Stage = &[
    StepLane {
        priority: LanePriority::First,
        steps: &[
            CiStep {
                name: "clippy",
                about: "no lint of the workspace fires",
                work: StepWork::Cargo {
                    arguments: &[
                        "clippy",
                        "--workspace",
                        "--all-targets",
                        "--all-features",
                        "--locked",
                        "--offline",
                        "--",
                        "-D",
                        "warnings",
                    ],
                    // Nothing is linked, so libFuzzer is not compiled for it. Any file may have its place.
                    environment: &[("CUSTOM_LIBFUZZER_PATH", "libfuzzer/FuzzerMain.cpp")],
                    deadline: Duration::from_mins(20),
                },
            },
            CiStep {
                name: "macos",
                about: "what ships compiles for macOS; says so where the standard library for it cannot be had",
                work: StepWork::Own(other_systems::check_macos),
            },
            CiStep {
                name: "arm64",
                about: "the program for ARM64 builds and tells its version under qemu; says so where the library cannot be had",
                work: StepWork::Own(other_systems::run_arm64),
            },
            CiStep {
                name: "docs",
                about: "the documentation builds without a warning",
                work: StepWork::Cargo {
                    arguments: &["doc", "--workspace", "--no-deps", "--locked", "--offline"],
                    environment: &[("RUSTDOCFLAGS", "-D warnings")],
                    deadline: Duration::from_mins(15),
                },
            },
            CiStep {
                name: "test-programs",
                about: "the tests build, so that the next stage only runs them",
                work: cargo(&["test", "--workspace", "--no-run", "--locked", "--offline"], 20),
            },
        ],
    },
    StepLane {
        priority: LanePriority::First,
        steps: &[CiStep {
            name: "dist",
            about: "the program builds as packages ship it, and has its size",
            work: StepWork::Own(dist),
        }],
    },
];

/// Tests wait for processes and deadlines for a third of their time. Meanwhile the other lane installs and builds tools.
const TESTS: Stage = &[
    StepLane {
        priority: LanePriority::First,
        steps: &[
            CiStep {
                name: "tests",
                about: "every test of the workspace passes, with nothing but Rust installed",
                work: StepWork::Own(tests),
            },
            CiStep {
                name: "examples",
                about: "tests that need more than Rust pass: the example with a script in Python, and the store in PostgreSQL",
                work: StepWork::Own(examples),
            },
        ],
    },
    StepLane {
        priority: LanePriority::Last,
        steps: &[
            CiStep {
                name: "tools",
                about: "what later steps use can be had: tools, packages, and the program with the C library in it",
                work: StepWork::Own(needed_later),
            },
            CiStep {
                name: "deny",
                about: "bans, licences and sources of the dependencies are in order",
                work: StepWork::Own(deny),
            },
            CiStep {
                name: "advisories",
                about: "no dependency has a known advisory; says so where the database cannot be reached",
                work: StepWork::Own(advisories),
            },
        ],
    },
];

/// The package for TypeScript is built by `packages` and by `sdk`, so both are in one lane.
const USES: Stage = &[
    StepLane {
        priority: LanePriority::First,
        steps: &[
            CiStep {
                name: "memory",
                about: "guard, lifeline and call holder stay within their memory; the other bars want a quiet machine",
                work: StepWork::Own(memory),
            },
            CiStep {
                name: "demo",
                about: "the README's first command shows its table",
                work: StepWork::Own(demo),
            },
            CiStep {
                name: "real",
                about: "real clients see the same real servers through the guard",
                work: StepWork::Own(real::every),
            },
        ],
    },
    StepLane {
        priority: LanePriority::First,
        steps: &[
            CiStep {
                name: "packages",
                about: "every package installs, runs and goes away again, and packing twice gives the same bytes",
                work: StepWork::Own(packing::packages),
            },
            CiStep {
                name: "units",
                about: "systemd understands the units, and they leave jobs what jobs need",
                work: StepWork::Own(units::check),
            },
            CiStep {
                name: "sdk",
                about: "the packages for Python and TypeScript have their types, and their jobs run with all frameworks and clients",
                work: StepWork::Own(sdk::every),
            },
        ],
    },
    StepLane {
        priority: LanePriority::First,
        steps: &[
            CiStep {
                name: "score",
                about: "unhang keeps every case of its corpus, and no wrapper and a naive pump break what they ought to",
                work: StepWork::Own(score),
            },
            CiStep {
                name: "soak",
                about: "a short soak: calls, restarts, sessions on random programs, kills of servers and shims",
                work: StepWork::Own(soak),
            },
            CiStep {
                name: "scale",
                about: "jobs on several machines keep their promises while machines, database, network and clocks break; needs root",
                work: StepWork::Own(scale),
            },
        ],
    },
    StepLane {
        priority: LanePriority::Last,
        steps: &[CiStep {
            name: "alone",
            about: "each crate builds without the others' features, and the program without its own",
            work: StepWork::Own(alone),
        }],
    },
];

fn alone(project: &Project) -> Result<(), ChoreFailure> {
    for name in project.crates() {
        let arguments = ["check", "--locked", "--offline", "-p", name];
        run::run(project.cargo(&format!("alone-{name}"), Duration::from_mins(10)).arguments(arguments))?;
    }
    let arguments = ["check", "--locked", "--offline", "-p", "unhang-cli", "--no-default-features"];
    run::run(project.cargo("alone-without-features", Duration::from_mins(10)).arguments(arguments))
}

fn deny(project: &Project) -> Result<(), ChoreFailure> {
    let program = tools::CARGO_DENY.program(project)?;
    let task = ProgramRun::new(program, project.root(), project.log("deny"), Duration::from_mins(2));
    run::run(task.arguments(["--offline", "--locked", "--workspace", "check", "bans", "licenses", "sources"]))
}

/// Known weaknesses of the dependencies. Their database is a git repository, which is not where the registry is: without it nothing is
/// known of them, and that is said rather than held against the change.
fn advisories(project: &Project) -> Result<(), ChoreFailure> {
    let program = tools::CARGO_DENY.program(project)?;
    let task =
        |name: &str| ProgramRun::new(&program, project.root(), project.log(name), Duration::from_mins(2));
    let common = ["--locked", "--workspace"];
    let fetch = task("advisories-fetch").arguments(common).arguments(["fetch", "db"]);
    if let Err(failure) = run::run(fetch) {
        report::text(&format!(
            "advisories were NOT checked: the database https://github.com/RustSec/advisory-db could not be reached \
             ({failure}); run `cargo xtask ci --only advisories` where it can be\n"
        ));
        return Ok(());
    }
    run::run(task("advisories").arguments(common).arguments(["check", "--disable-fetch", "advisories"]))
}

/// How many tests run at the same time on each processor. Most of them wait for a process or a deadline nearly all the time: with three,
/// the end-to-end tests take half as long as with one.
const TESTS_ON_A_PROCESSOR: usize = 3;

fn tests(project: &Project) -> Result<(), ChoreFailure> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let task = project.cargo("tests", Duration::from_mins(30));
    // One run tells of every crate: a failure in one says nothing about those behind it.
    run::run(
        task.arguments(["test", "--workspace", "--no-fail-fast", "--locked", "--offline"])
            .variable("RUST_TEST_THREADS", (processors * TESTS_ON_A_PROCESSOR).to_string()),
    )
    .map_err(|failure| with_failed_tests(project, failure))
}

/// Gives a failure of the tests what the failed ones printed, which may lie far before the end of the log.
fn with_failed_tests(project: &Project, failure: ChoreFailure) -> ChoreFailure {
    let told = failure.output().and_then(|log| fs::read_to_string(log).ok()).map(|log| failed_tests(&log));
    let shown = project.log("tests-failed");
    match told {
        Some(told) if !told.is_empty() && fs::write(&shown, &told).is_ok() => failure.with_output(shown),
        // The program did not build, or the deadline passed: the end of the log tells.
        _ => failure,
    }
}

/// Returns the part of the log of each test program that failed: from its list of failures to its result.
fn failed_tests(log: &str) -> String {
    let mut is_told = false;
    let mut told = String::new();
    for line in log.lines() {
        is_told |= line == "failures:";
        if is_told {
            told.push_str(line);
            told.push('\n');
        }
        is_told &= !line.starts_with("test result:");
    }
    told
}

/// The tests that are ignored elsewhere, since they need more than Rust.
fn examples(project: &Project) -> Result<(), ChoreFailure> {
    tools::PYTHON.require(project)?;
    let postgres = POSTGRES.program(project)?;
    let moto = tools::moto_server(project)?;
    // The folder of a program in the PATH is the empty one, and the others are in the PATH too.
    let programs = postgres.parent().unwrap_or(Path::new(""));
    // Each test program of the workspace, as in the step before, so that cargo builds nothing.
    let arguments = ["test", "--workspace", "--locked", "--offline", "--tests", "--", "--ignored"];
    let task = project.cargo("examples", Duration::from_mins(20)).arguments(arguments);
    let pooler = PGBOUNCER.program(project)?;
    let variables = [
        ("UNHANG_TEST_POSTGRES", programs.as_os_str()),
        ("UNHANG_TEST_PGBOUNCER", pooler.as_os_str()),
        ("UNHANG_TEST_MOTO", moto.as_os_str()),
    ];
    run::run(variables.into_iter().fold(task, |task, (name, value)| task.variable(name, value)))
}

/// Installs and builds beforehand what later steps would wait for.
fn needed_later(project: &Project) -> Result<(), ChoreFailure> {
    packing::prepare(project)?;
    sdk::install(project)?;
    real::install(project)
}

/// The most that the program may have, in bytes: 18 MiB, of which 3 MiB are for jobs on many machines (`docs/design/dependencies.md`).
const LARGEST_PROGRAM: u64 = 18 << 20;

/// Builds what packages ship. The lab, which judges it, comes with the tests: the link of another program at this level takes minutes.
fn dist(project: &Project) -> Result<(), ChoreFailure> {
    let arguments = ["build", "--profile", "dist", "--locked", "--offline", "--package", "unhang-cli"];
    run::run(project.cargo("dist", Duration::from_mins(20)).arguments(arguments))?;
    let program = project.shipped();
    let size = fs::metadata(&program).map_err(|error| ChoreFailure::io(program.display(), &error))?.len();
    report::text(&format!("{} has {size} bytes\n", program.display()));
    if size <= LARGEST_PROGRAM {
        return Ok(());
    }
    Err(ChoreFailure::new(format!("{} has {size} bytes, more than {LARGEST_PROGRAM}", program.display())))
}

fn memory(project: &Project) -> Result<(), ChoreFailure> {
    within_bar(project, ("wrap", "memory_bytes"), "a guard")?;
    within_bar(project, ("slow", "holder_bytes"), "a call holder")
}

/// Runs a part of the bench, and fails if a bar of this measure is missed.
fn within_bar(project: &Project, (part, measure): (&str, &str), what: &str) -> Result<(), ChoreFailure> {
    let answer = project.log(&format!("memory-{part}")).with_extension("json");
    let lab = project.lab(&project.shipped())?;
    let task = ProgramRun::new(lab, project.root(), answer, DEMO_DEADLINE);
    let report = run::run_for_json(task.arguments([
        "bench".as_ref(),
        "--quick".as_ref(),
        format!("--only={part}").as_ref(),
        "--output=json".as_ref(),
        "--unhang".as_ref(),
        project.shipped().as_os_str(),
    ]))?;
    let bars = report[part]["bars"].as_array().into_iter().flatten();
    let bars: Vec<_> = bars.filter(|bar| bar["measure"] == measure).collect();
    match bars.iter().find(|bar| bar["met"] != true) {
        Some(bar) => Err(ChoreFailure::new(format!("{what} needs too much memory: {bar}"))),
        None if bars.is_empty() => {
            Err(ChoreFailure::new(format!("the bench has no bar for {measure}: {report}")))
        }
        None => Ok(()),
    }
}

fn demo(project: &Project) -> Result<(), ChoreFailure> {
    let program = project.shipped();
    run::run(ProgramRun::new(program, project.root(), project.log("demo"), DEMO_DEADLINE).arguments(["demo"]))
}

fn score(project: &Project) -> Result<(), ChoreFailure> {
    let unhang = project.shipped();
    let lab = project.lab(&unhang)?;
    let arguments: [&OsStr; 5] =
        ["zoo".as_ref(), "run".as_ref(), "--check".as_ref(), "--unhang".as_ref(), unhang.as_os_str()];
    run::run(ProgramRun::new(lab, project.root(), project.log("score"), SCORE_DEADLINE).arguments(arguments))
}

fn soak(project: &Project) -> Result<(), ChoreFailure> {
    // The soak counts its own descriptors, so it has a process for itself.
    let task = ProgramRun::new(run::this_program_path()?, project.root(), project.log("soak"), SOAK_DEADLINE);
    run::run(task.arguments(["soak", "--quick", "--binary"]).arguments([project.shipped()]))
}

fn scale(project: &Project) -> Result<(), ChoreFailure> {
    let binary = Some(project.shipped().display().to_string());
    scaling::scale(project, &Options { short: true, binary, ..Options::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_tests_printed_is_taken_from_the_whole_log() {
        let log = "running 1 test\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nboom\n\nfailures:\n    a\n\n\
                   test result: FAILED. 0 passed; 1 failed\n\nrunning 1 test\ntest b ... ok\n\ntest result: ok. 1 passed\n";
        let told = failed_tests(log);
        assert!(told.starts_with("failures:\n\n---- a stdout ----\nboom\n"), "{told}");
        assert!(told.ends_with("test result: FAILED. 0 passed; 1 failed\n"), "{told}");
        assert_eq!(failed_tests("test result: ok. 1 passed\n"), "");
    }
}
