//! Answers each call under its id in the other type: text for a number, a number for text.

use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "string-id",
    incident: "An id of 1 comes back as the text 1, and a strict client finds no match (protocol.md 3.2).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, mut answer| {
        answer["id"] = match &answer["id"] {
            Value::String(text) => text.parse::<i64>().map_or(Value::Null, |number| json!(number)),
            other => json!(other.to_string()),
        };
        pipe::send(&answer)
    })
}
