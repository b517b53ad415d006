//! Leaves half a result file, and ends with code 0.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::job_work::{self, RESULT};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "half-a-result",
    incident: "A result that is written in place can be read half, and a state that takes it over is truncated (contract.md 3.2).",
    usage: "",
    promises: &[7],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    job_work::leave(RESULT, br#"{"volume": [1, 2"#)?;
    Ok(ExitCode::SUCCESS)
}
