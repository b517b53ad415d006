//! Sends all its calls before it reads the first answer.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "reads-only-at-the-end",
    incident: "Whoever writes all before reading anything meets a server that does the same, and both wait for ever (peers.md 3.1 J, modelcontextprotocol/python-sdk#1143).",
    usage: "[COUNT] [BYTES] -- CMD [ARGS...]",
    promises: &[1, 3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (count, bytes) = (arguments.number(0, 500)?, arguments.size(1, 10_000)?);
    let mut guest = Guest::arrive(PROGRAM.name, arguments)?;
    guest.shake_hands()?;
    for _ in 0..count {
        guest.echo(bytes)?;
    }
    guest.listen();
    guest.leave()
}
