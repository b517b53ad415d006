//! What the programs share on a command line: their exit codes, and the lines that say what was wrong.
//!
//! # Invariants
//!
//! - A reader that has gone is no error of the program.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::entry::ProgramMain;

/// The exit code for a wrong or missing argument, or an unknown name.
const USAGE: u8 = 2;

/// Runs a program until it ends.
///
/// The program takes over stdin, stdout and stderr of this process. Wrong arguments end it with code 2 and a line on stderr; a reader
/// that has gone ends it quietly with code 0.
#[must_use]
pub fn run_program(name: &str, run: ProgramMain, args: &[String]) -> ExitCode {
    run(&ProgramArguments::new(args)).unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        io::ErrorKind::InvalidInput => complain(&format!("{name}: {error}"), USAGE),
        _ => complain(&format!("{name}: {error}"), 1),
    })
}

/// Writes a list or a help to stdout.
#[must_use]
pub fn show(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> ExitCode {
    match write(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => complain(&format!("writing the list: {error}"), 1),
    }
}

/// Says that no program has this name.
#[must_use]
pub fn unknown_name(name: &str) -> ExitCode {
    complain(&format!("no program is called `{name}`; see `zoo --list`"), USAGE)
}

/// Says that the name of a program is missing.
#[must_use]
pub fn missing_name() -> ExitCode {
    complain("name a program; see `zoo --list`", USAGE)
}

fn complain(text: &str, code: u8) -> ExitCode {
    // Nobody is left to tell when stderr is gone too.
    let _ = writeln!(io::stderr(), "{text}");
    ExitCode::from(code)
}
