//! Dies on the first request after the handshake.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "exits-on-first-request",
    incident: "A server that is gone at the first real request is not started again by most clients (peers.md 3.1 H; contract.md part 5, point 6).",
    usage: "",
    promises: &[1, 6],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    Plain::new(ANIMAL.name).serve(|message| {
        if !message.is_work() {
            return Ok(Next::Plain);
        }
        pipe::complain("fatal: a module could not be loaded")?;
        Ok(Next::Leave(ExitCode::FAILURE))
    })
}
