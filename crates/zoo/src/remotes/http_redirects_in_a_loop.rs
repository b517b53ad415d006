//! Sends whoever asks in a circle.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::{Then, serve};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-redirects-in-a-loop",
    incident: "Two proxies of which one adds a slash and the other removes it send a client round for ever.",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve("/mcp", |asked, wire| {
        let other = if asked.path == "/mcp" { "/mcp/" } else { "/mcp" };
        wire.answer(307, &[("Location", other)], "text/plain", b"").map(|()| Then::Next)
    })
}
