//! The standard library of targets other than this machine: whether it is installed, or can be built from its source.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run::{self, ProgramRun};

const ANSWER_DEADLINE: Duration = Duration::from_mins(1);

/// The variable that names the folder `library` of Rust's source, for a nightly toolchain without the component `rust-src`.
pub(crate) const SOURCE: &str = "RUST_LIBRARY_SOURCE";

/// Returns whether the standard library for this target is installed.
pub(crate) fn is_installed(project: &Project, triple: &str) -> Result<bool, ChoreFailure> {
    Ok(rustc_says(project, &["--print", "target-libdir", "--target", triple])?.is_dir())
}

/// A nightly toolchain that can build the library for any target.
pub(crate) struct NightlyToolchain {
    /// The folder `library` of Rust's source.
    pub(crate) source: PathBuf,
    /// The folder of its programs.
    pub(crate) programs: PathBuf,
}

/// Returns the nightly toolchain; `None` if there is none, or no source for it.
pub(crate) fn nightly(project: &Project) -> Option<NightlyToolchain> {
    let sysroot = rustc_says(project, &["+nightly", "--print", "sysroot"]).ok()?;
    let named = env::var_os(SOURCE).map(PathBuf::from);
    let source = named.unwrap_or_else(|| sysroot.join("lib/rustlib/src/rust/library"));
    source
        .join("std/Cargo.toml")
        .is_file()
        .then(|| NightlyToolchain { source, programs: sysroot.join("bin") })
}

/// Returns the path that the compiler prints.
fn rustc_says(project: &Project, arguments: &[&str]) -> Result<PathBuf, ChoreFailure> {
    let output = project.log("standard-library");
    let task = ProgramRun::new("rustc", project.root(), output, ANSWER_DEADLINE);
    let text = run::run_for_text(task.arguments(arguments))?;
    Ok(PathBuf::from(text.trim()))
}
