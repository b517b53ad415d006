//! Refuses calls with a status of HTTP and a few words of text.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-refuses-calls",
    incident: "A proxy answers with 502 to 504 for a server that is being replaced, and in words of its own.",
    usage: "[STATUS]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let status = u16::try_from(arguments.number(0, 503)?).map_err(|_| io::ErrorKind::InvalidInput)?;
    serve_with(PROGRAM.name, move |_, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        let words: &[u8] = b"the server is being replaced\nsecond line\n";
        wire.answer(status, &[], "text/plain", words).map(|()| Some(Then::Next))
    })
}
