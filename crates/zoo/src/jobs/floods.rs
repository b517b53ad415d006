//! Writes so many bytes to stdout, then so many to stderr, each with a last line of its own.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::job_work;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "floods",
    incident: "A job that printed more than a pipe holds stood still where nobody read it (contract.md 3.4; peers.md 3.1 C, mark3labs/mcp-go#956).",
    usage: "[BYTES]",
    promises: &[3, 7],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 1 << 20)?;
    pipe::send_letters(&mut io::stdout().lock(), count)?;
    job_work::tell("\nthe last line of stdout")?;
    pipe::complain_lines(count)?;
    pipe::complain("the last line of stderr")?;
    Ok(ExitCode::SUCCESS)
}
