//! Leaves a result with NaN and Infinity in it, as Python writes them, and ends with code 0.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::job_work::{self, RESULT};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "not-a-number",
    incident: "A result with NaN in it, which is no JSON, truncated the state file (contract.md 3.2).",
    usage: "",
    promises: &[7],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    job_work::leave(RESULT, br#"{"volume": NaN, "flow": -Infinity}"#)?;
    Ok(ExitCode::SUCCESS)
}
