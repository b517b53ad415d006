//! Leaves a child behind that is in a session of its own and holds its stdout and stderr.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::child_processes::Offspring;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "leaves-setsid-child",
    incident: "A child in a session of its own escapes every kill of the process group (processes.md 1.4).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let child = ["lingers", "--marker", arguments.required("marker")?];
    // Not waited for: that it stays is the vice.
    drop(Offspring { own_session: true, ..Offspring::new(&child) }.start()?);
    Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain))
}
