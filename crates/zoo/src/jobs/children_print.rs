//! Starts so many children that go on printing on its outputs, and ends with code 7 while they do.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::child_processes::Offspring;
use crate::job_work;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "children-print",
    incident: "A reader of a pipe waits for its last writer, and a child that stays is one; the seed that ended a job left the child of its child alive (contract.md 3.2).",
    usage: "--marker TEXT [COUNT]",
    promises: &[5, 7],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let child = ["chatters", "--marker", arguments.required("marker")?];
    for _ in 0..arguments.number(0, 2)? {
        drop(Offspring::new(&child).start()?);
    }
    job_work::tell("their parent leaves")?;
    Ok(ExitCode::from(7))
}
