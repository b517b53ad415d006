//! `cargo xtask ci --only macos` checks that `unhang` compiles for macOS. It runs nothing there.
//!
//! cargo-zigbuild brings the headers and the compiler for the parts in C. The standard library is the installed one, or a nightly toolchain
//! builds it from its source.

use std::time::Duration;

use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run;
use crate::standard_library::{self, SOURCE};
use crate::{report, tools};

const TARGET: &str = "aarch64-apple-darwin";
const DEADLINE: Duration = Duration::from_mins(15);

/// Checks the program and everything below it, and says so if this machine cannot.
pub(crate) fn check(project: &Project) -> Result<(), ChoreFailure> {
    let is_installed = standard_library::is_installed(project, TARGET)?;
    let nightly = if is_installed { None } else { standard_library::nightly(project) };
    if !is_installed && nightly.is_none() {
        report::text(&format!(
            "NOT checked for {TARGET}: its standard library is not installed (rustup target add {TARGET}), and there is no source of it \
             for a nightly toolchain (rustup component add rust-src --toolchain nightly, or {SOURCE}=FOLDER)\n"
        ));
        return Ok(());
    }
    let mut task = tools::zigbuild(project, "macos", DEADLINE)?
        .variable("CARGO_TARGET_DIR", project.below_target("macos"))
        .arguments(["check", "--locked", "--package", "unhang-cli", "--target", TARGET]);
    if let Some(nightly) = nightly {
        // cargo has no other way to name the source. The programs are named because this process is a child of another cargo.
        task = task
            .variable("CARGO", nightly.programs.join("cargo"))
            .variable("RUSTC", nightly.programs.join("rustc"))
            .variable("__CARGO_TESTS_ONLY_SRC_ROOT", nightly.source)
            .arguments(["-Zbuild-std=std,panic_unwind"]);
    }
    run::run(task)
}
