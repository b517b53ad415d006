//! Goes on living when stdin has ended; signals work.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "ignores-stdin-close",
    incident: "Servers that do not notice the end of stdin stay behind as orphans, 312 of them in 24 hours (peers.md 3.1 F, microsoft/azure-devops-mcp#1598).",
    usage: "",
    promises: &[5],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain))?;
    Ok(bounded_waits::linger())
}
