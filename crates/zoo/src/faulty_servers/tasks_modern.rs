//! Gives out a task in place of an answer, in the dialect of 2026-07-28, and keeps its tasks in a file where one is named.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits::BOUND,
    entry::ProgramDescription,
    pipe::{self, ClientMessage},
};

use super::era_locked::unsupported;

use crate::tasks::USAGE;
use crate::tasks::modern::{ModernTaskServer, TaskAnswer};
use crate::tasks::open::OpenTasks;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "tasks-modern",
    incident: "A server that returns tasks is of no use to clients that have never heard of them, and its work is lost to those that forget to ask again (protocol.md 2.1).",
    usage: USAGE,
    promises: &[1, 7],
    run,
};

/// Between two looks at what became of tasks that somebody listens to.
const LOOK: Duration = Duration::from_millis(20);

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Arc::new(ModernTaskServer::open(PROGRAM.name, arguments)?);
    let open = Arc::new(OpenTasks::default());
    while let Some(message) = pipe::receive()? {
        if message.method() == "notifications/cancelled" {
            open.withdraw(&message.params()["requestId"]);
        } else if message.is_request() {
            answer(&server, &open, &message)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(server: &Arc<ModernTaskServer>, open: &Arc<OpenTasks>, message: &ClientMessage) -> io::Result<()> {
    if message.method() == "initialize" {
        return pipe::send(&unsupported(message));
    }
    if let Some(refusal) = ModernTaskServer::refusal(message) {
        return pipe::send(&refusal);
    }
    match server.answer(message) {
        TaskAnswer::Now(response) => pipe::send(&response),
        TaskAnswer::Later(length, response) => open.beside(message.id(), move |open, id| {
            if open.rest(id, length.min(BOUND)) { pipe::send(&response) } else { Ok(()) }
        }),
        TaskAnswer::Listen(acknowledgement, mut listener) => {
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
