//! Leaves three generations behind, each in a session of its own.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::child_processes;
use crate::entry::ProgramDescription;
use crate::plain_server::{MessageHandling, Plain};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "leaves-three-sessions",
    incident: "Three nested sessions escape a sweep that looks for children only once (processes.md 1.4).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    child_processes::leave_nested(arguments.required("marker")?)?;
    Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain))
}
