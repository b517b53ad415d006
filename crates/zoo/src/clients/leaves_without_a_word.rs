//! Closes everything before it has said anything.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "leaves-without-a-word",
    incident: "A client that fails right after the start leaves servers behind that wait for a handshake (peers.md 3.1 F, anthropics/claude-code#27707).",
    usage: "-- CMD [ARGS...]",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::arrive(PROGRAM.name, arguments)?;
    guest.close_stdin();
    guest.close_stdout();
    guest.see_off()
}
