//! Sends so many log notifications before it answers a call.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "notification-flood",
    incident: "Log notifications by the ten thousand grew a client without bounds to 231 MiB (protocol.md 5.3 #11, G-03).",
    usage: "[COUNT]",
    promises: &[3],
    run,
};

/// What is written at once.
const BLOCK: usize = 64 << 10;

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 10_000)?;
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        let line = pipe::log(&format!("message # of {count}")).to_string();
        let (before, behind) = line.split_once('#').unwrap_or_default();
        // Faster than anybody reads them, so that the pipe is never empty.
        let mut stdout = BufWriter::with_capacity(BLOCK, io::stdout().lock());
        for number in 1..=count {
            writeln!(stdout, "{before}{number}{behind}")?;
        }
        stdout.flush()?;
        drop(stdout);
        pipe::send(&answer)
    })
}
