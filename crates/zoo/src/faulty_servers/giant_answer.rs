//! Answers a call with a text of that size.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::Plain;

pub(crate) const ANIMAL: Animal = Animal {
    name: "giant-answer",
    incident: "Answers over 64 KiB killed the reader of Langvel, and answers over the buffer stalled the Python SDK (contract.md 3.3, modelcontextprotocol/python-sdk#1141).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 10 << 20)?;
    Plain::new(ANIMAL.name)
        .serve_calls(|message, _| pipe::send(&pipe::result(message.id(), pipe::text(&"x".repeat(count)))))
}
