//! `cargo xtask ci`: every check, cheap ones first, so that the likeliest mistakes show soonest.
//!
//! # Invariants
//!
//! - The steps are a table; the first that fails ends the run. A step that leaves a process behind has failed.
//! - After `fetch`, only the installation of pinned tools and servers uses the network.

use std::time::Duration;

use crate::failure::Failure;
use crate::options::Options;
use crate::project::Project;
use crate::run::{self, Task};
use crate::{clock, custody, faults, real, report, rooms, soak, tools, units};

/// One row of the table.
struct Step {
    name: &'static str,
    /// What a failure of this step means, for `--list`.
    about: &'static str,
    work: Work,
}

enum Work {
    /// One call of cargo.
    Cargo {
        arguments: &'static [&'static str],
        environment: &'static [(&'static str, &'static str)],
        deadline: Duration,
    },
    /// More than that; every part has its own deadline.
    Own(fn(&Project) -> Result<(), Failure>),
}

const fn cargo(arguments: &'static [&'static str], minutes: u64) -> Work {
    Work::Cargo { arguments, environment: &[], deadline: Duration::from_mins(minutes) }
}

/// The documented limit of the demo.
const DEMO_DEADLINE: Duration = Duration::from_mins(1);

/// Sixty cases in three columns take a minute and a half, and longer on a busy machine.
const SCORE_DEADLINE: Duration = Duration::from_mins(8);

const STEPS: &[Step] = &[
    Step {
        name: "fetch",
        about: "Cargo.lock is complete and every dependency is there",
        work: cargo(&["fetch", "--locked"], 10),
    },
    Step { name: "fmt", about: "the code is formatted", work: cargo(&["fmt", "--all", "--check"], 2) },
    Step {
        name: "clippy",
        about: "no lint of the workspace fires",
        work: cargo(
            &[
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
            20,
        ),
    },
    Step {
        name: "rooms",
        about: "files of different folders do not import each other in circles",
        work: Work::Own(|project| rooms::rooms(project, &Options::default())),
    },
    Step { name: "alone", about: "each crate builds without the others' features", work: Work::Own(alone) },
    Step {
        name: "docs",
        about: "the documentation builds without a warning",
        work: Work::Cargo {
            arguments: &["doc", "--workspace", "--no-deps", "--locked", "--offline"],
            environment: &[("RUSTDOCFLAGS", "-D warnings")],
            deadline: Duration::from_mins(15),
        },
    },
    Step {
        name: "deny",
        about: "bans, licences and sources of the dependencies are in order",
        work: Work::Own(deny),
    },
    Step {
        name: "advisories",
        about: "no dependency has a known advisory; says so where the database cannot be reached",
        work: Work::Own(advisories),
    },
    Step {
        name: "tests",
        about: "every test of the workspace passes, with nothing but Rust installed",
        work: cargo(&["test", "--workspace", "--locked", "--offline"], 30),
    },
    Step {
        name: "examples",
        about: "the example with a script in Python does what its guide says",
        work: Work::Own(examples),
    },
    Step {
        name: "faults",
        about: "each guard's test fails when that guard is switched off",
        work: Work::Own(faults::every),
    },
    Step {
        name: "release",
        about: "the release binary builds",
        work: cargo(&["build", "--release", "--locked", "--offline"], 20),
    },
    Step {
        name: "units",
        about: "systemd understands the units, and they leave jobs what jobs need",
        work: Work::Own(units::check),
    },
    Step {
        name: "memory",
        about: "a guard and its lifeline stay within their memory; the other bars want a quiet machine",
        work: Work::Own(memory),
    },
    Step { name: "demo", about: "the README's first command shows its table", work: Work::Own(demo) },
    Step {
        name: "score",
        about: "unhang keeps every case of its corpus, and no wrapper and a naive pump break what they ought to",
        work: Work::Own(score),
    },
    Step {
        name: "soak",
        about: "a short soak: calls, restarts, sessions on random animals, kills of servers and shims",
        work: Work::Own(soak::quick),
    },
    Step {
        name: "real",
        about: "real clients see the same real servers through the guard",
        work: Work::Own(real::every),
    },
];

/// Runs the steps that the options ask for.
pub(crate) fn ci(project: &Project, options: &Options) -> Result<(), Failure> {
    let steps = chosen(&options.only)?;
    if options.list {
        for step in steps {
            report::text(&format!("{:<8} {}\n", step.name, step.about));
        }
        return Ok(());
    }
    let start = clock::now();
    for step in &steps {
        report::timed(step.name, || perform(project, step).and_then(|()| custody::demand_nothing_left()))?;
    }
    report::ended("all", true, start.elapsed());
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Step>, Failure> {
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(Failure::usage(format!("no step {unknown}; there are {}", names.join(", "))));
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

fn perform(project: &Project, step: &Step) -> Result<(), Failure> {
    match &step.work {
        Work::Own(work) => work(project),
        Work::Cargo { arguments, environment, deadline } => {
            let mut task = project.cargo(step.name, *deadline).arguments(*arguments);
            for (name, value) in *environment {
                task = task.variable(name, value);
            }
            run::run(task)
        }
    }
}

fn alone(project: &Project) -> Result<(), Failure> {
    for name in project.crates() {
        let arguments = ["check", "--locked", "--offline", "-p", name];
        run::run(project.cargo(&format!("alone-{name}"), Duration::from_mins(10)).arguments(arguments))?;
    }
    Ok(())
}

fn deny(project: &Project) -> Result<(), Failure> {
    let program = tools::cargo_deny(project)?;
    let task = Task::new(program, project.root(), project.log("deny"), Duration::from_mins(2));
    run::run(task.arguments(["--offline", "--locked", "--workspace", "check", "bans", "licenses", "sources"]))
}

/// Known weaknesses of the dependencies. Their database is a git repository, which is not where the registry is: without it nothing is
/// known of them, and that is said rather than held against the change.
fn advisories(project: &Project) -> Result<(), Failure> {
    let program = tools::cargo_deny(project)?;
    let task = |name: &str| Task::new(&program, project.root(), project.log(name), Duration::from_mins(2));
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

/// The tests that are ignored elsewhere, since they need more than Rust.
fn examples(project: &Project) -> Result<(), Failure> {
    tools::PYTHON.require(project)?;
    // The whole workspace, as in the step before, so that nothing is built anew.
    let arguments = ["test", "--workspace", "--locked", "--offline", "--test", "it", "--", "--ignored"];
    run::run(project.cargo("examples", Duration::from_mins(20)).arguments(arguments))
}

fn memory(project: &Project) -> Result<(), Failure> {
    const MEASURE: &str = "memory_bytes";
    let answer = project.log("memory").with_extension("json");
    let task = Task::new(project.below_target("release/unhang"), project.root(), answer, DEMO_DEADLINE);
    let report =
        run::run_for_json(task.arguments(["bench", "--quick", "--only", "wrap", "--output", "json"]))?;
    let mut bars = report["wrap"]["bars"].as_array().into_iter().flatten();
    match bars.find(|bar| bar["measure"] == MEASURE) {
        Some(bar) if bar["met"] == true => Ok(()),
        Some(bar) => Err(Failure::new(format!("a guard needs too much memory: {bar}"))),
        None => Err(Failure::new(format!("the bench has no bar for {MEASURE}: {report}"))),
    }
}

fn demo(project: &Project) -> Result<(), Failure> {
    unhang(project, "demo", DEMO_DEADLINE, &["demo"])
}

fn score(project: &Project) -> Result<(), Failure> {
    unhang(project, "score", SCORE_DEADLINE, &["zoo", "run", "--check"])
}

/// Runs the release binary.
fn unhang(project: &Project, step: &str, deadline: Duration, arguments: &[&str]) -> Result<(), Failure> {
    let program = project.below_target("release/unhang");
    run::run(Task::new(program, project.root(), project.log(step), deadline).arguments(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_picks_by_whole_name_and_keeps_the_order_of_the_table() {
        let only = ["deny".to_owned(), "fmt".to_owned()];
        let names: Vec<_> = chosen(&only).expect("both exist").iter().map(|step| step.name).collect();
        assert_eq!(names, ["fmt", "deny"]);
        assert_eq!(chosen(&[]).expect("all").len(), STEPS.len());
    }

    #[test]
    fn an_unknown_step_is_refused_with_the_names_there_are() {
        let failure = chosen(&["fnt".to_owned()]).err().expect("there is no such step");
        assert!(failure.is_usage());
        assert!(failure.to_string().contains("fmt"), "{failure}");
    }
}
