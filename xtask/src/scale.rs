//! `cargo xtask scale`: the promises of jobs on several machines, on a cluster of namespaces, and what the shared store costs.
//! `docs/reference/scale.md` says what it demands. `unhang-lab scale` does it; this finds the programs that it needs.
//!
//! # Invariants
//!
//! - A missing program, or a missing right, is a failure, and never a smaller run.
//! - A run that is asked for by name holds every figure against its bar. In the short form, beside other work, times say nothing: only
//!   counts are held against theirs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::debian_tool::{FAKETIME, IP, POSTGRES};
use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::report;
use crate::run::{self, ProgramRun};

/// Two hundred rounds, leases of half a minute, a million rows.
const DEADLINE: Duration = Duration::from_mins(60);
/// The short form takes less than two minutes, and longer on a busy machine.
const SHORT_DEADLINE: Duration = Duration::from_mins(5);

/// Runs the parts that the options ask for.
pub(crate) fn scale(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let binary =
        options.binary.as_ref().map_or_else(|| project.below_target("release/unhang"), PathBuf::from);
    let advice = "build it with `cargo build --release`, or name another with --binary";
    let unhang = fs::canonicalize(&binary)
        .map_err(|error| ChoreFailure::io(format!("{}: {advice}", binary.display()), &error))?;
    let (postgres, ip) = (POSTGRES.program(project)?, IP.program(project)?);
    let faketime = FAKETIME.file(project)?;
    let deadline = if options.short { SHORT_DEADLINE } else { DEADLINE };
    let task = ProgramRun::new(project.lab(&unhang)?, project.root(), project.log("scale"), deadline);
    let mut task = task
        .arguments(["scale", "--unhang"])
        .arguments([&unhang])
        .arguments(["--faketime".as_ref(), faketime.as_os_str()])
        .variable("PATH", path_with(ip.parent()));
    // A program in the PATH has no folder, and the lab knows where Debian has it.
    if let Some(folder) = postgres.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        task = task.arguments(["--postgres".as_ref(), folder.as_os_str()]);
    }
    task = task.arguments([if options.short { "--short" } else { "--check" }]);
    task = task.arguments(options.only.iter().flat_map(|part| ["--only", part]));
    task = task.arguments(options.seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    report::text(&run::run_for_text(task)?);
    Ok(())
}

/// Returns the search path with another folder in front.
fn path_with(folder: Option<&Path>) -> std::ffi::OsString {
    let usual = env::var_os("PATH").unwrap_or_default();
    let folders = folder.filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned).into_iter();
    env::join_paths(folders.chain(env::split_paths(&usual))).unwrap_or(usual)
}
