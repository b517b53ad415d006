//! Ends its lines with CR LF and begins with a byte order mark.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "crlf",
    incident: "No thread reports it: text streams on Windows end lines with CR LF and may begin with a byte order mark, which strict readers refuse (protocol.md 1.1).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    pipe::send_bytes(b"\xEF\xBB\xBF")?;
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        server.answer(message).map_or(Ok(()), |answer| pipe::send_line(&format!("{answer}\r")))?;
        Ok(MessageHandling::Done)
    })
}
