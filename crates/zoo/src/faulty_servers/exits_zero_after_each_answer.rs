//! Answers one call and exits with code 0.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "exits-zero-after-each-answer",
    incident: "A server that leaves by itself breaks clients that do not start it again (peers.md 3.1 F, justrach/codedb#278).",
    usage: "",
    promises: &[6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| match server.answer(message).filter(|_| message.is_call()) {
        None => Ok(MessageHandling::Plain),
        Some(answer) => pipe::send(&answer).map(|()| MessageHandling::Leave(ExitCode::SUCCESS)),
    })
}
