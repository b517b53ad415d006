//! Uses the id of a call again while the call is running, and again once it has been answered.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "same-id-twice",
    incident: "The five real servers measured answer a repeated id twice, so neither answer can be told from the other (contract.md part 4).",
    usage: "-- CMD [ARGS...]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    let call = |milliseconds: u64| {
        let params = json!({"name": "sleep", "arguments": {"ms": milliseconds}});
        json!({"jsonrpc": "2.0", "id": "twice", "method": "tools/call", "params": params})
    };
    guest.owe(&json!("twice"), 2);
    guest.send(&call(500))?;
    guest.send(&call(500))?;
    guest.await_answers();
    guest.owe(&json!("twice"), 1);
    guest.send(&call(1))?;
    guest.leave()
}
