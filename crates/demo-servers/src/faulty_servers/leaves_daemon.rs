//! Leaves a daemon behind: forked twice, own session, no pipe of its parent open.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::child_processes;
use crate::entry::ProgramDescription;
use crate::plain_server::{MessageHandling, Plain};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "leaves-daemon",
    incident: "A daemon belongs to nobody: its parent has gone and its group is another, so 20 of 20 kills of the group missed it (processes.md 1.4).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    child_processes::leave_daemon(&["detaches", "--marker", arguments.required("marker")?])?;
    Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain))
}
