//! Sends a log notification before each answer but the first.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "notification-before-each-answer",
    incident: "One notification for each request gave Langvel a missing result or the answer to the call before (contract.md 3.3).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve(|message| {
        if message.is_request() && !message.is_handshake() {
            pipe::send(&pipe::log("an answer follows"))?;
        }
        Ok(MessageHandling::Plain)
    })
}
