//! Writes so many bytes without a line end, then a line end and the true answer.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "giant-line-no-newline",
    incident: "Clients limit a line to 8 MiB and less, and the limit must not depend on the pieces in which it arrives (peers.md 3.1 J, openai/codex#31805, lynnswap/XcodeMCPKit#204).",
    usage: "[BYTES]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.size(0, 80 << 20)?;
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        pipe::send_letters(&mut io::stdout().lock(), count)?;
        pipe::send_line("")?;
        pipe::send(&answer)
    })
}
