//! Builds the programs of a release: one for each Linux whose standard library is installed, linked so that it runs with an old C library.
//!
//! cargo-zigbuild brings a linker and the C library's names in each of its versions. On any other system the program is built as it is
//! for this machine. The program of the container has the C library in it, which is not for everybody: such a program finds names of
//! machines by DNS and `/etc/hosts` alone, whatever else the system has.
//!
//! # Invariant
//!
//! - A program has no name of a folder of the machine that built it: two machines build the same bytes from the same commit.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::ChoreFailure;
use crate::project::{Project, built_at};
use crate::run;
use crate::{report, standard_library, tools};

use super::BUILD_DEADLINE;
use super::glibc::oldest_target;

/// The systems that a Linux machine can build for.
const LINUX: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// A program that was built, and its target.
pub(super) type BuiltFor = (&'static str, PathBuf);

/// Builds the program for each target that this machine can build for, and says which it cannot. The program of this machine comes first.
pub(super) fn build(project: &Project) -> Result<Vec<BuiltFor>, ChoreFailure> {
    let mut built = Vec::new();
    for triple in LINUX {
        if standard_library::is_installed(project, triple)? {
            built.push((triple, build_for(project, triple)?));
        } else {
            report::text(&format!(
                "not built for {triple}: its standard library is not installed (rustup target add {triple})\n"
            ));
        }
    }
    built.sort_by_key(|(triple, _)| !triple.starts_with(std::env::consts::ARCH));
    Ok(built)
}

fn build_for(project: &Project, triple: &str) -> Result<PathBuf, ChoreFailure> {
    let task = tools::zigbuild(project, &format!("dist-{triple}"), BUILD_DEADLINE)?
        .variable("CARGO_ENCODED_RUSTFLAGS", renamed_folders(project)?.join("\u{1f}"));
    let target = oldest_target(triple);
    let what = ["zigbuild", "--profile", "dist", "--locked", "--package", "unhang-cli", "--target", &target];
    run::run(task.arguments(what))?;
    Ok(project.below_target(triple).join("dist/unhang"))
}

/// Builds the program with the C library in it, as packages ship it. Returns `None` on a system where that does not work.
pub(super) fn build_static(project: &Project) -> Result<Option<PathBuf>, ChoreFailure> {
    let Some(triple) = static_target(project)? else { return Ok(None) };
    let mut flags = renamed_folders(project)?;
    flags.push(STATIC.to_owned());
    // Other flags build every crate anew, so this has a folder of its own.
    let folder = project.below_target("static");
    let task = project
        .cargo("dist-static", BUILD_DEADLINE)
        .variable("CARGO_TARGET_DIR", &folder)
        .variable("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let what = ["build", "--profile", "dist", "--locked", "--package", "unhang-cli", "--target", triple];
    run::run(task.arguments(what))?;
    Ok(Some(folder.join(triple).join("dist/unhang")))
}

/// Links the shipped program, which is built already, once more: with the C library in it and without optimisation, in a fifth of the time.
/// Returns `None` on a system where that does not work.
pub(super) fn link_static(project: &Project) -> Result<Option<PathBuf>, ChoreFailure> {
    if static_target(project)?.is_none() {
        return Ok(None);
    }
    let program = project.below_target("dist/unhang-static");
    // Cargo does not find the program where it expects it, and would link it at every call.
    if built_at(&program) > built_at(&project.shipped()) {
        return Ok(Some(program));
    }
    let what = ["rustc", "--profile", "dist", "--locked", "--package", "unhang-cli", "--bin", "unhang", "--"];
    let task = project.cargo("dist-static", BUILD_DEADLINE).arguments(what);
    let output = format!("link={}", program.display());
    run::run(task.arguments([STATIC, "-Clto=thin", "-Copt-level=0", "--emit", &output]))?;
    Ok(Some(program))
}

/// Links the C library into the program.
const STATIC: &str = "-Ctarget-feature=+crt-static";

/// Returns the target of programs for this machine with the C library in them; `None` if there can be none.
fn static_target(project: &Project) -> Result<Option<&'static str>, ChoreFailure> {
    let own = LINUX.into_iter().find(|triple| triple.starts_with(std::env::consts::ARCH));
    let Some(triple) = own.filter(|_| std::env::consts::OS == "linux") else { return Ok(None) };
    Ok(standard_library::is_installed(project, triple)?.then_some(triple))
}

/// Returns the flags that give the folders of sources other names: messages of a program that panics have paths in them.
fn renamed_folders(project: &Project) -> Result<Vec<String>, ChoreFailure> {
    let renamed = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec![renamed(project.root(), "/unhang")];
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let home = home.ok_or_else(|| ChoreFailure::new("neither CARGO_HOME nor HOME is set"))?;
    // Each registry has a folder, whose name has a hash of the registry's address.
    let registries = home.join("registry/src");
    let entries =
        fs::read_dir(&registries).map_err(|error| ChoreFailure::io(registries.display(), &error))?;
    flags.extend(entries.flatten().map(|entry| renamed(&entry.path(), "/crates")));
    Ok(flags)
}
