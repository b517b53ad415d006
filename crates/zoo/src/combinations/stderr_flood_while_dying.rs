//! Writes its last words at length, then dies unanswered.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stderr-flood-while-dying",
    incident: "A crash dump larger than the pipe keeps a dying server from dying while nobody drains it (contract.md part 5, point 6; R-29).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 1 << 20)?;
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_call() {
            return Ok(MessageHandling::Plain);
        }
        pipe::complain_lines(count)?;
        pipe::complain("the last words")?;
        Ok(MessageHandling::Leave(ExitCode::FAILURE))
    })
}
