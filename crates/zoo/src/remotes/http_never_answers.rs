//! Takes calls over HTTP and never begins an answer.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-never-answers",
    incident: "A call hung for 15 hours inside a bridge whose remote server had gone silent (peers.md 3.1 B, vishalsachdev/canvas-mcp#159).",
    usage: "",
    promises: &[1, 8],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        wire.wait_for_the_end();
        Ok(Some(Then::HangUp))
    })
}
