//! Dies on the first request after the handshake.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "exits-on-first-request",
    incident: "A server that is gone at the first real request is not started again by most clients (peers.md 3.1 H; contract.md part 5, point 6).",
    usage: "",
    promises: &[1, 6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_work() {
            return Ok(MessageHandling::Plain);
        }
        pipe::complain("fatal: a module could not be loaded")?;
        Ok(MessageHandling::Leave(ExitCode::FAILURE))
    })
}
