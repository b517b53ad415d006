//! Answers a call with bytes in a string that are no UTF-8.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "invalid-utf8",
    incident: "Bytes that are no UTF-8 get into results from file names and foreign code pages; every revision since 2025-03-26 forbids them (protocol.md 1.1).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|message, _| {
        let answer = pipe::result(message.id(), pipe::text("caf#")).to_string();
        let bytes: Vec<u8> = answer.bytes().map(|byte| if byte == b'#' { 0xE9 } else { byte }).collect();
        pipe::send_bytes(&bytes)?;
        pipe::send_line("")
    })
}
