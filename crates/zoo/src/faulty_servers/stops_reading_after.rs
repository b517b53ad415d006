//! Answers N messages and then reads no more.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::keeper;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "stops-reading-after",
    incident: "A server stuck in a tool stops reading, and no timeout ends the write of a client that waits for it (protocol.md 5.3 #2).",
    usage: "[N]",
    promises: &[1, 3],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let mut left = arguments.number(0, 3)?;
    Plain::new(ANIMAL.name).serve(|_| {
        if left == 0 {
            return Ok(Next::Leave(keeper::linger()));
        }
        left -= 1;
        Ok(Next::Plain)
    })
}
