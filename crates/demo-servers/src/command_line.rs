//! The command line that all programs share: flags, exit codes, and the lines about wrong usage.
//!
//! # Invariants
//!
//! - If the reader of stdout has closed it, the program ends with code 0.

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

/// Runs a command line: `--help`, `--list`, or the name of a program with its arguments. `run` returns `None` for an unknown name.
#[must_use]
pub fn dispatch(
    args: &[String],
    help: &str,
    list: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>,
    run: impl FnOnce(&str, &[String]) -> Option<ExitCode>,
) -> ExitCode {
    match args {
        [flag] if flag == "--help" || flag == "-h" => show(|out| out.write_all(help.as_bytes())),
        [flag] if flag == "--list" => show(list),
        [name, rest @ ..] => run(name, rest)
            .unwrap_or_else(|| complain(&format!("no program is called `{name}`; see `zoo --list`"), USAGE)),
        [] => complain("name a program; see `zoo --list`", USAGE),
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    // If stderr is closed too, the line has no reader.
    let _ = writeln!(io::stderr(), "{text}");
    ExitCode::from(code)
}
