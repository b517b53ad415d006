//! Ends in the middle of a request.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "ends-with-half-a-request",
    incident: "A client that is killed in the middle of a write leaves half a line and an end of file (contract.md part 5, point 6).",
    usage: "-- CMD [ARGS...]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    guest.echo(10)?;
    guest.owe(&json!("half"), 1);
    guest.send_bytes(br#"{"jsonrpc":"2.0","id":"half","method":"tools/ca"#)?;
    guest.close_stdin();
    guest.leave()
}
