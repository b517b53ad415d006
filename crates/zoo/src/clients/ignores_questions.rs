//! Calls a tool that asks the client something, and never answers the question.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "ignores-questions",
    incident: "A server that asks the client during a call waits for ever when nobody answers (protocol.md 3.3 #6 and #7).",
    usage: "-- CMD [ARGS...]",
    promises: &[1, 8],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    guest.call("ask", &json!({"method": "sampling/createMessage"}))?;
    if !guest.await_sight(|tally| tally.questions > 0) {
        guest.complain("no question came");
    }
    guest.echo(10)?;
    guest.leave()
}
