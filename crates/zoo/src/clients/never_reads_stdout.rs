//! Sends calls with so many bytes in all and never reads an answer.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "never-reads-stdout",
    incident: "A client that opened the stream and stopped reading stalled every other answer (peers.md 1.2 and 3.1 J, modelcontextprotocol/python-sdk#1141).",
    usage: "[BYTES] -- CMD [ARGS...]",
    promises: &[3, 5],
    run,
};

/// Bytes in one call.
const PIECE: usize = 50_000;
/// How long nothing has been taken when nothing will be.
const STANDSTILL: Duration = Duration::from_secs(2);

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let bytes = arguments.size(0, 100_000_000)?;
    let mut guest = Guest::arrive(PROGRAM.name, arguments)?;
    guest.shake_hands()?;
    let params = json!({"name": "echo", "arguments": {"text": "x".repeat(PIECE)}});
    let mut sent = 0;
    while sent < bytes {
        let request =
            json!({"jsonrpc": "2.0", "id": format!("call-{sent}"), "method": "tools/call", "params": params});
        if !guest.send_within(format!("{request}\n").as_bytes(), STANDSTILL)? {
            break;
        }
        sent += PIECE;
    }
    // Where the command has stopped reading too, it has said that it is full.
    guest.note("sent", sent);
    guest.close_stdin();
    guest.see_off()
}
