//! Answers each call as JSON-RPC 1.0.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "wrong-version",
    incident: "A message of another JSON-RPC version has a readable id, so its sender must not be left waiting (protocol.md 3.2 and 5.3 #14).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, mut answer| {
        answer["jsonrpc"] = json!("1.0");
        pipe::send(&answer)
    })
}
