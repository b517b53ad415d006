//! Initializes twice in one breath, and once more in the middle of its work.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "initializes-twice",
    incident: "No thread reports it: a client that reconnects over the same pipes shakes hands again, and both handshakes are requests that are owed an answer (protocol.md 1.1).",
    usage: "-- CMD [ARGS...]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::arrive(PROGRAM.name, arguments)?;
    guest.listen();
    guest.request("initialize", &json!({"protocolVersion": "2025-06-18", "capabilities": {}}))?;
    guest.shake_hands()?;
    guest.call("sleep", &json!({"ms": 200}))?;
    guest.shake_hands_as("2025-06-18")?;
    guest.echo(10)?;
    guest.leave()
}
