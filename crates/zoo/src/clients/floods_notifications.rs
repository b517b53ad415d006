//! Sends so many notifications before a call.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "floods-notifications",
    incident: "Notifications are answered by nothing, so nothing slows a client down that sends them faster than they are read (peers.md 3.1 J, modelcontextprotocol/python-sdk#1141).",
    usage: "[COUNT] -- CMD [ARGS...]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 100_000)?;
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    for number in 0..count {
        guest.send(&pipe::progress(&json!("nobody"), number, count))?;
    }
    guest.echo(10)?;
    guest.leave()
}
