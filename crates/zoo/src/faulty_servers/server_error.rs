//! Answers each call with a valid JSON-RPC error that carries data, by default with the code -32603; given without its sign.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "server-error",
    incident: "Two of the five servers measured report an unknown tool as a JSON-RPC error, and a client must see such errors unchanged (contract.md part 4).",
    usage: "[CODE]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    // A sign would look like an option.
    let code = -i64::try_from(arguments.number(0, 32603)?).unwrap_or(i64::MAX);
    Plain::new(PROGRAM.name).serve_calls(|message, _| {
        let mut answer = pipe::error(message.id(), code, "Internal error");
        answer["error"]["data"] = json!({"detail": "the database is locked", "retryable": false});
        pipe::send(&answer)
    })
}
