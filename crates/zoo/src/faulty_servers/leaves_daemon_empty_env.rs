//! Leaves a daemon behind that was started with an empty environment.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::child_processes;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "leaves-daemon-empty-env",
    incident: "A daemon with a cleaned environment is missed by a sweep that looks for a cookie in environments (processes.md 1.4 and 1.5).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let marker = arguments.required("marker")?;
    child_processes::leave_daemon(&["detaches", "--marker", marker, "--environment", "empty"])?;
    Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain))
}
