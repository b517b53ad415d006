//! Never reads its stdin and never writes anything.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits, entry::ProgramDescription};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "never-reads-stdin",
    incident: "A large argument to a child that does not read blocked the SDK client in a write that no timeout could end (protocol.md 5.3 #2).",
    usage: "",
    promises: &[3],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Ok(bounded_waits::linger())
}
