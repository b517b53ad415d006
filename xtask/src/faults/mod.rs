//! `cargo xtask faults`: switches off one guard after the other and demands that its test turns red.
//!
//! # Theory of operation
//!
//! All test programs are built once with the feature that lets guards be switched off, in a build folder of their own, so
//! that nothing of it can be mistaken for a normal build. Every test of the list is seen green with all guards on; then,
//! for each guard, its one test is run with that guard off, several at a time.
//!
//! # Invariants
//!
//! - Red means that exactly the named test ran and failed, or that its program died of a signal. A test that is not found, or is
//!   not done in time, is a failure of this check.
//! - What a test started is ended with it, and what escapes that, for want of the guard that is there to end it, at the end.

mod guards;
mod page;
mod programs;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::{custody, report};

use guards::{SwitchedGuard, Test};
use programs::Programs;

/// The variable that the fault build looks at.
const VARIABLE: &str = "UNHANG_GUARDS_OFF";

/// How long one test may take on a busy machine. Every wait in a test has a limit of its own well below this.
const TEST_LIMIT: Duration = Duration::from_mins(3);

/// Does all of it, or what the options ask for.
pub(crate) fn faults(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let chosen = chosen(&options.only)?;
    if options.list {
        let width = chosen.iter().map(|guard| guard.name.len()).max().unwrap_or_default();
        for guard in chosen {
            report::text(&format!("{:<width$}  {}\n", guard.name, guard.about));
        }
        return Ok(());
    }
    if options.write {
        let path = project.root().join(page::PATH);
        return fs::write(&path, page::page()).map_err(|error| ChoreFailure::io(path.display(), &error));
    }
    check(project, &chosen)
}

/// Does all of it.
pub(crate) fn every(project: &Project) -> Result<(), ChoreFailure> {
    check(project, &chosen(&[])?)
}

fn chosen(only: &[String]) -> Result<Vec<&'static SwitchedGuard>, ChoreFailure> {
    if let Some(unknown) = only.iter().find(|name| guards::all().all(|guard| guard.name != **name)) {
        return Err(ChoreFailure::usage(format!(
            "no guard {unknown}; `cargo xtask faults --list` names them"
        )));
    }
    let filter = |guard: &&SwitchedGuard| only.is_empty() || only.iter().any(|name| name == guard.name);
    Ok(guards::all().filter(filter).collect())
}

fn check(project: &Project, guards: &[&'static SwitchedGuard]) -> Result<(), ChoreFailure> {
    let programs = report::timed("faults/build", || Programs::build(project))?;
    let tests: BTreeSet<Test> = guards.iter().map(|guard| guard.test).collect();
    let tests: Vec<Test> = tests.into_iter().collect();
    report::timed("faults/all guards on", || {
        side_by_side(&tests, |test| match run_test(project, &programs, *test, None)? {
            TestColour::Green => Ok(()),
            TestColour::Red => Err(ChoreFailure::new(format!("{} fails with every guard on", test.path))
                .with_output(project.log(&log_name(*test, None)))),
        })
    })?;
    let name = format!("faults/{} guards off, one by one", guards.len());
    let outcome = report::timed(&name, || {
        side_by_side(guards, |guard| match run_test(project, &programs, guard.test, Some(guard))? {
            TestColour::Red => Ok(()),
            TestColour::Green => Err(ChoreFailure::new(format!(
                "without the guard {}, {} still passes",
                guard.name, guard.test.path
            ))),
        })
    });
    custody::end_the_rest();
    outcome
}

/// How a test went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestColour {
    Green,
    Red,
}

fn log_name(test: Test, off: Option<&SwitchedGuard>) -> String {
    match off {
        Some(guard) => format!("faults-off-{}", guard.name),
        None => format!("faults-on-{}-{}-{}", test.room, test.target, test.path.replace("::", "-")),
    }
}

fn run_test(
    project: &Project,
    programs: &Programs,
    test: Test,
    off: Option<&SwitchedGuard>,
) -> Result<TestColour, ChoreFailure> {
    let program = programs.of(test)?;
    let output = project.log(&log_name(test, off));
    let folder = project.root().join("crates").join(test.room);
    let task = ProgramRun::new(program, &folder, output.clone(), TEST_LIMIT)
        .arguments(["--exact", test.path, "--test-threads", "1"])
        .variable(VARIABLE, off.map_or("", |guard| guard.name));
    let running = run::start(task)?;
    let status = running.status();
    running.end();
    let text = fs::read_to_string(&output).map_err(|error| ChoreFailure::io(output.display(), &error))?;
    verdict(status?.signal(), &text)
        .ok_or_else(|| ChoreFailure::new(format!("{} was not run", test.path)).with_output(output))
}

/// What a test program says of its one test.
fn verdict(signal: Option<i32>, output: &str) -> Option<TestColour> {
    if output.contains("test result: ok. 1 passed; 0 failed;") {
        Some(TestColour::Green)
    } else if output.contains("test result: FAILED. 0 passed; 1 failed;") || signal.is_some() {
        Some(TestColour::Red)
    } else {
        None
    }
}

/// How many tests run at once for each processor: those that turn red mostly wait for what does not come.
const TESTS_PER_PROCESSOR: usize = 2;

/// Does all the work, several at once, and reports all failures, not only the first.
fn side_by_side<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), ChoreFailure> + Sync,
) -> Result<(), ChoreFailure> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let workers = TESTS_PER_PROCESSOR * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = work(item) {
                        failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(failure);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(last) = failures.pop() else { return Ok(()) };
    failures.iter().for_each(report::failure);
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_ran_has_a_colour() {
        let green = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored;";
        let red = "test a ... FAILED\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored;";
        let none = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored;";
        assert_eq!(verdict(None, green), Some(TestColour::Green));
        assert_eq!(verdict(None, red), Some(TestColour::Red));
        assert_eq!(verdict(None, none), None);
        assert_eq!(verdict(Some(11), "running 1 test\n"), Some(TestColour::Red));
    }

    #[test]
    fn every_item_is_done_once_and_a_failure_stops_no_other() {
        let items: Vec<usize> = (0..50).collect();
        let done = AtomicUsize::new(0);
        let outcome = side_by_side(&items, |item| {
            done.fetch_add(1, Ordering::Relaxed);
            if *item == 3 { Err(ChoreFailure::new("the third")) } else { Ok(()) }
        });
        assert_eq!(outcome.expect_err("one failed").to_string(), "the third");
        assert_eq!(done.into_inner(), items.len());
    }
}
