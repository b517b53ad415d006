//! Ignores every signal that can be ignored, says so, and stays.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits, entry::ProgramDescription};

use crate::job_work;
use crate::signals;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "ignores-every-signal",
    incident: "A job that ignores the polite signals was never ended, and the server that was told to end swallowed the signal itself (contract.md 3.2; processes.md 1.4).",
    usage: "",
    promises: &[5, 7],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    signals::ignore_all();
    job_work::tell("deaf")?;
    Ok(bounded_waits::linger())
}
