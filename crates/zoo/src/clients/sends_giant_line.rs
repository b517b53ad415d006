//! Sends a call of so many bytes on one line, and another behind it.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "sends-giant-line",
    incident: "A line over the limit of the reader ended the whole bridge (peers.md 1.2 and 3.1 J, openai/codex#31805).",
    usage: "[BYTES] -- CMD [ARGS...]",
    promises: &[1, 3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let bytes = arguments.size(0, 70_000_000)?;
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    guest.echo(bytes)?;
    guest.echo(10)?;
    guest.leave()
}
