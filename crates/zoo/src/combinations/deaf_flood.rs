//! Reads nothing, floods stdout with so many notifications, and lives on.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits, entry::ProgramDescription, pipe};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "deaf-flood",
    incident: "A server that writes before it reads on, and a client that does the same, wait for each other (peers.md 3.1 J, modelcontextprotocol/python-sdk#1141).",
    usage: "[COUNT]",
    promises: &[1, 3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    for _ in 0..arguments.number(0, 1_000_000)? {
        pipe::send(&pipe::log("nobody asked for this"))?;
    }
    Ok(bounded_waits::linger())
}
