//! Leaves three generations behind, each in a session of its own.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::child_processes;

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
