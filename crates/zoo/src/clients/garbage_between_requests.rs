//! Sends lines that are no messages between its calls.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "garbage-between-requests",
    incident: "All five real servers measured swallow garbage in silence, so whoever sent it by mistake waits for ever (contract.md part 4).",
    usage: "-- CMD [ARGS...]",
    promises: &[1, 2],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    let deep = "[".repeat(100_000);
    for garbage in [
        &b"GET / HTTP/1.1"[..],
        b"{",
        b"null",
        b"42",
        b"\"text\"",
        b"\0\0\0\0",
        b"\xff\xfe\xfd",
        b"{\"jsonrpc\":\"2.0\"}",
        b"[{}]",
        deep.as_bytes(),
    ] {
        guest.send_bytes(&[garbage, b"\n\r\n\n"].concat())?;
        guest.echo(10)?;
    }
    // What has an id is owed an answer, however wrong it is.
    guest.owe(&json!("old"), 1);
    guest.send(&json!({"jsonrpc": "1.0", "id": "old", "method": "ping"}))?;
    guest.leave()
}
