//! Ends the stream of what it says unasked as soon as it has begun, each time, and wants it back in a millisecond.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-stream-ends-at-once",
    incident: "A client that reconnects at once and without a pause makes a storm of requests (the reason for `retry` in SEP-1699).",
    usage: "",
    promises: &[8],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if !asked.is_get() {
            return Ok(None);
        }
        wire.begin_events(&[])?;
        wire.piece(b"retry: 1\n\n")?;
        wire.end().map(|()| Some(Then::Next))
    })
}
