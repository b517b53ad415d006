//! Ignores every polite end, as do two descendants in sessions of their own that hold its pipes.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::child_processes::Offspring;
use crate::signals;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "family-ignores-everything",
    incident: "A shell that was killed left its children behind, 2,676 of them on one machine (peers.md 3.1 F, supercorp-ai/supergateway#124).",
    usage: "--marker TEXT",
    promises: &[3, 5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let child = ["lingers", "--marker", arguments.required("marker")?, "--sessions", "1"];
    // Before the first child, so that the whole family has it from its parent.
    signals::ignore_the_polite_ones();
    drop(Offspring { own_session: true, ..Offspring::new(&child) }.start()?);
    // A client that has gone is no reason to leave either.
    let _ = Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain));
    Ok(bounded_waits::linger())
}
