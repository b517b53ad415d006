//! Hands the command pipes that are in non-blocking mode, and looks whether they still are.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::fs::{OFlags, fcntl_getfl};
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::child_processes::ChildStreams;
use crate::plain_client::{Guest, make_nonblocking};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "nonblocking-pipes",
    incident: "Node gives its children descriptors that do not block, and a writer that takes the refusal for an error loses the rest of its line (protocol.md 1.1).",
    usage: "-- CMD [ARGS...]",
    promises: &[2, 3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (their_stdin, our_stdin) = io::pipe()?;
    let (our_stdout, their_stdout) = io::pipe()?;
    make_nonblocking(&their_stdin)?;
    make_nonblocking(&their_stdout)?;
    let streams = ChildStreams {
        stdin: their_stdin.try_clone()?.into(),
        stdout: their_stdout.try_clone()?.into(),
        ..ChildStreams::default()
    };
    let mut guest = Guest::arrive_with(PROGRAM.name, arguments, streams, false)?;
    guest.speak_through(OwnedFd::from(our_stdin))?;
    guest.listen_through(OwnedFd::from(our_stdout));
    guest.shake_hands()?;
    for _ in 0..4 {
        guest.echo(1_000_000)?;
    }
    guest.await_answers();
    for (name, flags) in [("stdin", fcntl_getfl(&their_stdin)?), ("stdout", fcntl_getfl(&their_stdout)?)] {
        if !flags.contains(OFlags::NONBLOCK) {
            guest.complain(&format!("it changed the mode of the client's own {name}"));
        }
    }
    // Else the stream would not end with the command.
    drop((their_stdin, their_stdout));
    guest.leave()
}
