//! Writes bytes without a line end to stderr before it answers a call.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stderr-giant-line",
    incident: "One stderr line of 200,000 bytes overran the line reader of Langvel, which then drained nothing any more (contract.md 3.3).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 200_000)?;
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        pipe::send_letters(&mut io::stderr().lock(), count)?;
        pipe::send(&answer)
    })
}
