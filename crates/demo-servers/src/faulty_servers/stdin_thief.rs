//! Starts a child at each call that inherits stdin and reads a line of it, and waits for that child.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::child_processes::{self, Holds, Offspring};
use crate::entry::ProgramDescription;
use crate::pipe;
use crate::plain_server::Plain;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stdin-thief",
    incident: "A subprocess that inherited stdin waited for input that could not come and ate the next protocol message (G-07 to G-10, modelcontextprotocol/python-sdk#671).",
    usage: "",
    promises: &[4],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        let thief = Offspring { holds: Holds::Everything, ..Offspring::new(&["reads-one-line"]) };
        child_processes::wait(&mut thief.start()?)?;
        pipe::send(&answer)
    })
}
