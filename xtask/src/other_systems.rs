//! Compiles the program for systems that this machine is not: `cargo xtask ci --only macos,arm64`.
//!
//! cargo-zigbuild brings the headers, the compiler for the parts in C and the linker. The standard library is the installed one, or a
//! nightly toolchain builds it from its source.
//!
//! # Invariants
//!
//! - Nothing of another system runs here, but the program for ARM64 under qemu, which translates it.
//! - A step that this machine cannot do says so, with what it lacks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::debian_tool::{ARM64_LIBRARIES, QEMU_ARM64};
use crate::dist::oldest_target;
use crate::failure::ChoreFailure;
use crate::project::Project;
use crate::run::{self, ProgramRun};
use crate::standard_library::{self, SOURCE};
use crate::{report, tools};

const MACOS: &str = "aarch64-apple-darwin";
const ARM64: &str = "aarch64-unknown-linux-gnu";
const BUILD_DEADLINE: Duration = Duration::from_mins(15);

/// Variables for cargo where a program is built once, in the profile `dev`, and nobody debugs it.
const UNSEEN_BUILD: [(&str, &str); 3] =
    [("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0"), ("CARGO_PROFILE_DEV_STRIP", "symbols")];
/// Under qemu, a program starts in a second.
const VERSION_DEADLINE: Duration = Duration::from_secs(60);

/// Checks that the program and everything below it compiles for macOS.
pub(crate) fn check_macos(project: &Project) -> Result<(), ChoreFailure> {
    compile(project, "check", MACOS, MACOS).map(drop)
}

/// Builds the program for ARM64 Linux, and demands that it tells its version under qemu.
pub(crate) fn run_arm64(project: &Project) -> Result<(), ChoreFailure> {
    if !compile(project, "zigbuild", ARM64, &oldest_target(ARM64))? {
        return Ok(());
    }
    let program = folder(project, ARM64).join(ARM64).join("debug/unhang");
    let version = version_under_qemu(project, &program)?;
    let expected = format!("unhang {}", env!("CARGO_PKG_VERSION"));
    if version.trim() != expected {
        return Err(ChoreFailure::new(format!(
            "under qemu the program for ARM64 says {version:?} and not {expected:?}"
        )));
    }
    report::text(&format!("under qemu, the program for {ARM64} says: {expected}. Nothing else of it ran.\n"));
    Ok(())
}

fn version_under_qemu(project: &Project, program: &Path) -> Result<String, ChoreFailure> {
    let qemu = QEMU_ARM64.program(project)?;
    let libraries = ARM64_LIBRARIES.root(project)?.join("usr/aarch64-linux-gnu");
    let task = ProgramRun::new(qemu, project.root(), project.log("arm64-version"), VERSION_DEADLINE);
    let words = ["-L".as_ref(), libraries.as_os_str(), program.as_os_str(), "--version".as_ref()];
    run::run_for_text(task.arguments(words))
}

/// Compiles the program with cargo-zigbuild. If the standard library of the system is missing, prints the reason and returns false.
///
/// `target` is what cargo-zigbuild makes of the `triple`, perhaps with the version of the C library.
fn compile(project: &Project, command: &str, triple: &str, target: &str) -> Result<bool, ChoreFailure> {
    let is_installed = standard_library::is_installed(project, triple)?;
    let nightly = if is_installed { None } else { standard_library::nightly(project) };
    if !is_installed && nightly.is_none() {
        report::text(&format!(
            "NOT checked for {triple}: its standard library is not installed (rustup target add {triple}), and there is no source of it \
             for a nightly toolchain (rustup component add rust-src --toolchain nightly, or {SOURCE}=FOLDER)\n"
        ));
        return Ok(false);
    }
    let mut task = tools::zigbuild(project, triple, BUILD_DEADLINE)?
        .variable("CARGO_TARGET_DIR", folder(project, triple))
        .arguments([command, "--locked", "--package", "unhang-cli", "--target", target]);
    for (variable, value) in UNSEEN_BUILD {
        task = task.variable(variable, value);
    }
    if let Some(nightly) = nightly {
        // cargo has no other way to name the source. The programs are named because this process is a child of another cargo.
        task = task
            .variable("CARGO", nightly.programs.join("cargo"))
            .variable("RUSTC", nightly.programs.join("rustc"))
            .variable("__CARGO_TESTS_ONLY_SRC_ROOT", nightly.source)
            .arguments(["-Zbuild-std=std,panic_unwind"]);
    }
    run::run(task)?;
    Ok(true)
}

/// The folder of what is built for a system: other flags build every crate anew.
fn folder(project: &Project, triple: &str) -> PathBuf {
    project.below_target("other").join(triple)
}
