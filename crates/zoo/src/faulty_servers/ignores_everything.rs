//! Ignores the end of stdin, SIGTERM, SIGHUP, SIGINT and SIGQUIT; only SIGKILL ends it.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::keeper;
use crate::plain::{Next, Plain};
use crate::signals;

pub(crate) const ANIMAL: Animal = Animal {
    name: "ignores-everything",
    incident: "A server that ignores the polite signals was never killed because the kill path had no process to kill (contract.md 3.4; processes.md 1.4).",
    usage: "",
    promises: &[5],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    signals::ignore_the_polite_ones();
    // A client that has gone is no reason to leave either.
    let _ = Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain));
    Ok(keeper::linger())
}
