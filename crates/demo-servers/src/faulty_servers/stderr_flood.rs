//! Writes lines to stderr before it answers a call.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::entry::ProgramDescription;
use crate::pipe;
use crate::plain_server::Plain;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stderr-flood",
    incident: "A stderr pipe that nobody reads is full at 64 KiB and stops the server for good (peers.md 3.1 C, openai/codex#7155; contract.md 3.4).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 1 << 20)?;
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        pipe::complain_lines(count)?;
        pipe::send(&answer)
    })
}
