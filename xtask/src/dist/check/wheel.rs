//! The wheel: pip takes it in a new environment, the program runs, Python imports the package, and pip takes both away.

use crate::dist::release::Release;
use crate::dist::wheel;
use crate::failure::ChoreFailure;
use crate::{run, tools};

use super::says_version;

pub(super) fn check(release: &Release) -> Result<(), ChoreFailure> {
    tools::PYTHON.require(release.project())?;
    let folder = release.stage("wheel-used")?;
    tools::make_environment(release.project(), &folder)?;
    let pip = |name: &str| {
        let task = release.task(name, folder.join("bin/python"), &folder);
        task.arguments(["-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"])
    };
    let package = wheel::path(release, release.own())?;
    run::run(pip("wheel-install").arguments(["install", "--no-index"]).arguments([package]))?;
    let program = folder.join("bin/unhang");
    says_version(release, "wheel-version", &program)?;
    let script = "import unhang; print('unhang', unhang.__version__, unhang.binary(), end='')";
    let task = release.task("wheel-import", folder.join("bin/python"), &folder).arguments(["-c", script]);
    let (answer, expected) =
        (run::run_for_text(task)?, format!("unhang {} {}", release.version(), program.display()));
    if answer != expected {
        return Err(ChoreFailure::new(format!("the Python package says {answer:?} and not {expected:?}")));
    }
    run::run(pip("wheel-check").arguments(["check"]))?;
    run::run(pip("wheel-uninstall").arguments(["uninstall", "--yes", "unhang"]))?;
    let task = release.task("wheel-gone", folder.join("bin/python"), &folder);
    let find = "import importlib.util; print(importlib.util.find_spec('unhang'), end='')";
    let left = run::run_for_text(task.arguments(["-c", find]))?;
    if program.exists() || left != "None" {
        return Err(ChoreFailure::new(format!("pip left {} or the package: {left}", program.display())));
    }
    Ok(())
}
