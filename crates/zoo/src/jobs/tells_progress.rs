//! Prints its progress in both forms, and what only looks like it, with a gate behind each step.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::job_work;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "tells-progress",
    incident: "Six polls of a job that printed its progress said nothing, for the log was written after the end (contract.md 3.2).",
    usage: "--gates PREFIX",
    promises: &[7],
    run,
};

/// What is printed before each gate.
const STEPS: [&str; 3] = [
    "starting\n[INFO] Progress: 25%\nprogress: 140%\nprogress: much%\n{\"progress\": 2}\n",
    "{\"progress\": 0.5, \"message\": \"half of it\"}\n{\"progress\": \"0.9\"}\n{\"progress\": 0.9\n",
    "progress: 1%\rprogress: 75.5 %\nprogress: 99%",
];

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let gates = arguments.required("gates")?;
    for (number, step) in STEPS.iter().enumerate() {
        pipe::send_bytes(step.as_bytes())?;
        job_work::wait_until(|| std::fs::exists(format!("{gates}{number}")).unwrap_or(true));
    }
    Ok(ExitCode::SUCCESS)
}
