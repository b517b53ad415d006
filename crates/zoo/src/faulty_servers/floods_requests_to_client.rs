//! Sends so many requests to the client before it answers a call, and waits for none.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "floods-requests-to-client",
    incident: "Requests from the server, each started as a task without a bound, grew a client without limit (protocol.md 5.3 #11).",
    usage: "[COUNT]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 2000)?;
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        for number in 0..count {
            pipe::send(&json!({"jsonrpc": "2.0", "id": format!("flood-{number}"), "method": "ping"}))?;
        }
        pipe::send(&answer)
    })
}
