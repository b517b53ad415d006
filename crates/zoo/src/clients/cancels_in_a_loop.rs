//! Cancels so many times what it never asked, what was answered, the handshake, and each call before it has been answered.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "cancels-in-a-loop",
    incident: "A cancelled call made a client evict a server that others were using; another server went on with work that nobody waited for (peers.md 1.2, contract.md part 4).",
    usage: "[COUNT] -- CMD [ARGS...]",
    promises: &[1, 8],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 100)?;
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    let answered = guest.echo(10)?;
    guest.await_answers();
    for number in 0..count {
        let call = guest.call("sleep", &json!({"ms": 60_000}))?;
        for id in [call, 1, answered, 1_000_000 + number, call] {
            guest.cancel(id)?;
        }
        guest.send(&pipe::notification("notifications/cancelled", &json!({})))?;
        guest.send(&pipe::notification("notifications/cancelled", &json!({"requestId": {"id": call}})))?;
    }
    guest.echo(10)?;
    guest.leave()
}
