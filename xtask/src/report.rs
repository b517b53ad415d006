//! What a person sees: one line for each thing done, and on failure the output of what failed.
//!
//! # Invariants
//!
//! - A closed stdout is no reason to stop: writing is best effort.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use crate::clock;
use crate::failure::ChoreFailure;

/// How much of a failing program's output is shown, from its end; the file has the rest.
const SHOWN_OUTPUT: u64 = 64 * 1024;

/// Prints text as it is.
pub(crate) fn text(text: &str) {
    let mut stdout = io::stdout().lock();
    // The exit code tells the outcome; nobody can be told that stdout is gone.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Says that something begins, where somebody may be watching.
pub(crate) fn begun(name: &str) {
    if io::stdout().is_terminal() {
        text(&format!("{name} ..."));
    }
}

/// Says how it went.
pub(crate) fn ended(name: &str, well: bool, took: Duration) {
    let back = if io::stdout().is_terminal() { "\r" } else { "" };
    let outcome = if well { "ok" } else { "FAILED" };
    text(&format!("{back}{name:<40} {outcome:<6} {:>7.1} s\n", took.as_secs_f64()));
}

/// Does one thing and reports its name, how it went and how long it took.
pub(crate) fn timed<T>(
    name: &str,
    work: impl FnOnce() -> Result<T, ChoreFailure>,
) -> Result<T, ChoreFailure> {
    begun(name);
    timed_beside_others(name, work)
}

/// Does the same where several things are done at the same time: reports the end alone.
pub(crate) fn timed_beside_others<T>(
    name: &str,
    work: impl FnOnce() -> Result<T, ChoreFailure>,
) -> Result<T, ChoreFailure> {
    let start = clock::now();
    let outcome = work();
    ended(name, outcome.is_ok(), start.elapsed());
    outcome
}

/// Shows a failure and the output that belongs to it.
pub(crate) fn failure(failure: &ChoreFailure) {
    if let Some(path) = failure.output() {
        text(&format!("---- {} ----\n", path.display()));
        text(&tail(path).unwrap_or_else(|error| format!("cannot read it: {error}\n")));
        text("----\n");
    }
    text(&format!("xtask: {failure}\n"));
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_OUTPUT)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
