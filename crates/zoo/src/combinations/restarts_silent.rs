//! Is well behaved at its first N starts; at every later one it reads all and answers nothing.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::faulty_servers::well_behaved;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "restarts-silent",
    incident: "A restart that succeeds but never shakes hands is worse than one that fails, for whoever waits is told nothing (peers.md 3.1 H, 1mcp-app/agent#388; protocol.md 5.3 #4).",
    usage: "--count-file FILE [N]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    well_behaved::serve_at_first(arguments, |_| pipe::drain().map(|()| ExitCode::SUCCESS))
}
