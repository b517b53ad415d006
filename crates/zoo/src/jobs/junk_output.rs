//! Prints colours, a new window title, no UTF-8, NUL bytes and no last line end.

use std::io;
use std::io::Write;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "junk-output",
    incident: "What a job prints is nobody's protocol, and a terminal obeys what is in it (contract.md part 5, point 1; peers.md 3.1 E, chroma-core/chroma-mcp#66).",
    usage: "",
    promises: &[2, 7],
    run,
};

/// As it comes out of a job, byte for byte.
const JUNK: &[u8] = b"\x1b[31mred\x1b[0m\x07\xff\xfe\0\x1b]0;title\x07\x1b[2Jwiped\r\nno end";

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    pipe::send_bytes(JUNK)?;
    io::stderr().write_all(JUNK)?;
    Ok(ExitCode::SUCCESS)
}
