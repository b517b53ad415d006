//! Answers `server/discover` late, everything else at once.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

use super::era_locked::discovery;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "late-discover",
    incident: "A late answer to the probe, after the client had gone on to initialize, failed the whole connection (protocol.md 1.4 and 5.3 #5).",
    usage: "[MS]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let delay = arguments.milliseconds(0, 5000)?;
    Plain::new(PROGRAM.name).serve(|message| {
        if message.method() != "server/discover" {
            return Ok(MessageHandling::Plain);
        }
        let answer = pipe::result(message.id(), discovery());
        std::thread::spawn(move || {
            bounded_waits::pause(delay);
            pipe::send(&answer)
        });
        Ok(MessageHandling::Done)
    })
}
