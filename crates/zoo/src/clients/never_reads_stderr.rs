//! Calls a tool that says much on stderr, and never reads the command's stderr.

use std::io;
use std::process::ExitCode;
use std::process::Stdio;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::child_processes::ChildStreams;
use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "never-reads-stderr",
    incident: "A client that pipes stderr and never reads it stops the server at 64 KiB (peers.md 3.1 C, mark3labs/mcp-go#956).",
    usage: "[BYTES] -- CMD [ARGS...]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let bytes = arguments.number(0, 1_000_000)?;
    let streams = ChildStreams { stderr: Stdio::piped(), ..ChildStreams::default() };
    let mut guest = Guest::arrive_with(PROGRAM.name, arguments, streams, false)?;
    guest.listen();
    guest.shake_hands()?;
    for _ in 0..3 {
        guest.call("stderr", &json!({"bytes": bytes}))?;
    }
    guest.leave()
}
