//! Reads its stdin to the end, and says how many bytes there were.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::job_work;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "reads-stdin",
    incident: "A job that read a line got the next message of the protocol, the tools/list of the client (contract.md 3.2; G-07).",
    usage: "",
    promises: &[4, 7],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let count = io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    job_work::tell(&format!("{count} bytes of stdin"))?;
    Ok(ExitCode::SUCCESS)
}
