//! Sends whoever asks to another origin, and tells whether somebody followed.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::wire::Wire;
use crate::web::{Then, WebRequest, listen, log, serve};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-redirects-elsewhere",
    incident: "A client that follows a redirect hands its bearer token to whoever was named (the reason for which curl drops credentials there).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let elsewhere = listen(
        "/mcp",
        true,
        Arc::new(|asked: &WebRequest, wire: &mut Wire| {
            log(&json!({"did": "followed", "verb": asked.verb}));
            wire.status(404).map(|()| Then::Next)
        }),
    )?;
    serve("/mcp", move |_, wire| {
        wire.answer(307, &[("Location", &elsewhere)], "text/plain", b"").map(|()| Then::Next)
    })
}
