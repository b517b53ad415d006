//! Dies at every call, whatever the tool.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "dies-every-call",
    incident: "A call to a dead server waited for up to 30 minutes (peers.md 3.1 B, MoonshotAI/kimi-code#2109).",
    usage: "",
    promises: &[1, 6],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    Plain::new(ANIMAL.name).serve(|message| {
        if !message.is_call() {
            return Ok(Next::Plain);
        }
        pipe::complain("panic: the tool crashed")?;
        Ok(Next::Leave(ExitCode::from(101)))
    })
}
