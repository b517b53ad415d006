//! The wheel: pip takes it in a new environment, the program runs, and pip takes it away.

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
    run::run(pip("wheel-check").arguments(["check"]))?;
    run::run(pip("wheel-uninstall").arguments(["uninstall", "--yes", "unhang"]))?;
    if program.exists() {
        return Err(ChoreFailure::new(format!("pip left {}", program.display())));
    }
    Ok(())
}
