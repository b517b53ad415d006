//! Leaves a child behind that holds its stdout and stderr.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::child_processes::Offspring;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "leaves-grandchild",
    incident: "A child that outlives the server holds its pipes, so a reader that waits for the end of file waits for the child (contract.md 3.1, protocol.md 5.3 #7).",
    usage: "--marker TEXT",
    promises: &[3, 5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let child = ["lingers", "--marker", arguments.required("marker")?];
    // Not waited for: that it stays is the vice.
    drop(Offspring::new(&child).start()?);
    Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain))
}
