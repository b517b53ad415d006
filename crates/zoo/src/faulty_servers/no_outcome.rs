//! Answers each call with neither result nor error.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "no-outcome",
    incident: "No thread reports it: a response with neither result nor error settles nothing, and its caller must be answered still (protocol.md 3.2).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name)
        .serve_calls(|message, _| pipe::send(&json!({"jsonrpc": "2.0", "id": message.id()})))
}
