//! The packages for other languages: the step `sdk` checks the types of the Python package and runs its tests.
//!
//! # Invariants
//!
//! - The tests run against the program as packages ship it, and import the package from the checkout.
//! - What they need is installed in the versions of a lock file, below `target/`.

use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::tools;

const TESTS_DEADLINE: Duration = Duration::from_mins(10);

/// The folder of the Python package, below the checkout.
const PYTHON: &str = "sdk/python";

/// Checks and tests the Python package.
pub(crate) fn python(project: &Project) -> Result<(), ChoreFailure> {
    let program = project.shipped();
    if !program.exists() {
        return Err(ChoreFailure::new(format!(
            "there is no {}: run `cargo xtask ci --only dist,sdk`",
            program.display()
        )));
    }
    tools::PYTHON.require(project)?;
    let (sources, environment) = (project.root().join(PYTHON), project.below_target("sdk/python"));
    let requirements = sources.join("requirements.txt");
    tools::python_environment(project, &environment, &requirements)?;
    for (tool, words) in [("mypy", &[][..]), ("pytest", &["-q", "-p", "no:cacheprovider"])] {
        let task = ProgramRun::new(
            environment.join("bin/python"),
            &sources,
            project.log(&format!("sdk-{tool}")),
            TESTS_DEADLINE,
        );
        let task = task
            .variable("PYTHONPATH", sources.join("src"))
            .variable("PYTHONDONTWRITEBYTECODE", "1")
            .variable("MYPY_CACHE_DIR", project.below_target("sdk/mypy"))
            .variable("UNHANG_BINARY", &program);
        run::run(task.arguments(["-m", tool]).arguments(words))?;
    }
    Ok(())
}
