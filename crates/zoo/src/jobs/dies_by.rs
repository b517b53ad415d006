//! Dies by the signal with this number, or ends with code 0 if that one kills nobody.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::signals;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "dies-by",
    incident: "The monitor that met a dead process called it failed and could not say of what (contract.md 3.2).",
    usage: "[NUMBER]",
    promises: &[7],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let number = arguments.number(0, 9)?.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    signals::meet(number)?;
    Ok(ExitCode::SUCCESS)
}
