//! Never answers the notification that ends the handshake.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-initialized-unanswered",
    incident: "A notification is due a 202, and a client that waits for it for ever never makes its first request (protocol.md 1.2).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if asked.message.method() != "notifications/initialized" {
            return Ok(None);
        }
        wire.wait_for_the_end();
        Ok(Some(Then::HangUp))
    })
}
