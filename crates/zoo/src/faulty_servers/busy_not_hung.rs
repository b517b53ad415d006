//! Blocks everything, pings included, for so long at each call; `burn` as the text makes it burn a processor meanwhile.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, bounded_waits, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "busy-not-hung",
    incident: "A health check must not take a server that is busy with a blocking call for a hung one; neurolink tests that (peers.md 3.1 H, juspay/neurolink#1610).",
    usage: "[MS]",
    promises: &[8],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let length = arguments.milliseconds(0, 2000)?;
    Plain::new(PROGRAM.name).serve_calls(|message, answer| {
        if message.argument("text") == "burn" {
            bounded_waits::burn(length);
        } else {
            bounded_waits::pause(length);
        }
        pipe::send(&answer)
    })
}
