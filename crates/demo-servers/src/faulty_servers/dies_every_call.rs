//! Dies at every call, whatever the tool.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::entry::ProgramDescription;
use crate::pipe;
use crate::plain_server::{MessageHandling, Plain};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "dies-every-call",
    incident: "A call to a dead server waited for up to 30 minutes (peers.md 3.1 B, MoonshotAI/kimi-code#2109).",
    usage: "",
    promises: &[1, 6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_call() {
            return Ok(MessageHandling::Plain);
        }
        pipe::complain("panic: the tool crashed")?;
        Ok(MessageHandling::Leave(ExitCode::from(101)))
    })
}
