//! Breaks the connection in the middle of the answer to a call: of a JSON body, or of a stream of events.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-half-answer",
    incident: "A remote server that goes away in a call took the bridge in front of it along (peers.md 3.1 H, punkpeye/mcp-remote#201).",
    usage: "[--stream yes]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let is_stream = arguments.option("stream")?.is_some();
    serve_with(PROGRAM.name, move |sessions, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        let answer = sessions.response(asked).to_string();
        let half = &answer.as_bytes()[..answer.len() / 2];
        if is_stream {
            wire.begin_events(&[])?;
            wire.piece(b"data: ")?;
        } else {
            wire.begin(&[], "application/json")?;
        }
        wire.piece(half)?;
        Ok(Some(Then::HangUp))
    })
}
