//! Writes half a response to a call and then nothing more, whatever comes; it ends at the end of stdin.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "half-line",
    incident: "A server stuck in the middle of a write leaves half a line that never ends (contract.md part 5, point 6).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        let line = answer.to_string();
        pipe::send_bytes(&line.as_bytes()[..line.len() / 2])?;
        // Not even pings are answered, else their lines would end this one.
        pipe::drain()
    })
}
