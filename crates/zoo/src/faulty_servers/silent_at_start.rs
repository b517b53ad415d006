//! Reads everything and never answers anything.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "silent-at-start",
    incident: "A server that never answers initialize keeps the SDK client waiting without any limit (protocol.md 5.3 #4).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    pipe::drain().map(|()| ExitCode::SUCCESS)
}
