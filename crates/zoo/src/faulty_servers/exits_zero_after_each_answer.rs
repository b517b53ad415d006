//! Answers one call and exits with code 0.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "exits-zero-after-each-answer",
    incident: "A server that leaves by itself breaks clients that do not start it again (peers.md 3.1 F, justrach/codedb#278).",
    usage: "",
    promises: &[6],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    let server = Plain::new(ANIMAL.name);
    server.serve(|message| match server.answer(message).filter(|_| message.is_call()) {
        None => Ok(Next::Plain),
        Some(answer) => pipe::send(&answer).map(|()| Next::Leave(ExitCode::SUCCESS)),
    })
}
