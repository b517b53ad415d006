//! Never answers calls of one tool; everything else it answers.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::entry::ProgramDescription;
use crate::plain_server::{MessageHandling, Plain};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "never-answers",
    incident: "A call ran for more than 16 hours because nothing ended it (peers.md 3.1 B, anthropics/claude-code#15945).",
    usage: "TOOL",
    promises: &[1, 8],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let tool = arguments.text(0, "TOOL")?;
    Plain::new(PROGRAM.name).with_tool(tool).serve(|message| {
        Ok(if message.is_call() && message.tool() == tool {
            MessageHandling::Done
        } else {
            MessageHandling::Plain
        })
    })
}
