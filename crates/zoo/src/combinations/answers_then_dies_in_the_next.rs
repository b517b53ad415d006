//! Keeps the first of two calls back, then answers it whole, the second half, and dies.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "answers-then-dies-in-the-next",
    incident: "What a dying server still said counts, and what it was about to say does not (peers.md 3.1 B; R-29).",
    usage: "",
    promises: &[1, 2, 6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let mut first = None;
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        let Some(answer) = server.answer(message).filter(|_| message.is_call()) else {
            return Ok(MessageHandling::Plain);
        };
        let Some(first) = first.take() else {
            first = Some(answer);
            return Ok(MessageHandling::Done);
        };
        let second = answer.to_string();
        pipe::send_bytes(format!("{first}\n{}", &second[..second.len() / 2]).as_bytes())?;
        Ok(MessageHandling::Leave(ExitCode::FAILURE))
    })
}
