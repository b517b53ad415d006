//! Closes its end of stdout in mid call and keeps stdin open.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stops-listening",
    incident: "A server whose reader had gone used a whole processor on failing writes and never ended (peers.md 3.1 F, a-bonus/google-docs-mcp#153).",
    usage: "-- CMD [ARGS...]",
    promises: &[3, 5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::arrive(PROGRAM.name, arguments)?;
    guest.shake_hands()?;
    guest.call("sleep", &json!({"ms": 100}))?;
    guest.close_stdout();
    guest.see_off()
}
