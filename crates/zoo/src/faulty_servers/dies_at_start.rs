//! Says one line on stderr and exits before it reads anything.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "dies-at-start",
    incident: "The server gms-mcp exits with 1 and one line on stderr when its project file is missing (contract.md part 4).",
    usage: "[CODE]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let code = arguments.number(0, 1)?;
    pipe::complain("error: no project file found in the working folder")?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}
