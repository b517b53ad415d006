//! Closes a connection when a second request comes over it, unanswered.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::sessions::SessionWebServer;
use crate::web::{Then, serve};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-hangs-up-on-reuse",
    incident: "Servers close idle connections after five seconds, and a request that is on its way just then is lost (Node and uvicorn, by default).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let sessions = SessionWebServer::new(PROGRAM.name, false);
    serve("/mcp", move |asked, wire| {
        if wire.is_used() {
            return Ok(Then::HangUp);
        }
        sessions.serve(asked, wire)
    })
}
