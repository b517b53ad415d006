//! Answers each call without the member `jsonrpc`.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "no-jsonrpc",
    incident: "A response without jsonrpc is dropped in silence by the SDK client, whose caller waits for ever (protocol.md 5.3 #9).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name)
        .serve_calls(|message, answer| pipe::send(&json!({"id": message.id(), "result": answer["result"]})))
}
