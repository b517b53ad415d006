//! Closes its stdin right behind a call and waits for the answer.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "closes-stdin-in-mid-call",
    incident: "One-shot clients send all they have and close; some servers never notice the end, and orphans remain by the hundred (peers.md 3.1 F, microsoft/azure-devops-mcp#1598).",
    usage: "[MS] -- CMD [ARGS...]",
    promises: &[1, 5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let milliseconds = arguments.number(0, 300)?;
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    guest.call("sleep", &json!({"ms": milliseconds}))?;
    guest.close_stdin();
    guest.leave()
}
