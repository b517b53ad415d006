//! Uses the packages as a person would, in folders below `target/`: installs them, runs what they brought, and takes them away.

mod addresses;
mod archive;
mod container;
mod deb;
mod mcpb;
mod npm;
mod sbom;
mod wheel;

use std::path::Path;

use crate::failure::ChoreFailure;
use crate::files;
use crate::{report, run};

use super::name_of;
use super::release::{PackageWork, Release, SUMS};

/// The checks, each with the name of the package.
const CHECKS: &[PackageWork] = &[
    ("sums", sums),
    ("container", container::check),
    ("archive", archive::check),
    ("npm", npm::check),
    ("wheel", wheel::check),
    ("deb", deb::check),
    ("addresses", addresses::check),
    ("mcpb", mcpb::check),
    ("sbom", sbom::check),
];

/// Does all checks.
pub(super) fn every(release: &Release) -> Result<(), ChoreFailure> {
    for (name, check) in CHECKS {
        report::timed(&format!("packages/{name}: used"), || check(release))?;
    }
    Ok(())
}

/// Demands that two releases of the same programs have the same bytes.
pub(super) fn same(first: &Release, second: &Release) -> Result<(), ChoreFailure> {
    let sums = |release: &Release| files::read(&release.folder().join(SUMS));
    let (first, second) = (sums(first)?, sums(second)?);
    match first.lines().zip(second.lines()).find(|(first, second)| first != second) {
        Some((first, second)) => Err(ChoreFailure::new(format!(
            "packing twice does not give the same bytes: {first} the first time, {second} the second time"
        ))),
        None if first.lines().count() == second.lines().count() => Ok(()),
        None => Err(ChoreFailure::new("packing twice does not give the same number of packages")),
    }
}

/// Lets `sha256sum` compare the sums, and demands that no file is without one.
fn sums(release: &Release) -> Result<(), ChoreFailure> {
    run::run(release.task("sums", "sha256sum", release.folder()).arguments(["--check", "--strict", SUMS]))?;
    let sums = files::read(&release.folder().join(SUMS))?;
    match release.packages()?.iter().map(|path| name_of(path)).find(|name| !sums.contains(name.as_str())) {
        Some(name) => Err(ChoreFailure::new(format!("{SUMS} does not name {name}"))),
        None => Ok(()),
    }
}

/// Demands that this program says the version of the release.
fn says_version(release: &Release, name: &str, program: &Path) -> Result<(), ChoreFailure> {
    let task = release.task(name, program, release.project().root()).arguments(["--version"]);
    let answer = run::run_for_text(task)?;
    demand_version(release, &answer)
}

fn demand_version(release: &Release, answer: &str) -> Result<(), ChoreFailure> {
    let expected = format!("unhang {}", release.version());
    if answer.trim() == expected {
        return Ok(());
    }
    Err(ChoreFailure::new(format!("the installed program says {answer:?} and not {expected:?}")))
}

/// Demands that a file is there and has something in it.
fn has(path: &Path) -> Result<(), ChoreFailure> {
    match path.metadata() {
        Ok(metadata) if metadata.len() > 0 => Ok(()),
        Ok(_) => Err(ChoreFailure::new(format!("{} is empty", path.display()))),
        Err(error) => Err(ChoreFailure::io(path.display(), &error)),
    }
}
