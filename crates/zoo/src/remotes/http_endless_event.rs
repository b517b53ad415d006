//! Answers calls with one event that has no end.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits::pause, entry::ProgramDescription};

use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-endless-event",
    incident: "A limit that is looked at only at the end of a message is none (peers.md 3.1 J, lynnswap/XcodeMCPKit#204).",
    usage: "",
    promises: &[1, 3],
    run,
};

/// So that nobody runs out of memory who has no bound.
const STEP: Duration = Duration::from_millis(1);

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        wire.begin_events(&[])?;
        wire.piece(b"id: 1\ndata: ")?;
        loop {
            wire.piece(&[b'x'; 16 << 10])?;
            pause(STEP);
        }
    })
}
