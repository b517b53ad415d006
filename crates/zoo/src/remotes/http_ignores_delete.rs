//! Never answers when its session is to be ended.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-ignores-delete",
    incident: "Clients that never exit are among the loudest complaints (peers.md 3.1 F, anthropics/claude-code#50777).",
    usage: "",
    promises: &[5],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if asked.verb != "DELETE" {
            return Ok(None);
        }
        wire.wait_for_the_end();
        Ok(Some(Then::HangUp))
    })
}
