//! Closes its stdin at the first call, answers it and lives on; with a number, only when another request lies there unread.

use std::io;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "closes-stdin",
    incident: "No thread reports it: a server whose reader has ended lives on, and every write to it fails (protocol.md 1.1).",
    usage: "[UNREAD]",
    promises: &[3, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let leaves_unread = arguments.number(0, 0)? > 0;
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        let Some(answer) = server.answer(message).filter(|_| message.is_call()) else {
            return Ok(MessageHandling::Plain);
        };
        if leaves_unread {
            pipe::send(&answer)?;
            retry_on_intr(|| poll(&mut [PollFd::new(&rustix::stdio::stdin(), PollFlags::IN)], None))?;
        }
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        if !leaves_unread {
            pipe::send(&answer)?;
        }
        Ok(MessageHandling::Leave(bounded_waits::linger()))
    })
}
