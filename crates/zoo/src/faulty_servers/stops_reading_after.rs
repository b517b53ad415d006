//! Answers N messages and then reads no more.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stops-reading-after",
    incident: "A server stuck in a tool stops reading, and no timeout ends the write of a client that waits for it (protocol.md 5.3 #2).",
    usage: "[N]",
    promises: &[1, 3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut left = arguments.number(0, 3)?;
    Plain::new(PROGRAM.name).serve(|_| {
        if left == 0 {
            return Ok(MessageHandling::Leave(bounded_waits::linger()));
        }
        left -= 1;
        Ok(MessageHandling::Plain)
    })
}
