//! Counts its starts in a file and fails at once at every start after the first N.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "restarts-broken",
    incident: "Each start timeout threw away the partial installation, so no later start could ever succeed (peers.md 3.1 I, artokun/comfyui-mcp#1447).",
    usage: "--count-file FILE [N]",
    promises: &[6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    super::well_behaved::serve_at_first(arguments, |start| {
        pipe::complain(&format!("error: start {start} fails"))?;
        Ok(ExitCode::FAILURE)
    })
}
