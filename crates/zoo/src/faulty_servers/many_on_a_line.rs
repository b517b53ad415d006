//! Writes two messages on one line: the answer to a call behind the held one of `held`, or behind a log message.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "many-on-a-line",
    incident: "No thread reports it: the framing is one message a line, and a reader that relies on it loses the second one (protocol.md 1.1).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let mut first = None;
    Plain::new(PROGRAM.name).with_tool("held").serve_calls(|message, answer| {
        if message.tool() == "held" {
            first = Some(answer);
            return Ok(());
        }
        pipe::send_line(&format!("{}{answer}", first.take().unwrap_or_else(|| pipe::log("first"))))
    })
}
