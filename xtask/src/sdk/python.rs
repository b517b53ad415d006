//! The Python package: mypy and pyright check its types, and pytest runs its tests with both frameworks.

use std::path::PathBuf;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::tools;

use super::{TESTS_DEADLINE, typescript};

/// The folder of the package, below the checkout.
const SOURCES: &str = "sdk/python";

/// Installs the frameworks and tools of the tests.
pub(super) fn install(project: &Project) -> Result<(), ChoreFailure> {
    tools::PYTHON.require(project)?;
    let requirements = project.root().join(SOURCES).join("requirements.txt");
    tools::python_environment(project, &project.below_target(SOURCES), &requirements)
}

/// Checks and tests the package.
pub(super) fn check(project: &Project) -> Result<(), ChoreFailure> {
    install(project)?;
    let sources = project.root().join(SOURCES);
    // pyright is a program for Node.js.
    let task = ProgramRun::new("node", &sources, project.log("sdk-pyright"), TESTS_DEADLINE);
    let task = task.arguments([typescript::module(project, "pyright/index.js")]);
    run::run(task.arguments(["--project", ".", "--pythonpath"]).arguments([interpreter(project)]))?;
    for (tool, words) in [("mypy", &[][..]), ("pytest", &["-q", "-n3", "-p", "no:cacheprovider"])] {
        let log = project.log(&format!("sdk-{tool}"));
        let task = ProgramRun::new(interpreter(project), &sources, log, TESTS_DEADLINE);
        let task = with_package(project, task)
            .variable("MYPY_CACHE_DIR", project.below_target("sdk/mypy"))
            .variable("UNHANG_BINARY", project.shipped());
        run::run(task.arguments(["-m", tool]).arguments(words))?;
    }
    Ok(())
}

/// The Python that has what the tests need.
pub(super) fn interpreter(project: &Project) -> PathBuf {
    project.below_target(SOURCES).join("bin/python")
}

/// Lets Python in this run find the package of the checkout, and write nothing there.
pub(super) fn with_package(project: &Project, task: ProgramRun) -> ProgramRun {
    task.variable("PYTHONPATH", project.root().join(SOURCES).join("src"))
        .variable("PYTHONDONTWRITEBYTECODE", "1")
}
