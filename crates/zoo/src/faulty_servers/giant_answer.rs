//! Answers a call with a text of that size.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "giant-answer",
    incident: "Answers over 64 KiB killed the reader of Langvel, and answers over the buffer stalled the Python SDK (contract.md 3.3, modelcontextprotocol/python-sdk#1141).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 10 << 20)?;
    Plain::new(PROGRAM.name)
        .serve_calls(|message, _| pipe::send(&pipe::result(message.id(), pipe::text(&"x".repeat(count)))))
}
