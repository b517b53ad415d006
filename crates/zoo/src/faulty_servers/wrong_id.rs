//! Answers each call under an id that nobody used.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "wrong-id",
    incident: "A response with an unknown id is dropped in silence by the SDK client, whose caller waits for ever (protocol.md 5.3 #9).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, mut answer| {
        answer["id"] = json!(987_654_321);
        pipe::send(&answer)
    })
}
