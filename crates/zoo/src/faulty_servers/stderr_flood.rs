//! Writes lines to stderr before it answers a call.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::Plain;

pub(crate) const ANIMAL: Animal = Animal {
    name: "stderr-flood",
    incident: "A stderr pipe that nobody reads is full at 64 KiB and stops the server for good (peers.md 3.1 C, openai/codex#7155; contract.md 3.4).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 1 << 20)?;
    Plain::new(ANIMAL.name).serve_calls(|_, answer| {
        pipe::complain_lines(count)?;
        pipe::send(&answer)
    })
}
