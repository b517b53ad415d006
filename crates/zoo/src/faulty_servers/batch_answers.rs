//! Answers each call with an array around its response.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "batch-answers",
    incident: "Servers of the revision 2025-03-26 may answer with arrays, which every other revision forbids (protocol.md 1.1).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, answer| pipe::send(&json!([answer])))
}
