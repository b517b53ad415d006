//! Leaves an `error.json` that says what went wrong, and ends with code 1.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::job_work;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "explains-its-failure",
    incident: "The error that was shown was the first 500 characters of stderr, where the last ones matter (contract.md 3.2).",
    usage: "",
    promises: &[7],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    pipe::complain_lines(2000)?;
    job_work::leave("error.json", br#"{"error": "the reactor is empty"}"#)?;
    pipe::complain("the last line says why")?;
    Ok(ExitCode::FAILURE)
}
