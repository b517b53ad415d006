//! Answers each call with so many bytes, and dies when for a while nobody takes them.

use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use unhang_demo_servers::{
    arguments::ProgramArguments, bounded_waits, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "dies-held-back",
    incident: "A server that gives up on a reader that is slow dies while its last answer is half written (peers.md 1.2; peers.md 3.1 J, modelcontextprotocol/python-sdk#2654).",
    usage: "[BYTES]",
    promises: &[1, 3, 6],
    run,
};

/// How long a piece of an answer may wait for room in the pipe.
const STANDSTILL: Duration = Duration::from_secs(1);
/// What is handed to the pipe at once.
const PIECE: usize = 4096;

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let bytes = arguments.size(0, 1_000_000)?;
    let begun = Arc::new(Mutex::new(None::<Instant>));
    let watched = Arc::clone(&begun);
    std::thread::spawn(move || {
        let stuck = || bounded_waits::lock(&watched).is_some_and(|since| since.elapsed() >= STANDSTILL);
        while !stuck() {
            bounded_waits::pause(Duration::from_millis(10));
        }
        kill_process(getpid(), Signal::KILL)
    });
    Plain::new(PROGRAM.name).serve_calls(|_, mut answer| {
        answer["result"] = pipe::text(&"x".repeat(bytes));
        for piece in format!("{answer}\n").as_bytes().chunks(PIECE) {
            *bounded_waits::lock(&begun) = Some(bounded_waits::now());
            pipe::send_bytes(piece)?;
        }
        *bounded_waits::lock(&begun) = None;
        Ok(())
    })
}
