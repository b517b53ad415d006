//! Gives out a task in place of an answer, in the dialect of 2026-07-28, and keeps its tasks in a file where one is named.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::era_locked::unsupported;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::keeper::BOUND;
use crate::pipe::{self, Message};
use crate::tasks::USAGE;
use crate::tasks::modern::{Answer, Modern};
use crate::tasks::open::Open;

pub(crate) const ANIMAL: Animal = Animal {
    name: "tasks-modern",
    incident: "A server that returns tasks is of no use to clients that have never heard of them, and its work is lost to those that forget to ask again (protocol.md 2.1).",
    usage: USAGE,
    promises: &[1, 7],
    run,
};

/// Between two looks at what became of tasks that somebody listens to.
const LOOK: Duration = Duration::from_millis(20);

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let server = Arc::new(Modern::open(ANIMAL.name, arguments)?);
    let open = Arc::new(Open::default());
    while let Some(message) = pipe::receive()? {
        if message.method() == "notifications/cancelled" {
            open.withdraw(&message.params()["requestId"]);
        } else if message.is_request() {
            answer(&server, &open, &message)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(server: &Arc<Modern>, open: &Arc<Open>, message: &Message) -> io::Result<()> {
    if message.method() == "initialize" {
        return pipe::send(&unsupported(message));
    }
    if let Some(refusal) = Modern::refusal(message) {
        return pipe::send(&refusal);
    }
    match server.answer(message) {
        Answer::Now(response) => pipe::send(&response),
        Answer::Later(length, response) => open.beside(message.id(), move |open, id| {
            if open.rest(id, length.min(BOUND)) { pipe::send(&response) } else { Ok(()) }
        }),
        Answer::Listen(acknowledgement, mut listener) => {
            pipe::send(&acknowledgement)?;
            let server = Arc::clone(server);
            open.beside(message.id(), move |open, id| {
                while open.rest(id, LOOK) {
                    listener.news(&server).iter().try_for_each(pipe::send)?;
                }
                Ok(())
            })
        }
    }
}
