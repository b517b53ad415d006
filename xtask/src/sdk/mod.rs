//! The packages for other languages: the step `sdk` checks their types and runs their tests.
//!
//! # Invariants
//!
//! - The tests run against the program as packages ship it, and import the package from the checkout.
//! - What they need is installed in the versions of a lock file, below `target/`.

mod python;
mod typescript;

use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::report;

pub(crate) use typescript::{build as build_typescript, module as typescript_module};

const TESTS_DEADLINE: Duration = Duration::from_mins(10);

/// Installs what the tests need.
pub(crate) fn install(project: &Project) -> Result<(), ChoreFailure> {
    typescript::install(project)?;
    python::install(project)
}

/// Checks and tests the packages.
pub(crate) fn every(project: &Project) -> Result<(), ChoreFailure> {
    let program = project.shipped();
    if !program.exists() {
        return Err(ChoreFailure::new(format!(
            "there is no {}: run `cargo xtask ci --only dist,sdk`",
            program.display()
        )));
    }
    report::timed("sdk/build", || typescript::build(project).map(drop))?;
    report::timed("sdk/python", || python::check(project))?;
    report::timed("sdk/typescript", || typescript::check(project))
}
