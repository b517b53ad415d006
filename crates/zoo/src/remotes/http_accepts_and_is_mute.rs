//! Accepts connections and reads nothing from them.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::web::wire::Wire;
use crate::web::{Then, WebRequest, listen};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-accepts-and-is-mute",
    incident: "A process that hangs keeps its port, and the system goes on accepting for it (peers.md 3.1 B, MoonshotAI/kimi-code#2109).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    pipe::send_line(&listen("/mcp", false, Arc::new(|_: &WebRequest, _: &mut Wire| Ok(Then::HangUp)))?)?;
    pipe::drain()?;
    Ok(ExitCode::SUCCESS)
}
