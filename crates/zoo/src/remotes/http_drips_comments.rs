//! Answers calls with a stream that says nothing but that it is alive, for ever.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-drips-comments",
    incident: "One answer of clients to calls that never end is an idle limit for HTTP, which comments keep from running out (peers.md 3.1 B).",
    usage: "",
    promises: &[1],
    run,
};

/// Between two comments.
const STEP: Duration = Duration::from_millis(50);

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        wire.begin_events(&[])?;
        while !wire.is_gone_after(STEP) {
            wire.piece(b": still alive\n\n")?;
        }
        Ok(Some(Then::HangUp))
    })
}
