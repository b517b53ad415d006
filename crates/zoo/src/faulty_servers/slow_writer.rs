//! Writes the response to a call piece by piece over a second.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use unhang_demo_servers::{
    arguments::ProgramArguments, bounded_waits, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "slow-writer",
    incident: "A response that arrives in many small pieces must cost neither its framing nor the time of the others (peers.md 3.1 J, lynnswap/XcodeMCPKit#204).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        let line = format!("{answer}\n");
        let step = Duration::from_secs(1) / u32::try_from(line.len()).unwrap_or(u32::MAX);
        for byte in line.as_bytes() {
            pipe::send_bytes(std::slice::from_ref(byte))?;
            bounded_waits::pause(step);
        }
        Ok(())
    })
}
