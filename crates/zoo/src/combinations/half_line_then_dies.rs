//! Writes half a response to a call and dies.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "half-line-then-dies",
    incident: "A server that is killed in the middle of a write leaves half a line and an end of file (contract.md part 5, point 6).",
    usage: "",
    promises: &[1, 2, 6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        let Some(answer) = server.answer(message).filter(|_| message.is_call()) else {
            return Ok(MessageHandling::Plain);
        };
        let line = answer.to_string();
        pipe::send_bytes(&line.as_bytes()[..line.len() / 2])?;
        Ok(MessageHandling::Leave(ExitCode::FAILURE))
    })
}
