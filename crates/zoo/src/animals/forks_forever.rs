//! At each call and when it ends, starts a line of processes that live 2 ms each, every one in a new session.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::offspring::{self, Holds, Offspring};
use crate::pipe;
use crate::plain::Plain;

pub(crate) const ANIMAL: Animal = Animal {
    name: "forks-forever",
    incident: "A process that forks a new session every 2 ms is never where a sweep has just looked (processes.md 1.4).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

/// How long a line goes on; a sweep is bounded by as much (processes.md 1.4).
const LENGTH_MILLISECONDS: u64 = 2000;
/// How many processes a line has at most.
const MOST_PROCESSES: &str = "1000";

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let marker = arguments.required("marker")?;
    let code = Plain::new(ANIMAL.name).serve_calls(|_, answer| {
        start(marker)?;
        pipe::send(&answer)
    })?;
    start(marker)?;
    Ok(code)
}

/// Starts one line of processes; its last one stays, so that a test can tell that it got away.
fn start(marker: &str) -> io::Result<()> {
    let until = (offspring::epoch_milliseconds() + LENGTH_MILLISECONDS).to_string();
    let first = ["hops", "--marker", marker, "--left", MOST_PROCESSES, "--until", &until];
    Offspring { own_session: true, holds: Holds::Nothing, ..Offspring::new(&first) }.start().map(drop)
}
