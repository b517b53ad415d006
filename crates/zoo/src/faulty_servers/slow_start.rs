//! Sleeps before it reads, then behaves.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits, entry::ProgramDescription};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "slow-start",
    incident: "A cold npx or heavy imports of 17 to 23 s make a client give up on a healthy server (peers.md 3.1 I, palewire/datawrapper-mcp#82).",
    usage: "[MS]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    bounded_waits::pause(arguments.milliseconds(0, 3000)?);
    super::well_behaved::serve(arguments)
}
