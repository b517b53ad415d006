//! Sends so many requests in one array, in the one revision that has arrays, and arrays that are none.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "batches",
    incident: "The five real servers measured answer an array with silence, although the revision 2025-03-26 demands answers (contract.md part 4, protocol.md 1.1).",
    usage: "[COUNT] -- CMD [ARGS...]",
    promises: &[1, 2],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 200)?;
    let mut guest = Guest::arrive(PROGRAM.name, arguments)?;
    guest.listen();
    guest.shake_hands_as("2025-03-26")?;
    let requests: Vec<_> = (0..count)
        .map(|number| {
            let id = json!(format!("batch-{number}"));
            guest.owe(&id, 1);
            let params = json!({"name": "echo", "arguments": {"text": "x"}});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        })
        .collect();
    guest.send(&json!(requests))?;
    guest.send(
        &json!([{"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "id": 7, "result": {}}]),
    )?;
    // Neither has an id under which it could be refused.
    guest.send(&json!([]))?;
    guest.send(&json!([7, "text", [[]]]))?;
    guest.echo(10)?;
    guest.leave()
}
