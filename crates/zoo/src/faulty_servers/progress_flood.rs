//! Sends so many progress notifications before it answers a call that asked for progress.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "progress-flood",
    incident: "Progress notifications wedge a server whose client does not read (peers.md 3.1 J, modelcontextprotocol/python-sdk#2654).",
    usage: "[COUNT]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 10_000)?;
    Plain::new(PROGRAM.name).serve_calls(|message, answer| {
        let token = message.progress_token();
        for number in (1..=count).filter(|_| !token.is_null()) {
            pipe::send(&pipe::progress(token, number, count))?;
        }
        pipe::send(&answer)
    })
}
