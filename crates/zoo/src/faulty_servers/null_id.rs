//! Answers each call under the id null.

use std::io;
use std::process::ExitCode;

use serde_json::Value;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "null-id",
    incident: "Servers that fail before they read the id answer with null, which no caller can match (protocol.md 1.1, 3.2).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, mut answer| {
        answer["id"] = Value::Null;
        pipe::send(&answer)
    })
}
