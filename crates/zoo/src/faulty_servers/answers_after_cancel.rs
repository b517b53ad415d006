//! Answers a call only when it has been cancelled.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "answers-after-cancel",
    incident: "Cancellation and answer cross on the wire, so a late answer comes for a call that nobody waits for any more (protocol.md 3.1 and 3.2).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let mut open = Vec::new();
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        if let Some(answer) = server.answer(message).filter(|_| message.is_call()) {
            open.push(answer);
            return Ok(MessageHandling::Done);
        }
        if message.method() == "notifications/cancelled" {
            let cancelled = &message.params()["requestId"];
            for answer in open.extract_if(.., |answer| answer["id"] == *cancelled) {
                pipe::send(&answer)?;
            }
        }
        Ok(MessageHandling::Plain)
    })
}
