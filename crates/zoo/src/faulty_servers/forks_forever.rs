//! At each call and when it ends, starts a line of processes that live 2 ms each, every one in a new session.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

use crate::child_processes;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "forks-forever",
    incident: "A process that forks a new session every 2 ms is never where a sweep has just looked (processes.md 1.4).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let marker = arguments.required("marker")?;
    let code = Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        child_processes::leave_line(marker)?;
        pipe::send(&answer)
    })?;
    child_processes::leave_line(marker)?;
    Ok(code)
}
