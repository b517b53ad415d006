//! Closes a connection when a second request comes over it, unanswered.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::web::sessions::Sessions;
use crate::web::{Then, serve};

pub(crate) const ANIMAL: Animal = Animal {
    name: "http-hangs-up-on-reuse",
    incident: "Servers close idle connections after five seconds, and a request that is on its way just then is lost (Node and uvicorn, by default).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    let sessions = Sessions::new(ANIMAL.name, false);
    serve("/mcp", move |asked, wire| {
        if wire.is_used() {
            return Ok(Then::HangUp);
        }
        sessions.serve(asked, wire)
    })
}
