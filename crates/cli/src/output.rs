//! The one printer. Data goes to stdout, everything else to stderr; a broken pipe is a quiet success.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use unhang::exit;

/// Prints data.
pub(crate) fn data(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(exit::DONE),
        Err(_) => ExitCode::from(exit::FAILED),
    }
}

/// Prints an error and a hint, where there is one. Nobody reading it is no reason to fail.
pub(crate) fn error(message: &str, hint: Option<&str>) {
    let hint = hint.map_or_else(String::new, |hint| format!("hint: {hint}\n"));
    let _nobody_reads = write!(io::stderr().lock(), "unhang: {message}\n{hint}");
}

/// Prints what is wrong with the command line (exit 2), or help and version (exit 0).
pub(crate) fn usage_error(error: &clap::Error) -> ExitCode {
    let _nobody_reads = error.print();
    if error.use_stderr() { ExitCode::from(exit::USAGE) } else { ExitCode::from(exit::DONE) }
}
