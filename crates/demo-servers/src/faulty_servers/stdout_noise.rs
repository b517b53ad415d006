//! Writes log lines, blank lines and colour codes to stdout between its messages.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;
use crate::entry::ProgramDescription;
use crate::pipe;
use crate::plain_server::{MessageHandling, Plain};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stdout-noise",
    incident: "Libraries print on stdout, which the protocol owns, and some clients disconnect on it (peers.md 3.1 E, chroma-core/chroma-mcp#66).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    pipe::send_line("Starting server on stdio...")?;
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        let Some(answer) = server.answer(message) else {
            return Ok(MessageHandling::Done);
        };
        pipe::send_line("\u{1b}[32mINFO\u{1b}[0m handling a request")?;
        pipe::send_line("")?;
        pipe::send_line("[debug] {not json: at all}")?;
        pipe::send(&answer)?;
        pipe::send_line("100%|##########| 3/3 [00:00<00:00]")?;
        Ok(MessageHandling::Done)
    })
}
