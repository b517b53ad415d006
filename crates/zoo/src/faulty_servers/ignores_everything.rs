//! Ignores the end of stdin, SIGTERM, SIGHUP, SIGINT and SIGQUIT; only SIGKILL ends it.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::signals;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "ignores-everything",
    incident: "A server that ignores the polite signals was never killed because the kill path had no process to kill (contract.md 3.4; processes.md 1.4).",
    usage: "",
    promises: &[5],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    signals::ignore_the_polite_ones();
    // A client that has gone is no reason to leave either.
    let _ = Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain));
    Ok(bounded_waits::linger())
}
