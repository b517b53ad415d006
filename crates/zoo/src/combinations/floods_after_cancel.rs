//! Answers a call only when it has been cancelled, with so much progress for it in front.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "floods-after-cancel",
    incident: "The Node server everything went on with its progress after the cancellation; whoever has withdrawn a call must hear no more of it (contract.md part 4).",
    usage: "[COUNT]",
    promises: &[1, 3, 8],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 10_000)?;
    let mut open = Vec::new();
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        if let Some(answer) = server.answer(message).filter(|_| message.is_call()) {
            open.push((answer, message.progress_token().clone()));
            return Ok(MessageHandling::Done);
        }
        if message.method() == "notifications/cancelled" {
            let cancelled = &message.params()["requestId"];
            for (answer, token) in open.extract_if(.., |(answer, _)| answer["id"] == *cancelled) {
                for number in 1..=count {
                    pipe::send(&pipe::progress(&token, number, count))?;
                }
                pipe::send(&answer)?;
            }
        }
        Ok(MessageHandling::Plain)
    })
}
