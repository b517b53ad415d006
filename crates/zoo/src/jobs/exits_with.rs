//! Ends at once with this exit code.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "exits-with",
    incident: "Of 40 jobs that succeeded at once, 40 were called failed, for a poll saw the end before the monitor did (contract.md 3.2).",
    usage: "[CODE]",
    promises: &[7],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let code = u8::try_from(arguments.number(0, 1)?).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(ExitCode::from(code))
}
