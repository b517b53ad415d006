//! Dies at a call; a child that holds its stdout goes on printing there, answers to the next request among them.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::child_processes::Offspring;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "prints-after-death",
    incident: "A job that prints after its parent has died speaks on a stream that is no longer its own (contract.md part 5, point 6).",
    usage: "--marker TEXT",
    promises: &[2, 5, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let marker = arguments.required("marker")?;
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_call() {
            return Ok(MessageHandling::Plain);
        }
        let next = message.id().as_u64().map_or(0, |id| id + 1).to_string();
        let child = ["prints", "--marker", marker, "--id", &next];
        drop(Offspring { own_session: true, ..Offspring::new(&child) }.start()?);
        Ok(MessageHandling::Leave(ExitCode::FAILURE))
    })
}
