//! Writes its last words at length, then dies unanswered.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "stderr-flood-while-dying",
    incident: "A crash dump larger than the pipe keeps a dying server from dying while nobody drains it (contract.md part 5, point 6; R-29).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 1 << 20)?;
    Plain::new(ANIMAL.name).serve(|message| {
        if !message.is_call() {
            return Ok(Next::Plain);
        }
        pipe::complain_lines(count)?;
        pipe::complain("the last words")?;
        Ok(Next::Leave(ExitCode::FAILURE))
    })
}
