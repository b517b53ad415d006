//! Writes text directly in front of each response, on the same line.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "glued-text",
    incident: "A progress text without a line end is glued to the response, which the SDK client then loses (protocol.md 3.2 and 5.3 #9).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        server.answer(message).map_or(Ok(()), |answer| pipe::send_line(&format!("loading... {answer}")))?;
        Ok(MessageHandling::Done)
    })
}
