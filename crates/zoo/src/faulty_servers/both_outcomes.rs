//! Answers each call with a result and an error at once.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "both-outcomes",
    incident: "No thread reports it: a response with both result and error can be read in two ways, so it must not get through (protocol.md 3.2).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, mut answer| {
        answer["error"] = json!({"code": -32000, "message": "it also failed"});
        pipe::send(&answer)
    })
}
