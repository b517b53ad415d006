//! `cargo xtask dist`: makes every package of the built program below `target/packages/`, and the step `packages` tests them.
//!
//! # Theory of operation
//!
//! A [`Release`] is what packages hold: the program for this machine, programs for others that were built elsewhere, and what the program
//! writes of itself (manual pages, completions). Each package has a module, which lays its files out in a folder of their own and lets a
//! well-kept tool pack them. [`check`] uses the packages as a person would, in folders below `target/`.
//!
//! # Invariants
//!
//! - The same programs and the same commit give the same bytes: names are sorted, times are the commit's, owners are root.
//! - No package is installed outside `target/`, and packing fetches only pinned tools.

mod addresses;
mod archive;
mod check;
mod container;
mod deb;
mod glibc;
mod homebrew;
mod mcpb;
mod npm;
mod programs;
mod release;
mod sbom;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::{files, report, run, tools};

pub(crate) use glibc::oldest_target;

use addresses::ArchiveAddresses;
use release::{PackageWork, Release};

const BUILD_DEADLINE: Duration = Duration::from_mins(30);

/// What makes packages, in this order, each with its name.
const PACKERS: &[PackageWork] = &[
    ("archive", archive::pack),
    ("npm", npm::pack),
    ("wheel", wheel::pack),
    ("deb", deb::pack),
    ("container", container::pack),
    ("homebrew", homebrew::pack),
    ("mcpb", mcpb::pack),
    ("sbom", sbom::write),
];

/// Builds the program, unless the options name one, and packs it.
pub(crate) fn dist(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let (program, others) = programs(project, options)?;
    let static_program = if options.binary.is_some() { None } else { programs::build_static(project)? };
    let release = Release::new(project, &program, &others, project.below_target("packages"))?;
    let release = release.with_static(static_program);
    pack(&release)?;
    report::text(&release.without());
    report::text(container::missing(&release));
    report::text(ArchiveAddresses::read(&release)?.missing());
    Ok(())
}

/// Builds and installs beforehand what the step needs and does not test.
pub(crate) fn prepare(project: &Project) -> Result<(), ChoreFailure> {
    programs::link_static(project)?;
    tools::CARGO_CYCLONEDX.program(project)?;
    tools::mcpb(project).map(drop)
}

/// The step of `cargo xtask ci`: packs what the step `dist` has built, twice, and uses the packages.
pub(crate) fn packages(project: &Project) -> Result<(), ChoreFailure> {
    let program = project.shipped();
    if !program.exists() {
        return Err(ChoreFailure::new(format!(
            "there is no {}: run `cargo xtask ci --only dist,packages`",
            program.display()
        )));
    }
    // This is about the packages, so the program may be any that runs.
    let static_program = report::timed("packages/static", || programs::link_static(project))?;
    let make = |folder: &str| {
        let release = Release::new(project, &program, &[], project.below_target(folder))?;
        Ok::<_, ChoreFailure>(release.with_static(static_program.clone()))
    };
    let release = make("packages")?;
    pack(&release)?;
    let again = make("xtask/packages/again")?;
    report::timed("packages/again", || pack_quietly(&again).and_then(|()| check::same(&release, &again)))?;
    check::every(&release)?;
    report::text(&release.without());
    Ok(())
}

/// Returns the program for this machine, and those for others as `TARGET=PATH`.
fn programs(project: &Project, options: &Options) -> Result<(PathBuf, Vec<String>), ChoreFailure> {
    let given = options.with.iter().cloned();
    if let Some(path) = &options.binary {
        return Ok((path.into(), given.collect()));
    }
    if std::env::consts::OS != "linux" {
        return Ok((build(project)?, given.collect()));
    }
    let mut built = programs::build(project)?.into_iter();
    let (_, own) =
        built.next().ok_or_else(|| ChoreFailure::new("no program could be built for this machine"))?;
    let others = built.map(|(triple, path)| format!("{triple}={}", path.display()));
    Ok((own, others.chain(given).collect()))
}

fn build(project: &Project) -> Result<PathBuf, ChoreFailure> {
    let arguments = ["build", "--profile", "dist", "--locked", "--package", "unhang-cli"];
    run::run(project.cargo("dist-build", BUILD_DEADLINE).arguments(arguments))?;
    Ok(project.shipped())
}

fn pack(release: &Release) -> Result<(), ChoreFailure> {
    files::empty(release.folder())?;
    for (name, work) in PACKERS {
        report::timed(&format!("packages/{name}"), || work(release))?;
    }
    finish(release)?;
    for path in release.packages()? {
        let size = fs::metadata(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?.len();
        report::text(&format!("  {} ({size} bytes)\n", name_of(&path)));
    }
    Ok(())
}

fn pack_quietly(release: &Release) -> Result<(), ChoreFailure> {
    files::empty(release.folder())?;
    for (_, work) in PACKERS {
        work(release)?;
    }
    finish(release)
}

/// Writes the sums of everything that was made, in the form of `sha256sum`.
fn finish(release: &Release) -> Result<(), ChoreFailure> {
    let mut sums = String::new();
    for path in release.packages()? {
        sums.push_str(&format!("{}  {}\n", files::sha256(&path)?, name_of(&path)));
    }
    files::write(&release.folder().join(release::SUMS), &sums)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
