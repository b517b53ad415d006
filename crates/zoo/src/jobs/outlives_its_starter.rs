//! Prints before and after the process whose id is in a file has died, on both outputs, and ends with code 42.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::job_work::{self, RESULT};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "outlives-its-starter",
    incident: "A job that printed after its server was killed died of the broken pipe and left no result (contract.md 3.2).",
    usage: "--pid-file FILE",
    promises: &[7],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let file = arguments.required("pid-file")?;
    job_work::tell("it lives")?;
    job_work::wait_until(|| std::fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n')));
    let pid = std::fs::read_to_string(file)?;
    job_work::wait_until(|| !is_alive(pid.trim()));
    job_work::tell("it has died")?;
    pipe::complain("and nobody listens")?;
    job_work::leave(RESULT, br#"{"answer": 42}"#)?;
    Ok(ExitCode::from(42))
}

/// Whether a process is there and no zombie.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
