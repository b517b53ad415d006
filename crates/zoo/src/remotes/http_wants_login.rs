//! Wants a login for everything.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::{Then, serve};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-wants-login",
    incident: "A server behind OAuth answers 401 to whoever has no token, and says where to get one (protocol.md 1.2).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve("/mcp", |_, wire| {
        let wants = (
            "WWW-Authenticate",
            "Bearer resource_metadata=\"http://127.0.0.1:9/.well-known/oauth-protected-resource\"",
        );
        wire.answer(
            401,
            &[wants],
            "application/json",
            br#"{"error":"invalid_token","error_description":"Missing token"}"#,
        )
        .map(|()| Then::Next)
    })
}
