//! Opens a session, and then refuses everything in it with 400.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-refuses-after-initialize",
    incident: "Without sticky sessions the second request reaches a process that knows nothing of the first.",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if asked.message.method() == "initialize" || !asked.is_post() {
            return Ok(None);
        }
        wire.answer(400, &[], "text/plain", b"Bad Request: No valid session ID provided")
            .map(|()| Some(Then::Next))
    })
}
