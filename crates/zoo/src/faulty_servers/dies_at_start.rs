//! Says one line on stderr and exits before it reads anything.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;

pub(crate) const ANIMAL: Animal = Animal {
    name: "dies-at-start",
    incident: "The server gms-mcp exits with 1 and one line on stderr when its project file is missing (contract.md part 4).",
    usage: "[CODE]",
    promises: &[1],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let code = arguments.number(0, 1)?;
    pipe::complain("error: no project file found in the working folder")?;
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}
