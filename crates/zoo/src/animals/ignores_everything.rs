//! Ignores the end of stdin, SIGTERM, SIGHUP, SIGINT and SIGQUIT; only SIGKILL ends it.

use std::io;
use std::process::ExitCode;

use rustix::process::Signal;

use crate::Animal;
use crate::arguments::Arguments;
use crate::keeper;
use crate::plain::{Next, Plain};
use crate::signals;

pub(crate) const ANIMAL: Animal = Animal {
    name: "ignores-everything",
    incident: "A server that ignores the polite signals was never killed because the kill path had no process to kill (contract.md 3.4; processes.md 1.4).",
    usage: "",
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        signals::ignore(signal);
    }
    // A client that has gone is no reason to leave either.
    let _ = Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain));
    Ok(keeper::linger())
}
