//! Sends so many calls without waiting for an answer, and reads all the while.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "floods-requests",
    incident: "Three real servers accepted up to 10,662 requests at once and grew to 329 MB, so the bound has to be the guard's (contract.md part 4).",
    usage: "[COUNT] -- CMD [ARGS...]",
    promises: &[1, 3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 5000)?;
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    for _ in 0..count {
        guest.echo(100)?;
    }
    guest.leave()
}
